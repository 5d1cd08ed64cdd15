"""Continuous piecewise linear functions of one number, in fractions where digits count; kernels repeat them once per token."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable

NOT_FINITE = "a coefficient of the formula is not finite; keep constants in float64's range."
KEPT = 4096  # answers that are remembered


@dataclass(frozen=True)
class PiecewiseLinear:
    """slopes[0] before knots[0], slopes[i] after knots[i - 1]."""

    knots: tuple[float, ...]
    slopes: tuple[float, ...]  # one more than knots
    start: float  # the value at knots[0]

    def __call__(self, z: FloatArray) -> FloatArray:
        """The value at z."""
        z = np.asarray(z, dtype=np.float64)
        first, total = self.knots[0], np.full(z.shape, self.start)
        total = total + self.slopes[0] * np.minimum(z - first, 0.0)
        ends = (*self.knots[1:], np.inf)
        for knot, end, slope in zip(self.knots, ends, self.slopes[1:], strict=True):
            total = total + slope * np.clip(z - knot, 0.0, end - knot)
        return total

    def exactly(self, z: Fraction) -> Fraction:
        """The value at z, without rounding: where a knot is far away, float64 loses digits of values near 0."""
        knots, (before, *slopes) = [Fraction(k) for k in self.knots], map(Fraction, self.slopes)
        total = Fraction(self.start) + before * min(z - knots[0], Fraction(0))
        for knot, end, slope in zip(knots, [*knots[1:], max(z, knots[-1])], slopes, strict=True):
            total += slope * min(max(z - knot, Fraction(0)), end - knot)
        return total


@lru_cache(KEPT)
def values_between(curve: PiecewiseLinear, low: float, high: float) -> tuple[float, float]:
    """The least and the largest value on [low, high], rounded outwards."""
    inside = [low, *(k for k in curve.knots if low < k < high), high]
    heights = [nearest(curve.exactly(Fraction(z))) for z in inside]
    least, most = float(np.nextafter(min(heights), -np.inf)), float(np.nextafter(max(heights), np.inf))
    if curve.slopes[0] <= 0 <= min(curve.slopes[1:]):  # it falls up to its first knot and rises from there
        least = max(least, curve.start)
    return least, most


@lru_cache(KEPT)
def composed(
    outer: PiecewiseLinear, own: float, shift: float, inner: PiecewiseLinear, low: float, high: float
) -> tuple[PiecewiseLinear, Fraction] | None:
    """outer(own * inner(z) + shift), and how far it may be from that on [low, high]; None if it is no such function.

    In fractions; what is lost when they become floats is a piecewise linear function, too, and largest at a knot or an end.
    """
    factor, summand = Fraction(own), Fraction(shift)

    def within(z: Fraction) -> Fraction:
        return factor * inner.exactly(z) + summand

    knots = set(map(Fraction, inner.knots))
    for i, slope in enumerate(map(Fraction, inner.slopes)):
        start = Fraction(inner.knots[max(i - 1, 0)])
        met = [start + (Fraction(k) - within(start)) / (factor * slope) for k in outer.knots] if factor * slope else []
        knots |= {z for z in met if bisect(inner.knots, z) == i}  # on piece i, not beyond it
    places = sorted(knots)
    between = [places[0] - 1, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 1]
    slopes = [
        factor * Fraction(inner.slopes[bisect(inner.knots, z)]) * Fraction(outer.slopes[bisect(outer.knots, within(z))])
        for z in between
    ]
    turns = [i for i in range(len(places)) if slopes[i] != slopes[i + 1]]
    if not turns:
        return None
    kept, steps = [nearest(places[i]) for i in turns], [nearest(slopes[i]) for i in (0, *(i + 1 for i in turns))]
    if len(set(kept)) < len(kept):
        return None
    made = PiecewiseLinear(tuple(kept), tuple(steps), nearest(outer.exactly(within(Fraction(kept[0])))))
    tried = [*places, *map(Fraction, kept), Fraction(low), Fraction(high)]
    return made, max(abs(made.exactly(z) - outer.exactly(within(z))) for z in tried)


def nearest(value: Fraction) -> float:
    """As a float, if it is not beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        raise Untraceable(NOT_FINITE) from None
