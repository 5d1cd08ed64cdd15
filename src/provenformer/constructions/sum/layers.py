"""The sum construction: contexts by one uniform attention layer, no repeated-token loss, no temperature (docs/sum.md).

Everything is in cells: the first layer of each row maps the support to [0, N), so every later number is an integer.

1. Quantise as in Lemma 5; a coordinate outside is sent far below 0 instead of to a marker.
2. Recode: token l -> -c_l. The codes are a B_n set: all sums of n of them, repetition allowed, differ. With positions,
   token l in column j -> -(j + n l K^(j-1)), j = 1..n: sums are then the whole sequence in base K.
3. One attention layer with W_K = W_Q = 0 (softmax is exactly uniform) adds gain * sum_k c_(l_k) to the first row:
   the id -c_(l_j) + gain * S names the context by S and the token by c. A token outside makes S larger than any valid one.
4. Values as in Lemma 7 over all contexts, after sending ids above all valid ones to 0.

Codes are negative and both sweeps go downwards, so a column meets only bumps above it (exact zeros), then its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.exact import Array, ExactArray, integer_dtype
from provenformer.constructions.paper import values
from provenformer.constructions.paper.quantize import bumps, rescale, unit
from provenformer.constructions.sum.codes import bn_codes
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target
from provenformer.networks.modified import ZERO, Attention, FeedForward, ThreePiece
from provenformer.networks.stages import CONTEXT, QUANTISE, RECODE, VALUES

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class TokenCodes:
    """What each token is recoded to: one table per column (all alike without positions)."""

    ids: Array  # (columns or 1, tokens): ids in cells after quantising
    columns: Array  # (columns or 1, tokens, d): the quantised tokens in cells
    codes: Array  # (columns or 1, tokens): positive codes c
    gain: int
    seq_len: int

    @cached_property
    def largest_sum(self) -> int:
        """The largest S of a valid context."""
        per_column = [int(row.max()) for row in self.codes]
        return sum(per_column) if len(per_column) == self.seq_len else per_column[0] * self.seq_len

    @cached_property
    def smallest_sum(self) -> int:
        """The smallest S of a valid context."""
        per_column = [int(row.min()) for row in self.codes]
        return sum(per_column) if len(per_column) == self.seq_len else per_column[0] * self.seq_len

    @property
    def id_low(self) -> int:
        """No valid context id is below it."""
        return self.gain * self.smallest_sum - int(self.codes.max())

    @property
    def id_high(self) -> int:
        """Every valid context id is below it."""
        return self.gain * self.largest_sum

    @cached_property
    def far_below(self) -> int:
        """How far below 0 a coordinate outside is sent: a power of two that makes S larger than any valid sum."""
        reach = self.largest_sum + self.seq_len * (int(self.ids.max()) + int(self.codes.max()) + 1)
        return int(1 << (8 * reach).bit_length())

    windows = ()  # one layer serves all ids

    @property
    def renamings(self) -> list[tuple[int, int]]:
        """Id and new name of every token, downwards as the recoding layers go (`recoder`)."""
        ids, codes = self.ids.ravel(), self.codes.ravel()
        return [(int(ids[i]), -int(codes[i])) for i in np.argsort(-ids)]

    def code(self, token: int, column: int) -> int:
        """The code c of a grid token in a column."""
        return int(self.codes[column % len(self.codes)][token])

    def attention_in_words(self) -> list[str]:
        """The one attention layer."""
        return [f"One uniform attention layer: add {self.gain:,} times the sum of all names to every token."]

    def context_ids(self, contexts: Array) -> Array:
        """The ids -c + gain * S of contexts (count, n) of token indices."""
        dtype = integer_dtype(4 * self.id_high)
        picked = np.stack([self.codes[j % len(self.codes)][contexts[:, j]] for j in range(self.seq_len)], axis=1)
        picked = picked.astype(dtype)
        return np.asarray(self.gain * picked.sum(axis=1, keepdims=True) - picked)


def token_codes(grid: Grid, positional: bool) -> TokenCodes:
    """Codes for all K tokens of a grid: a B_n set, or base-K digits with positions."""
    k, n = grid.column_count, grid.seq_len
    tokens = np.arange(k)
    if not positional:
        codes = np.array([bn_codes(k, n)])
        return TokenCodes(tokens[None], grid.columns(tokens)[None], codes, max(2, int(codes.max())), n)
    largest = n + n * (k - 1) * k ** (n - 1)
    dtype = integer_dtype(largest)
    positions = np.arange(n)
    ids = tokens + (positions * grid.cells_per_axis * sum(grid.id_vector))[:, None]
    columns = grid.columns(tokens) + (positions * grid.cells_per_axis)[:, None, None]
    digit: Array = np.array([n * k**j for j in range(n)], dtype=dtype)
    codes = (positions + 1).astype(dtype)[:, None] + digit[:, None] * tokens.astype(dtype)
    return TokenCodes(ids, columns, codes, max(2, largest // n + 1), n)  # sums differ by multiples of n


def far_below(grid: Grid, codes: TokenCodes, target: Target) -> int:
    """Where a coordinate outside is sent. Left of the box `rescale` has slope 1: a ramp is N / width times as long there.

    A claim over the whole space counts ramps of a cell all around the box, so for one the height makes up for that slope.
    """
    if not (target.vanishes_outside and target.equivariant):
        return codes.far_below
    steepest = max(grid.cells_per_axis / (Fraction(b) - Fraction(a)) for a, b in zip(*target.support, strict=True))
    stretch = 1
    while stretch < steepest:
        stretch *= 2
    return codes.far_below * stretch


def quantizer(
    grid: Grid, codes: TokenCodes, below: int, low: tuple[float, ...], high: tuple[float, ...]
) -> list[FeedForward]:
    """Per row: to cells, coordinates outside to `below` cells below 0, one bump per cell downwards."""
    d = grid.token_dim
    runs = rescale(low, high, length=grid.cells_per_axis)
    cells = grid.cells_per_axis * len(codes.codes)  # with positions the columns lie one after the other
    for row in range(d):
        e = ExactArray.of([unit(row, d)])
        # Above the box the slope -2 turns x into -x: far below 0 however large x is, in float64 too.
        above = (Fraction(-2), Fraction(cells - below))
        outside = ThreePiece(Fraction(0), Fraction(cells), ((Fraction(0), Fraction(-below)), ZERO, above))
        runs.append(FeedForward(QUANTISE, e, ExactArray.of([0]), e, outside))
        runs.append(bumps(d, row, cells, Fraction(1)))
    return runs


def recoder(direction: tuple[int, ...], codes: TokenCodes) -> FeedForward:
    """One bump per token, downwards: the quantised column becomes (-code, 0, .., 0)."""
    ids, columns, names = codes.ids.ravel(), codes.columns.reshape(-1, len(direction)), codes.codes.ravel()
    order = np.argsort(-ids)
    change = -columns.astype(names.dtype)
    change[:, 0] -= names
    return FeedForward(
        RECODE,
        ExactArray.repeat(list(direction), len(ids)),
        ExactArray(-ids[order]),
        ExactArray(change[order]),
        ThreePiece.window(-HALF, HALF, intercept=1),
    )


def sum_attention(direction: tuple[int, ...], codes: TokenCodes) -> Attention:
    """The one attention layer: zero keys and queries, so every column gets gain * (sum of codes) in its first row."""
    d = len(direction)
    zero = [0] * d
    first = [-codes.seq_len * codes.gain * c for c in unit(0, d)]  # the mean times n is the sum; codes are negative
    off = ExactArray.of([[zero, zero]])
    return Attention(
        CONTEXT,
        W_O=ExactArray.of([[first, zero]]),
        W_V=ExactArray.of([[list(direction), zero]]),
        W_K=off,
        W_Q=off,
        b_Q=ExactArray.of([[0, 0]]),
    )


def drop_outside(codes: TokenCodes, token_dim: int) -> list[FeedForward]:
    """Ids above all valid ones: the column becomes negative in every row, then every negative number 0."""
    top = Fraction(codes.id_high) - HALF
    e1, ones = ExactArray.of([unit(0, token_dim)]), ExactArray.of([[1] * token_dim])
    above = ThreePiece(top, top, (ZERO, ZERO, (Fraction(-2), Fraction(0))))
    negative = ThreePiece(Fraction(0), Fraction(0), ((Fraction(-1), Fraction(0)), ZERO, ZERO))
    runs = [FeedForward(VALUES, e1, ExactArray.of([0]), ones, above)]
    for row in range(token_dim):
        e = ExactArray.of([unit(row, token_dim)])
        runs.append(FeedForward(VALUES, e, ExactArray.of([0]), e, negative))
    return runs


def value_layers(codes: TokenCodes, ids: Array, outputs: FloatArray) -> tuple[list[FeedForward], int]:
    """Lemma 7 for different ids (layers,) and their outputs (layers, d); and what the outputs are divided by on the way.

    An id stands in the first row, and the other rows are 0.
    """
    e1 = tuple(unit(0, outputs.shape[1]))
    columns = np.zeros(outputs.shape, dtype=ids.dtype)
    columns[:, 0] = ids
    scale = values.output_scale(e1, outputs, Fraction(codes.id_low), Fraction(1))
    scaled = outputs / scale
    return [values.value_bumps(e1, ids, columns, scaled, Fraction(1)), *values.rescale_output(scaled, scale)], scale
