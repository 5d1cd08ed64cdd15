"""Step 2a, quantising by feed-forward layers (Lemma 5 for Theorem 2, Appendix C.1 for Theorem 3).

Each row is brought to its cell's lower corner by one bump per cell, t -> t - (t - k delta) on [k delta, (k+1) delta).
The bumps of a row may come in any order, since a quantised number stays where it is; we go downwards, because then a
float64 network adds exact zeros to a number until its own bump (docs/numerics.md).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from provenformer.base.exact import ExactArray
from provenformer.functions.grid import Grid
from provenformer.networks.modified import ZERO, FeedForward, ThreePiece
from provenformer.networks.stages import QUANTISE, RESCALE


def unit(row: int, size: int) -> list[int]:
    """The unit vector e_row."""
    return [int(i == row) for i in range(size)]


def rescale(low: tuple[float, ...], high: tuple[float, ...], length: int = 1) -> list[FeedForward]:
    """Rows from [low, high] to [0, length], one layer each: x + (s - 1) ReLU(x - low) - low, exact from `low` upwards.

    Below `low` the slope stays 1, so what was outside stays outside; phi has two pieces, one of them constant.
    """
    d, runs = len(low), []
    for row in range(d):
        start, width = Fraction(low[row]), Fraction(high[row]) - Fraction(low[row])
        if start == 0 and width == length:
            continue
        phi = ThreePiece(Fraction(0), Fraction(0), (ZERO, ZERO, (length / width - 1, Fraction(0))))
        e = unit(row, d)
        runs.append(
            FeedForward(
                RESCALE, ExactArray.of([e]), ExactArray.of([-start]), ExactArray.of([e]), phi,
                b_2=ExactArray.of([[-start * c for c in e]]),
            )
        )  # fmt: skip
    return runs


def marker(grid: Grid) -> int:
    """What Lemma 5 writes in place of a coordinate outside [0, 1): -N^(nd)."""
    return -int(grid.cells_per_axis ** (grid.seq_len * grid.token_dim))


def quantizer(grid: Grid, unit_width: Fraction) -> list[FeedForward]:
    """Lemma 5: per row, one layer that sends everything outside [0, 1) to the marker, then N bumps.

    A cell is `unit_width` wide: delta in the paper's coordinates, 1 when the state is counted in cells.
    """
    d, runs = grid.token_dim, []
    edge = grid.cells_per_axis * unit_width
    outside = (Fraction(-1), marker(grid) * edge)
    for row in range(d):
        e = unit(row, d)
        phi = ThreePiece(Fraction(0), edge, (outside, ZERO, outside))
        runs.append(FeedForward(QUANTISE, ExactArray.of([e]), ExactArray.of([0]), ExactArray.of([e]), phi))
        runs.append(bumps(grid.token_dim, row, grid.cells_per_axis, unit_width))
    return runs


def positional_quantizer(grid: Grid, unit_width: Fraction) -> list[FeedForward]:
    """Appendix C.1: X + E lies in [0, n), so n N bumps per row and no marker."""
    cells = grid.seq_len * grid.cells_per_axis
    return [bumps(grid.token_dim, row, cells, unit_width) for row in range(grid.token_dim)]


def bumps(token_dim: int, row: int, cells: int, unit_width: Fraction) -> FeedForward:
    """One layer per cell, downwards: -t on [0, unit) brings a number to its cell's lower corner."""
    e = ExactArray.repeat(unit(row, token_dim), cells)
    corners = ExactArray(-np.arange(cells)[::-1] * unit_width.numerator, unit_width.denominator)
    return FeedForward(QUANTISE, e, corners, e, ThreePiece.window(Fraction(0), unit_width, slope=-1))
