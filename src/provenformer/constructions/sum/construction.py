"""construction="sum": the default among tables. Same class as the paper's networks, no lost cubes (docs/sum.md)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from provenformer.certificates.certify import ROUND, Budget
from provenformer.constructions.base import Blueprint, Clip, with_positions
from provenformer.constructions.plan import Plan
from provenformer.constructions.relax import TINY_WIDTH, relaxed_tiny
from provenformer.constructions.sum import layers
from provenformer.constructions.sum.codes import bn_codes, greedy_is_cheap, prime_from
from provenformer.functions.grid import ContextKind, Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import ModifiedNetwork, Run
from provenformer.networks.stages import CLIP, CONTEXT, QUANTISE, RECODE, RESCALE, VALUES


class Sum:
    """Contexts by one uniform attention layer over a B_n set of codes."""

    name = "sum"
    has_temperature = False
    has_channels = False
    drops_outside = True
    in_words = "one uniform attention layer adds up codes of tokens"
    ids_in_words = (
        "Every token gets a code, one uniform attention layer adds up the codes of all tokens, and the new id names token "
        "and context. Value layers answer to ids in [id_low, id_high) only."
    )

    def contexts(self, positional: bool) -> ContextKind:
        return "sequences" if positional else "multisets"

    def plan(self, grid: Grid, positional: bool) -> Plan:
        d, kind = grid.token_dim, self.contexts(positional)
        columns = grid.seq_len if positional else 1  # windows per cell
        stages = {
            RESCALE: d,
            QUANTISE: d * (columns * grid.cells_per_axis + 1),
            RECODE: columns * grid.column_count,
            CONTEXT: 1,
            VALUES: 1 + d + grid.column_layers(kind),
            CLIP: d,
        }
        return Plan(grid, self.name, positional, stages, 1, grid.count(kind), _id_bits(grid, positional), Fraction(0))

    def fewest_cells(self, target: Target, norm_order: float, tolerance: float) -> int:  # noqa: ARG002
        return 2

    def build(self, piecewise: PiecewiseConstant) -> Blueprint:
        return sum_network(piecewise)

    def in_cells(self, piecewise: PiecewiseConstant) -> ModifiedNetwork:
        return sum_network(piecewise).modified

    def relaxed(self, piecewise: PiecewiseConstant, ramp: float, clip: Clip, hidden_dim: int) -> FloatNetwork:
        return relaxed_tiny(self.in_cells(piecewise), ramp, clip, hidden_dim)

    def rounding_is_known(self, hidden_dim: int) -> bool:
        return hidden_dim == TINY_WIDTH

    def naming(self, grid: Grid, positional: bool) -> layers.TokenCodes:
        return layers.token_codes(grid, positional)

    def id_range(self, grid: Grid, positional: bool) -> tuple[int, int]:
        codes = layers.token_codes(grid, positional)
        return codes.id_low, codes.id_high


def sum_network(piecewise: PiecewiseConstant) -> Blueprint:
    """The sum construction over multisets or, with positions, over sequences."""
    grid, target = piecewise.grid, piecewise.target
    codes = layers.token_codes(grid, positional=not target.equivariant)
    below = layers.far_below(grid, codes, target)
    # One layer per different token of a context: equal tokens have equal ids.
    q, first = np.unique(codes.context_ids(piecewise.contexts).ravel(), return_index=True)
    bumps, scale = layers.value_layers(codes, q, piecewise.values.reshape(-1, grid.token_dim)[first])
    runs: list[Run] = [
        *layers.quantizer(grid, codes, below, *target.support),
        layers.recoder(grid.id_vector, codes),
        layers.sum_attention(grid.id_vector, codes),
        *layers.drop_outside(codes, grid.token_dim),
        *bumps,
    ]
    # The uniform mean: n + 4 rounded operations on numbers whose absolute values sum to the id; two more for the skip.
    budget = Budget(codes.id_high, scale, (grid.seq_len + 8) * ROUND, 0.0, below)
    return Blueprint(with_positions(target, runs), budget)


def _id_bits(grid: Grid, positional: bool) -> int:
    k, n = grid.column_count, grid.seq_len
    if positional:
        top = n + n * (k - 1) * k ** (n - 1)
        return int((top // n + 1) * (n * (n + 1) // 2 + n * (k**n - 1))).bit_length()
    largest = bn_codes(k, n)[-1] if greedy_is_cheap(k, n) else prime_from(k) ** n
    return (max(2, largest) * n * largest).bit_length()
