"""The blocks of the wide construction.

Channels of their own for input, id, code, sum and output (d_model = 2 d + 3) make one staircase per feed-forward layer
enough, two units per step, and no number has to cancel another:

    block 1   feed-forward: input -> token id (one step per cell edge); for d = 1 also -> code
    block 2   (d > 1 only) feed-forward: id -> code
    block     attention, uniform: sum of codes; feed-forward: sum -> its rank, times the number of ids, added to the id
    block     feed-forward: id -> output (one step per context and token)

Ranks make ids as small as they can be, which is what float64 needs: every plateau is flat, so rounding in an id does not
reach the output, and the last staircase adds numbers of the size (contexts x tokens), not of the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.constructions.sum import layers as sums
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.stages import CONTEXT, QUANTISE, RECODE, VALUES
from provenformer.networks.wide import WideBlock, WideNetwork

STEP = 0.25  # ramp of a step between whole numbers; it ends 3/8 below the upper one and starts 3/8 above the lower one


def wide_network(piecewise: PiecewiseConstant, ramp: float) -> WideNetwork:
    """The blocks for a piecewise constant function; `ramp` is the width of the quantiser's ramps, in cells."""
    grid, target = piecewise.grid, piecewise.target
    d, n = grid.token_dim, grid.seq_len
    positional = not target.equivariant
    codes = sums.token_codes(grid, positional)
    channels = _Channels(d)
    blocks = [_quantise(target, grid.cells_per_axis, n if positional else 1, ramp, channels, grid.id_vector)]
    token_ids, token_codes = codes.ids.ravel(), codes.codes.ravel()
    order = np.argsort(token_ids)
    recode = _staircase(RECODE, channels.size, channels.id, token_ids[order], token_codes[order], channels.code)
    if d == 1:
        blocks[0] = _with_codes(blocks[0], recode, channels)
    else:
        blocks.append(recode)
    picked = np.stack([codes.codes[j % len(codes.codes)][piecewise.contexts[:, j]] for j in range(n)], axis=1)
    ids = np.stack([codes.ids[j % len(codes.ids)][piecewise.contexts[:, j]] for j in range(n)], axis=1)
    distinct, rank = np.unique(picked.sum(axis=1), return_inverse=True)
    per_rank = int(token_ids.max()) + 1
    mix = _staircase(CONTEXT, channels.size, channels.sum, distinct, np.arange(len(distinct)) * per_rank, channels.id)
    blocks.append(_with_uniform_attention(mix, n, channels))
    final, first = np.unique((ids + (rank * per_rank)[:, None]).ravel(), return_index=True)
    outputs = piecewise.values.reshape(-1, d)[first]
    blocks.append(_staircase(VALUES, channels.size, channels.id, final, outputs, channels.out))
    positions = None
    if positional:
        widths = [Fraction(b) - Fraction(a) for a, b in zip(*target.support, strict=True)]
        positions = np.array([[float(j * w) for j in range(n)] for w in widths])
    return WideNetwork(d, n, tuple(blocks), positions)


@dataclass(frozen=True)
class _Channels:
    """Which row of the state holds what."""

    token_dim: int

    @property
    def size(self) -> int:
        return 2 * self.token_dim + 3

    @property
    def id(self) -> int:
        return self.token_dim

    @property
    def code(self) -> int:
        return self.token_dim + 1

    @property
    def sum(self) -> int:
        return self.token_dim + 2

    @property
    def out(self) -> slice:
        return slice(self.token_dim + 3, self.size)


def _block(stage: str, size: int, hidden: int) -> dict[str, Any]:
    """A block that does nothing, as named arrays to fill in."""
    zero, row = np.zeros((size, 1)), np.zeros((1, size))
    return {
        "stage": stage, "W_O": zero, "W_V": row, "W_K": row.copy(), "W_Q": row.copy(), "b_Q": np.zeros(1),
        "W_1": np.zeros((hidden, size)), "b_1": np.zeros(hidden), "W_2": np.zeros((size, hidden)), "b_2": np.zeros(size),
    }  # fmt: skip


def _quantise(
    target: Target, cells: int, columns: int, ramp: float, channels: _Channels, id_vector: tuple[int, ...]
) -> WideBlock:
    """One step of height u_i at every inner cell edge of row i: the token's id."""
    edges = cells * columns - 1
    block = _block(QUANTISE, channels.size, 2 * edges * channels.token_dim)
    for row, weight in enumerate(id_vector):
        low, high = Fraction(float(target.low[row])), Fraction(float(target.high[row]))
        width = (high - low) / cells
        at = np.array([float(low + k * width) for k in range(1, edges + 1)])
        start = at - float(width) * ramp
        units = slice(2 * edges * row, 2 * edges * (row + 1))
        block["W_1"][units, row] = 1.0
        block["b_1"][units] = -np.stack([start, at], axis=1).ravel()
        rise = weight / (at - start)
        block["W_2"][channels.id, units] = np.stack([rise, -rise], axis=1).ravel()
    return WideBlock(**block)


def _staircase(stage: str, size: int, reads: int, at: Any, heights: Any, writes: int | slice) -> WideBlock:
    """A feed-forward layer that adds heights[i] where channel `reads` is at[i] (whole numbers, increasing)."""
    at, heights = np.asarray(at, dtype=np.float64), np.asarray(heights, dtype=np.float64).reshape(len(at), -1)
    block = _block(stage, size, 2 * (len(at) - 1))
    block["W_1"][:, reads] = 1.0
    end = at[1:] - 0.375
    block["b_1"][:] = -np.stack([end - STEP, end], axis=1).ravel()
    rise = np.diff(heights, axis=0).T / STEP  # (channels, steps)
    rows = slice(writes, writes + 1) if isinstance(writes, int) else writes
    block["W_2"][rows] = np.stack([rise, -rise], axis=2).reshape(rise.shape[0], -1)
    block["b_2"][rows] = heights[0]
    return WideBlock(**block)


def _with_codes(quantise: WideBlock, recode: WideBlock, channels: _Channels) -> WideBlock:
    """d = 1: the steps at the cell edges write the code as well, in proportion to what recoding would add per id."""
    W_2, b_2 = quantise.W_2.copy(), quantise.b_2.copy()
    W_2[channels.code] = quantise.W_2[channels.id] * np.repeat(recode.W_2[channels.code, ::2] * STEP, 2)
    b_2[channels.code] = recode.b_2[channels.code]
    return WideBlock(**{**vars(quantise), "W_2": W_2, "b_2": b_2})


def _with_uniform_attention(block: WideBlock, seq_len: int, channels: _Channels) -> WideBlock:
    """Zero keys and queries: every column gets the sum of all codes."""
    W_O, W_V = block.W_O.copy(), block.W_V.copy()
    W_O[channels.sum, 0] = float(seq_len)
    W_V[0, channels.code] = 1.0
    return WideBlock(**{**vars(block), "W_O": W_O, "W_V": W_V})
