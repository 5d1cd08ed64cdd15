"""Units that compute a function of two numbers: products, as sums of squares of directions, and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, combine, difference, hull, inner, largest, of_lin, span
from provenformer.checker.circuit.pieces import Pieces as Broken
from provenformer.checker.circuit.pieces import Units, compare, read_pieces
from provenformer.checker.circuit.precision import UNIT
from provenformer.checker.circuit.ranges import range_of
from provenformer.checker.circuit.state import Channel
from provenformer.checker.circuit.units import (
    Direction,
    Written,
    broken_deviation,
    classes,
    left_over,
    reading_error,
    relative_to_whole,
    rest_of,
    units_at,
)  # fmt: skip
from provenformer.symbols.graph import Compare, Product
from provenformer.symbols.piecewise import PiecewiseLinear

MOST_DIRECTIONS = 32
PARALLEL = 1e-9  # rows this close to parallel are read as one direction, and the rest of them as error


@dataclass(frozen=True, eq=False)
class Plane:
    """Units that read combinations alpha x + beta y of two numbers, grouped by direction.

    row_x @ state is x up to error_x, and so for y (known parts taken out).
    """

    groups: list[NDArray[np.intp]]
    alpha: FloatArray  # (groups,)
    beta: FloatArray
    directions: list[Direction]  # slopes of each group's units along alpha x + beta y
    row_x: FloatArray
    row_y: FloatArray
    error_x: Error
    error_y: Error


def read_plane(written: Written, x: Combination, y: Combination) -> Plane:
    """Fit every unit's row by combinations of x and y; whatever does not fit becomes error."""
    state, n = written.state, written.state.seq_len
    rows = written.varying
    weighed = rows * state.swing[:, 0]  # channels may have numbers of very different sizes
    groups, leads = _parallel(written.where, weighed)
    gram = np.array([[inner(a, b, n) for a in (x, y)] for b in (x, y)])
    unit = np.sqrt(np.maximum(np.diagonal(gram), 1e-300))  # x and y may have coefficients of very different sizes
    fits = []
    for lead in leads:
        value = state.value(rows[lead])
        wanted = np.array([inner(value, x, n), inner(value, y, n)])
        fits.append(np.linalg.lstsq(gram / np.outer(unit, unit), wanted / unit, rcond=None)[0])
    sizes = np.array([max(largest(one, state.ranges), 1e-300) for one in (x, y)])
    alpha, beta = np.array(fits).T * (sizes / unit)[:, None]  # of x and y in units of their sizes
    turn = np.abs(alpha[:, None] * beta - alpha * beta[:, None])
    one, two = np.unravel_index(int(np.argmax(turn)), turn.shape)
    both = np.array([[alpha[one], beta[one]], [alpha[two], beta[two]]])
    if not np.isfinite(both).all() or turn[one, two] <= 1e-9 * np.abs(both).max() ** 2:
        raise Rejected(f"{written.where}: its units do not read both of its arguments")
    solved = np.linalg.solve(both, rows[[leads[one], leads[two]]])
    # what the solve left behind is no part of x or y: it would have no sign, and relative errors would be lost
    dust = 2.0**-48 * float(np.linalg.cond(both)) * np.abs(solved * state.swing[:, 0]).max()
    row_x, row_y = sizes[:, None] * np.where(np.abs(solved * state.swing[:, 0]) < dust, 0.0, solved)
    alpha, beta = alpha / sizes[0], beta / sizes[1]
    directions = []
    for group, lead, a, b in zip(groups, leads, alpha, beta, strict=True):
        along = a * row_x + b * row_y
        slopes = (weighed[group] @ weighed[lead]) / float(weighed[lead] @ weighed[lead])
        rest = rest_of(state, rows[group], slopes[:, None] * along)
        directions.append(Direction(group, along, Error.absolute(0.0), slopes, rest))
    errors = (reading_error(state, row_x, x), reading_error(state, row_y, y))
    return Plane(groups, alpha, beta, directions, row_x, row_y, *errors)


def _parallel(where: str, rows: FloatArray) -> tuple[list[NDArray[np.intp]], list[int]]:
    """Groups of rows that are multiples of each other, and the longest of each."""
    length = np.linalg.norm(rows, axis=1)
    if (length == 0).any():
        raise Rejected(f"{where}: a unit reads nothing that depends on the input")
    left = np.arange(len(rows))
    groups: list[NDArray[np.intp]] = []
    leads: list[int] = []
    while len(left):
        if len(groups) == MOST_DIRECTIONS:
            raise Rejected(f"{where}: its units read more than {MOST_DIRECTIONS} directions")
        lead = int(left[np.argmax(length[left])])
        unit = rows[lead] / length[lead]
        off = np.linalg.norm(rows[left] - np.outer(rows[left] @ unit, unit), axis=1)
        same = off <= PARALLEL * length[left]
        groups.append(left[same])
        leads.append(lead)
        left = left[~same]
    return groups, leads


def _boxes(written: Written, one: Combination, whole: tuple[Combination, Combination]) -> FloatArray:
    """(2, 1) or (2, n): between what a combination lies, at every token of its own where known numbers are added by token."""
    low, high = range_of(written.graph, one, written.state.ranges)
    if all(len(each.constant) == 1 for each in whole):
        return np.array([[low], [high]])
    bottom, top = span(one, written.state.ranges)
    return np.array([np.maximum(bottom, low), np.minimum(top, high)])


def _picked(boxes: list[FloatArray], tokens: list[int]) -> list[tuple[float, float]]:
    return [(float(box[0, j]), float(box[1, j])) for box, j in zip(boxes, tokens, strict=True)]


def write_product(written: Written, operation: Product, claim: Combination, before: Channel) -> Channel:
    """sum over directions of piecewise linear functions, each close to a parabola, whose sum is the product.

    With t = alpha x + beta y every group is q(t) + deviation, q a parabola of our choice; the sum of all q minus x y is a
    polynomial with small coefficients. All of it is evaluated at the numbers that are there; then x y moves by what these are
    off.
    """
    state, graph = written.state, written.graph
    left, right = (of_lin(lin, state.ranges, graph.seq_len) for lin in (operation.left, operation.right))
    x, y = left.without_constant(), right.without_constant()
    plane = read_plane(written, x, y)
    error_x = relative_to_whole(plane.error_x, left, state)
    error_y = relative_to_whole(plane.error_y, right, state)
    own, terms = np.zeros(len(UNIT)), np.zeros(len(UNIT))
    boxes = [_boxes(written, one, (left, right)) for one in (x, y)]
    for i in range(len(UNIT)):  # the parabolas are compared where the numbers are that an arithmetic may find there
        reach = float(error_x.plain[i]), float(error_y.plain[i])
        if not np.isfinite(reach).all():
            own[i] = np.inf
            continue
        known = (written.offsets, left.constant[None], right.constant[None], written.constant[None])
        for j, a, b, m, *at in classes(*known, *boxes):
            ends = [(low - far, high + far) for (low, high), far in zip(_picked(boxes, at), reach, strict=True)]
            shift = float(left.constant[a]), float(right.constant[b])
            off, total = _parabolas(written, plane, j, shift, float(written.constant[m]), ends)
            own[i], terms[i] = max(own[i], off[i]), max(terms[i], total[i])
    extra = own + written.outer_rounding(terms)
    size = [max(map(abs, range_of(graph, one, state.ranges))) for one in (left, right)]
    product_size = largest(claim, state.ranges)
    found = Error.of(_product_pairs(error_x, error_y, size[0], size[1]), product_size)
    found = found.plus(extra + left_over(before, state))
    low, high = hull(claim, state.ranges)
    least = max(low, -high, 0.0)
    if least > 0:  # away from 0 an absolute error is a relative one
        found = Error(np.vstack([found.alpha, np.zeros(len(UNIT))]), np.vstack([found.rho, found.plain / least]))
    return Channel(claim, found)


def _product_pairs(one: Error, other: Error, x: float, y: float) -> list[tuple[FloatArray, FloatArray]]:
    """|x~ y~ - x y| <= |x| e_y + |y| e_x + e_x e_y, with e = alpha + rho |value|: a pair for each choice of pairs."""
    a, r, b, s = one.alpha[:, None], one.rho[:, None], other.alpha, other.rho
    with np.errstate(invalid="ignore"):
        alpha, rho = x * b * (1 + r) + y * a * (1 + s) + a * b, r + s + r * s
    return list(zip(alpha.reshape(-1, len(UNIT)), rho.reshape(-1, len(UNIT)), strict=True))


def _parabolas(
    written: Written, plane: Plane, token: int, shift: tuple[float, float], constant: float, ends: list[Any]
) -> tuple[FloatArray, FloatArray]:
    """|sum of groups - (x + shift_x)(y + shift_y)| on the box `ends`, and the sum of |terms|, (arithmetics,) each."""
    (x0, x1), (y0, y1) = ends
    read: list[tuple[float, float, Broken]] = []
    terms, error = np.full(len(UNIT), abs(constant)), np.zeros(len(UNIT))
    for a, b, direction in zip(plane.alpha, plane.beta, plane.directions, strict=True):
        corners = [a * p + b * q for p in (x0, x1) for q in (y0, y1)]
        wide = 1e-12 * max(map(abs, corners)) + 1e-300
        low, high = min(corners) - wide, max(corners) + wide
        here = units_at(written, direction, token, 0.0, 0.0, (low, high))
        read.append((low, high, read_pieces(here.units, low, high)))
        terms, error = terms + here.terms, error + here.error
    bent = np.array([len(pieces.slopes) > 1 for *_, pieces in read])
    if not bent.any():
        raise Rejected(f"{written.where}: its units add up to something linear, not to a product")
    squares = np.stack([plane.alpha**2, plane.beta**2, 2 * plane.alpha * plane.beta])[:, bent]
    curvature = np.zeros(len(read))
    curvature[bent] = np.linalg.lstsq(squares, np.array([0.0, 0.0, 1.0]), rcond=None)[0]
    low_sum = high_sum = 0.0
    poly = np.array([0.0, 0.0, -1.0, -shift[1], -shift[0], constant - shift[0] * shift[1]])  # x^2 y^2 xy x y 1
    size = np.abs(poly)
    for (low, high, pieces), a, b, k in zip(read, plane.alpha, plane.beta, curvature, strict=True):
        points = pieces.points.astype(np.float64)
        line = np.linalg.lstsq(
            np.stack([points, np.ones_like(points)], axis=1),
            pieces.values.astype(np.float64) - k * points**2,
            rcond=None,
        )[0]
        slope, height = map(float, line)
        found = compare(pieces, partial(_parabola, float(k), slope, height), low, high)
        low_sum, high_sum = low_sum + float(found.low.min()), high_sum + float(found.high.max())
        part = np.array([k * a * a, k * b * b, 2 * k * a * b, slope * a, slope * b, height])
        poly, size = poly + part, size + np.abs(part)
    x, y = max(abs(x0), abs(x1)), max(abs(y0), abs(y1))
    reach = np.array([x * x, y * y, x * y, x, y, 1.0])
    middle = float(poly[-1])
    remainder = float(np.abs(poly[:-1]) @ reach[:-1]) + float(size @ reach) * (len(read) + 4) * 2.0**-52
    return max(abs(low_sum + middle), abs(high_sum + middle)) * (1 + 1e-12) + remainder + error, terms


def _parabola(curvature: float, slope: float, height: float, t: Any) -> Any:
    return curvature * np.square(t) + slope * t + height


def write_comparison(written: Written, operation: Compare, claim: Combination, before: Channel) -> Channel:
    """first + relu(second - first), and so with other signs. max and min move by no more than their arguments do.

    In place the channel holds `first` already; else further units carry it there, always on.
    """
    state, graph, ranges = written.state, written.graph, written.state.ranges
    first, second = (of_lin(lin, ranges, graph.seq_len) for lin in (operation.first, operation.second))
    step = combine([(1.0, second.without_constant()), (-1.0, first.without_constant())], ranges)
    carried = difference(first.without_constant(), before.holds.without_constant(), ranges)
    carried = Combination(carried.parts, np.zeros(1), carried.slack)
    own_row = np.zeros(len(state.channels))
    own_row[written.channel] = 1.0
    known_step = np.atleast_1d(second.constant - first.constant)
    known_first = np.atleast_1d(first.constant - before.holds.constant)
    plane = _single(written, step) if carried.is_constant else read_plane(written, step, carried)
    error_first = reading_error(state, plane.row_y + own_row, first.without_constant()).plain
    error_second = reading_error(state, plane.row_x + plane.row_y + own_row, second.without_constant()).plain
    # the units are compared where the numbers are that any arithmetic may find there, what is overwritten included
    off_by = plane.error_x.plain + plane.error_y.plain
    beyond = np.where(np.isfinite(off_by), 0.0, np.inf)
    ends = [
        _widened(hull(step, ranges), plane.error_x),
        _widened(hull(carried, ranges), plane.error_y) if not carried.is_constant else (0.0, 0.0),
    ]
    worst, terms = np.zeros(len(UNIT)), np.zeros(len(UNIT))
    sign = np.atleast_1d(operation.sign)[None]
    bias = np.atleast_1d(written.constant - before.holds.constant)[None]
    for j, k, f, s, c in classes(written.offsets, known_step[None], known_first[None], sign, bias):
        off, total = _compared(
            written,
            plane,
            j,
            float(known_step[k]),
            float(known_first[f]),
            float(sign[0, s]),
            float(bias[0, c]),
            ends,
        )
        worst, terms = np.maximum(worst, off), np.maximum(terms, total)
    extra = worst + written.outer_rounding(terms) + beyond
    return Channel(claim, Error.absolute(np.maximum(error_first, error_second) + extra))


def _widened(ends: tuple[float, float], error: Error) -> tuple[float, float]:
    """Where a number may be found; an arithmetic without a finite error does not count."""
    reach = float(np.where(np.isfinite(error.plain), error.plain, 0.0).max()) * (1 + 1e-9)
    return ends[0] - reach, ends[1] + reach


def _single(written: Written, step: Combination) -> Plane:
    """All units read second - first."""
    state = written.state
    rows = written.varying
    lead = int(np.argmax(np.abs(rows).max(axis=1)))
    norm = inner(step, step, state.seq_len)
    scale = inner(state.value(rows[lead]), step, state.seq_len) / norm if norm else 0.0
    if not np.isfinite(scale) or scale == 0:
        raise Rejected(f"{written.where}: its units read nothing of its arguments")
    row = rows[lead] / scale
    slopes = (rows @ row) / float(row @ row)
    every = np.arange(len(rows))
    direction = Direction(every, row, Error.absolute(0.0), slopes, rest_of(state, rows, slopes[:, None] * row))
    errors = reading_error(state, row, step), Error.absolute(0.0)
    return Plane([every], np.array([1.0]), np.array([0.0]), [direction], row, np.zeros_like(row), *errors)


def _compared(
    written: Written, plane: Plane, token: int, known_step: float, known_first: float, sign: float, bias: float,
    ends: list[Any],
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """|what the units add - (known_first + carried + the comparison's step)| at one token, on the box."""
    (s0, s1), (c0, c1) = ends
    off, terms = np.zeros(len(UNIT)), np.full(len(UNIT), abs(bias))
    level = bias - known_first  # goes to the units that carry, which are shifted by as much so that they are always on
    knees = {1.0: (0.0, 1.0), -1.0: (1.0, 0.0), 0.0: (0.0, 0.0)}
    seen_step = seen_first = False
    for a, b, direction in zip(plane.alpha, plane.beta, plane.directions, strict=True):
        steps = abs(a) * max(abs(s0), abs(s1)) >= abs(b) * max(abs(c0), abs(c1))
        known, factor = (a * known_step, a) if steps else (0.0, b)
        if (steps and seen_step) or (not steps and seen_first) or factor == 0:
            raise Rejected(f"{written.where}: its units read another direction than its two arguments")
        seen_step, seen_first = seen_step or steps, seen_first or not steps
        low, high = (s0 + known_step, s1 + known_step) if steps else (c0, c1)
        other = abs(b) * max(abs(c0), abs(c1)) if steps else abs(a) * max(abs(s0), abs(s1))
        reached = sorted((factor * low, factor * high))
        here = units_at(
            written, direction, token, known, 0.0 if steps else level, (reached[0] - other, reached[1] + other)
        )
        level = level if steps else 0.0
        units = Units(here.units.slope * factor, here.units.offset, here.units.coefficient, here.units.constant)
        pieces = read_pieces(units, low, high)
        meant = PiecewiseLinear((0.0,), knees[sign] if steps else (1.0, 1.0), 0.0)
        gap = broken_deviation(pieces, units, meant, low, high)
        lipschitz = float(np.abs(units.coefficient) @ np.abs(here.units.slope))
        off = off + float(gap[2].max()) + lipschitz * other + here.error
        terms = terms + here.terms
    if not seen_step and sign != 0:
        raise Rejected(f"{written.where}: none of its units compares")
    if not seen_first and (c0 or c1):
        raise Rejected(f"{written.where}: none of its units carries the first argument")
    return off + abs(level) + 2.0**-50 * (abs(bias) + abs(known_first)), terms
