"""What a construction is: a way from a piecewise constant function to a network. One folder each, one line in registry.py.

The pipeline (compiler/compile.py) goes through these methods in the order of the proof; report and explorer ask the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from provenformer.base.arrays import FloatArray
from provenformer.base.exact import Array, ExactArray
from provenformer.certificates.certify import Budget
from provenformer.constructions.plan import Plan
from provenformer.functions.grid import ContextKind, Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import ModifiedNetwork, Run

Clip = tuple[FloatArray, FloatArray]  # the lowest and the highest output, per row


@dataclass(frozen=True, eq=False)
class Blueprint:
    """The modified network, which is exact, and what certify() needs to know of the network it becomes."""

    modified: ModifiedNetwork
    budget: Budget


class Naming(Protocol):
    """How contexts get their ids, in a modified network that counts in cells: [id_low, id_high) has all of them."""

    @property
    def id_low(self) -> int: ...
    @property
    def id_high(self) -> int: ...

    @property
    def windows(self) -> Sequence[int]:
        """The ids that attention layers visit one by one, in order; empty where one layer serves all ids."""

    @property
    def renamings(self) -> Sequence[tuple[int, int]]:
        """Id and new name of a token for every recoding layer, in order; empty where tokens keep their ids."""

    def context_ids(self, ids: Array, /) -> Array:
        """The ids (count, n) of the columns of contexts (count, n)."""

    def code(self, token: int, column: int) -> int | None:
        """The code of a grid token in a column; None where tokens keep their ids."""

    def attention_in_words(self) -> list[str]:
        """A sentence for every attention layer, in order."""


class Construction(Protocol):
    """Stateless: what it builds follows from its arguments.

    name             what users ask for
    has_temperature  whether softmax stands in for hardmax, so that there is a temperature
    has_channels     whether the state has rows of its own for ids and outputs: then a few layers have many hidden units
    drops_outside    whether, without positions, a token outside the box makes the output 0
    in_words         how contexts are told apart, for the reader of a report
    ids_in_words     where the ids come from, and what value layers do with them
    """

    @property
    def name(self) -> str: ...
    @property
    def has_temperature(self) -> bool: ...
    @property
    def has_channels(self) -> bool: ...
    @property
    def drops_outside(self) -> bool: ...
    @property
    def in_words(self) -> str: ...
    @property
    def ids_in_words(self) -> str: ...

    def contexts(self, positional: bool) -> ContextKind:
        """What it tells apart: sets, multisets or sequences of tokens."""

    def plan(self, grid: Grid, positional: bool) -> Plan:
        """Sizes of the softmax/ReLU network, instantly, for any size."""

    def fewest_cells(self, target: Target, norm_order: float, tolerance: float) -> int:
        """A number of cells per axis below which it is no use to try."""

    def build(self, piecewise: PiecewiseConstant) -> Blueprint:
        """Proposition 4: a modified network that is the piecewise constant function."""

    def in_cells(self, piecewise: PiecewiseConstant) -> ModifiedNetwork:
        """The modified network that counts in cells, as the softmax/ReLU network does: ids are whole numbers."""

    def relaxed(self, piecewise: PiecewiseConstant, ramp: float, clip: Clip, hidden_dim: int) -> FloatNetwork:
        """Lemma 9: the softmax/ReLU network; `ramp` is the width of the quantiser's ramps, in cells."""

    def rounding_is_known(self, hidden_dim: int) -> bool:
        """Whether the rounding term follows from the budget; otherwise it is read off the finished weights."""

    def naming(self, grid: Grid, positional: bool) -> Naming:
        """How contexts get their ids."""

    def id_range(self, grid: Grid, positional: bool) -> tuple[int, int]:
        """[low, high): every id that the value layers answer to."""


def with_positions(target: Target, runs: list[Run]) -> ModifiedNetwork:
    """The modified network of these runs; E is added first when the target is not equivariant (Theorem 3)."""
    d, n = target.token_dim, target.seq_len
    if target.equivariant:
        return ModifiedNetwork(d, n, tuple(runs))
    low, high = target.support
    widths = [Fraction(b) - Fraction(a) for a, b in zip(low, high, strict=True)]
    positions = ExactArray.of([[j * width for j in range(n)] for width in widths])
    return ModifiedNetwork(d, n, tuple(runs), positions, closed_at=high)
