"""Feed-forward layers that read and write one row, on intervals of inputs, exactly: one interval per cell."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.base.errors import Rejected
from provenformer.checker.points import TINY, U, Where
from provenformer.networks.thin import ReluRun


def single_row(where: Where, run: ReluRun) -> int:
    """The one row that every layer of a run reads and writes."""
    reads = run.W_1.any(axis=(0, 1))
    writes = run.W_2.any(axis=(0, 2)) | run.b_2.any(axis=0)
    rows = np.flatnonzero(reads | writes)
    if len(rows) != 1:
        raise Rejected(f"run {where.run} ({where.stage}): layers before the cells are single numbers must use one row")
    return int(rows[0])


def rounding_of(units: int) -> Fraction:
    """What rounding may add to a layer with so many active units, in any order of its sums, relative to all that enters them.

    Each unit: a product and a sum, then a product; all of them, the state and the bias: units + 1 sums. To first order that is
    (units + 4) U; one more for the rest, as long as there are less than 2^20 units.
    """
    return (units + 5) * Fraction(U)


def map_intervals(where: Where, run: ReluRun, i: int, row: int, low: list[Fraction], high: list[Fraction]) -> None:
    """Apply one layer to intervals of one coordinate, in place and exactly, widened by float64 rounding."""
    units = [
        (Fraction(float(run.W_1[i, u, row])), Fraction(float(run.b_1[i, u])), Fraction(float(run.W_2[i, row, u])))
        for u in range(run.W_1.shape[1])
        if run.W_2[i, row, u] != 0.0
    ]
    shift = Fraction(float(run.b_2[i, row]))
    for k in range(len(low)):
        a, b = low[k], high[k]
        active = []
        for weight, bias, out in units:
            at_a, at_b = weight * a + bias, weight * b + bias
            if max(at_a, at_b) <= 0:
                continue
            if min(at_a, at_b) < 0:
                raise Rejected(f"{where.layer(i)}: a break lies inside cell {k}, outside its ramp")
            # Rounding is relative to what enters the sum, not to the sum; and a product may underflow.
            size = abs(weight) * max(abs(a), abs(b)) + abs(bias) + Fraction(TINY)
            active.append((weight, bias, out, max(at_a, at_b), size))
        if not active and not shift:
            continue
        slope = sum((weight * out for weight, _, out, _, _ in active), Fraction(1))
        constant = sum((bias * out for _, bias, out, _, _ in active), shift)
        new_a, new_b = slope * a + constant, slope * b + constant
        terms = [max(abs(a), abs(b)), abs(shift), *(abs(out) * size for _, _, out, _, size in active)]
        if not _exact_on_interval(a, b, slope, constant, active, shift) and not _exact_at_point(a, b, active, shift):
            error = rounding_of(len(active)) * sum(terms) + Fraction(TINY)
            new_a, new_b = min(new_a, new_b) - error, max(new_a, new_b) + error
        low[k], high[k] = min(new_a, new_b), max(new_a, new_b)


def _exact_on_interval(
    a: Fraction, b: Fraction, slope: Fraction, constant: Fraction, active: list[Any], shift: Fraction
) -> bool:
    """x - (x - k) with one active unit and k <= x < 2^52 - 1 close by: float64 computes it without rounding.

    x - k has no finer unit in the last place than x when k = 0 or k <= x <= k + 1 for a whole number k >= 1.
    """
    if len(active) != 1 or shift or slope != 0:
        return False
    weight, bias, out, _, _ = active[0]
    whole = constant.denominator == 1 and 0 <= constant < 2**52
    return bool(weight == 1 and out == -1 and bias == -constant and whole and a >= constant and b <= constant + 1)


def _exact_at_point(a: Fraction, b: Fraction, active: list[Any], shift: Fraction) -> bool:
    """At a point: all terms of each sum are multiples of one power of two and their sizes add up to 53 bits at most.

    Then every order of summing is exact.
    """
    if a != b:
        return False
    sums = [[weight * a, bias] for weight, bias, _, _, _ in active]
    sums.append([a, shift, *(out * top for _, _, out, top, _ in active)])
    for terms in sums:
        finest = max(v.denominator for v in terms)
        if finest & (finest - 1) or finest > 2**1000 or sum(abs(v) for v in terms) * finest >= 2**53:
            return False
    return True


def as_float(value: Fraction, where: Where) -> float:
    result = float(value)
    if Fraction(result) != value:
        raise Rejected(f"{where.layer(0)}: a collapsed cell is not a float64 number")
    return result
