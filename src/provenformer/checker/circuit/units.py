"""The feed-forward half of a block, one written channel at a time: what its units add, against what the graph says it should be.

Units that read one direction of the state are one piecewise linear function of it (pieces.py). Everything in a unit's row that is
not that direction, and every deviation of the direction from what the formula reads, becomes error. Rules and proofs:
docs/circuits-verify.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import (
    Combination,
    difference,
    hull,
    inner,
    largest,
    of_lin,
    scaled_rows,
    sign_of,
    token_factors,
)  # fmt: skip
from provenformer.checker.circuit.pieces import Pieces as Broken
from provenformer.checker.circuit.pieces import Units, compare, read_pieces
from provenformer.checker.circuit.precision import CAST, TINY, UNIT, gamma_of, sum_rounding
from provenformer.checker.circuit.ranges import argument_range
from provenformer.checker.circuit.state import Channel, State, known_rounding
from provenformer.networks.circuit import CircuitBlock
from provenformer.symbols.formula import Formula
from provenformer.symbols.graph import Apply, Graph, Pieces
from provenformer.symbols.piecewise import PiecewiseLinear

MOST_RELATIVE = 40  # relative errors that are tried for a table


def arguments(rows: FloatArray, biases: FloatArray, state: State) -> tuple[FloatArray, FloatArray]:
    """Of units: what they know, (units, 1) or (units, n), and (units, arithmetics) what rounding does to their arguments."""
    read = np.flatnonzero(rows.any(axis=0))  # of many channels a unit reads few
    few, known = rows[:, read], state.constants[read]
    size = np.abs(few) @ state.size[read] + np.abs(biases[:, None])
    count = np.count_nonzero(few, axis=1)[:, None] + 3 + 2 * CAST
    rounding = np.where(UNIT > 0, gamma_of(count) * size * (1 + 1e-12) + (count + 1) * TINY, 0.0)
    rounding = rounding + np.abs(few) @ np.where(state.varying[read, None], 0.0, state.errors[read])
    own = known_rounding(few, known) + 2.0**-52 * np.abs(biases)
    return few @ known + biases[:, None], rounding + own[:, None]


@dataclass(frozen=True, eq=False)
class Written:
    """The units that write one channel, with what they read split off: known constants apart from what depends on X."""

    where: str
    state: State
    graph: Graph
    channel: int
    varying: FloatArray  # (units, D): the units' rows, 0 where a channel holds a known number
    offsets: FloatArray  # (units, 1) or (units, n): bias and known constants
    coefficients: FloatArray  # (units,)
    constant: FloatArray  # (1,) or (n,): bias and what is known of the channel before
    rounding: FloatArray  # (units, arithmetics): of the units' arguments, as executed and as computed here

    @classmethod
    def of(cls, where: str, block: CircuitBlock, channel: int, state: State, graph: Graph) -> Written:
        """Of a channel that at least one unit, or a bias, writes."""
        used = np.flatnonzero(block.W_2[channel])
        rows, coefficients = block.W_1[used], block.W_2[channel, used]
        offsets, rounding = arguments(rows, block.b_1[used], state)
        constant = block.b_2[channel] + state.channels[channel].holds.constant
        return cls(where, state, graph, channel, rows * state.varying, offsets, coefficients, constant, rounding)

    def outer_rounding(self, terms: FloatArray | float) -> FloatArray:
        """Of the sum over units, the bias and the skip; `terms` bounds the sum of their absolute values."""
        before, known = self.state.size[self.channel], float(np.abs(self.constant).max())
        return sum_rounding(len(self.coefficients) + 3, terms + before + known) + 2.0**-52 * known


def write_bias(written: Written, claim: Combination) -> Channel:
    """Only a bias: the channel holds what it held, and a known number more."""
    state, before = written.state, written.state.channels[written.channel]
    now = Combination(before.holds.parts, written.constant, before.holds.slack)
    gap = largest(difference(now.without_constant(), claim.without_constant(), state.ranges), state.ranges)
    holds = Combination(claim.parts, now.constant + claim.constant, claim.slack)
    moved = gap + largest(Combination({}, holds.constant - before.holds.constant), state.ranges)
    return Channel(holds, before.error.beside(moved).plus(gap + written.outer_rounding(0.0)))


# --- one direction: a function of one number -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Direction:
    """Units as functions of one number z = row @ state / scale (known part taken out): slopes, and what rests."""

    units: NDArray[np.intp]  # which of the channel's units
    row: FloatArray  # (D,): row @ state is z, up to its error
    error: Error  # of that z against the value it stands for
    slopes: FloatArray  # (units,)
    rest: FloatArray  # (units, arithmetics): all that is in their arguments beside z and what is known


def _direction(written: Written, wanted: Combination, keep: NDArray[np.intp]) -> Direction:
    """The direction that units `keep` read, compared with `wanted` (no constant). Deviations of it and of units become error."""
    state, rows = written.state, written.varying[keep]
    row, slopes = fitted(written, rows, written.coefficients[keep], wanted)
    return Direction(keep, row, reading_error(state, row, wanted), slopes, rest_of(state, rows, slopes[:, None] * row))


def fitted(
    written: Written, rows: FloatArray, weights: FloatArray, wanted: Combination
) -> tuple[FloatArray, FloatArray]:
    """(row, slopes): row @ state is about `wanted` (no constant), and rows about slopes times row. No bound rests on it."""
    state, n = written.state, written.state.seq_len
    lead = int(np.argmax(np.abs(weights) * np.abs(rows).max(axis=1)))
    norm = inner(wanted, wanted, n)
    scale = inner(state.value(rows[lead]), wanted, n) / norm if norm else 0.0
    if not np.isfinite(scale) or scale == 0:
        raise Rejected(f"{written.where}: its units read nothing of its argument")
    row = rows[lead] / scale
    slopes = (rows @ row) / float(row @ row)
    slopes[lead] = scale
    return row, slopes


def reading_error(state: State, row: FloatArray, wanted: Combination) -> Error:
    """Of row @ state (known part taken out) against what it should be, and relative to that."""
    reading = state.read(row)
    gap = largest(difference(reading.value.without_constant(), wanted, state.ranges), state.ranges)
    return reading.error.beside(gap + float(np.abs(reading.value.constant).max())).plus(gap)


def rest_of(state: State, rows: FloatArray, fitted: FloatArray) -> FloatArray:
    """(rows, arithmetics): all that the rows read beside what was fitted to them, of the state less what is known of it."""
    used = np.flatnonzero(rows.any(axis=0) | fitted.any(axis=0))
    reads, fits, swing = np.abs(rows[:, used]), np.abs(fitted[:, used]), state.swing[used]
    reference = fits @ swing[:, 0]
    dust = 2.0**-51 * (reads + fits) @ swing
    return state.deviation(rows - fitted, reference) + dust


def classes(*columns: FloatArray) -> list[tuple[int, ...]]:
    """Tokens that see the same known numbers: one representative each. Columns are (k, 1) or (k, n)."""
    if all(c.shape[1] == 1 for c in columns):
        return [(0,) * len(columns)]
    n = max(c.shape[1] for c in columns)
    stacked = np.concatenate([np.broadcast_to(c, (len(c), n)) for c in columns])
    _, first = np.unique(stacked, axis=1, return_index=True)
    return [tuple(int(j) if c.shape[1] > 1 else 0 for c in columns) for j in first]


def write_table(written: Written, operation: Apply | Pieces, claim: Combination, before: Channel) -> Channel:
    """A formula, or a piecewise linear function, of one combination."""
    state, graph = written.state, written.graph
    argument = of_lin(operation.of, state.ranges, graph.seq_len)
    low, high = argument_range(graph, operation, state.ranges)
    keep = np.arange(len(written.coefficients))
    direction = _direction(written, argument.without_constant(), keep)
    error = relative_to_whole(direction.error, argument, state)
    reach = np.where(np.isfinite(error.plain), error.plain, 0.0).max() * (1 + 1e-9)
    function = operation.formula if isinstance(operation, Apply) else operation.curve
    found: list[Error] = []
    terms, ends = np.zeros(len(UNIT)), (low - reach, high + reach)
    for j, k, m in classes(written.offsets, argument.constant[None], written.constant[None]):
        here = units_at(written, direction, j, float(argument.constant[k]), float(written.constant[m]), ends)
        found.append(units_error(here.units, function, (low, high), reach, error).plus(here.error))
        terms = np.maximum(terms, here.terms)
    slack = operation.slack if isinstance(operation, Apply) else 0.0
    own = written.outer_rounding(terms) + left_over(before, state) + slack
    return Channel(claim, _worst(found, claim, state).beside(slack).plus(own))


def write_scaled(written: Written, claim: Combination, before: Channel) -> Channel:
    """factor_j z_j with a factor for every token: each token has its own units on, the others are gated off by positions."""
    state, n = written.state, written.state.seq_len
    every = np.arange(len(written.coefficients))
    lead = int(np.argmax(np.abs(written.coefficients) * np.abs(written.varying).max(axis=1)))
    z = state.value(written.varying[lead]).without_constant()
    if z.is_constant:
        raise Rejected(f"{written.where}: its units read nothing that depends on the input")
    direction = _direction(written, z, every)
    wanted = difference(claim, before.holds.without_constant(), state.ranges)
    factors = token_factors(wanted, z, n)
    gap = largest(difference(wanted, scaled_rows(factors, z, n, state.ranges), state.ranges), state.ranges)
    low, high = hull(z, state.ranges)
    error = direction.error
    reach = np.where(np.isfinite(error.plain), error.plain, 0.0).max() * (1 + 1e-9)
    worst, terms, ends = np.zeros(len(UNIT)), np.zeros(len(UNIT)), (low - reach, high + reach)
    shift = written.constant - before.holds.constant
    for j, k, m in classes(written.offsets, factors[None], shift[None]):
        here = units_at(written, direction, j, 0.0, float(shift[m]), ends)
        line = PiecewiseLinear((0.0,), (float(factors[k]),) * 2, 0.0)
        worst = np.maximum(worst, units_error(here.units, line, (low, high), reach, error).plain + here.error)
        terms = np.maximum(terms, here.terms)
    holds = Combination(claim.parts, before.holds.constant + claim.constant, claim.slack)
    error = Error.absolute(worst + written.outer_rounding(terms) + gap + before.error.plain)
    return Channel(holds, error, only=_only(written, direction, before, holds, ends))


def _only(
    written: Written, direction: Direction, before: Channel, holds: Combination, ends: tuple[float, float]
) -> NDArray[np.bool_] | None:
    """Tokens at which a unit may be on, or the channel should hold something else than 0; at all others it is 0, as it was and
    should be: nothing is off there. None: everywhere."""
    untouched = before.fixed and not before.holds.constant.any() and not written.constant.any()
    if (
        not untouched
        or written.offsets.shape[1] == 1
        or holds.slack
        or any(p.mix is not None for p in holds.parts.values())
    ):
        return None
    wanted = np.zeros(written.state.seq_len, dtype=np.bool_)
    for part in holds.parts.values():
        wanted |= np.asarray(part.own) != 0
    slopes, offsets = direction.slopes[:, None], written.offsets[direction.units]
    error = (direction.rest + written.rounding[direction.units]).max(axis=1, keepdims=True)
    top = np.maximum(slopes * ends[0], slopes * ends[1])
    slack = 2.0**-50 * (np.abs(slopes) * max(map(abs, ends)) + np.abs(offsets))
    with np.errstate(invalid="ignore"):
        return np.asarray((~(top + offsets + slack + error <= 0)).any(axis=0) | wanted)


@dataclass(frozen=True, eq=False)
class AtToken:
    """Units at one token (and all that see the same known numbers) as a function of one number z."""

    units: Units
    error: FloatArray  # (arithmetics,): of all units together, beside that of z
    terms: FloatArray  # (arithmetics,): the largest sum of |coefficient| relu, as executed


def units_at(
    written: Written, direction: Direction, token: int, known: float, constant: float, ends: tuple[float, float]
) -> AtToken:
    """z is the whole argument, its known part included, between `ends`. Units that are off, errors included, are left out."""
    c, offsets, slopes = (
        written.coefficients[direction.units],
        written.offsets[direction.units, token],
        direction.slopes,
    )
    shifted = offsets - slopes * known
    error = direction.rest + written.rounding[direction.units]
    error = error + 2.0**-51 * (np.abs(offsets) + np.abs(slopes * known))[:, None]
    top = np.maximum(slopes * ends[0], slopes * ends[1]) + shifted
    slack = 2.0**-51 * (np.abs(slopes) * max(map(abs, ends)) + np.abs(shifted))
    with np.errstate(invalid="ignore"):
        on = ~(top[:, None] + slack[:, None] + error <= 0)  # (units, arithmetics)
        total = np.abs(c) @ np.where(on, error, 0.0)
    alive = on.any(axis=1) & (slopes != 0)
    level = on.any(axis=1) & (slopes == 0)
    flat = c[level] * np.maximum(shifted[level], 0.0)
    size = float(np.abs(flat).sum())  # what cancels is rounded all the same, here and in execution
    constant += float(flat.sum())
    units = Units(slopes[alive], shifted[alive], c[alive], constant)
    total = total + (len(flat) + 2) * 2.0**-53 * size
    return AtToken(units, total, active(units, *ends) + size * (1 + 1e-9) + total)


def relative_to_whole(error: Error, argument: Combination, state: State) -> Error:
    """An error relative to the part that depends on X is one relative to the whole if the known part has the same sign."""
    same = sign_of(argument, state.ranges)
    return error.beside(2 * argument.slack) if same else Error(error.alpha[:1], error.rho[:1])


Deviations = tuple[FloatArray, FloatArray, FloatArray, FloatArray]  # start, end, |units - function|, least |function|


@lru_cache(maxsize=64)  # the gates and tables of hundreds of gathered tokens are alike
def units_error(
    units: Units, function: Formula | PiecewiseLinear, ends: tuple[float, float], reach: float, error: Error
) -> Error:
    """Of the units at a number that is off by `error`, against the function at the number itself, between `ends`."""
    pieces = read_pieces(units, *ends, reach)
    return _through(_deviation(pieces, function, units, *ends), pieces, error)


def _deviation(
    pieces: Broken, function: Formula | PiecewiseLinear, units: Units, low: float, high: float
) -> Deviations:
    """Of the units from the function, on pieces of [low, high]."""
    if isinstance(function, PiecewiseLinear):
        return broken_deviation(pieces, units, function, low, high)
    try:
        found = compare(pieces, function, low, high)
    except TypeError as error:
        raise Rejected(f"a formula cannot be enclosed: {error}") from None
    return found.start, found.end, np.maximum(-found.low, found.high), found.least


def broken_deviation(pieces: Broken, units: Units, function: PiecewiseLinear, low: float, high: float) -> Deviations:
    """Against a piecewise linear function: the difference is one, too, and largest at knots of either."""
    at, ahead = np.array(function.knots), np.array(function.slopes)
    # -function as units: slope before the first knot, then at each knot the new slope and minus the old one
    a = np.concatenate([[-1.0], np.ones(len(at)), np.ones(len(at) - 1)])
    b = np.concatenate([[at[0]], -at, -at[1:]])
    c = np.concatenate([[ahead[0]], -ahead[1:], ahead[1:-1]])
    both = Units(
        np.concatenate([units.slope, a]), np.concatenate([units.offset, b]), np.concatenate([units.coefficient, c]),
        units.constant,
    )  # fmt: skip
    gap = read_pieces(both, low, high)
    off = np.abs(gap.values - np.longdouble(function.start)).astype(np.float64) * (1 + 1e-15) + gap.radius + 2.0**-1000
    worst = float(off.max()) + 2.0**-60 * abs(function.start)
    inside = pieces.points[(pieces.points >= low) & (pieces.points <= high)].astype(np.float64)
    edges = np.unique(np.concatenate([[low], inside, [high]]))
    if len(edges) == 1:
        edges = np.array([low, high])
    k = len(edges) - 1
    return np.nextafter(edges[:-1], -np.inf), np.nextafter(edges[1:], np.inf), np.full(k, worst), np.zeros(k)


def _through(deviation: Deviations, pieces: Broken, error: Error) -> Error:
    """The units' function at a number that is off by `error`, against the formula at the number itself."""
    start, end, own, least = deviation
    size = np.maximum(np.abs(start), np.abs(end))
    moved = error.at(size)  # (arithmetics, pieces)
    total = np.empty_like(moved)
    first, last = float(pieces.points[0]), float(pieces.points[-1])
    for i in range(len(moved)):
        if not np.isfinite(moved[i]).all():
            total[i] = np.inf
            continue
        window = np.maximum(start - moved[i], first), np.minimum(end + moved[i], last)
        total[i] = own + np.minimum(pieces.steepest(*window) * moved[i] * (1 + 1e-12), pieces.variation(*window))
    zero = np.zeros(len(UNIT))
    pairs = [(total.max(axis=1), zero)]
    if least.max() > 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            if least.min() > 0:
                pairs.append((zero, (total / least).max(axis=1)))
            for r in _relative(least, total[0] if np.isfinite(total[0]).all() else np.zeros_like(least)):
                pairs.append((np.maximum((total - r * least).max(axis=1), 0.0), np.full(len(UNIT), r)))
    alphas, rhos = zip(*pairs, strict=True)
    return Error(np.array(alphas), np.array(rhos))


def _relative(least: FloatArray, total: FloatArray) -> FloatArray:
    """Which rho to try in total <= alpha + rho least: slopes of the upper hull of these points. Any choice gives a true bound."""
    order = np.lexsort((-total, least))
    x, y = least[order], total[order]
    first = np.append(True, np.diff(x) > 0)
    x, y = x[first], y[first]
    below = np.ones(1, dtype=bool)
    while below.any() and len(x) > 2:
        left, right = (y[1:-1] - y[:-2]) * (x[2:] - x[1:-1]), (y[2:] - y[1:-1]) * (x[1:-1] - x[:-2])
        below = left <= right
        below[1:] &= ~below[:-1]  # of neighbours one at a time: without it the other may be on the hull
        x, y = (np.concatenate([v[:1], v[1:-1][~below], v[-1:]]) for v in (x, y))
    slopes = np.sort((np.diff(y) / np.diff(x))[np.diff(y) > 0])
    if len(slopes) > MOST_RELATIVE:
        slopes = slopes[np.linspace(0, len(slopes) - 1, MOST_RELATIVE).astype(int)]
    return slopes


def active(units: Units, low: float, high: float) -> float:
    """The largest sum of |coefficient| relu: convex in z, so it is largest at an end."""
    ends = [float(np.abs(units.coefficient) @ np.maximum(units.slope * z + units.offset, 0.0)) for z in (low, high)]
    return (max(ends) + abs(units.constant)) * (1 + 1e-9)


def left_over(before: Channel, state: State) -> FloatArray:
    """A channel that is written anew should hold nothing but a known number: whatever else is there is error."""
    return largest(before.holds.without_constant(), state.ranges) + before.error.plain


def _worst(found: list[Error], claim: Combination, state: State) -> Error:
    """An error that covers every class of tokens."""
    size = largest(claim, state.ranges)
    if len(found) == 1:
        return Error.of(list(zip(found[0].alpha, found[0].rho, strict=True)), size)
    return Error.absolute(np.max([e.plain for e in found], axis=0))
