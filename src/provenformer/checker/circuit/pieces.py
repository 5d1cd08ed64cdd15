"""ReLU units that read one number, read back as the piecewise linear function they are, and compared with a formula.

z -> constant + sum_i coefficient_i relu(slope_i z + offset_i). Its knots are -offset / slope, its slopes prefix sums.
Computed in the longest float there is, with a radius for that; whatever it is has no part in the bound but its width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.content import ByContent
from provenformer.checker.circuit.jets import jet_of

Long = np.longdouble
LongArray = NDArray[np.longdouble]
EPS = float(np.finfo(Long).eps)
PIECES = 128  # a table is compared with its formula on at least this many pieces,
CELLS = 512  # and phi'' enclosed on at least this many cells


@dataclass(frozen=True, eq=False)
class Units(ByContent):
    """Hidden units that read one number."""

    slope: FloatArray  # never 0
    offset: FloatArray
    coefficient: FloatArray
    constant: float

    def __len__(self) -> int:
        return len(self.slope)


@dataclass(frozen=True, eq=False)
class Pieces:
    """The function on [points[0], points[-1]]: linear between points, up to `radius`."""

    points: LongArray  # (k + 1,), increasing
    values: LongArray  # (k + 1,)
    slopes: FloatArray  # (k,), absolute values, rounded up
    radius: float

    def steepest(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """The largest absolute slope on every [low_i, high_i], which must lie within the points."""
        first = np.maximum(np.searchsorted(self.points, low.astype(Long), side="right") - 1, 0)
        last = np.minimum(np.searchsorted(self.points, high.astype(Long), side="left"), len(self.slopes)) - 1
        return _window_max(self.slopes, np.minimum(first, len(self.slopes) - 1), np.maximum(last, 0))

    def variation(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """At least what the function goes up and down in all on every [low_i, high_i], which must lie within the points."""
        total = np.concatenate([[0.0], np.cumsum(self.slopes * np.diff(self.points).astype(np.float64))])
        first = np.maximum(np.searchsorted(self.points, low.astype(Long), side="right") - 1, 0)
        last = np.minimum(np.searchsorted(self.points, high.astype(Long), side="left"), len(self.slopes))
        before, after = (v.astype(np.float64) for v in (low - self.points[first], self.points[last] - high))
        beyond = self.slopes[np.minimum(first, len(self.slopes) - 1)] * before + self.slopes[last - 1] * after
        return np.asarray(total[last] - total[first] - beyond * (1 - 1e-12) + 2.0**-48 * len(total) * total[-1])


def read_pieces(units: Units, low: float, high: float, reach: float = 0.0) -> Pieces:
    """The units' function on [low - reach, high + reach]; low and high are points of it.

    The unit with knot k = fl(-offset / slope) differs from coefficient relu(slope (z - k)) by at most |coefficient offset|
    EPS, for every z. Of those the values are sums of at most 2 k + 1 products by prefix sums.
    """
    a, b, c = (v.astype(Long) for v in (units.slope, units.offset, units.coefficient))
    knots = -b / a
    first, last = Long(low) - Long(reach), Long(high) + Long(reach)
    inside = knots[(knots > first) & (knots < last)]
    points = np.unique(np.concatenate([np.array([first, low, high, last], dtype=Long), inside]))
    if len(points) == 1:
        raise ValueError("a range of one point")
    values = np.full(len(points), Long(units.constant))
    slopes = np.zeros(len(points) - 1, dtype=Long)
    far = float(max(abs(first), abs(last)))
    for rising in (True, False):
        side = (a > 0) if rising else (a < 0)
        order = np.argsort(knots[side])
        k, gain, shift = knots[side][order], (c * a)[side][order], (c * b)[side][order]
        gain_sums, shift_sums = (np.concatenate([[Long(0)], np.cumsum(v)]) for v in (gain, shift))
        if not rising:  # units with a knot above are on
            gain_sums, shift_sums = gain_sums[-1] - gain_sums, shift_sums[-1] - shift_sums
        values += gain_sums[(at := np.searchsorted(k, points, side="right"))] * points + shift_sums[at]
        slopes += gain_sums[at[:-1]]  # right of a point: the knots up to it included
    size = float(np.sum(np.abs(c * a)) * far + np.sum(np.abs(c * b))) + abs(units.constant)
    count = 2 * len(units) + 16
    steep = np.abs(slopes).astype(np.float64) + count * 4 * EPS * float(np.sum(np.abs(c * a)))
    return Pieces(points, values, np.nextafter(steep * (1 + 4e-16), np.inf), count * 4 * EPS * size)


@dataclass(frozen=True, eq=False)
class Deviation:
    """How the units' function differs from phi on each piece: between low and high; and the smallest |phi| there."""

    start: FloatArray
    end: FloatArray
    low: FloatArray
    high: FloatArray
    least: FloatArray


def compare(pieces: Pieces, phi: Callable[[Any], Any], low: float, high: float) -> Deviation:
    """p - phi on the pieces of [low, high].

    On a piece [a, b] of length h, p - phi is the chord of p - phi plus chord(phi) - phi. At a + s h the latter is at most s
    (1 - s) h^2/2 max(0, sup phi''), and so from below with inf; it is at most h/4 (sup phi' - inf phi') (phi stays within the
    cone of its slopes from both ends); and at most the oscillation of phi.
    """
    keep = (pieces.points >= low) & (pieces.points <= high)
    points, values = _refined(pieces.points[keep], pieces.values[keep])
    nearest = points.astype(np.float64)
    at = jet_of(phi, np.where(nearest <= points, nearest, np.nextafter(nearest, -np.inf)),
                np.where(nearest >= points, nearest, np.nextafter(nearest, np.inf))).value  # fmt: skip
    radius = pieces.radius + 4 * EPS * float(np.abs(values).max())
    below = np.nextafter((values - at.hi).astype(np.float64), -np.inf) - radius
    above = np.nextafter((values - at.lo).astype(np.float64), np.inf) + radius
    start, end = (
        np.maximum(np.nextafter(nearest[:-1], -np.inf), low),
        np.minimum(np.nextafter(nearest[1:], np.inf), high),
    )
    curved, rough, least = _bend(phi, start, end)
    above_all = np.fmin(_peak(above[:-1], above[1:], curved[1]), np.maximum(above[:-1], above[1:]) + rough)
    below_all = -np.fmin(_peak(-below[:-1], -below[1:], curved[0]), np.maximum(-below[:-1], -below[1:]) + rough)
    return Deviation(start, end, below_all, above_all, least)


def _refined(points: LongArray, values: LongArray) -> tuple[LongArray, LongArray]:
    """Long pieces cut in equal parts: the function stays the same, and bounds of phi'' on short pieces are sharp."""
    parts = -(-PIECES // (len(points) - 1))
    share = (np.arange(parts, dtype=Long) / parts)[:, None]
    cut = [(v[:-1] + share * np.diff(v)).T.ravel() for v in (points, values)]
    finer, heights = (np.append(inside, v[-1]) for inside, v in zip(cut, (points, values), strict=True))
    rising = np.concatenate([np.diff(finer) > 0, [True]])
    return finer[rising], heights[rising]


def _peak(one: FloatArray, other: FloatArray, bend: FloatArray) -> FloatArray:
    """The largest value of (1 - s) one + s other + 4 s (1 - s) bend, bend >= 0: inside if the parabola has its top there."""
    step = np.abs(other - one)
    with np.errstate(all="ignore"):
        inside = (one + other) / 2 + bend + step * step / (16 * bend)
    return np.where(
        step < 4 * bend, inside * (1 + 1e-14), np.maximum(one, other) + np.where(np.isfinite(bend), 0.0, np.inf)
    )


def _bend(
    phi: Callable[[Any], Any], start: FloatArray, end: FloatArray
) -> tuple[tuple[FloatArray, FloatArray], FloatArray, FloatArray]:
    """h^2/8 max(0, -inf phi'') and h^2/8 max(0, sup phi'') on every piece; a bound without phi''; |phi| from below."""
    parts = max(2, -(-CELLS // len(start)))
    share = np.linspace(0.0, 1.0, parts + 1)
    width = end - start
    edges = start + width * share[:, None]  # (parts + 1, pieces)
    edges[-1] = end
    cells = jet_of(phi, edges[:-1], np.maximum(edges[1:], edges[:-1]))
    value, first, second = ((p.lo.min(axis=0), p.hi.max(axis=0)) for p in (cells.value, cells.first, cells.second))
    with np.errstate(all="ignore"):
        square = width * width / 8 * (1 + 1e-14)
        rough = np.fmin(value[1] - value[0], width / 4 * (first[1] - first[0])) * (1 + 1e-14)
        curved = square * np.maximum(-second[0], 0.0), square * np.maximum(second[1], 0.0)
    low, high = cells.value.lo, cells.value.hi
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high))).min(axis=0)
    return curved, np.where(np.isnan(rough), np.inf, rough), least


def _window_max(values: FloatArray, first: NDArray[np.intp], last: NDArray[np.intp]) -> FloatArray:
    """max(values[first_i .. last_i]), by doubling."""
    last = np.maximum(first, last)
    levels = [values]
    while (step := 1 << (len(levels) - 1)) < len(values):
        longer = levels[-1].copy()
        longer[:-step] = np.maximum(longer[:-step], levels[-1][step:])
        levels.append(longer)
    level = np.floor(np.log2(last - first + 1)).astype(np.intp)
    table = np.stack(levels)
    return np.asarray(np.maximum(table[level, first], table[level, last - (1 << level) + 1]))
