"""The checker's walk through a wide network: an abstract interpretation of every block, from the weights alone (see verify.py).

It starts from "nothing is known". A channel that holds an input holds any number of its cell; every other channel holds 0.
Then every head, every unit and every channel of every block is read, in order, whatever it was meant for, and two things are
tracked for all channels at once:

- *on good inputs* (those on no ramp) a value and a radius per token, or per context and column after the first attention;
- *anywhere in the box*, ramps included, an interval per channel: no clip is needed, the weights bound the output.

Attention must be uniform (no keys, or no queries). A unit must be constant (it reads nothing) or read one channel with weight
1; those that read the same channel must be pairs (start, end) of opposite coefficients at increasing breaks: a staircase.
Between two pairs it is exactly flat, so a number known up to a radius that meets no pair gives one exact height and its own
error does not pass on; and everywhere it lies between two of its heights. Anything else is rejected, by name.

Rounding. With k active units a layer adds k products to a state and a bias, in any order, fused or not. A unit computes
fl(t - b) = (t - b)(1 + e) with |e| <= U, so the sum is off by at most (k + 4) U (|state| + |b_2| + sum |W_2| |t - b|) to first
order. The number of active units and the sum are read off by one binary search; the latter only grows with t, so its value at
the upper end of an interval covers the interval. The same sum bounds every partial sum: nothing overflows if it is below 2^1000.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.growth import LIMIT_BITS
from provenformer.checker.points import TINY, U
from provenformer.checker.table import OutputTable
from provenformer.functions.grid import Grid, IntArray
from provenformer.functions.targets import Target
from provenformer.networks.wide import WideBlock, WideNetwork

LARGEST = 2.0**LIMIT_BITS
SECOND_ORDER = 1.01  # (1 + U)^k - 1 <= 1.01 k U for k below 2^40, and for the few more operations of our own sums


@dataclass(frozen=True, eq=False)
class Known:
    """Numbers (count, D), each known up to a radius; and an interval (D,) each that holds for every input of the box."""

    values: FloatArray
    radius: FloatArray
    low: FloatArray
    high: FloatArray


def wide_table(network: WideNetwork, target: Target, grid: Grid, ramp: float, domain: str) -> OutputTable:
    """The table, or Rejected with the layer and the rule that it breaks."""
    if domain != "box":
        raise Rejected("a wide network is checked over the box only")
    contexts = grid.contexts("sequences" if network.positions is not None else "multisets")
    with np.errstate(over="ignore", invalid="ignore"):
        found = follow(network, target, grid, ramp, contexts)
    d, n = network.token_dim, network.seq_len
    values = found.values[:, -d:].reshape(len(contexts), n, d)
    error = float(found.radius[:, -d:].max(initial=0.0))
    low, high = found.low[-d:], found.high[-d:]
    share = ramp + 2 * slack_in_cells(target, grid)
    flat = values.reshape(-1, d)
    clip = (flat.min(axis=0, initial=0.0), flat.max(axis=0, initial=0.0))
    # The weights are rounded differences of the values that were meant, the sums of them here are rounded: twice the drift.
    return OutputTable(contexts, values, error, low, high, share, clip, 2 * error)


def follow(network: WideNetwork, target: Target, grid: Grid, ramp: float, contexts: IntArray) -> Known:
    """What is known after the last block, for all columns of all contexts (count, n): (count * n, D)."""
    if network.model_dim < network.token_dim:
        raise Rejected("the state has fewer channels than a token has rows")
    known = _inputs(network, target, grid, ramp)
    columns = grid.seq_len if network.positions is not None else 1
    index = contexts + np.arange(grid.seq_len) * (grid.column_count if columns > 1 else 0)
    in_contexts = False
    for i, block in enumerate(network.wide_blocks):
        where = f"block {i} ({block.stage})"
        if block.attends and not in_contexts:
            known, in_contexts = _arranged(known, index), True
        known = _attended(where, block, known, grid.seq_len)
        known = _fed(where, block, known)
    return known if in_contexts else _arranged(known, index)


def _arranged(known: Known, index: IntArray) -> Known:
    """Tokens as the columns of contexts, one after the other."""
    return Known(known.values[index.ravel()], known.radius[index.ravel()], known.low, known.high)


def _inputs(network: WideNetwork, target: Target, grid: Grid, ramp: float) -> Known:
    """Before the first block: all grid tokens, column by column (columns * K, D). An input is any good number of its cell."""
    d, cells, size = network.token_dim, grid.cells_per_axis, network.model_dim
    columns = grid.seq_len if network.positions is not None else 1
    slack = Fraction(slack_in_cells(target, grid))
    digits = grid.columns(np.arange(grid.column_count))  # (K, d)
    values, radius = np.zeros((2, columns * grid.column_count, size))
    low, high = np.zeros((2, size))
    for row in range(d):
        start, end = Fraction(float(target.low[row])), Fraction(float(target.high[row]))
        width = (end - start) / cells
        shifts = [Fraction(0)] if network.positions is None else [Fraction(float(e)) for e in network.positions[row]]
        # x + E is rounded, and so are the numbers here: middle, radius, their sum and difference.
        rounded = [8 * Fraction(U) * (abs(start) + abs(end) + abs(shift)) for shift in shifts]
        for j, shift in enumerate(shifts):
            middle = np.array([float(start + shift + (k + (1 - Fraction(ramp)) / 2) * width) for k in range(cells)])
            reach = float((1 - Fraction(ramp) - 2 * slack) / 2 * width + rounded[j])
            part = slice(j * grid.column_count, (j + 1) * grid.column_count)
            values[part, row], radius[part, row] = middle[digits[:, row]], reach
        low[row] = min(float(start + shift - more) for shift, more in zip(shifts, rounded, strict=True))
        high[row] = max(float(end + shift + more) for shift, more in zip(shifts, rounded, strict=True))
    return Known(values, radius, low, high)


def slack_in_cells(target: Target, grid: Grid) -> float:
    """Inputs this close to a cell's edge count as ramp: room for the rounding of the edges themselves."""
    width = target.high - target.low
    ends = np.abs(target.low) + np.abs(target.high) + grid.seq_len * width
    return float((32 * U * ends * grid.cells_per_axis / width).max())


def _attended(where: str, block: WideBlock, known: Known, n: int) -> Known:
    """Uniform attention among the n columns of every context; a layer that writes nothing must only not overflow."""
    reach = np.maximum(np.abs(known.low), np.abs(known.high))
    keys, queries, passed = (np.abs(w) @ reach for w in (block.W_K, block.W_Q, block.W_V))
    queries = queries + np.abs(block.b_Q)
    _require_small(where, keys, queries, keys * queries, passed, np.abs(block.W_O) @ passed + reach)
    if not block.attends:
        return known
    if block.W_K.any() and (block.W_Q.any() or block.b_Q.any()):
        raise Rejected(f"{where}: attention is not uniform")

    def mean(state: FloatArray, sizes: bool) -> FloatArray:
        """W_O W_V (mean over the columns), (contexts, D)."""
        W_V, W_O = (np.abs(w) if sizes else w for w in (block.W_V, block.W_O))
        return np.asarray((state @ W_V.T).reshape(-1, n, len(W_V)).mean(axis=1) @ W_O.T)

    written = block.W_O.any(axis=1)
    # Products with W_V and their sum, the weights, n products and sums, products with W_O and the skip; once more for ours.
    count = 2 * (int((block.W_V != 0).sum()) + n + 8)
    change = np.repeat(mean(known.values, sizes=False), n, axis=0)
    mass = np.repeat(mean(np.abs(known.values) + known.radius, sizes=True), n, axis=0)
    error = np.repeat(mean(known.radius, sizes=True), n, axis=0)
    error = error + SECOND_ORDER * count * U * (mass + np.abs(known.values) + known.radius) + TINY
    middle, half = known.low / 2 + known.high / 2, known.high / 2 - known.low / 2
    centre, spread = block.W_O @ (block.W_V @ middle), np.abs(block.W_O) @ (np.abs(block.W_V) @ half)
    spread = spread + SECOND_ORDER * count * U * (np.abs(block.W_O) @ passed + reach) + TINY
    return Known(
        known.values + change,
        np.where(written, known.radius + error, known.radius),
        np.where(written, known.low + centre - spread, known.low),
        np.where(written, known.high + centre + spread, known.high),
    )


def _fed(where: str, block: WideBlock, known: Known) -> Known:
    """The feed-forward layer: what its constant units and its staircases add, unit by unit accounted for."""
    reach = np.maximum(np.abs(known.low), np.abs(known.high))
    _require_small(where, reach, np.abs(block.b_1), np.abs(block.b_2))
    written = np.flatnonzero(block.W_2.any(axis=1) | (block.b_2 != 0))
    reads = block.W_1 != 0
    per_unit = reads.sum(axis=1)
    if (per_unit > 1).any() or (block.W_1[reads] != 1).any():
        raise Rejected(f"{where}: a unit reads more than one channel, or not with weight 1")
    constant = per_unit == 0
    W_2, bias, always = block.W_2[written], block.b_2[written], np.maximum(block.b_1[constant], 0.0)
    shift, sizes = (w @ always + b for w, b in ((W_2[:, constant], bias), (np.abs(W_2[:, constant]), np.abs(bias))))
    active, drift = int(constant.sum()), (int(constant.sum()) + 2) * U * sizes
    good, top = (
        _Added(shift[None], sizes[None], drift[None], np.full(count, active)) for count in (len(known.values), 1)
    )
    low, high = shift, shift
    for channel in np.flatnonzero(reads.any(axis=0)):
        stairs = _read_staircase(where, block.b_1[reads[:, channel]], W_2[:, reads[:, channel]])
        t, spread = known.values[:, channel], known.radius[:, channel]
        step = stairs.step(where, t - spread, t + spread)
        good = good.plus(stairs.heights[step], stairs.sizes(step, t + spread), stairs.drift[step], 2 * step + 2)
        first = int(np.searchsorted(stairs.ends, known.low[channel], side="right"))
        last = int(np.searchsorted(stairs.starts, known.high[channel]))
        between = stairs.heights[first : last + 1]
        low, high = low + between.min(axis=0), high + between.max(axis=0)
        at = np.array([last])
        top = top.plus(stairs.heights[at], stairs.sizes(at, known.high[[channel]]), stairs.drift[at], 2 * at + 2)
    _require_small(where, top.sizes + reach[written])
    values, radius, lows, highs = known.values.copy(), known.radius.copy(), known.low.copy(), known.high.copy()
    values[:, written] += good.change
    radius[:, written] += good.rounding(np.abs(known.values[:, written]) + known.radius[:, written])
    error = top.rounding(reach[written])[0]
    lows[written] += low - error
    highs[written] += high + error
    return Known(values, radius, lows, highs)


def _require_small(where: str, *numbers: FloatArray) -> None:
    """No number that a layer can meet, on a ramp or off it, may come near the end of float64."""
    if not all((v < LARGEST).all() for v in numbers):
        raise Rejected(f"{where}: a number might overflow on a ramp")


@dataclass(frozen=True, eq=False)
class _Added:
    """What a layer adds to the channels it writes (count, written): real numbers, the absolute terms that make them up, how far
    the checker's own sums may be off, and the number of units that are active (count,)."""

    change: FloatArray
    sizes: FloatArray
    drift: FloatArray
    units: IntArray

    def plus(self, heights: FloatArray, sizes: FloatArray, drift: FloatArray, units: IntArray) -> _Added:
        return _Added(self.change + heights, self.sizes + sizes, self.drift + drift, self.units + units)

    def rounding(self, state: FloatArray) -> FloatArray:
        """Any order of the sum of all terms, the bias among them, and a state; the last sums here are as rounded."""
        return SECOND_ORDER * (self.units[:, None] + 8) * U * (self.sizes + state) + self.drift + TINY


@dataclass(frozen=True, eq=False)
class _Staircase:
    """The units that read one channel: sorted pairs, and what they add after each (steps + 1, written)."""

    starts: FloatArray  # (steps,)
    ends: FloatArray
    heights: FloatArray
    drift: FloatArray  # of the heights as summed here
    slope: FloatArray  # sum of |W_2| over the steps below, and the same times the starts and their absolute values
    moment: FloatArray
    abs_moment: FloatArray

    def step(self, where: str, low: FloatArray, high: FloatArray) -> IntArray:
        """How many steps lie below numbers that are in low..high; none may lie on a step."""
        step = np.searchsorted(self.ends, low, side="right")
        if (high > np.append(self.starts, np.inf)[step]).any():
            raise Rejected(f"{where}: a number lies on a step of its staircase")
        return step

    def sizes(self, step: IntArray, t: FloatArray) -> FloatArray:
        """sum |W_2| |t - b| over the units below t, from above: both units of a step are at most t - start away."""
        t = t[:, None]
        rounded = 4 * (step[:, None] + 2) * U * (self.slope[step] * np.abs(t) + self.abs_moment[step])
        return np.asarray(np.maximum(2 * (self.slope[step] * t - self.moment[step]), 0.0) + rounded)


def _read_staircase(where: str, b_1: FloatArray, W_2: FloatArray) -> _Staircase:
    """All units that read one channel with weight 1, as steps; or Rejected."""
    order = np.argsort(-b_1, kind="stable")
    breaks, out = -b_1[order], W_2[:, order]
    if len(order) % 2 or (out[:, 1::2] != -out[:, ::2]).any() or (np.diff(breaks) <= 0).any():
        raise Rejected(f"{where}: its units are not pairs of opposite coefficients at increasing breaks")
    starts, ends, slopes = breaks[::2], breaks[1::2], np.abs(out[:, ::2])

    def below(per_step: FloatArray) -> FloatArray:
        """Sums over the steps below: (steps + 1, written)."""
        return np.concatenate([np.zeros((1, len(out))), np.cumsum(per_step, axis=1).T])

    rises = out[:, ::2] * (ends - starts)
    heights = below(rises)
    # A rise is a rounded product of a rounded difference; each sum rounds once more, relative to a height.
    drift = U * (4 * below(np.abs(rises)) + np.arange(len(heights))[:, None] * np.abs(heights).max(axis=0))
    if not np.isfinite(drift).all():
        raise Rejected(f"{where}: a number might overflow on a ramp")
    return _Staircase(
        starts, ends, heights, drift, below(slopes), below(slopes * starts), below(slopes * np.abs(starts))
    )
