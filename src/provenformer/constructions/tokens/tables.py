"""Functions of whole numbers as ReLUs: exact on the integers, and flat around them where the argument is a sum over tokens."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from provenformer.symbols.tokens.graph import Part

Hinge = tuple[
    Fraction, int, Fraction
]  # (knot in steps from the lowest value, side that it opens to, slope on that side)


def hinges(part: Part) -> tuple[int, list[Hinge]]:
    """(value in the middle, hinges to both sides), so that few units are on at a time and their sums stay small."""
    return int(part.values[len(part.values) // 2]), (_flat if part.snap else _straight)(part.values)


def _straight(values: np.ndarray) -> list[Hinge]:
    """Lines between neighbouring integers."""
    middle, slopes = len(values) // 2, np.diff(values)
    right = np.diff(slopes[middle:], prepend=0)  # bends at middle, middle + 1, ..
    left = np.diff(-slopes[:middle][::-1], prepend=0)  # at middle, middle - 1, .., as seen from the middle
    found = [(Fraction(middle + int(i)), 1, Fraction(int(right[i]))) for i in np.flatnonzero(right)]
    return found + [(Fraction(middle - int(i)), -1, Fraction(int(left[i]))) for i in np.flatnonzero(left)]


def _flat(values: np.ndarray) -> list[Hinge]:
    """Twice as steep half-way between neighbours that differ, constant elsewhere."""
    middle, steps = len(values) // 2, np.diff(values)
    found: list[Hinge] = []
    for i in np.flatnonzero(steps):
        side = 1 if i >= middle else -1
        near, far = (Fraction(1, 4), Fraction(3, 4)) if side > 0 else (Fraction(3, 4), Fraction(1, 4))
        rise = Fraction(2 * side * int(steps[i]))
        found += [(int(i) + near, side, rise), (int(i) + far, side, -rise)]
    return found
