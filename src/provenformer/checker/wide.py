"""The checker's walk through a wide network: all good inputs at once, from the weights alone (see verify.py).

A feed-forward layer must be a staircase: units in pairs (start, end) with opposite coefficients, pairs apart from each
other. Between two pairs it is exactly flat, so a number known up to a radius that meets no pair gives one exact height, and
its own error does not pass on. What is added to the radius is the rounding of the sums, in any order: the number of
active units times the sum of the absolute terms, both read off by one binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.table import OutputTable
from provenformer.functions.grid import Grid, IntArray
from provenformer.functions.targets import Target
from provenformer.networks.wide import WideBlock, WideNetwork

U = 2.0**-53


@dataclass(frozen=True)
class WideTable:
    """Outputs per context (contexts, n, d), how far execution may be from them, and the range of outputs anywhere."""

    values: FloatArray
    radius: float
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class _Staircase:
    """One row's worth of units of a feed-forward layer: sorted pairs, heights after each, absolute sums for rounding."""

    starts: FloatArray  # (steps,)
    ends: FloatArray
    heights: FloatArray  # (steps + 1, D): what is added below, between and above the steps
    slopes: FloatArray  # (D, steps): |coefficient| of each pair

    def at(self, where: str, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Heights and rounding for intervals low..high: (count, D) each."""
        step = np.searchsorted(self.ends, low, side="right")
        if (step < len(self.starts)).any():
            above = np.append(self.starts, np.inf)[step]
            if (high > above).any():
                raise Rejected(f"{where}: a number lies on a step of its staircase")
        size = np.concatenate([np.zeros((len(self.slopes), 1)), np.cumsum(self.slopes, axis=1)], axis=1)
        moment = np.concatenate([np.zeros((len(self.slopes), 1)), np.cumsum(self.slopes * self.starts, axis=1)], axis=1)
        reach = np.maximum(np.abs(low), np.abs(high))
        terms = 2 * (size[:, step] * high - moment[:, step])  # sum of |c| (t - start), twice: start and end
        own = 4 * U * (size[:, step] * reach + np.abs(moment[:, step]))  # rounding of t - start and t - end
        count = 2 * step + 4
        rounding = (count * U * np.abs(terms) * 1.01 + 2 * own).T
        drift = count[:, None] * U * np.abs(self.heights).max(axis=0)  # of the heights as summed here
        return self.heights[step], rounding + drift


def follow(network: WideNetwork, target: Target, grid: Grid, ramp: float, contexts: IntArray) -> WideTable:
    """The output table of a wide network for all contexts (count, n) of token ids."""
    d, n, blocks = network.token_dim, network.seq_len, network.wide_blocks
    positional = network.positions is not None
    if network.model_dim < 2 * d or blocks[0].attends:
        raise Rejected("block 0 (quantise): attention comes before the cells are single numbers")
    tokens, radius = _quantised(network, target, grid, ramp)
    state: FloatArray | None = None
    for i, block in enumerate(blocks):
        where = f"block {i} ({block.stage})"
        if (block.W_2[-d:].any() or block.b_2[-d:].any()) and i < len(blocks) - 1:
            raise Rejected(f"{where}: only the last block may write the output")
        if block.attends:
            if state is None:
                index = contexts + np.arange(n) * (grid.column_count if positional else 0)
                state, radius = tokens[index], radius[index]
            state, radius = _sum_over_columns(where, block, state, radius)
        if i == 0:
            continue
        if state is None:
            tokens, radius = _climb(where, block, tokens, radius)
        else:
            flat = (v.reshape(-1, v.shape[-1]) for v in (state, radius))
            state, radius = (v.reshape(state.shape) for v in _climb(where, block, *flat))
    if state is None:
        raise Rejected("the network has no attention layer, so it cannot tell contexts apart")
    last = _read_staircase("the last block", blocks[-1], _single_channel("the last block", blocks[-1]))
    error = float(radius[..., -d:].max(initial=0.0))
    heights = last.heights[:, -d:] + blocks[-1].b_2[-d:]
    return WideTable(state[..., -d:], error, heights.min(axis=0) - error, heights.max(axis=0) + error)


def wide_table(network: WideNetwork, target: Target, grid: Grid, ramp: float, domain: str) -> OutputTable:
    """The table, or Rejected with the layer and the rule that it breaks."""
    contexts = grid.contexts("sequences" if network.positions is not None else "multisets")
    found = follow(network, target, grid, ramp, contexts)
    if domain != "box":
        raise Rejected("a wide network is checked over the box only")
    share = ramp + 2 * slack_in_cells(target, grid)
    return OutputTable(contexts, found.values, found.radius, found.low, found.high, share)


def _quantised(network: WideNetwork, target: Target, grid: Grid, ramp: float) -> tuple[FloatArray, FloatArray]:
    """Block 0 on every cell of every row: the state (tokens, D) of all grid tokens, column by column, and its radius."""
    d, cells, block = network.token_dim, grid.cells_per_axis, network.wide_blocks[0]
    if (block.W_1[:, d:] != 0).any() or block.W_2[:d].any() or block.b_2[:d].any():
        raise Rejected("block 0 (quantise): it must read the input and write elsewhere")
    columns = grid.seq_len if network.positions is not None else 1
    per_row: list[tuple[FloatArray, FloatArray]] = []
    for row in range(d):
        steps = _read_staircase("block 0 (quantise)", block, row)
        start, end = Fraction(float(target.low[row])), Fraction(float(target.high[row]))
        width = (end - start) / cells
        low, high = [], []
        for j in range(columns):
            shift = Fraction(0) if network.positions is None else Fraction(float(network.positions[row, j]))
            rounded = 4 * Fraction(U) * (abs(start) + abs(end) + abs(shift))
            slack = Fraction(slack_in_cells(target, grid))
            for k in range(cells):
                low.append(float(start + shift + (k + slack) * width - rounded))
                high.append(float(start + shift + (k + 1 - Fraction(ramp) - slack) * width + rounded))
        per_row.append(steps.at("block 0 (quantise)", np.array(low), np.array(high)))
    digits = grid.columns(np.arange(grid.column_count))
    tokens, radius = [], []
    for j in range(columns):
        picks = [j * cells + digits[:, row] for row in range(d)]
        tokens.append(sum(per_row[row][0][picks[row]] for row in range(d)) + block.b_2)
        radius.append(sum(per_row[row][1][picks[row]] for row in range(d)) + 4 * U * np.abs(block.b_2))
    return np.concatenate(tokens), np.concatenate(radius)


def slack_in_cells(target: Target, grid: Grid) -> float:
    """Inputs this close to a cell's edge count as ramp: room for the rounding of the edges themselves."""
    width = target.high - target.low
    ends = np.abs(target.low) + np.abs(target.high) + grid.seq_len * width
    return float((32 * U * ends * grid.cells_per_axis / width).max())


def _single_channel(where: str, block: WideBlock) -> int:
    channels = np.flatnonzero(block.W_1.any(axis=0))
    if len(channels) != 1:
        raise Rejected(f"{where}: a staircase must read one channel")
    return int(channels[0])


def _read_staircase(where: str, block: WideBlock, channel: int) -> _Staircase:
    """The units that read a channel (with weight 1) as steps, or Rejected."""
    units = np.flatnonzero(block.W_1[:, channel])
    others = np.delete(block.W_1[units], channel, axis=1)
    if (block.W_1[units, channel] != 1).any() or others.any():
        raise Rejected(f"{where}: a unit reads more than one channel, or not with weight 1")
    order = units[np.argsort(-block.b_1[units], kind="stable")]
    breaks, out = -block.b_1[order], block.W_2[:, order]
    if len(order) % 2 or (out[:, 1::2] != -out[:, ::2]).any() or (np.diff(breaks) <= 0).any():
        raise Rejected(f"{where}: its units are not pairs of opposite coefficients at increasing breaks")
    starts, ends = breaks[::2], breaks[1::2]
    rises = out[:, ::2] * (ends - starts)
    heights = np.concatenate([np.zeros((1, len(out))), np.cumsum(rises, axis=1).T])
    return _Staircase(starts, ends, heights, np.abs(out[:, ::2]))


def _climb(where: str, block: WideBlock, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A staircase on points (count, D) known up to a radius."""
    channel = _single_channel(where, block)
    t, spread = points[:, channel], radius[:, channel]
    added, rounding = _read_staircase(where, block, channel).at(where, t - spread, t + spread)
    out = points + added + block.b_2
    return out, radius + rounding + 4 * U * (np.abs(points) + np.abs(added) + np.abs(block.b_2))


def _sum_over_columns(
    where: str, block: WideBlock, state: FloatArray, radius: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Uniform attention on contexts (count, n, D)."""
    if block.W_K.any() or block.W_Q.any() or block.b_Q.any():
        raise Rejected(f"{where}: attention is not uniform")
    n = state.shape[1]
    values, size, error = (v @ w for v, w in (
        (state, block.W_V[0]), (np.abs(state), np.abs(block.W_V[0])), (radius, np.abs(block.W_V[0]))
    ))  # fmt: skip
    mean, mass, passed = (v.mean(axis=1)[:, None, None] for v in (values, size, error))
    change = mean * block.W_O[:, 0]
    grown = (passed + (n + 6) * U * mass) * np.abs(block.W_O[:, 0])
    return state + change, radius + grown + 2 * U * (np.abs(state) + np.abs(change))
