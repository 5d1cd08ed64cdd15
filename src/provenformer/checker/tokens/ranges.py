"""Between what numbers the atoms of a program lie, for every sequence of the alphabet: the checker's own, from the alphabet on.

Intervals, and two rules that know more, since a number of tokens is a sum of many parts of which few can be large at once:
- *One head.* Totals with the same weights are one total, of the sum of what they add up.
- *One argument.* Functions of the same number at the same token are one function. Where parts hang on *switches*, functions
of one number A at the same
  token, every value of A is looked at by itself: most parts are then constant or a line, and lines add up before their range
  is taken.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.symbols.tokens.graph import Input, Ints, Lin, Operation, Part, Pick, TokenGraph, Total, Units

MOST_CASES = 4096  # values of a switch that are looked at one by one
Ends = tuple[FloatArray, FloatArray]
Weighted = tuple[int, Part]


@dataclass(frozen=True, eq=False)
class Ranges:
    """Lowest and highest value of every atom at every token, (atoms, n)."""

    graph: TokenGraph
    low: FloatArray
    high: FloatArray
    _found: dict[object, Ends] = field(default_factory=dict)

    @cached_property
    def size(self) -> FloatArray:
        """Of every atom, once all of them have their range."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def interval(self, lin: Lin) -> Ends:
        """Of a numerator, every atom for itself."""
        low = lin.constant.astype(np.float64)
        high = low.copy()
        for atom, c in lin.terms:
            first, last = (self.low[atom], self.high[atom]) if c > 0 else (self.high[atom], self.low[atom])
            low, high = low + c * first, high + c * last
        return low, high

    def reach(self, lin: Lin) -> Ends:
        """Of a numerator, with the rules above."""
        if len(lin.terms) < 2:
            return self.interval(lin)
        if lin.key not in self._found:
            self._found[lin.key] = _both(self.interval(lin), self._joint(lin))
        return self._found[lin.key]

    def _joint(self, lin: Lin) -> Ends:
        totals: dict[object, list[tuple[int, Total]]] = defaultdict(list)
        parts: list[Weighted] = []
        rest = []
        for atom, c in lin.terms:
            operation = self.graph.atoms[atom].operation
            if isinstance(operation, Total):
                totals[operation.counts.tobytes()].append((c, operation))
            elif isinstance(operation, Units):
                parts += [(c, part) for part in operation.parts]
            else:
                rest.append((atom, c))
        low, high = self.interval(Lin(lin.constant, tuple(rest)))
        parts, taken = self._with_own(totals, parts)
        low, high = _plus((low, high), taken)
        for same in totals.values():
            inner = _lin(np.zeros_like(lin.constant), [(operation.of, c) for c, operation in same])
            low, high = _plus((low, high), _summed(same[0][1].counts, self.reach(inner)))
        return _plus((low, high), self.sum_of(parts)) if parts else (low, high)

    def _with_own(
        self, totals: dict[object, list[tuple[int, Total]]], parts: list[Weighted]
    ) -> tuple[list[Weighted], Ends]:
        """What heads take of the own token belongs with the functions of it that are added: both leave the lists."""
        n = self.graph.seq_len
        low, high = np.zeros(n), np.zeros(n)
        for key, same in list(totals.items()):
            for c, operation in same[:]:
                own = [(k, part) for k, part in parts if [a for a, _ in part.of.terms] == [operation.of]]
                if len(operation.counts) == 1 or not own:
                    continue
                same.remove((c, operation))
                parts = [weighted for weighted in parts if weighted not in own]
                a, b = self.low[operation.of], self.high[operation.of]
                values = np.arange(a.min(), b.max() + 1)
                diagonal = operation.counts.diagonal()
                found = (c * diagonal[:, None] * values).astype(np.float64)
                for k, part in own:
                    found = found + k * part_values(part, part.of.constant[:, None] + part.of.terms[0][1] * values)
                possible = (values >= a[:, None]) & (values <= b[:, None])
                low += np.where(possible, found, np.inf).min(axis=1)
                high += np.where(possible, found, -np.inf).max(axis=1)
                others = operation.counts - np.diag(diagonal)
                ends = np.stack([c * (others @ a), c * (others @ b)])
                low, high = low + ends.min(axis=0), high + ends.max(axis=0)
            if not same:
                del totals[key]
        return parts, (low, high)

    def sum_of(self, parts: list[Weighted]) -> Ends:
        """Of a sum of functions of one number each, at one token."""
        plain = (np.zeros(self.graph.seq_len), np.zeros(self.graph.seq_len))
        for _, same in by_argument(parts):
            plain = _plus(plain, self._function(same))
        switch = switch_of(self.graph, [part.of for _, part in parts])
        if switch is None or len(parts) < 2:
            return plain
        low, high = np.full_like(plain[0], np.inf), np.full_like(plain[0], -np.inf)
        known: dict[object, tuple[Lin, float, float]] = {}
        for case in cases(self, switch):
            found = self._in_case(parts, case, known)
            low, high = np.minimum(low, found[0]), np.maximum(high, found[1])
        return _both(plain, (low, high))

    def _function(self, same: list[tuple[Weighted, int, int]]) -> Ends:
        """Of functions of one number: looked at at all its values."""
        n = self.graph.seq_len
        z = primitive(same[0][0][1].of)[0]
        first, last = self.reach(z)
        points = np.arange(first.min(), last.max() + 1)
        values = together(same, points)
        low, high = np.empty(n), np.empty(n)
        ends = list(zip((first - points[0]).astype(int).tolist(), (last - points[0]).astype(int).tolist(), strict=True))
        found = {(a, b): (values[a : b + 1].min(), values[a : b + 1].max()) for a, b in set(ends)}
        for j, reached in enumerate(ends):
            low[j], high[j] = found[reached]
        return low, high

    def _in_case(
        self, parts: list[Weighted], case: dict[int, int], known: dict[object, tuple[Lin, float, float]]
    ) -> Ends:
        """With the switches as the case says: lines are added up first. `known`: parts that were looked at in other cases."""
        n = self.graph.seq_len
        low, high = 0.0, 0.0
        terms: list[tuple[int, int]] = []
        constant = np.zeros(n, np.int64)
        for i, (c, part) in enumerate(parts):
            own = i, tuple(case[a] for a, _ in part.of.terms if a in case)
            if own not in known:
                known[own] = self._line_or_ends(part, fixed(part.of, case))
            line, least, most = known[own]
            constant += c * line.constant
            terms += [(atom, c * k) for atom, k in line.terms]
            low, high = low + min(c * least, c * most), high + max(c * least, c * most)
        return _plus((np.full(n, low), np.full(n, high)), self.reach(_lin(constant, terms)))

    def _line_or_ends(self, part: Part, of: Lin) -> tuple[Lin, float, float]:
        """A part of this combination as a line and the least and most of the rest: one of both is 0."""
        a, b = self.interval(of)
        points = np.arange(a.min(), b.max() + part.step, part.step)
        values = part_values(part, points[points <= b.max()])
        rises = np.diff(values)
        flat = np.zeros(self.graph.seq_len, np.int64)
        if len(rises) == 0 or not rises.any():
            return Lin(flat + int(values[0]), ()), 0.0, 0.0
        if (rises == rises[0]).all() and rises[0] % part.step == 0:
            slope = int(rises[0]) // part.step
            start = int(values[0]) - slope * int(points[0])
            return Lin(start + slope * of.constant, tuple((atom, slope * k) for atom, k in of.terms)), 0.0, 0.0
        return Lin(flat, ()), float(values.min()), float(values.max())


def ranges_of(graph: TokenGraph) -> Ranges:
    """From the alphabet on, in the order of the graph."""
    count, n = len(graph.atoms), graph.seq_len
    ranges = Ranges(graph, np.zeros((count, n)), np.zeros((count, n)))
    for i, atom in enumerate(graph.atoms):
        low, high = _range(atom.operation, ranges)
        ranges.low[i], ranges.high[i] = low, high
        if not (low <= high).all():
            raise Rejected(f"'{atom.words[:60]}' has an empty range")
    return ranges


def _range(operation: Operation, ranges: Ranges) -> Ends:
    graph = ranges.graph
    n = graph.seq_len
    if isinstance(operation, Input):
        return np.zeros(n), np.full(n, graph.vocab_size - 1.0)
    if isinstance(operation, Total):
        if (operation.counts < 0).any() or len(set(operation.counts.sum(axis=1).tolist())) != 1:
            raise Rejected("a sum over tokens has weights that no head can have")
        return _summed(operation.counts, (ranges.low[operation.of], ranges.high[operation.of]))
    if isinstance(operation, Pick):
        low, high = ranges.reach(operation.value)
        return np.full(n, low.min()), np.full(n, high.max())
    for part in operation.parts:
        low, high = ranges.reach(part.of)
        whole = (
            all(c % part.step == 0 for _, c in part.of.terms) and not ((part.of.constant - part.low) % part.step).any()
        )
        if not whole or low.min() < part.low or high.max() > part.low + part.step * (len(part.values) - 1):
            raise Rejected("a table does not hold every value that its argument takes")
    return ranges.sum_of([(1, part) for part in operation.parts])


# Arguments and switches.


def primitive(lin: Lin) -> tuple[Lin, int, int]:
    """(z, factor, start): the numerator is factor * z + start; z has no common factor and no offset."""
    start = int(lin.constant[0])
    factor = gcd(*(c for _, c in lin.terms), int(np.gcd.reduce(lin.constant - start))) or 1
    factor = -factor if lin.terms and lin.terms[0][1] < 0 else factor
    return Lin((lin.constant - start) // factor, tuple((a, c // factor) for a, c in lin.terms)), factor, start


def by_argument(parts: list[Weighted]) -> list[tuple[Lin, list[tuple[Weighted, int, int]]]]:
    """Parts by the number that they are functions of."""
    found: dict[object, tuple[Lin, list[tuple[Weighted, int, int]]]] = {}
    for weighted in parts:
        z, factor, start = primitive(weighted[1].of)
        found.setdefault(z.key, (z, []))[1].append((weighted, factor, start))
    return list(found.values())


def part_values(part: Part, numerators: FloatArray) -> FloatArray:
    """A part at numerators on its grid; beyond its ends, which no token reaches, the values there."""
    index = np.rint((numerators - part.low) / part.step).astype(np.int64)
    return part.values[np.minimum(np.maximum(index, 0), len(part.values) - 1)].astype(np.float64)


def together(same: list[tuple[Weighted, int, int]], z: FloatArray) -> FloatArray:
    """The sum of functions of one number, at values of it."""
    found = np.zeros(len(z))
    for (c, part), factor, start in same:
        found += c * part_values(part, factor * z + start)
    return found


@dataclass(frozen=True, eq=False)
class Switch:
    """Atoms that are functions of one number at the own token."""

    of: Lin
    atoms: dict[int, Part]


def switch_of(graph: TokenGraph, arguments: list[Lin]) -> Switch | None:
    """A number on which an atom of every argument depends alone, if there is one."""
    found: dict[object, tuple[int, dict[int, Part], Lin]] = {}
    for lin in arguments:
        here: dict[object, tuple[dict[int, Part], Lin]] = {}
        for atom, _ in lin.terms:
            operation = graph.atoms[atom].operation
            if isinstance(operation, Units) and len(operation.parts) == 1:
                part = operation.parts[0]
                here.setdefault(part.of.key, ({}, part.of))[0][atom] = part
        for key, (atoms, of) in here.items():
            count, known, _ = found.get(key, (0, {}, of))
            found[key] = count + 1, known | atoms, of
    best = max(found.values(), key=lambda v: v[0], default=None)
    if best is None or best[0] < 2:
        return None
    return Switch(best[2], best[1])


def cases(ranges: Ranges, switch: Switch) -> list[dict[int, int]]:
    """The values of the switches, for every value of the number that they depend on, each combination once."""
    low, high = ranges.interval(switch.of)
    values = np.arange(low.min(), high.max() + 1)
    if len(values) > MOST_CASES:
        return [{}]
    columns = np.stack([part_values(part, values) for part in switch.atoms.values()]).astype(np.int64)
    return [dict(zip(switch.atoms, column.tolist(), strict=True)) for column in np.unique(columns, axis=1).T]


def fixed(lin: Lin, case: dict[int, int]) -> Lin:
    """A combination with some atoms known."""
    constant = lin.constant + sum(c * case[a] for a, c in lin.terms if a in case)
    return Lin(np.asarray(constant, dtype=np.int64), tuple((a, c) for a, c in lin.terms if a not in case))


def _lin(constant: Ints, terms: list[tuple[int, int]]) -> Lin:
    found: dict[int, int] = {}
    for atom, c in terms:
        found[atom] = found.get(atom, 0) + c
    return Lin(constant, tuple((a, c) for a, c in sorted(found.items()) if c))


def _summed(counts: Ints, ends: Ends) -> Ends:
    low, high = (np.broadcast_to(counts @ v, ends[0].shape) for v in ends)
    return low, high


def _plus(first: Ends, second: Ends) -> Ends:
    return first[0] + second[0], first[1] + second[1]


def _both(first: Ends, second: Ends) -> Ends:
    """What lies in both."""
    return np.maximum(first[0], second[0]), np.minimum(first[1], second[1])
