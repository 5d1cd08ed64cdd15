"""Units that compute the mean over k of kernel(u_j + v_k) from u and from means over k of functions of v.

Every unit reads x = beta u + mean_k T(v_k), T piecewise linear: a number that is linear in the distribution of the v_k. For a
unit with a negative weight, relu(mean x) <= mean relu(x) (Jensen) bounds the sum of all units from below by its values at equal
v_k, and relu(x) >= theta x, theta from 0 to 1, from above. So functions of u and one v decide (docs/circuits-verify.md, Lemma 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.jets import jet_of
from provenformer.checker.circuit.linear import Combination, combine, difference, inner, largest, mixed, of_lin
from provenformer.checker.circuit.precision import UNIT
from provenformer.checker.circuit.ranges import range_of
from provenformer.checker.circuit.state import Channel
from provenformer.checker.circuit.units import Written, classes, left_over, reading_error, rest_of
from provenformer.symbols.formula import Formula
from provenformer.symbols.graph import PairMean, Pieces

MOST_CELLS = 2**20  # of u and v
INSIDE = (
    1e-6,
    1e-4,
    1e-2,
)  # a cell without this share at either end: a kink near its end is none inside; the best counts


@dataclass(frozen=True, eq=False)
class Readings:
    """Units as functions of u and of the distribution of v: x_i = offset + slope_i u + mean of T_i(v)."""

    slopes: FloatArray  # (units,)
    heights: FloatArray  # (units, points of v): T_i without its constant
    points: FloatArray  # of v: the ends of its range and all knots between them
    errors: FloatArray  # (units, arithmetics): of x_i, beside what u is off
    u_error: FloatArray  # (arithmetics,)


def write_pair_mean(written: Written, operation: PairMean, claim: Combination, before: Channel) -> Channel:
    """The units' function against the kernel's mean, at the u that is there; then the kernel moves by what u is off."""
    state, graph = written.state, written.graph
    row, column = (of_lin(lin, state.ranges, graph.seq_len) for lin in (operation.row, operation.column))
    low, high = range_of(graph, row, state.ranges)
    readings = _readings(written, operation, row, column)
    reach = float(np.where(np.isfinite(readings.u_error), readings.u_error, 0.0).max()) * (1 + 1e-9)
    worst, terms = 0.0, 0.0
    for j, k, m in classes(written.offsets, row.constant[None], written.constant[None]):
        offsets = written.offsets[:, j] - readings.slopes * float(row.constant[k])
        off, size = _deviation(
            written, readings, operation.kernel, offsets, float(written.constant[m]), (low - reach, high + reach)
        )
        worst, terms = max(worst, off), max(terms, size)
    ends = low - reach + readings.points[0], high + reach + readings.points[-1]
    steep = _steepest(operation.kernel, *ends) * (readings.u_error + column.slack)
    own = np.abs(written.coefficients) @ (readings.errors + written.rounding)
    error = worst + steep + own + written.outer_rounding(terms + own) + left_over(before, state)
    return Channel(claim, Error.absolute(np.where(np.isfinite(readings.u_error), error, np.inf)))


def _readings(written: Written, operation: PairMean, row: Combination, column: Combination) -> Readings:
    """Channels that hold means of functions of v, and one direction of the others, which must be u."""
    state, n = written.state, written.state.seq_len
    points = _points(operation, column, written)
    used = np.flatnonzero(written.varying.any(axis=0))
    functions = {
        c: f for c in used if (f := _function_of_column(written, operation, column, int(c), points)) is not None
    }
    known = np.array(sorted(functions), dtype=np.intp)
    rows = written.varying.copy()
    rows[:, known] = 0.0
    u = row.without_constant()
    lead = int(np.argmax(np.abs(rows).max(axis=1)))
    norm = inner(u, u, n)
    scale = inner(state.value(rows[lead]), u, n) / norm if norm else 0.0
    if not np.isfinite(scale) or scale == 0 or not len(known):
        raise Rejected(f"{written.where}: its units do not read both its row and means of its column")
    direction = rows[lead] / scale
    slopes = (rows @ direction) / float(direction @ direction)
    errors = rest_of(state, rows, slopes[:, None] * direction)
    weights = np.abs(written.varying[:, known])
    heights = written.varying[:, known] @ np.stack([functions[c][0] for c in known])
    left = np.array([functions[c][1] for c in known])
    dust = (len(known) + 4) * 2.0**-52 * (weights @ np.stack([np.abs(functions[c][0]) for c in known]).max(axis=1))
    errors = errors + weights @ (state.errors[known] + left[:, None]) + dust[:, None]
    return Readings(slopes, heights, points, errors, reading_error(state, direction, u).plain)


def _points(operation: PairMean, column: Combination, written: Written) -> FloatArray:
    low, high = range_of(written.graph, column, written.state.ranges)
    knots = [
        knot for atom in written.graph.atoms if isinstance(atom.operation, Pieces)
        and atom.operation.of.key == operation.column.key for knot in atom.operation.curve.knots if low < knot < high
    ]  # fmt: skip
    return np.unique(np.array([low, high, *knots]))


def _function_of_column(
    written: Written, operation: PairMean, column: Combination, channel: int, points: FloatArray
) -> tuple[FloatArray, float] | None:
    """(values at the points, error) if a channel holds the mean over tokens of a function of v, its known part taken out."""
    state, n = written.state, written.state.seq_len
    holds = state.channels[channel].holds.without_constant()
    mean = np.full((1, n), 1.0 / n)
    if len(holds.parts) == 1:
        ((number, part),) = holds.parts.items()
        made = written.graph.atoms[number].operation
        if (
            isinstance(made, Pieces)
            and made.of.key == operation.column.key
            and part.mix is not None
            and len(part.mix) == 1
        ):
            weight = float(part.mix.sum())
            off = float(np.abs(part.mix - weight / n).sum()) + float(np.abs(np.asarray(part.own)).max())
            reach = state.ranges.size(number)
            dust = (
                (len(made.curve.knots) + 4)
                * 2.0**-51
                * abs(weight)
                * (reach + max(map(abs, made.curve.slopes)) * float(np.abs(points).max()))
            )
            return weight * made.curve(points), off * reach + dust + holds.slack
    wanted = mixed(mean, column.without_constant(), state.ranges)
    norm = inner(wanted, wanted, n)
    weight = inner(holds, wanted, n) / norm if norm else 0.0
    left = difference(holds, combine([(weight, wanted)], state.ranges), state.ranges)
    if not weight or largest(left, state.ranges) > 1e-9 * largest(holds, state.ranges):
        return None
    constant = float(column.constant.mean())
    dust = 8 * 2.0**-53 * abs(weight) * (float(np.abs(points).max()) + abs(constant))
    return weight * (points - constant), largest(left, state.ranges) + dust


def _deviation(
    written: Written,
    readings: Readings,
    kernel: Formula,
    offsets: FloatArray,
    constant: float,
    ends: tuple[float, float],
) -> tuple[float, float]:
    """sup |units - mean of the kernel| for u between the ends, and the largest sum of |terms|."""
    weights, points = written.coefficients, readings.points
    joint = readings.heights.any(axis=1)
    plain = ~joint & (readings.slopes != 0)
    knots = -offsets[plain] / readings.slopes[plain]
    nodes = _whole_cells(ends, np.unique(knots))
    if len(nodes) * len(points) > MOST_CELLS:
        raise Rejected(f"{written.where}: a kernel by {len(nodes):,} nodes is more than the checker looks at")
    lines = readings.slopes[:, None] * nodes + offsets[:, None]  # (units, nodes)
    kernels = jet_of(kernel, *_around(nodes[:, None] + points)).value
    chord = _chords(kernel, nodes, points)
    alone = constant + weights[~joint] @ np.maximum(lines[~joint], 0.0)  # (nodes,)
    sizes = np.abs(weights[~joint]) @ np.maximum(lines[~joint], 0.0)
    a, heights, lines = weights[joint], readings.heights[joint], lines[joint]
    least, most = lines.min(axis=1) + heights.min(axis=1), lines.max(axis=1) + heights.max(axis=1)
    if ((a > 0) & (least < 0) & (most > 0)).any():
        raise Rejected(f"{written.where}: a unit that is added is neither on nor off for all inputs")
    low, high, size = np.inf, -np.inf, 0.0
    before: FloatArray | None = None
    for p in range(len(nodes)):
        x = lines[:, p, None] + heights  # (joint, points)
        on = np.maximum(x, 0.0)
        low = min(low, float((alone[p] + a @ on - kernels.hi[p]).min()))
        size = max(size, float((np.abs(a) @ on).max()) + sizes[p])
        if before is not None:
            bottom = np.minimum(before.min(axis=1), x.min(axis=1))
            top = np.maximum(before.max(axis=1), x.max(axis=1))
            with np.errstate(invalid="ignore", divide="ignore"):
                theta = np.where(bottom >= 0, 1.0, np.where(top <= 0, 0.0, top / (top - bottom)))
            for q, values in ((p - 1, before), (p, x)):
                high = max(high, float((alone[q] + (a * theta) @ values - kernels.lo[q]).max()))
        before = x
    # what a line is made of may be larger than the line
    parts = (
        np.abs(readings.slopes) * float(np.abs(nodes).max()) + np.abs(offsets) + np.abs(readings.heights).max(axis=1)
    )
    dust = (len(weights) + 8) * 2.0**-50 * (size + float(np.abs(weights) @ parts) + abs(constant))
    return max(high, -low, 0.0) + chord + dust, size + abs(constant)


def _whole_cells(ends: tuple[float, float], knots: FloatArray) -> FloatArray:
    """Knots and ends; the outermost cells as long as their neighbours, if they are shorter: kinks then stay at their ends.

    What holds on more than the range holds on the range. Knots beyond the range count where it is made longer: between any two
    nodes units that read u alone are lines.
    """
    low, high = ends
    inside = knots[(knots > low) & (knots < high)]
    if len(inside) > 1:
        low, high = min(low, 2 * inside[0] - inside[1]), max(high, 2 * inside[-1] - inside[-2])
    return np.unique(np.concatenate([[low, high], knots[(knots > low) & (knots < high)]]))


def _around(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A sum of two numbers, before it was rounded, lies here."""
    return np.nextafter(z, -np.inf), np.nextafter(z, np.inf)


def _chords(kernel: Formula, nodes: FloatArray, points: FloatArray) -> float:
    """How far the kernel at u + v may be from its linear interpolation on triangles of the cells, u + v = z.

    Corners of a triangle have z in an interval of width w. An average of kernel(z_i) over corners differs from the kernel at the
    average of z_i by at most w^2 / 8 sup |kernel''|, and by at most w / 4 (sup kernel' - inf kernel'). Kinks within a share of w
    of an end: as if it were straight there, which changes the kernel by at most that share of w (sup kernel' - inf kernel').
    """
    hu, hv = np.diff(nodes)[:, None], np.diff(points)[None]
    start, width = nodes[:-1, None] + points[None, :-1], np.maximum(hu, hv)
    worst = 0.0
    for z in (start, start + np.minimum(hu, hv)):
        whole = jet_of(kernel, z - INSIDE[0] * width, z + (1 + INSIDE[0]) * width).first
        best = np.full(z.shape, np.inf)
        for share in INSIDE:
            inside = jet_of(kernel, z + share * width, z + (1 - share) * width)
            with np.errstate(invalid="ignore"):
                bend = width * width / 8 * np.maximum(np.abs(inside.second.lo), np.abs(inside.second.hi))
                cone = width / 4 * (inside.first.hi - inside.first.lo)
                best = np.fmin(best, np.fmin(bend, cone) + 2 * share * width * (whole.hi - whole.lo))
        worst = max(worst, float(best.max()))
    return worst * (1 + 1e-9)


def _steepest(kernel: Formula, low: float, high: float) -> FloatArray:
    edges = np.linspace(low, high, 513)
    first = jet_of(kernel, edges[:-1], edges[1:]).first
    return np.asarray(np.maximum(np.abs(first.lo), np.abs(first.hi)).max() * np.ones(len(UNIT)))
