"""From a graph to what channels hold: every mixing of tokens inside a linear combination becomes a part of its own.

A part is R @ (an atom's values): the atom itself, its mean over the tokens, a permutation of them, any rows with non-negative
weights that add up to one, or one of these times a number that depends on the position. Each gets a channel and a layer: heads
make the mixtures, units everything else. After this pass a combination only reads channels at its own token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.ranges import Narrowed
from provenformer.symbols.graph import Apply, Atom, Attend, Graph, Input, Largest, Lin, PairSum
from provenformer.symbols.linear import gamma, size

Kind = Literal["value", "mean", "rows", "pick", "scaled", "gathered"]
GATHER_FROM = 5  # single tokens that all others look at: up to here a head each is cheaper than gates and one head


@dataclass(frozen=True, eq=False)
class Part:
    """What a channel holds from layer `layer` on (0 is the input, odd layers are heads, even ones units)."""

    index: int
    kind: Kind
    atom: Atom
    layer: int
    low: float
    high: float
    rows: FloatArray | None = (
        None  # (1, n) or (n, n): the part is rows @ atom; (n,): diag(rows) @ atom; None: the atom itself
    )
    source: Part | None = None  # what it is made of, for all but values
    choice: NDArray[np.int64] | None = None  # of a pick: which token
    factors: FloatArray | None = None  # of a scaled part: by position

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def name(self) -> str:
        kinds = {
            "value": "", "mean": "mean of ", "rows": "mixture of ", "pick": "permuted ", "scaled": "scaled ",
            "gathered": "one of ",
        }  # fmt: skip
        return f"{kinds[self.kind]}{type(self.atom.operation).__name__.lower()} {self.atom.number}"


@dataclass(frozen=True, eq=False)
class Local:
    """constant + sum of coefficient * part, at the own token; within `slack` of the combination that it stands for."""

    coefficients: dict[int, float]  # by part
    constant: FloatArray  # (1,) or (n,)
    low: float
    high: float
    slack: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


@dataclass(eq=False)
class Lowered:
    """Parts in an order in which each comes after what it needs, and the combinations in terms of them."""

    _ranges: Narrowed
    parts: list[Part] = field(default_factory=list)
    arguments: dict[int, tuple[Local, ...]] = field(default_factory=dict)  # of value parts, by part
    outputs: tuple[Local, ...] = ()
    gathered: frozenset[int] = frozenset()  # atoms of which many single tokens are read at every token
    _known: dict[object, Part] = field(default_factory=dict)
    _locals: dict[object, Local] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """With narrowed ranges."""
        return self._ranges.graph

    @property
    def layers(self) -> int:
        """Layers until everything is there."""
        return max((part.layer for part in self.parts), default=0)

    def value(self, number: int) -> Part:
        """The part that is an atom."""
        return self._known["value", number]

    def local(self, x: Lin) -> Local:
        """A combination in terms of parts; makes those that are missing."""
        key = x.key
        if key not in self._locals:
            self._locals[key] = self._lowered(x)
        return self._locals[key]

    def _lowered(self, x: Lin) -> Local:
        coefficients: dict[int, float] = {}

        def put(part: Part, factor: float) -> None:
            coefficients[part.index] = coefficients.get(part.index, 0.0) + factor

        mixed = False
        for number, term in x.terms.items():
            value = self.value(number)
            if term.own:
                put(value, term.own)
            if term.mix is None:
                continue
            mixed = True
            for sign in (1.0, -1.0):
                weights = np.maximum(sign * term.mix, 0.0)
                if weights.any():
                    part, factor = self._mixture(value, weights)
                    put(part, sign * factor)
        low, high = self._ranges.hull(x)
        # sums of weights and their quotients are rounded: what that changes is at most this
        rounding = gamma(3 * self.graph.seq_len + 16) * size(self.graph, x) if mixed else gamma(2) * size(self.graph, x)
        return Local(coefficients, x.constant, low, high, x.slack + rounding)

    def _mixture(self, value: Part, weights: FloatArray) -> tuple[Part, float]:
        """A part and a factor whose product is weights @ value; weights >= 0."""
        n, sums = self.graph.seq_len, weights.sum(axis=1)
        total = float(sums.max())
        if len(weights) == 1:
            rows = weights / total
            if value.atom.number in self.gathered and np.count_nonzero(weights) == 1:
                return self._at(value, int(np.argmax(rows[0] != 0))), total
            if np.ptp(weights) == 0:
                return self._part(("mean", value.index), "mean", value, np.full((1, n), 1.0 / n)), total
            return self._part(("rows", value.index, rows.tobytes()), "rows", value, rows), total
        own = np.where(np.arange(n) == np.arange(n)[:, None], 1.0, 0.0)
        rows = np.where(sums[:, None] > 0, weights / np.where(sums > 0, sums, 1.0)[:, None], own)
        if value.atom.uniform:
            part = value
        elif (np.count_nonzero(rows, axis=1) == 1).all():
            choice = np.argmax(rows, axis=1)
            part = value if (choice == np.arange(n)).all() else self._pick(value, choice)
        else:
            part = self._part(("rows", value.index, rows.tobytes()), "rows", value, rows)
        if np.ptp(sums) <= 2 * n * 2.0**-53 * total:
            return part, total
        return self._scaled(part, sums), 1.0

    def _columns(self, column: Lin) -> list[Local]:
        """A combination of atoms at their own token, at every token in turn, as all tokens know it."""
        whole, n = self.local(column), self.graph.seq_len
        return [
            replace(whole, coefficients={self._at(self.value(i), k).index: t.own for i, t in column.terms.items()})
            for k in range(n)
        ]

    def _at(self, value: Part, token: int) -> Part:
        """The value of one token, known to all."""
        factors = np.zeros(self.graph.seq_len)
        factors[token] = 1.0
        gate = self._scaled(value, factors)
        key = ("gathered", gate.index)
        return self._part(key, "gathered", gate, factors[None], bounds=(value.low, value.high))

    def _pick(self, value: Part, choice: NDArray[np.int64]) -> Part:
        rows = np.zeros((self.graph.seq_len,) * 2)
        rows[np.arange(len(choice)), choice] = 1.0
        return self._part(("pick", value.index, choice.tobytes()), "pick", value, rows, choice=choice)

    def _scaled(self, part: Part, factors: FloatArray) -> Part:
        key = ("scaled", part.index, factors.tobytes())
        rows = factors if part.rows is None else factors[:, None] * part.rows
        bounds = (float((factors * part.low).min()), float((factors * part.high).max()))  # factors are >= 0
        return self._part(key, "scaled", part, rows, factors=factors, bounds=bounds)

    def _part(
        self, key: object, kind: Kind, source: Part, rows: FloatArray, *, choice: NDArray[np.int64] | None = None,
        factors: FloatArray | None = None, bounds: tuple[float, float] | None = None,
    ) -> Part:  # fmt: skip
        if key not in self._known:
            layer = next_layer(source.layer, heads=kind != "scaled")
            low, high = bounds or (source.low, source.high)
            part = Part(len(self.parts), kind, source.atom, layer, low, high, rows, source, choice, factors)
            self.parts.append(part)
            self._known[key] = part
        return self._known[key]

    def add_value(self, atom: Atom) -> None:
        """The part of an atom, after those of its arguments."""
        arguments = tuple(self.local(lin) for lin in atom.operation.arguments)
        if isinstance(atom.operation, Apply):
            low, high = self._ranges.argument(atom.operation)
            arguments = (replace(arguments[0], low=low, high=high), *arguments[1:])
        if isinstance(atom.operation, PairSum):
            arguments = tuple(_sum(arguments[0], column) for column in self._columns(atom.operation.column))
        layer = 0
        if not isinstance(atom.operation, Input):
            latest = max((self.parts[i].layer for local in arguments for i in local.coefficients), default=0)
            layer = next_layer(latest, heads=isinstance(atom.operation, Attend | Largest))
        part = Part(len(self.parts), "value", atom, layer, atom.low, atom.high)
        self.parts.append(part)
        self.arguments[part.index] = arguments
        self._known["value", atom.number] = part


def _sum(x: Local, y: Local) -> Local:
    coefficients = dict(x.coefficients)
    for i, c in y.coefficients.items():
        coefficients[i] = coefficients.get(i, 0.0) + c
    return Local(coefficients, x.constant + y.constant, x.low + y.low, x.high + y.high, x.slack + y.slack)


def next_layer(layer: int, *, heads: bool) -> int:
    """The first layer after `layer` that is one of heads (1, 3, ..) or of units (2, 4, ..)."""
    return layer + 1 + (layer % 2 if heads else (layer + 1) % 2)


def lower(graph: Graph, outputs: list[Lin]) -> Lowered:
    """Parts for everything that the outputs need."""
    needed = {i for lin in outputs for i in lin.terms}
    for atom in reversed(graph.atoms):
        if atom.number in needed:
            needed |= {i for lin in atom.operation.arguments for i in lin.terms}
    ranges = Narrowed.of(graph)
    graph = ranges.graph
    lowered = Lowered(ranges, gathered=_gathered([graph.atoms[i] for i in sorted(needed)], outputs))
    for atom in graph.atoms:
        if atom.number in needed or isinstance(atom.operation, Input):
            lowered.add_value(atom)
    lowered.outputs = tuple(lowered.local(lin) for lin in outputs)
    _share_heads(lowered)
    return lowered


def _share_heads(lowered: Lowered) -> None:
    """Means wait for a later block that has a uniform head anyway, if nothing reads them before: one head less."""
    readers = _first_readers(lowered)
    even = {part.layer for part in lowered.parts if part.kind in ("mean", "gathered")}
    for part in list(lowered.parts):
        later = {layer for layer in even if part.kind == "mean" and part.layer < layer < readers[part.index]}
        if later:
            lowered.parts[part.index] = replace(part, layer=max(later))


def _first_readers(lowered: Lowered) -> dict[int, int]:
    """By part: the first layer that reads it; outputs read after all layers."""
    first = dict.fromkeys(range(len(lowered.parts)), lowered.layers + 1)
    for part in lowered.parts:
        reads = {i for x in lowered.arguments.get(part.index, ()) for i in x.coefficients}
        for i in reads | ({part.source.index} if part.source is not None else set()):
            first[i] = min(first[i], part.layer)
    return first


def _gathered(atoms: list[Atom], outputs: list[Lin]) -> frozenset[int]:
    """Atoms of which many single tokens are read, each by all tokens."""
    single: dict[int, set[int]] = {}
    for lin in (*outputs, *(lin for atom in atoms for lin in atom.operation.arguments)):
        for number, term in lin.terms.items():
            if term.mix is not None and len(term.mix) == 1 and np.count_nonzero(term.mix) == 1:
                single.setdefault(number, set()).add(int(np.argmax(term.mix != 0)))
    return frozenset(number for number, tokens in single.items() if len(tokens) >= GATHER_FROM)
