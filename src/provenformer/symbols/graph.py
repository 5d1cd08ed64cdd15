"""The graph of a function: linear combinations (Lin) of atoms, the values that are not linear.

    Lin:   value_j = constant_j + sum over its terms of  own * atom(j) + sum_k mix[j, k] * atom(k)

Every linear operation, mixing tokens or not, stays inside a Lin; only what is not linear is an Atom. Atoms with equal
operations are one atom (hash-consing), so equal sub-expressions are computed once. Every atom has a range [low, high] that
holds on the whole box; how it is found: ranges.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from provenformer.base.arrays import FloatArray
from provenformer.symbols.formula import Formula
from provenformer.symbols.piecewise import PiecewiseLinear

Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Term:
    """own * atom(j) + sum_k mix[j, k] * atom(k). mix is (1, n), the same at every token, or (rows, n), or None."""

    own: float
    mix: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Lin:
    """A linear combination of atoms along a token axis.

    rows      length of that axis; 1: the same at every token; n: one per token; other lengths are slices of the sequence
    terms     by atom number. `own` is 0 unless rows = n or the atom is uniform
    constant  (1,) or (rows,)
    slack     what rounding of the coefficients, when they were computed, may have changed: |value - exact value| <= slack
    origin    where there is slack: which computation it came from (Graph.origin), since its coefficients do not tell
    """

    rows: int
    terms: dict[int, Term]
    constant: FloatArray
    slack: float = 0.0
    origin: int = 0

    @cached_property
    def key(self) -> Key:
        """Equal only for equal exact values."""
        if self.slack and not self.origin:
            raise ValueError("a combination with slack needs an origin")
        return (*self.stored, self.slack, self.origin)

    @cached_property
    def stored(self) -> Key:
        """Equal for equal coefficients."""
        terms = tuple(
            (i, t.own, None if t.mix is None else (t.mix.shape[0], t.mix.tobytes()))
            for i, t in sorted(self.terms.items())
        )
        return (self.rows, terms, self.constant.tobytes())

    @property
    def is_constant(self) -> bool:
        return not self.terms


@dataclass(frozen=True, eq=False)
class Input:
    """Row `row` of X."""

    row: int

    @property
    def key(self) -> Key:
        return ("input", self.row)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Apply:
    """formula(of_j) at every token; what fusing rounded constants may have changed is at most `slack` (`origin` as in Lin).

    folded: of a quadratic, the same value as a combination of folds (folds.py), where the graph asks for these.
    """

    formula: Formula
    of: Lin
    slack: float = 0.0
    folded: Lin | None = None
    origin: int = 0

    @property
    def key(self) -> Key:
        return ("apply", self.formula, self.of.key, self.slack, self.origin)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.of,) if self.folded is None else (self.of, self.folded)


@dataclass(frozen=True, eq=False)
class Pieces:
    """curve(of_j) at every token."""

    curve: PiecewiseLinear
    of: Lin

    @property
    def key(self) -> Key:
        return ("pieces", self.curve, self.of.key)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.of,)


@dataclass(frozen=True, eq=False)
class Product:
    """left_j * right_j; `folded` as in Apply."""

    left: Lin
    right: Lin
    folded: Lin | None = None

    @property
    def key(self) -> Key:
        return ("product", *sorted((self.left.key, self.right.key), key=repr))

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.left, self.right) if self.folded is None else (self.left, self.right, self.folded)


@dataclass(frozen=True, eq=False)
class Compare:
    """max(first_j, second_j) where sign_j = 1, min where it is -1, first_j where it is 0. sign: (1,) or (n,)."""

    first: Lin
    second: Lin
    sign: FloatArray

    @property
    def key(self) -> Key:
        return ("compare", self.first.key, self.second.key, self.sign.tobytes())

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.first, self.second)


@dataclass(frozen=True, eq=False)
class Largest:
    """max over all tokens j of of_j: the same at every token."""

    of: Lin

    @property
    def key(self) -> Key:
        return ("largest", self.of.key)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.of,)


@dataclass(frozen=True, eq=False)
class Attend:
    """sum_k w_jk values_k, w_j = softmax over k of sum_i queries_i(j) keys_i(k) + bias[j, k]; bias: (1, n), (n, n) or None."""

    queries: tuple[Lin, ...]
    keys: tuple[Lin, ...]
    bias: FloatArray | None
    values: Lin

    @property
    def score_key(self) -> Key:
        """Equal for equal scores: then one head serves several values."""
        bias = None if self.bias is None else (self.bias.shape[0], self.bias.tobytes())
        return (tuple(q.key for q in self.queries), tuple(k.key for k in self.keys), bias)

    @property
    def key(self) -> Key:
        return ("attend", self.score_key, self.values.key)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (*self.queries, *self.keys, self.values)


@dataclass(frozen=True, eq=False)
class PairMean:
    """The mean over all tokens k of kernel(row_j + column_k).

    statistics: values that are the same at every token and from which a network may compute it, the means of
    relu(column_k - c) at the knots c; the value does not depend on which these are.
    """

    kernel: Formula
    row: Lin
    column: Lin
    knots: tuple[float, ...] = ()
    statistics: tuple[Lin, ...] = ()

    @property
    def key(self) -> Key:
        return ("pair mean", self.kernel, self.row.key, self.column.key)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.row, self.column, *self.statistics)


@dataclass(frozen=True, eq=False)
class PairSum:
    """The sum over all tokens k of curve(row_j + column_k). A column is a combination of atoms at its own token."""

    curve: PiecewiseLinear
    row: Lin
    column: Lin

    @property
    def key(self) -> Key:
        return ("pair sum", self.curve, self.row.key, self.column.key)

    @property
    def arguments(self) -> tuple[Lin, ...]:
        return (self.row, self.column)


Operation: TypeAlias = Input | Apply | Pieces | Product | Compare | Largest | Attend | PairMean | PairSum


@dataclass(frozen=True, eq=False)
class Atom:
    """A value per token, or one for all (`uniform`), between `low` and `high` everywhere on the box."""

    number: int
    operation: Operation
    uniform: bool
    low: float
    high: float

    @property
    def size(self) -> float:
        """The largest |value|."""
        return max(abs(self.low), abs(self.high))


@dataclass(eq=False)
class Graph:
    """Atoms in the order in which they were made: arguments before what uses them. The first d are the inputs."""

    token_dim: int
    seq_len: int
    atoms: list[Atom] = field(default_factory=list)
    steps: tuple[float, ...] = ()  # how sums of kernels are written, in the order in which they appear: see kernel_step
    depth: int = 0  # how often squares are folded (folds.py): 0, not at all
    kernels: list[Key] = field(default_factory=list)
    _known: dict[Key, Atom] = field(default_factory=dict)
    _origins: dict[Key, int] = field(default_factory=dict)

    def kernel_step(self, key: Key) -> float:
        """How a sum of a kernel over pairs is written: 0 by gathering; else a PairMean with statistics that far apart
        (infinity, where nothing was chosen: none)."""
        if key not in self.kernels:
            self.kernels.append(key)
        index = self.kernels.index(key)
        return self.steps[index] if index < len(self.steps) else float("inf")

    def origin(self, *made: object) -> int:
        """The number of an exact value that rounded coefficients do not tell: one for every computation, and a new one for each
        value of which it is not said how it was made. Values that only look alike must not be taken for one: they may be
        subtracted."""
        return self._origins.setdefault(made or (len(self._origins),), len(self._origins) + 1)

    def atom(self, operation: Operation, uniform: bool, low: float, high: float) -> Atom:
        """The atom of an operation: a new one, or the one that is there."""
        key = operation.key
        if key not in self._known:
            self._known[key] = Atom(len(self.atoms), operation, uniform, low, high)
            self.atoms.append(self._known[key])
        return self._known[key]
