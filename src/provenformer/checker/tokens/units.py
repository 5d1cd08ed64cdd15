"""Feed-forward layers of a token circuit: what units add up to, at the whole numbers that they can meet.

The units that write a channel are grouped by the argument of the atom that they read, z. A group adds a piecewise linear
function F(z), known from the weights.
All of them read the same executed z~ = z + delta, |delta| <= e, so what the group is off at z lies between the least and the
largest F - phi(z) on [z - e, z + e],
found at its ends and at the knots in between; where F is flat nothing is left of delta. Each unit's own rounding counts
where it can be on. Groups that hang on switches
(ranges.py) are looked at for every value of what the switches depend on: gates that are closed add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.tokens.ranges import Weighted, by_argument, cases, fixed, switch_of, together
from provenformer.checker.tokens.state import OWN, Reading, State, combination, read, rounding
from provenformer.networks.circuit import CircuitBlock
from provenformer.symbols.tokens.graph import Ints, Lin, TokenGraph, Units


def after_units(graph: TokenGraph, block: CircuitBlock, state: State, claims: dict[int, int], place: str) -> None:
    """The state after the units, if every channel that they write holds what is claimed."""
    writes = block.W_2.any(axis=1) | (block.b_2 != 0)
    if extra := [c for c in np.flatnonzero(writes) if c not in claims]:
        raise Rejected(f"{place} writes channel {extra[0]}, of which nothing is claimed")
    reading = read(state, block.W_1, block.b_1)
    errors = {}
    for channel, atom in claims.items():
        operation = graph.atoms[atom].operation
        if not isinstance(operation, Units):
            raise Rejected(f"{place}: units are claimed to do what a head does (channel {channel})")
        if state.atom[channel] >= 0 or state.known[channel].any():
            raise Rejected(f"{place} writes channel {channel}, which is in use")
        errors[channel] = _error(graph, operation, block, state, reading, channel) + float(state.error[channel])
    for channel, atom in claims.items():
        state.atom[channel], state.error[channel] = atom, errors[channel]


@dataclass(frozen=True)
class Off:
    """How far a group is off: between least and most, and `lost` by each unit's own rounding; and the sum of absolute terms."""

    least: float
    most: float
    lost: float
    size: float

    def plus(self, other: Off) -> Off:
        return Off(self.least + other.least, self.most + other.most, self.lost + other.lost, self.size + other.size)


def _error(
    graph: TokenGraph, operation: Units, block: CircuitBlock, state: State, reading: Reading, channel: int
) -> float:
    """How far a channel may be from the atom."""
    writing = np.flatnonzero(block.W_2[channel])
    found = by_argument([(1, part) for part in operation.parts])
    belongs = _best([z for z, _ in found], reading, writing, state)
    groups = []
    for g, (z, same) in enumerate(found):
        mine = np.array([k for k, best in enumerate(belongs) if best == g], dtype=np.int64)
        groups.append(
            Group(z, same, block.W_1[writing[mine]], block.W_2[channel, writing[mine]], reading, writing[mine], state)
        )
    switch = switch_of(graph, [z for z, _ in found])
    bias = float(block.b_2[channel])
    share = float(rounding(len(writing) + 1, state.unit)) + 8 * OWN
    worst = 0.0
    known: dict[tuple[int, object], Off] = {}
    for case in cases(state.ranges, switch) if switch else [{}]:
        total = Off(bias, bias, 0.0, abs(bias))
        for g, group in enumerate(groups):
            own = (g, tuple(case[a] for a, _ in group.z.terms if a in case))
            if own not in known:
                known[own] = group.off(case)
            total = total.plus(known[own])
        worst = max(
            worst, abs(total.least) + total.lost + share * total.size, abs(total.most) + total.lost + share * total.size
        )
        if not np.isfinite(total.least + total.most + total.lost + total.size):
            raise Rejected("no finite bound follows for a table")
    return worst


def _best(arguments: list[Lin], reading: Reading, units: Ints, state: State) -> list[int]:
    """The argument that each unit reads: the one of which the least is left. Any choice gives a true bound."""
    if len(arguments) == 1:
        return [0] * len(units)
    left = []
    for z in arguments:
        known, atoms = combination(z, reading.atoms.shape[1])
        slopes = np.array([_slope(reading.atoms[i], atoms, reading.known[i], known) for i in units])[:, None]
        rest = np.abs(reading.atoms[units] - slopes * atoms) @ state.ranges.size
        left.append(np.ptp(reading.known[units] - slopes * known, axis=1) + rest.max(axis=1))
    return [int(i) for i in np.argmin(left, axis=0)]


def _slope(atoms: FloatArray, wanted: FloatArray, known: FloatArray, wanted_known: FloatArray) -> float:
    """The factor of the argument in what a unit reads, from the argument's largest coefficient."""
    if wanted.any():
        at = int(np.argmax(np.abs(wanted)))
        return float(atoms[at] / wanted[at])
    at = int(np.argmax(np.abs(wanted_known - wanted_known[0])))
    span = wanted_known[at] - wanted_known[0]
    return float((known[at] - known[0]) / span) if span else 0.0


class Group:
    """Units that read one argument z and write one channel: F(z) = sum of outputs * relu(slopes * z + starts)."""

    def __init__(
        self, z: Lin, same: list[tuple[Weighted, int, int]], rows: FloatArray, outputs: FloatArray, reading: Reading, units: Ints,
        state: State,
    ) -> None:  # fmt: skip
        self.z, self.same, self.outputs, self.state = z, same, outputs, state
        known, atoms = combination(z, reading.atoms.shape[1])
        slopes = np.array([_slope(reading.atoms[i], atoms, reading.known[i], known) for i in units])
        shifts = reading.known[units] - slopes[:, None] * known
        self.slopes, self.starts = slopes, (shifts.max(axis=1) + shifts.min(axis=1)) / 2
        rest = np.abs(shifts - self.starts[:, None]).max(axis=1)  # positions that the argument does not have
        rest += (np.abs(reading.atoms[units] - slopes[:, None] * atoms) @ state.ranges.size).max(axis=1)
        # one direction that all units share, as far as they do; what they do not share errs for itself
        leader = int(np.argmax(np.abs(slopes))) if len(units) else 0
        shared = rows[leader] / slopes[leader] if len(units) and slopes[leader] else np.zeros(rows.shape[1])
        self.delta = float(np.abs(shared) @ state.error) * (1 + 1e-9)
        terms = np.count_nonzero(rows, axis=1) + 1
        self.own = np.abs(rows - slopes[:, None] * shared) @ state.error + rest
        self.own = self.own + rounding(terms, state.unit) * reading.size[units].max(axis=1) + reading.fresh[units]

    def _value(self, points: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(points[:, None] * self.slopes + self.starts, 0.0) @ self.outputs)

    def off(self, case: dict[int, int]) -> Off:
        """At all values that z can take in this case."""
        ends = [self.state.ranges.interval(fixed(self.z, case))]
        if not case:
            ends.append(self.state.ranges.reach(self.z))
        low, high = max(e[0].min() for e in ends), min(e[1].max() for e in ends)
        z = np.arange(low, high + 1)
        phi = together(self.same, z)
        if not len(self.outputs):
            return Off(float((-phi).min()), float((-phi).max()), 0.0, 0.0)
        if not self.delta < 1:
            raise Rejected("a table's argument is off by more than one step")
        found = [(self._value(z + move) - phi) for move in (-self.delta, 0.0, self.delta)]
        bends = self.slopes != 0
        knots = -self.starts[bends] / self.slopes[bends]
        for at in (np.floor(knots), np.ceil(knots)):
            inside = (np.abs(knots - at) <= self.delta * (1 + 1e-9)) & (at >= low) & (at <= high)
            if inside.any():
                found.append(self._value(knots[inside]) - phi[(at[inside] - low).astype(np.int64)])
        every = np.concatenate(found)
        reads = z[:, None] * self.slopes + self.starts + np.abs(self.slopes) * self.delta + self.own
        lost = ((reads > 0) * (np.abs(self.outputs) * self.own)).sum(axis=1).max()
        size = (np.abs(self.outputs) * np.maximum(reads, 0.0)).sum(axis=1).max()
        slack = 8 * OWN * len(self.outputs) * float(size) + 8 * OWN * float(np.abs(phi).max())
        return Off(float(every.min()), float(every.max()), float(lost) + slack, float(size))
