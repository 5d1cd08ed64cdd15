"""Claims over the whole space: a sequence with a coordinate outside the box gives exactly 0, shown on the weights.

The argument (docs/certificates.md) goes in steps, one function each: coordinates outside are sent far below 0; the layers before
attention do not touch them; attention then lifts the first row of every column above all valid ids; that makes every row
negative, then 0, and 0 it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.coordinates import rounding_of
from provenformer.checker.points import TINY, feed_points
from provenformer.checker.walk import Walk
from provenformer.networks.thin import ReluRun, SoftmaxRun


def require_zero_outside(walk: Walk) -> None:
    """A sequence with a coordinate outside the box (by more than a ramp) must give 0, whatever the rest is."""
    if walk.network.positions is not None:
        raise Rejected("claims over the whole space are not derived for networks with positions")
    _, rest = walk.collapse_cells()
    if len(rest) < 3 + walk.grid.token_dim:
        raise Rejected("the network has too few runs to send tokens from outside to 0")
    first = rest[0][0].run
    rows = [_coordinate_range(walk, row, walk.network.runs[:first]) for row in range(walk.grid.token_dim)]
    rows, reads = _require_lowering(rest, rows)
    floor = _require_lifting(rest, rows, reads, walk.grid.seq_len)
    after = _require_zeroing(rest, rows, floor)
    zero = np.zeros((1, walk.grid.token_dim))
    for where, run in after:
        if not isinstance(run, ReluRun):
            raise Rejected(f"run {where.run} ({where.stage}): attention after tokens from outside became 0")
        zero, radius = feed_points(where, run, zero, np.zeros(zero.shape))
        if zero.any() or radius.any():
            raise Rejected(f"run {where.run} ({where.stage}): a zero column does not stay exactly 0")


@dataclass(frozen=True)
class _RowRange:
    """After the coordinate-wise layers: every number is at most `top`; one from outside is at most -`below`."""

    top: float
    below: float


def _coordinate_range(walk: Walk, row: int, runs: Sequence[Any]) -> _RowRange:
    """Follow the whole line, and the two half-lines outside, through the coordinate-wise layers of a row."""
    start, end = Fraction(float(walk.target.low[row])), Fraction(float(walk.target.high[row]))
    step = (end - start) / walk.grid.cells_per_axis
    whole = _image(runs, row, None, None)
    left = _image(runs, row, None, start - (walk.ramp + walk.slack) * step)
    right = _image(runs, row, end + walk.slack * step, None)
    tops = [top for top in (left, right) if top is not None]
    if whole is None or len(tops) < 2 or max(tops) >= 0:
        raise Rejected(f"row {row}: a coordinate outside the box is not sent below 0")
    return _RowRange(float(whole) * (1 + 2.0**-20) + 2.0**-20, -float(max(tops)) * (1 - 2.0**-20))


def _image(runs: Sequence[Any], row: int, low: Fraction | None, high: Fraction | None) -> Fraction | None:
    """The supremum of a (half-)line after all layers that use a row; None when it is not bounded from above."""
    for run in runs:
        if not isinstance(run, ReluRun) or not (
            run.W_1[..., row].any() or run.W_2[:, row].any() or run.b_2[:, row].any()
        ):
            continue
        for i in range(len(run)):
            low, high = layer_image(run, i, row, low, high)
    return high


def layer_image(
    run: ReluRun, i: int, row: int, low: Fraction | None, high: Fraction | None
) -> tuple[Fraction | None, Fraction | None]:
    """The hull of a layer's image of [low, high], None standing for an infinite end, widened by rounding.

    A piecewise linear function takes its extremes at the ends and breaks; towards infinity its last slope decides. There
    rounding must be small against the slope, so that it cannot turn the sign.
    """
    units = [
        (Fraction(float(run.W_1[i, u, row])), Fraction(float(run.b_1[i, u])), Fraction(float(run.W_2[i, row, u])))
        for u in range(run.W_1.shape[1])
        if run.W_2[i, row, u] != 0.0  # a unit with W_1 = 0 is a constant, not nothing
    ]
    shift = Fraction(float(run.b_2[i, row]))
    if not units and not shift:
        return low, high

    def value(x: Fraction) -> tuple[Fraction, Fraction]:
        terms = [out * max(weight * x + bias, Fraction(0)) for weight, bias, out in units]
        # At its own break a unit counts as active: just beyond it is, and rounds what it reads.
        active = [unit for unit in units if unit[0] * x + unit[1] >= 0]
        sizes = [abs(out) * (abs(weight * x) + abs(bias) + Fraction(TINY)) for weight, bias, out in active]
        error = rounding_of(len(units)) * (abs(x) + abs(shift) + sum(sizes, Fraction(0))) + Fraction(TINY)
        return x + shift + sum(terms, Fraction(0)), error

    def slope(side: int) -> Fraction:
        active = [(weight, out) for weight, _, out in units if weight * side > 0]
        total = sum((weight * out for weight, out in active), Fraction(1))
        noise = rounding_of(len(units)) * (1 + sum((abs(weight * out) for weight, out in active), Fraction(0)))
        if 4 * noise >= abs(total):
            raise Rejected(f"layer {i} of a run before the cells are single numbers: rounding drowns its outer slope")
        return total

    breaks = [-bias / weight for weight, bias, _ in units if weight]
    inside = [b for b in breaks if (low is None or b > low) and (high is None or b < high)]
    found = [value(x) for x in (*inside, *(end for end in (low, high) if end is not None))]
    if not found:
        found = [value(Fraction(0))]
    new_low: Fraction | None = min(v - e for v, e in found)
    new_high: Fraction | None = max(v + e for v, e in found)
    for end, side in ((low, -1), (high, 1)):
        if end is None:
            if slope(side) * side > 0:
                new_high = None
            else:
                new_low = None
    return new_low, new_high


def _require_lowering(rest: Any, rows: list[_RowRange]) -> tuple[list[_RowRange], tuple[FloatArray, float, float]]:
    """Feed-forward layers before attention only lower what they touch, and do not touch tokens from outside.

    Returns the ranges after them, the direction they read, an upper bound on any read, and one (negative) on reads from outside.
    """
    where, run = rest[0]
    if not isinstance(run, ReluRun) or not isinstance(rest[1][1], SoftmaxRun):
        raise Rejected("over the whole space one feed-forward run must stand between the cells and attention")
    if run.W_1.shape[1] != 4:
        raise Rejected(f"run {where.run} ({where.stage}): a layer with other than four units is not a bump")
    direction = run.W_1[0, 0]
    breaks = -run.b_1
    ramp_up, ramp_down = breaks[:, 1] - breaks[:, 0], breaks[:, 3] - breaks[:, 2]
    rise, fall = run.W_2[:, :, 0] * ramp_up[:, None], run.W_2[:, :, 2] * ramp_down[:, None]
    bump = (direction == run.W_1).all() and not run.b_2.any() and (direction > 0).all()
    bump &= bool((np.diff(breaks, axis=1) > 0).all() and (run.W_2[:, :, 1::2] == -run.W_2[:, :, ::2]).all())
    if not bump or (rise != -fall).any() or (rise > 0).any():
        raise Rejected(f"run {where.run} ({where.stage}): its layers are not bumps that lower a token")
    top = float(sum(w * max(r.top, 0.0) for w, r in zip(direction, rows, strict=True)))
    outside = max(top - w * (max(r.top, 0.0) + r.below) for w, r in zip(direction, rows, strict=True))
    if not outside < breaks.min():
        raise Rejected(f"run {where.run} ({where.stage}): it touches a token from outside the box")
    # Beyond a bump its four terms cancel up to rounding, relative to their sizes: that may raise a row, layer after layer.
    sizes = np.abs(run.W_2).sum(axis=2).T @ (2 * (top + np.abs(breaks).max(axis=1)))  # (d,): all layers together
    raised = float(rounding_of(4 + len(direction))) * sizes
    if not direction @ raised <= 2.0**-10 * top:
        raise Rejected(f"run {where.run} ({where.stage}): rounding beyond its bumps might raise a token")
    rows = [replace(r, top=max(r.top, 0.0) + float(more)) for r, more in zip(rows, raised, strict=True)]
    return rows, (direction, float(sum(w * r.top for w, r in zip(direction, rows, strict=True))), float(outside))


def _require_lifting(rest: Any, rows: list[_RowRange], reads: tuple[FloatArray, float, float], n: int) -> float:
    """Uniform attention adds -gain * (sum of reads) to the first row: a lower bound on it when a token is outside."""
    direction, top, outside = reads
    where, run = rest[1]
    W_O, W_V = run.W_O[0], run.W_V[0]
    uniform = not run.W_K.any() and not run.W_Q.any() and len(run) == 1 and not W_O[1].any()
    gain = -float(W_O[0, 0]) / n
    if not uniform or W_O[0, 1:].any() or (W_V[0] != direction).any() or not gain * direction[0] >= 2:
        raise Rejected(
            f"run {where.run} ({where.stage}): not one uniform head that reads what the layers before it read"
        )
    others = float(sum(w * max(r.top, 0.0) for w, r in zip(direction[1:], rows[1:], strict=True)))
    elsewhere = gain * (-outside - others - (n - 1) * top)
    in_first_row = gain * (direction[0] * rows[0].below / 2 - others - (n - 1) * top)
    return float(min(elsewhere, in_first_row) * (1 - 2.0**-20))


def _require_zeroing(rest: Any, rows: list[_RowRange], floor: float) -> Any:
    """A first row above all valid ids makes every row negative; then x + ReLU(-x) makes them 0. Returns the other runs."""
    d = len(rows)
    where, run = rest[2]
    if not all(isinstance(r, ReluRun) for _, r in rest[2 : 3 + d]):
        raise Rejected(f"run {where.run} ({where.stage}): a second attention layer before tokens from outside become 0")
    breaks = -run.b_1[0]
    e1 = np.eye(d)[0]
    used = (run.W_2[0] != 0).any(axis=0)
    clear = len(run) == 1 and (run.W_1[0] == e1).all() and not run.b_2.any() and (breaks[used] < floor).all()
    slope = run.W_2[0].sum(axis=1)
    at_floor = (run.W_2[0] * np.maximum(floor - breaks, 0.0)).sum(axis=1)
    # Breaks of used units lie below what is read, so a unit's terms are at most twice that; and the state itself.
    noise = 2 * float(rounding_of(run.W_1.shape[1])) * (1.0 + np.abs(run.W_2[0]).sum())
    worst = np.array([floor, *(max(r.top, 0.0) for r in rows[1:])])
    if not clear or not (slope <= -1.5).all() or noise > 0.1 or not (worst + at_floor < -noise * floor).all():
        raise Rejected(f"run {where.run} ({where.stage}): ids of sequences with a token outside do not become negative")
    for row in range(d):
        where, run = rest[3 + row]
        pattern = len(run) == 1 and not run.b_2.any() and not run.b_1.any()
        used = (run.W_2[0] != 0).any(axis=0)
        reads_row = (run.W_1[0][used] == -np.eye(d)[row]).all()
        if not pattern or used.sum() != 1 or not reads_row or (run.W_2[0][:, used].ravel() != np.eye(d)[row]).any():
            raise Rejected(f"run {where.run} ({where.stage}): it is not x + ReLU(-x) on row {row}")
    return rest[3 + d :]
