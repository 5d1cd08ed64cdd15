"""Narrower ranges for a finished graph: of atoms, and of the combinations that tables and products read.

The tracer gives every atom an interval from those of its arguments. Here combinations are unfolded: the latest atom
gives way to its chord (a product: to its tangent plane) and a remainder, so that what has a common origin may cancel; attention
with common weights acts on the sum of its values; values that one factor normalises lie in a ball (docs/circuits.md, "Ranges").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.symbols.formula import SQUARE, VARIABLE, Formula, apply, constant
from provenformer.symbols.graph import (
    Apply,
    Atom,
    Attend,
    Compare,
    Graph,
    Largest,
    Lin,
    Operation,
    Product,
)
from provenformer.symbols.jets import formula_range
from provenformer.symbols.linear import add, mix, positive_and_negative, scale, without
from provenformer.symbols.linear import constant as number
from provenformer.symbols.ranges import argument_range, enclosure

UNFOLDED = 64  # atoms of one combination that give way, at most
GAIN = 0.8  # a remainder is worth it if it is at most this share of the atom's range
OUTWARDS = 1e-12


@dataclass(frozen=True, eq=False)
class _Chord:
    """atom = along + something between low and high."""

    along: Lin
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class _Normalised:
    """atom = factor * value * root, up to `off`; root^2 (sum over values of weight value^2) <= 1."""

    root: int
    value: Lin
    factor: float
    weight: float
    off: float


@dataclass(eq=False)
class Narrowed:
    """A graph with the same operations and narrower ranges."""

    graph: Graph
    _chords: dict[int, _Chord] = field(default_factory=dict)
    _normalised: dict[int, _Normalised] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> Narrowed:
        found = cls(Graph(graph.token_dim, graph.seq_len, steps=graph.steps, depth=graph.depth))
        for atom in graph.atoms:
            low, high = found._range(atom)
            found.graph.atoms.append(Atom(atom.number, atom.operation, atom.uniform, low, high))
            found._learn(found.graph.atoms[-1])
        return found

    def hull(self, x: Lin) -> tuple[float, float]:
        """One range for all rows, the best after any number of atoms has given way."""
        low, high = enclosure(self.graph, x)
        best = [float(low.min()), float(high.max())]
        if any(t.mix is not None and len(t.mix) > 1 for t in x.terms.values()):
            return best[0], best[1]
        bottom = top = 0.0
        for _ in range(UNFOLDED):
            latest = max(x.terms, default=-1)
            if latest < self.graph.token_dim:
                break
            x, (below, above) = self._unfolded(x, latest)
            bottom += below - OUTWARDS * (abs(below) + abs(above))
            top += above + OUTWARDS * (abs(below) + abs(above))
            if any(t.mix is not None and len(t.mix) > 1 for t in x.terms.values()):
                break
            low, high = enclosure(self.graph, x)
            best = [max(best[0], float(low.min()) + bottom), min(best[1], float(high.max()) + top)]
        return best[0], best[1]

    def argument(self, operation: Apply) -> tuple[float, float]:
        """The range of what a formula is applied to."""
        (low, high), (bottom, top) = (
            self.hull(operation.of),
            argument_range(self.graph, operation.formula, operation.of),
        )
        return max(low, bottom), min(high, top)

    def _unfolded(self, x: Lin, latest: int) -> tuple[Lin, tuple[float, float]]:
        """x without its latest atom (and others that belong to it), and between what lies what is gone."""
        term, atom = x.terms[latest], self.graph.atoms[latest]
        if term.mix is None:
            family = self._family(x, latest)
            if family is not None:
                return without(self.graph, x, family[0]), family[1]
        rest = without(self.graph, x, {latest})
        signs = positive_and_negative(self.graph, x, latest)
        chord = self._chords.get(latest)
        if chord is None or (term.mix is not None and (atom.uniform or chord.along.rows != self.graph.seq_len)):
            return rest, _times(signs, atom.low, atom.high)
        if term.own:
            rest = add(self.graph, rest, chord.along, term.own)
        if term.mix is not None:
            rest = add(self.graph, rest, mix(self.graph, chord.along, term.mix))
        return rest, _times(signs, chord.low, chord.high)

    def _family(self, x: Lin, latest: int) -> tuple[set[int], tuple[float, float]] | None:
        own = {i: t.own for i, t in x.terms.items() if t.mix is None}
        operation = self.graph.atoms[latest].operation
        if isinstance(operation, Attend):
            key, total, members = operation.score_key, None, set()
            for i, factor in own.items():
                other = self.graph.atoms[i].operation
                if isinstance(other, Attend) and other.score_key == key:
                    more = scale(self.graph, other.values, factor)
                    total = more if total is None else add(self.graph, total, more)
                    members.add(i)
            return None if total is None else (members, self.hull(total))
        if latest in self._normalised:
            root = self._normalised[latest].root
            family = {i: n for i in own if (n := self._normalised.get(i)) is not None and n.root == root}
            if len({n.value.key for n in family.values()}) == len(family) > 1:
                radius = float(np.sqrt(sum((own[i] * n.factor) ** 2 / n.weight for i, n in family.items())))
                radius = radius * (1 + OUTWARDS) + sum(abs(own[i]) * n.off for i, n in family.items())
                return set(family), (-radius, radius)
        return None

    def _range(self, atom: Atom) -> tuple[float, float]:
        """Within that of the tracer."""
        low, high = self._operation_range(atom.operation, atom)
        return max(low, atom.low), min(high, atom.high)

    def _operation_range(self, operation: Operation, atom: Atom) -> tuple[float, float]:
        if isinstance(operation, Apply):
            bottom, top = formula_range(operation.formula, *self.argument(operation))
            return bottom - operation.slack, top + operation.slack
        if isinstance(operation, Product):
            (a, b), (c, d) = self.hull(operation.left), self.hull(operation.right)
            corners = [a * c, a * d, b * c, b * d]
            low, high = (float(np.nextafter(v, w)) for v, w in ((min(corners), -np.inf), (max(corners), np.inf)))
            found = self._normalisation(operation)
            cap = np.inf if found is None else found.factor / np.sqrt(found.weight) * (1 + OUTWARDS) + found.off
            return max(low, -cap), min(high, cap)
        if isinstance(operation, Compare):
            (a, b), (c, d) = self.hull(operation.first), self.hull(operation.second)
            return min(a, c), max(b, d)
        if isinstance(operation, Largest | Attend):
            return self.hull(operation.of if isinstance(operation, Largest) else operation.values)
        return atom.low, atom.high

    def _learn(self, atom: Atom) -> None:
        """Chords and tangent planes, where they say more than the range."""
        operation = atom.operation
        if isinstance(operation, Apply):
            low, high = self.argument(operation)
            ends = operation.formula(np.array([low, high])) + np.zeros(2)
            slope = float(ends[1] - ends[0]) / (high - low) if high > low else 0.0
            rest = apply("add", operation.formula, apply("multiply", constant(-slope), VARIABLE))
            bottom, top = formula_range(rest, low, high)
            self._keep(atom, scale(self.graph, operation.of, slope), bottom - operation.slack, top + operation.slack)
        elif isinstance(operation, Product):
            (a, b), (c, d) = self.hull(operation.left), self.hull(operation.right)
            x, y = (a + b) / 2, (c + d) / 2
            plane = add(self.graph, scale(self.graph, operation.left, y), operation.right, x)
            noise = (max(b - x, x - a) * max(d - y, y - c)) * (1 + OUTWARDS)
            self._keep(atom, add(self.graph, plane, number(-x * y)), -noise, noise)
            if (found := self._normalisation(operation)) is not None:
                self._normalised[atom.number] = found

    def _keep(self, atom: Atom, along: Lin, low: float, high: float) -> None:
        if high - low <= GAIN * (atom.high - atom.low):
            self._chords[atom.number] = _Chord(along, low, high)

    def _normalisation(self, operation: Product) -> _Normalised | None:
        """x c / sqrt(sum of weight z^2 + e) with x among the z."""
        for value, root in ((operation.left, operation.right), (operation.right, operation.left)):
            if len(root.terms) != 1 or root.constant.any() or root.slack:
                continue
            ((index, term),) = root.terms.items()
            outer = self.graph.atoms[index].operation
            if term.mix is not None or not isinstance(outer, Apply) or (found := _quotient(outer.formula)) is None:
                continue
            top, shift = found
            if shift >= outer.of.slack and (weight := self._weight(value, outer.of)):
                factor = abs(term.own * top)
                # the value may be rounded differently here and in the sum of squares
                return _Normalised(
                    index, value, factor, weight, 2 * value.slack * factor * self.graph.atoms[index].size
                )
        return None

    def _weight(self, value: Lin, total: Lin) -> float:
        """Of the square of `value` in a sum of squares with weights >= 0; 0 if it is none."""
        found = 0.0
        if (total.constant < 0).any():
            return found
        for i, term in total.terms.items():
            square, here = self.graph.atoms[i].operation, term.own
            if not isinstance(square, Apply) or square.formula != SQUARE or square.slack or term.own < 0:
                return 0.0
            if term.mix is not None:
                if (term.mix < 0).any() or len(term.mix) > 1:
                    return 0.0
                here += 0.0 if self.graph.atoms[i].uniform else float(term.mix.min())
            if square.of.key == value.key:
                found = here
        return found


def _times(signs: tuple[FloatArray, FloatArray], low: float, high: float) -> tuple[float, float]:
    """Coefficients, positive and negative ones by row, times something between low and high."""
    positive, negative = signs
    return float((positive * low + negative * high).min()), float((positive * high + negative * low).max())


def _quotient(formula: Formula) -> tuple[float, float] | None:
    """(c, e) if the formula is c / sqrt(z + e), e >= 0."""
    if (
        formula.operation != "divide"
        or formula.parts[0].operation != "constant"
        or formula.parts[1].operation != "sqrt"
    ):
        return None
    (inner,) = formula.parts[1].parts
    if inner == VARIABLE:
        return formula.parts[0].value, 0.0
    shifts = [p.value for p in inner.parts if p.operation == "constant"]
    if inner.operation == "add" and VARIABLE in inner.parts and len(shifts) == 1 and shifts[0] >= 0:
        return formula.parts[0].value, shifts[0]
    return None
