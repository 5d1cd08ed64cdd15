"""Bounds on the distance between a target and a piecewise constant function: the integral of |f - A|^p over the box.

Three kinds, from strong to weak:
- rigorous: f on boxes in interval arithmetic. Where f can be differentiated on boxes (slopes.py), f - A is a linear
  function plus a bounded remainder on each box, and only boxes with a large remainder are cut. Otherwise every cube is cut
  into m^(dn) boxes and the largest |f - A| on each is bounded; m doubles until the bound is within `TIGHT` of the midpoint
  estimate or the budget of boxes is spent.
- lipschitz: ||f(X) - f(C)||_p <= L ||X - C||_p, and the mean of |x - c|^p over a cell of width w is (w/2)^p / (p + 1).
- statistical: f is a black box; an estimate from samples, with a margin. Neither a proof nor a confidence bound.

Every result is about an integral over the target's box, and the range of f there: upper bounds but for the last kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.bounds.cells import Cells
from provenformer.bounds.intervals import Interval
from provenformer.bounds.numpy_calls import run
from provenformer.bounds.slopes import Slope, slopes_of
from provenformer.functions.grid import Grid, IntArray
from provenformer.functions.targets import AGREES, Target

Kind = Literal["rigorous", "lipschitz", "statistical"]
KINDS: tuple[Kind, ...] = ("rigorous", "lipschitz", "statistical")
TIGHT = 1.1  # bound over estimate at which subdividing stops
BOX_BUDGET = 6_000_000
CHUNK = 1 << 16  # boxes evaluated at once
REMAINDER = 0.1  # a box is settled when its remainder adds at most this share to its linear part
MAX_CUTS = 8
NORM_LIMIT = 64  # beyond, powers of small errors leave the float64 range; d_64 is close to the maximum anyway
SMALLEST_VOLUME = 2.0**-100
SAMPLES = 200_000
SPREADS = 4.0  # standard errors that an estimate adds to the mean of its samples
ROUNDINGS = 16  # widths of a point's enclosure within which the function's own numbers lie
UNSEEN = 16.0  # and as many times the largest sample, over their number: what heavy tails hide
SMALLEST = 5e-324  # the smallest float64 above 0
UNDERFLOW = 2.0**-1000  # more than all that products can lose by underflow in the terms of one box
_SUM_SLACK = 1.0 + 2.0**-36  # pairwise float64 sums and powers of non-negative terms: far below this


@dataclass(frozen=True)
class IntegralBound:
    """integral of |f - A|^p <= upper (about `estimate`), and low <= f <= high per row on those cells."""

    upper: float
    estimate: float
    low: FloatArray
    high: FloatArray
    boxes: int = 0


def supports_intervals(target: Target) -> bool:
    """Whether the function runs on intervals; decided by running it on all of the box, cut in two, and at points."""
    low, high = (np.broadcast_to(v[:, None], (1, target.token_dim, target.seq_len)) for v in (target.low, target.high))
    middle = low / 2 + high / 2
    try:
        y = run(target.fn, Interval(np.concatenate([low, middle]), np.concatenate([middle, high])))
        kept = isinstance(y, Interval) and y.shape == (2, *low.shape[1:])
        return kept and _agrees(target, lambda a, b: run(target.fn, Interval(a, b)))
    except Exception:
        return False


def _agrees(target: Target, on_boxes: Callable[[FloatArray, FloatArray], Any]) -> bool:
    """The function on point boxes against its plain values, in batches of other sizes: does it mean the same there?

    A proof is not possible, but a function that branches on types, or indexes what is not its own, does not pass.
    """
    x = target.sample(16, seed=7)
    y, found = target(x)[:5], on_boxes(x[:5], x[:5])
    if found.shape != y.shape:
        return False
    # In units of the function, however small it is; a point's enclosure is as wide as what rounding may change.
    spare = AGREES * np.abs(y).max() + ROUNDINGS * (found.hi - found.lo)
    return bool(((found.lo - spare <= y) & (y <= found.hi + spare)).all())


def best_kind(target: Target) -> Kind:
    """The strongest kind of certificate that the target allows."""
    if supports_intervals(target):
        return "rigorous"
    return "statistical" if target.lipschitz is None else "lipschitz"


def bound_integral(
    target: Target, cells: Cells, norm_order: float, kind: Kind, box_budget: int = BOX_BUDGET
) -> IntegralBound:
    """An upper bound on the integral of |f - A|^p over the given cells, of the given kind."""
    if not len(cells.ids):
        zero = np.zeros(target.token_dim)
        return IntegralBound(0.0, 0.0, zero, zero)
    if kind == "rigorous":
        return _rigorous(target, cells, norm_order, box_budget)
    if kind == "lipschitz":
        return _lipschitz(target, cells, norm_order)
    return _statistical(target, cells, norm_order)


def power(size: FloatArray, p: float) -> FloatArray:
    """size^p for size >= 0, from above: what would underflow counts as 2^-900, what overflows is inf."""
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(size, 2.0 ** (-900 / p)) ** p)


def p_sum(terms: Any, p: float) -> float:
    """(sum of t^p)^(1/p) for t >= 0, without under- or overflow."""
    sizes = np.asarray(terms, dtype=np.float64)
    largest = float(sizes.max(initial=0.0))
    if not 0 < largest < np.inf:
        return largest
    return float(largest * ((sizes / largest) ** p).sum() ** (1 / p))


def cell_volume(target: Target, grid: Grid) -> float:
    """The volume of one cube of sequences."""
    with np.errstate(over="ignore"):
        volume = float(np.float64(prod(((target.high - target.low) / grid.cells_per_axis).tolist())) ** grid.seq_len)
    if not SMALLEST_VOLUME < volume < 1 / SMALLEST_VOLUME:
        raise ProvenformerError(
            f"a cube of the support {target.support} has volume {volume:.1e}, outside 2^-100..2^100; rescale the inputs."
        )
    return volume


def _rigorous(target: Target, cells: Cells, p: float, budget: int) -> IntegralBound:
    try:
        return _on_boxes(target, cells, p, budget)
    except (TypeError, AttributeError) as error:  # an operation that intervals refuse or do not have, on some cube
        raise ProvenformerError(
            f"target '{target.name}' cannot be bounded on every cube ({error}); shrink its support or give another kind=."
        ) from error


def _on_boxes(target: Target, cells: Cells, p: float, budget: int) -> IntegralBound:
    if supports_slopes(target):
        return _by_slopes(target, cells, p, budget)
    if not _agrees(target, lambda a, b: run(target.fn, Interval(a, b))):
        raise ProvenformerError(
            f"target '{target.name}' computes something else on intervals than on numbers; give another kind=."
        )
    axes = target.token_dim * target.seq_len
    cuts = 1
    result = _subdivided(target, cells, p, cuts)
    while result.upper > TIGHT**p * result.estimate and len(cells.ids) * (2 * cuts) ** axes <= budget:
        cuts *= 2
        result = _subdivided(target, cells, p, cuts)
    return result


def supports_slopes(target: Target) -> bool:
    """Whether the function can be differentiated on boxes; decided by doing it once, and at points."""
    low, high = (np.broadcast_to(v[:, None], (1, target.token_dim, target.seq_len)) for v in (target.low, target.high))
    try:
        slopes_of(target.fn, low, high)
        return _agrees(target, lambda a, b: slopes_of(target.fn, a, b).value[0])
    except Exception:
        return False


def _by_slopes(target: Target, cells: Cells, p: float, budget: int) -> IntegralBound:
    """Mean value form: f - A is linear plus a remainder on each box; only boxes with a large remainder are cut further.

    Level by level: a box is settled when its remainder is small against its linear part, when it hardly counts, or when
    the budget of boxes is spent; otherwise its 2^(dn) parts go to the next level.
    """
    d, n = target.token_dim, target.seq_len
    parts = 2 ** (d * n)
    corner, owner = np.swapaxes(cells.grid.columns(cells.ids), 1, 2), np.arange(len(cells.ids))
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    upper = estimate = 0.0
    cuts = used = 1
    while True:
        settle_all = used + len(corner) * parts > budget or cuts >= MAX_CUTS
        open_boxes: list[IntArray] = []
        size = max(1, CHUNK // (d * n))
        for start in range(0, len(corner), size):
            part = slice(start, start + size)
            box = _mean_value_form(target, cells, corner[part], owner[part], cuts, p)
            weight = cells.multiplicity[owner[part]] / cuts ** (d * n)
            total, linear = (power(box.linear + r, p).sum(axis=1) for r in (box.remainder, 0.0))
            low, high = np.minimum(low, box.low), np.maximum(high, box.high)
            tight = total <= (1 + REMAINDER) ** p * linear
            negligible = box.remainder.max(axis=1) <= 2.0**-30 * (high - low).max()
            settled = settle_all | tight | negligible
            # Entry by entry the better of the two bounds: where f is steep, its own range says more than its slopes.
            best, about = (
                power(np.minimum(v, box.range), p).sum(axis=1) for v in (box.linear + box.remainder, box.linear)
            )
            upper += float((weight * best)[settled].sum())
            estimate += float((weight * about)[settled].sum())
            open_boxes.append(np.flatnonzero(~settled) + start)
        rest = np.concatenate(open_boxes)
        if not len(rest):
            break
        used += len(rest) * parts
        halves = np.stack(np.unravel_index(np.arange(parts), (2,) * (d * n)), axis=1).reshape(-1, d, n)
        corner = (2 * corner[rest][:, None] + halves).reshape(-1, d, n)
        owner = np.repeat(owner[rest], parts)
        cuts *= 2
    volume = cell_volume(target, cells.grid)
    if not np.isfinite(upper):
        raise ProvenformerError(
            f"target '{target.name}' has no finite bound on a cube; shrink its support or give a Lipschitz constant."
        )
    return IntegralBound(_scaled_up(upper, volume), estimate * volume, low, high, used)


def _scaled_up(total: float, volume: float) -> float:
    """total * volume, from above: also where the product is so small that float64 rounds it coarsely."""
    return total * volume * _SUM_SLACK + 4 * SMALLEST


@dataclass(frozen=True)
class _MeanValueForm:
    """Per box and entry (boxes, d n): L_p means of the linear part of f - A and of the remainder, and the largest |f - A|
    by the plain enclosure; then the range of f per row. What is not known is infinite."""

    linear: FloatArray
    remainder: FloatArray
    range: FloatArray
    low: FloatArray
    high: FloatArray


def _mean_value_form(
    target: Target, cells: Cells, corner: IntArray, owner: IntArray, cuts: int, p: float
) -> _MeanValueForm:
    """|f - A| <= |offset + sum_k g_k y_k| + (uncertainty of f(c)) + sum_k radius_k |y_k| on a box with centre c.

    y_k is uniform on [-r_k, r_k]: its L_p mean is r_k / (p + 1)^(1/p). The linear part's L_p mean is at most its L_2 mean
    for p <= 2, its L_4 mean for p <= 4 (both in closed form), and by Lyapunov L_4^(4/p) L_inf^(1-4/p) beyond.
    """
    d, n = target.token_dim, target.seq_len
    count = len(corner)
    a, b, doubt = _box(target, cells.grid, cuts, corner)
    center = a / 2 + b / 2
    reach = np.nextafter(np.maximum(b - center, center - a), np.inf).reshape(count, d * n)
    over = slopes_of(target.fn, a, b)
    point = run(target.fn, Interval(center, center))
    with np.errstate(all="ignore"):  # unbounded slopes: what is not known is infinite
        return _over_boxes(over, point, cells.values[owner], reach, doubt, p)


def _over_boxes(
    over: Slope, point: Interval, values: FloatArray, reach: FloatArray, doubt: FloatArray, p: float
) -> _MeanValueForm:
    count, d, n = values.shape
    offset_low, offset_high = np.nextafter(point.lo - values, -np.inf), np.nextafter(point.hi - values, np.inf)
    offset = (offset_low / 2 + offset_high / 2).reshape(count, d * n)
    unsure = np.nextafter((offset_high - offset_low).reshape(count, d * n) / 2, np.inf) + np.abs(offset) * 2.0**-51
    slope = over.slope.lo / 2 + over.slope.hi / 2  # (directions, boxes, d, n)
    radius = np.nextafter(np.maximum(over.slope.hi - slope, slope - over.slope.lo), np.inf)
    slope, radius = (v.reshape(d * n, count, d * n).transpose(1, 2, 0) for v in (slope, radius))  # (box, entry, k)
    moved = np.abs(slope) * reach[:, None, :]  # |g_k| r_k
    linear = _linear_part(offset, moved, p)
    # The true box may lie off the computed centre by its rounding: |g_k| times that.
    off_centre = (np.abs(slope) * np.repeat(doubt, n)).sum(axis=2)
    remainder = unsure + off_centre + (radius * reach[:, None, :]).sum(axis=2) / (p + 1) ** (1 / p)
    remainder = remainder * (1 + 2.0**-44) + UNDERFLOW
    enclosed = over.value[0]
    largest = np.nextafter(np.maximum(enclosed.hi - values, values - enclosed.lo), np.inf).reshape(count, d * n)
    low, high = enclosed.lo.min(axis=(0, 2)), enclosed.hi.max(axis=(0, 2))
    linear, remainder, largest = (np.where(np.isnan(v), np.inf, v) for v in (linear, remainder, largest))
    return _MeanValueForm(linear, remainder, largest, low, high)


def _linear_part(offset: FloatArray, moved: FloatArray, p: float) -> FloatArray:
    """The L_p mean of |offset + sum_k moved_k u_k|, u_k independent and uniform on [-1, 1], from above.

    In units of the largest term, so that no square under- or overflows: what then underflows is below 2^-1000 of the sum.
    """
    unit = np.maximum(np.abs(offset), moved.max(axis=2))
    unit = np.where((unit > 0) & (unit < np.inf), unit, 1.0)
    offset, moved = np.abs(offset) / unit, moved / unit[:, :, None]
    spread = moved**2
    variance = spread.sum(axis=2) / 3
    mean = np.sqrt(offset**2 + variance)
    if p > 2:
        # E (a + Y)^4 = a^4 + 6 a^2 E Y^2 + E Y^4 for a sum Y of independent symmetric terms; E u^4 = 1/5.
        fourth = 3 * variance**2 - (2 / 15) * (spread**2).sum(axis=2)
        mean = (offset**4 + 6 * offset**2 * variance + fourth) ** 0.25
    if p > 4:
        mean = mean ** (4 / p) * (offset + moved.sum(axis=2)) ** (1 - 4 / p)
    return np.asarray(mean * unit * (1 + 2.0**-44))


def _subdivided(target: Target, cells: Cells, p: float, cuts: int) -> IntegralBound:
    """All cells cut into `cuts` parts per axis."""
    d, n = target.token_dim, target.seq_len
    parts = cuts ** (d * n)
    per_chunk = max(1, CHUNK // parts)
    offsets = np.stack(np.unravel_index(np.arange(parts), (cuts,) * (d * n)), axis=1).reshape(parts, d, n)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    upper = estimate = 0.0
    for start in range(0, len(cells.ids), per_chunk):
        chunk = cells[start : start + per_chunk]
        corner = np.swapaxes(cells.grid.columns(chunk.ids), 1, 2)  # (count, d, n)
        fine = (corner[:, None] * cuts + offsets).reshape(-1, d, n)
        a, b, _ = _box(target, cells.grid, cuts, fine)
        box = run(target.fn, Interval(a, b))
        values = np.repeat(chunk.values, parts, axis=0)
        weight = np.repeat(chunk.multiplicity, parts)
        worst = np.nextafter(np.maximum(box.hi - values, values - box.lo), np.inf)
        upper += float((weight * power(worst, p).sum(axis=(1, 2))).sum())
        off = np.abs(target(a / 2 + b / 2) - values)
        estimate += float((weight * (off**p).sum(axis=(1, 2))).sum())
        low = np.minimum(low, box.lo.min(axis=(0, 2)))
        high = np.maximum(high, box.hi.max(axis=(0, 2)))
    if not np.isfinite(upper):
        raise ProvenformerError(
            f"target '{target.name}' has no finite bound on a cube; shrink its support or give a Lipschitz constant."
        )
    volume = cell_volume(target, cells.grid) / parts
    return IntegralBound(_scaled_up(upper, volume), estimate * volume, low, high, parts * len(cells.ids))


def _box(target: Target, grid: Grid, cuts: int, corner: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Boxes that contain the cells cut into `cuts` parts (and stay in the support), and the rounding per row (d,)."""
    doubt = 4 * np.spacing(np.maximum(np.abs(target.low), np.abs(target.high)))
    low, high = target.low[:, None], target.high[:, None]
    a = np.maximum(_coordinate(target, grid, cuts, corner) - doubt[:, None], low)
    b = np.minimum(_coordinate(target, grid, cuts, corner + 1) + doubt[:, None], high)
    return a, b, doubt


def _coordinate(target: Target, grid: Grid, cuts: int, index: Any) -> FloatArray:
    """The coordinates of cut points, rounded four times: `_box` widens by more than that."""
    share = index / (grid.cells_per_axis * cuts)
    return np.asarray(target.low[:, None] * (1 - share) + target.high[:, None] * share)


def _center_values(target: Target, cells: Cells) -> FloatArray:
    corner = np.swapaxes(cells.grid.columns(cells.ids), 1, 2)
    return target(_coordinate(target, cells.grid, 1, corner + 0.5))


def _lipschitz(target: Target, cells: Cells, p: float) -> IntegralBound:
    if target.lipschitz is None:
        raise ProvenformerError(
            f"target '{target.name}' has no Lipschitz constant; give lipschitz= or use kind='statistical'."
        )
    found = target.lipschitz_counterexample(p)
    if found:
        x, y = found
        raise ProvenformerError(
            f"lipschitz={target.lipschitz} of target '{target.name}' is wrong in the {p}-norm: X={np.round(x, 4).tolist()}, "
            f"Y={np.round(y, 4).tolist()} differ by more; give a larger constant."
        )
    cell = (target.high - target.low) / cells.grid.cells_per_axis
    volume = cell_volume(target, cells.grid)
    reach = target.lipschitz * p_sum(np.repeat(cell / 2, target.seq_len), p)
    centers = _center_values(target, cells)
    upper = 0.0
    for part, known in _known_parts(cells, centers, p):
        moved = reach * (float(cells.multiplicity[part].sum()) / (p + 1)) ** (1 / p)
        upper += _scaled_up(float(power(np.array(moved + known ** (1 / p)), p)), volume)  # Minkowski
    return IntegralBound(upper, upper, centers.min(axis=(0, 2)) - reach, centers.max(axis=(0, 2)) + reach)


def _known_parts(cells: Cells, centers: FloatArray, p: float) -> list[tuple[Any, float]]:
    """Cubes whose value is that of their centre, and the others (lost or altered), each with the sum of |f(C) - A|^p."""
    off = np.abs(centers - cells.values)
    near = off.max(axis=(1, 2)) <= 1e-4 * np.abs(centers).max()
    known = cells.multiplicity * power(off, p).sum(axis=(1, 2))
    return [(part, float(known[part].sum())) for part in (near, ~near) if part.any()]


def _statistical(target: Target, cells: Cells, p: float) -> IntegralBound:
    """|f - A| <= |f - f(C)| + |f(C) - A|: the first part is estimated from samples, the second is known for every cube.

    So a wrong value cannot hide in a cube that no sample falls into. What f does where no sample falls, nobody knows:
    docs/certificates.md shows that no sample can bound it.
    """
    centers = _center_values(target, cells)
    volume = cell_volume(target, cells.grid)
    low, high = centers.min(axis=(0, 2)), centers.max(axis=(0, 2))
    upper = estimate = 0.0
    for part, known in _known_parts(cells, centers, p):
        group = cells[part]
        total = float(group.multiplicity.sum())
        moved, y = _sampled_movement(target, group, centers[part], p)
        margin = SPREADS * moved.std(ddof=1) / SAMPLES**0.5 + UNSEEN * moved.max() / SAMPLES
        above, about = (total * float(moved.mean() + m) for m in (margin, 0.0))
        upper += float(power(np.array(above ** (1 / p) + known ** (1 / p)), p))
        estimate += float(power(np.array(about ** (1 / p) + known ** (1 / p)), p))
        low, high = np.minimum(low, y.min(axis=(0, 2))), np.maximum(high, y.max(axis=(0, 2)))
    # A sample does not see the very largest values: allow a tenth of the observed range on each side.
    spare = (high - low) / 10
    return IntegralBound(_scaled_up(upper, volume), estimate * volume, low - spare, high + spare)


def _sampled_movement(target: Target, cells: Cells, centers: FloatArray, p: float) -> tuple[FloatArray, FloatArray]:
    """|f(X) - f(C)|_p^p for random X of random cubes, and f(X)."""
    rng = np.random.default_rng(0)
    share = cells.multiplicity / cells.multiplicity.sum()
    picked = rng.choice(len(share), size=SAMPLES, p=share)
    corner = np.swapaxes(cells.grid.columns(cells.ids[picked]), 1, 2)
    y = target(_coordinate(target, cells.grid, 1, corner + rng.random(corner.shape)))
    return power(np.abs(y - centers[picked]), p).sum(axis=(1, 2)), y
