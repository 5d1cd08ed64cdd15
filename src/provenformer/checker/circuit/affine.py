"""Ranges of combinations where intervals lose: atoms become lines plus noise, and what belongs together is taken together.

Intervals let every atom of a combination be anywhere in its range, though all depend on the same inputs. Here the latest atom is
replaced again and again by what it is made of, so that shared parts may cancel; after every step the range of what is left is a
range of the whole, and the best of all is kept. Proofs: docs/circuits-verify.md, "Ranges".
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.linear import Ball, Combination, Line, Ranges, combine, mixed, of_lin, row_sums, span
from provenformer.symbols.graph import Attend, Graph, Product

WORTH = 0.8  # a line is used if what it leaves is at most this share of the atom's range
MOST_STEPS = 200
HAIR = 1e-12
Ends = tuple[FloatArray, FloatArray]


def keep_line(ranges: Ranges, atom: int, line: Line) -> None:
    """A line for an atom whose range is known, if it says more than that."""
    if line.high - line.low <= WORTH * (ranges.high[atom] - ranges.low[atom]):
        ranges.lines[atom] = line


def affine_range(one: Combination, ranges: Ranges) -> tuple[float, float]:
    """Between what the combination lies at any token."""
    low, high = span(one, ranges)
    best, graph = (float(low.min()), float(high.max())), ranges.graph
    if graph is None:
        return best
    bottom, top = np.zeros(1), np.zeros(1)
    for _ in range(MOST_STEPS):
        atom = max(one.parts, default=-1)
        if atom < graph.token_dim:
            break
        one, found = _without(graph, one, atom, ranges)
        reach = HAIR * (np.abs(found[0]) + np.abs(found[1]))
        bottom, top = bottom + found[0] - reach, top + found[1] + reach
        low, high = span(one, ranges)
        best = max(best[0], float((low + bottom).min())), min(best[1], float((high + top).max()))
    return best


def _without(graph: Graph, one: Combination, atom: int, ranges: Ranges) -> tuple[Combination, Ends]:
    """The combination without its latest atom, and between what lies that which was taken out."""
    part, line, uniform = one.parts[atom], ranges.lines.get(atom), ranges.uniform[atom]
    if part.mix is None and np.ndim(part.own) == 0:
        members, ends = _together(graph, one, atom, ranges)
        if members:
            return _left(one, members), ends
    rest, (plus, minus) = _left(one, {atom}), row_sums(part, uniform)
    if line is None or np.ndim(part.own) or (part.mix is not None and (uniform or len(part.mix) > 1)):
        low, high = ranges.low[atom], ranges.high[atom]
        return rest, (plus * low + minus * high, plus * high + minus * low)
    pieces = [(1.0, rest), (part.own, line.along)]
    if part.mix is not None:
        pieces.append((1.0, mixed(part.mix, line.along, ranges)))
    return combine(pieces, ranges), (plus * line.low + minus * line.high, plus * line.high + minus * line.low)


def _left(one: Combination, members: set[int]) -> Combination:
    return Combination({a: p for a, p in one.parts.items() if a not in members}, one.constant, one.slack)


def _together(graph: Graph, one: Combination, atom: int, ranges: Ranges) -> tuple[set[int], Ends]:
    """Atoms that are bounded together: attention with one set of weights, or values that one factor normalises."""
    operation, nothing = graph.atoms[atom].operation, (np.zeros(1), np.zeros(1))
    own = {a: float(p.own) for a, p in one.parts.items() if p.mix is None and np.ndim(p.own) == 0}
    if isinstance(operation, Attend):
        same = {a: o for a in own if isinstance(o := graph.atoms[a].operation, Attend) and _same_weights(o, operation)}
        values = [(own[a], of_lin(o.values, ranges, graph.seq_len)) for a, o in same.items()]
        low, high = affine_range(combine(values, ranges), ranges)
        return set(same), (np.array([low]), np.array([high]))
    if isinstance(operation, Product) and atom in ranges.balls:
        ball = ranges.balls[atom]
        members = {a for a in own if a in ranges.balls and ranges.balls[a].factor == ball.factor}
        if len(members) > 1:
            radius = np.array([_radius([(own[a], ranges.balls[a]) for a in members])])
            return members, (-radius, radius)
    return set(), nothing


def _radius(members: list[tuple[float, Ball]]) -> float:
    """Of sum c x r: by Cauchy and Schwarz, after adding up what belongs to one x."""
    totals: dict[object, float] = {}
    off = sum(abs(own) * ball.off for own, ball in members)
    for own, ball in members:
        totals[ball.value] = totals.get(ball.value, 0.0) + abs(own * ball.scale)
    weights = {ball.value: ball.weight for _, ball in members}
    return float(np.sqrt(sum(c * c / weights[x] for x, c in totals.items()))) * (1 + HAIR) + off


def _same_weights(one: Attend, other: Attend) -> bool:
    return one is other or one.score_key == other.score_key
