"""Piecewise linear tables as ReLU units: constant + sum of coefficient * relu(sign * (z - knot)).

The error of a table against its formula is bounded from the finished units: at the knots exactly (extended precision with
a radius), between them by h^2/8 sup |formula''| (docs/circuits.md, Lemma 1). A table may be wider where more is allowed: near its
large values if relative errors do no harm, and where it is flat, since there the errors of what it reads are damped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.constructions.circuit.curves import Curve, window_max
from provenformer.symbols.formula import Formula
from provenformer.symbols.jets import cells, jet

DENSITY_CELLS = 600
TURNING = 1000.0  # a second derivative this many times what the range on a cell accounts for: it turns there many times
SHEER = 1.3  # an end piece so much steeper than the next is not prolonged: errors that leave the range would grow by it
ROUNDS = 60
PATIENCE = 3
FEW, MUCH = 4096, 64  # knots that a table may take beyond what was planned: so many, and so many times
NARROWEST = 0.25  # a piece with less of the allowed error than this is made no wider in one round
PARTS = 4  # cells on a piece, for tight enclosures of the second derivative
EXACT_PIECES = 32  # a function that is its own table is looked at on as many, for relative errors


@dataclass(frozen=True, eq=False)
class Units:
    """A piecewise linear function on the line, written as ReLUs that grow away from an anchor."""

    sign: FloatArray  # +1 or -1
    knot: FloatArray
    coefficient: FloatArray
    constant: float

    def __len__(self) -> int:
        return len(self.knot)

    def reach(self, low: float, high: float) -> FloatArray:
        """The largest output of every unit for z in [low, high]."""
        return np.maximum(np.where(self.sign > 0, high - self.knot, self.knot - low), 0.0)


@dataclass(frozen=True, eq=False)
class Table:
    """Units, and how far they are from their formula, piece by piece."""

    units: Units
    curve: Curve


def units_of_pieces(knots: FloatArray, slopes: FloatArray, start: float, low: float, high: float) -> Units:
    """The continuous function with slopes[i] left of knots[i] and slopes[i + 1] right of it, `start` at knots[0].

    The anchor is the knot that keeps the sizes of the terms, and so their rounding, smallest over [low, high].
    """
    jumps = np.diff(slopes)
    values = start + np.concatenate([[0.0], np.cumsum(slopes[1:-1] * np.diff(knots))])
    weight = np.abs(jumps)
    after = np.append(np.cumsum((weight * (high - knots))[::-1])[::-1][1:], 0.0)
    before = np.append(0.0, np.cumsum(weight * (knots - low))[:-1])
    cost = np.abs(slopes[1:]) * (high - knots) + after + np.abs(slopes[:-1]) * (knots - low) + before
    a = int(np.argmin(cost))
    sign = np.concatenate([np.ones(len(knots) - a), -np.ones(a + 1)])
    knot = np.concatenate([knots[a:], knots[a::-1]])
    coefficient = np.concatenate([[slopes[a + 1]], jumps[a + 1 :], [-slopes[a]], jumps[:a][::-1]])
    kept = coefficient != 0
    return Units(sign[kept], knot[kept], coefficient[kept], float(values[a]))


@dataclass(frozen=True, eq=False)
class Density:
    """Cells of a range, and on each bounds of |formula''|, |formula'| and |formula|: how a table will be, before it is."""

    edges: FloatArray
    bend: FloatArray
    steep: FloatArray
    least: FloatArray
    swing: FloatArray  # how far values on a cell are apart

    @classmethod
    def of(cls, formula: Formula, low: float, high: float) -> Density:
        edges = _finer_at_roots(formula, cells(low, high, DENSITY_CELLS))
        if len(edges) == 1:  # a range too narrow for two numbers
            edges = np.array([edges[0], np.nextafter(edges[0], np.inf)])
        found, width = jet(formula, edges[:-1], edges[1:]), np.diff(edges)
        bend, steep = (np.maximum(np.abs(v.lo), np.abs(v.hi)) for v in (found.second, found.first))
        # where the second derivative is not bounded, a cell is no worse than the oscillation on it
        worst = 8 * (found.value.hi - found.value.lo) / np.maximum(width, 1e-300) ** 2
        # unless it goes up and down many times on the cell
        turns = (found.first.lo < 0) & (found.first.hi > 0) & np.isfinite(bend) & (bend > TURNING * worst)
        bend = np.where(turns, bend, np.fmin(bend, worst))
        return cls(edges, bend, steep, _least(found.value.lo, found.value.hi), found.value.hi - found.value.lo)

    def pieces(self, allowed: FloatArray | float) -> float:
        """About how many a table needs that is within `allowed`, cell by cell."""
        return float(np.sum(np.sqrt(self.bend / (16 * allowed)) * np.diff(self.edges)))

    def planned(self, allowed: FloatArray) -> Curve:
        """What errors will see of that table. Where the slope is not bounded the first piece has about the slope of its chord."""
        steep, sheer = self.steep, ~np.isfinite(self.steep)
        if sheer.any():
            steepest = self.swing[sheer] ** 2 / (4 * np.diff(self.edges)[sheer] * allowed[sheer])
            steep = np.minimum(steep, steepest.max())
        return Curve(self.edges, allowed, np.concatenate([steep[:1], steep, steep[-1:]]), self.least)


def _finer_at_roots(formula: Formula, edges: FloatArray) -> FloatArray:
    """Cells, finer where |formula| is smallest: what is allowed relative to the value changes there by orders of magnitude."""
    at = edges[np.argmin(np.abs(formula(edges) + np.zeros(len(edges))))]
    near = (edges[-1] - edges[0]) * np.geomspace(1e-9, 1e-2, DENSITY_CELLS // 4)
    return np.unique(np.clip(np.concatenate([edges, [at], at - near, at + near]), edges[0], edges[-1]))


def fit(formula: Formula, density: Density, allowed: FloatArray) -> Table:
    """A table within `allowed` (by cell) of the formula, knots where it bends."""
    low, high = float(density.edges[0]), float(density.edges[-1])
    ends, weight = density.edges, np.sqrt(density.bend / (16 * allowed)) * np.diff(density.edges)
    most = FEW + MUCH * float(weight.sum())
    for attempt in range(ROUNDS):
        wanted = np.concatenate([[0.0], np.cumsum(weight)])
        count = max(1, int(np.ceil(wanted[-1] - 1e-9)))
        if count > most:  # below rounding no number of knots helps
            break
        knots = np.interp(np.linspace(0.0, wanted[-1], count + 1), wanted, ends)
        knots[0], knots[-1] = low, high
        knots = np.unique(knots)
        table = _try(formula, knots, _allowed_on(density, allowed, knots))
        ends = table.curve.ends
        ratio = table.curve.own / _allowed_on(density, allowed, ends)
        if ratio.max() <= 1.0:
            return table
        # an error grows with the square of a piece's length; where the formula turns the worst piece moves: more everywhere
        weight = np.sqrt(np.clip(ratio, NARROWEST, 4.0)) * (1.003 + 0.01 * max(0, attempt - PATIENCE))
    raise ProvenformerError(
        f"no table of {formula} on [{low:.4g}, {high:.4g}] reaches {allowed.min():.3g}; use a larger tolerance."
    )


def _allowed_on(density: Density, allowed: FloatArray, ends: FloatArray) -> FloatArray:
    """The least of what is allowed on the cells that a piece meets."""
    first = np.searchsorted(density.edges, ends[:-1], side="right") - 1
    last = np.searchsorted(density.edges, ends[1:], side="left") - 1
    return -window_max(-allowed, np.clip(first, 0, len(allowed) - 1), np.clip(last, 0, len(allowed) - 1))


def _try(formula: Formula, knots: FloatArray, allowed: FloatArray) -> Table:
    """A table on given knots: values moved to the middle of the error band where the formula bends one way."""
    values = np.broadcast_to(np.asarray(formula(knots), dtype=np.float64), knots.shape)
    ((bend_low, bend_high), *_), h = _on_pieces(formula, knots), np.diff(knots)
    one_way = (bend_low >= 0).astype(float) - (bend_high <= 0)
    with np.errstate(invalid="ignore", over="ignore"):
        lift = h**2 / 16 * np.where(one_way > 0, bend_high, np.where(one_way < 0, -bend_low, 0.0))
    middle = np.abs(np.asarray(formula((knots[:-1] + knots[1:]) / 2)) - (values[:-1] + values[1:]) / 2) / 2
    shift = -one_way * np.where(np.isfinite(lift), np.minimum(lift, allowed), middle)
    values = values + np.concatenate([shift[:1], (shift[:-1] + shift[1:]) / 2, shift[-1:]])
    slopes = np.diff(values) / h
    if len(knots) == 2:  # one piece: an anchor in the middle
        centre = (knots[:1] + knots[1:]) / 2
        units = units_of_pieces(centre, np.repeat(slopes, 2), float(values.mean()), knots[0], knots[-1])
    else:
        first, last = (
            bool(abs(end) > SHEER * abs(next_)) for end, next_ in ((slopes[0], slopes[1]), (slopes[-1], slopes[-2]))
        )
        inner = slice(0 if first else 1, None if last else -1)
        slopes = np.concatenate([[0.0] * first, slopes, [0.0] * last])
        units = units_of_pieces(knots[inner], slopes, float(values[inner][0]), knots[0], knots[-1])
    return Table(units, read_back(formula, units, knots))


def read_back(formula: Formula, units: Units, knots: FloatArray) -> Curve:
    """Lemma 1: pieces between the knots given and those of the units, and sup |units - formula| on each.

    Where the table does not bend at a knot there is no unit, but short pieces have sharp enclosures of the formula.
    """
    inner = units.knot[(units.knot > knots[0]) & (units.knot < knots[-1])]
    ends = np.unique(np.concatenate([knots, inner]))
    values, radius = _values(units, ends)
    exact = jet(formula, ends, ends).value
    over = np.nextafter((values - exact.lo).astype(np.float64) + radius, np.inf)
    under = np.nextafter((values - exact.hi).astype(np.float64) - radius, -np.inf)
    (bend_low, bend_high), swing, least = _on_pieces(formula, ends)
    with np.errstate(invalid="ignore", over="ignore"):
        square = np.diff(ends) ** 2 / 8 * (1 + 1e-14)
        above, below = square * np.maximum(bend_high, 0.0), square * np.minimum(bend_low, 0.0)
    swing = swing * (1 + 1e-14)  # the chord stays within what the formula takes on the piece
    above = np.where(np.isfinite(above), np.minimum(above, swing), swing)
    below = np.where(np.isfinite(below), np.maximum(below, -swing), -swing)
    top, bottom = np.maximum(over[:-1], over[1:]) + above, np.minimum(under[:-1], under[1:]) + below
    return Curve(ends, np.maximum(top, -bottom), _slopes(units, ends), least)


def exact_curve(units: Units, rounding: float, low: float, high: float) -> Curve:
    """Of units that are the function itself, up to rounding."""
    inner = units.knot[(units.knot > low) & (units.knot < high)]
    ends = np.unique(np.concatenate([np.linspace(low, high, EXACT_PIECES + 1), inner]))
    values = _values(units, ends)[0].astype(np.float64)
    least = np.maximum(_least(np.minimum(values[:-1], values[1:]), np.maximum(values[:-1], values[1:])) - rounding, 0.0)
    return Curve(ends, np.full(len(ends) - 1, rounding), _slopes(units, ends), least)


def _slopes(units: Units, ends: FloatArray) -> FloatArray:
    """|slope| before the first end, between them, and after the last; a hair more for rounding."""
    middle = (ends[:-1] + ends[1:]) / 2
    at = np.concatenate([[ends[0] - 1.0], middle, [ends[-1] + 1.0]])
    total = np.zeros(len(at))
    for sign in (1.0, -1.0):
        knot, coefficient = (sign * units.knot)[units.sign == sign], units.coefficient[units.sign == sign]
        order = np.argsort(knot, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(coefficient[order])])
        total += sign * sums[np.searchsorted(knot[order], sign * at, side="left")]
    return np.abs(total) + 2.0**-50 * (len(units) + 4) * float(np.abs(units.coefficient).sum())


def _least(low: FloatArray, high: FloatArray) -> FloatArray:
    """|value| from below, for values in [low, high]."""
    return np.asarray(np.maximum(np.maximum(low, -high), 0.0))


def _on_pieces(formula: Formula, ends: FloatArray) -> tuple[tuple[FloatArray, FloatArray], FloatArray, FloatArray]:
    """On every piece: bounds of the second derivative, how far values are apart, |value| from below; from PARTS cells each."""
    shares = np.linspace(0.0, 1.0, PARTS + 1)[:, None]
    edges = ends[:-1] * (1 - shares) + ends[1:] * shares  # (PARTS + 1, pieces)
    edges[0], edges[-1] = ends[:-1], ends[1:]
    found = jet(formula, edges[:-1].ravel(), np.maximum(edges[1:], edges[:-1]).ravel())
    shape = (PARTS, len(ends) - 1)
    low, high = found.second.lo.reshape(shape).min(axis=0), found.second.hi.reshape(shape).max(axis=0)
    bottom, top = found.value.lo.reshape(shape), found.value.hi.reshape(shape)
    return (low, high), top.max(axis=0) - bottom.min(axis=0), _least(bottom, top).min(axis=0)


def _values(units: Units, at: FloatArray) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.longdouble]], FloatArray]:
    """The units' function at points, in extended precision, and a bound on the rounding of that."""
    wide = np.longdouble
    total, size = np.full(at.shape, units.constant, dtype=wide), np.full(at.shape, abs(units.constant))
    for sign in (1.0, -1.0):
        chosen = units.sign == sign
        knot, coefficient = sign * units.knot[chosen], units.coefficient[chosen]
        order = np.argsort(knot, kind="stable")
        k, c = knot[order].astype(wide), coefficient[order].astype(wide)
        sums = [np.concatenate([[wide(0)], np.cumsum(v)]) for v in (c, c * k, np.abs(c), np.abs(c * k))]
        on = np.searchsorted(k, sign * at.astype(wide), side="left")
        total = total + sums[0][on] * (sign * at) - sums[1][on]
        size = size + (sums[2][on] * np.abs(at) + sums[3][on]).astype(np.float64)
    return total, size * (len(units) + 4) * 2 * float(np.finfo(wide).eps)
