"""Step 2c, values by feed-forward layers (Lemma 7 for Theorem 2, Appendix C.3 for Theorem 3), over any list of contexts.

One layer per (context, column): where the id is within half a unit of q, add (value - column). Layers are sorted by
decreasing q: a column meets only bumps above it, then its own, and afterwards it is small. That it stays small is the
condition missing from Lemma 7 (our finding 4): no finished column may lie in a later window. `output_scale` finds the
power of two by which to shrink the values for that, and `rescale_output` undoes it at the end of the network.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import Array, ExactArray
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.paper.quantize import unit
from provenformer.networks.modified import ZERO, FeedForward, ThreePiece
from provenformer.networks.stages import RESCALE_OUTPUT, VALUES


def drop_other_contexts(sweep: Sweep, unit_width: Fraction) -> list[FeedForward]:
    """Lemma 7 (a) and (b): columns with an id outside [t_l, t_r) become 0, the others stay."""
    grid, delta = sweep.grid, unit_width
    d = grid.token_dim
    one = (Fraction(0), Fraction(1))
    below_zero = -(sweep.entry_bound * delta + 1)
    outside = ThreePiece(sweep.id_low * delta, sweep.id_high * delta, (one, ZERO, one))
    negative = ThreePiece(Fraction(0), Fraction(0), ((Fraction(-1), Fraction(0)), ZERO, ZERO))
    runs = [
        FeedForward(
            VALUES, ExactArray.of([grid.id_vector]), ExactArray.of([0]), ExactArray.of([[below_zero] * d]), outside
        )
    ]
    for row in range(d):
        e = unit(row, d)
        runs.append(FeedForward(VALUES, ExactArray.of([e]), ExactArray.of([0]), ExactArray.of([e]), negative))
    return runs


def context_columns(sweep: Sweep, ids: Array, q: Array, contexts: Array) -> Array:
    """The columns of g_c(L) in units of delta, (count, n, d): the grid token, its first row moved by q - id."""
    columns = sweep.grid.columns(contexts).astype(q.dtype)
    if sweep.positional:
        columns = columns + (np.arange(sweep.grid.seq_len) * sweep.grid.cells_per_axis)[:, None]
    columns[..., 0] += q - ids
    return columns


def value_bumps(
    direction: tuple[int, ...], q: Array, columns: Array, values: FloatArray, unit_width: Fraction
) -> FeedForward:
    """Lemma 7 (c) for ids q (layers,), columns and values (layers, d), in units of `unit_width`, sorted downwards."""
    order = np.argsort(-q, kind="stable")
    return FeedForward(
        VALUES,
        ExactArray.repeat(list(direction), len(q)),
        ExactArray(-q[order], unit_width.denominator),
        ExactArray(-columns[order], unit_width.denominator, values[order]),
        ThreePiece.window(-unit_width / 2, unit_width / 2, intercept=1),
    )


def output_scale(direction: tuple[int, ...], values: FloatArray, lowest_id: Fraction, unit_width: Fraction) -> int:
    """The smallest power of two c with |u.(A / c)| < lowest id - unit/2 for all columns A of `values` (..., d).

    c = 1 means that Lemma 7 holds as printed. The sum is bounded from above, so the strict inequality is certain.
    """
    largest = sum(Fraction(float(np.abs(values[..., i]).max(initial=0.0))) * w for i, w in enumerate(direction))
    limit = lowest_id - unit_width / 2
    scale = 1
    while largest >= scale * limit:
        scale *= 2
    if (values / scale * scale != values).any():
        raise ProvenformerError(
            f"values up to {float(np.abs(values).max()):.2e} must be scaled down by {float(scale):.2e}, but then the "
            "smallest underflow float64; make the target's values smaller, or its smallest ones 0."
        )
    return scale


def rescale_output(values: FloatArray, scale: int) -> list[FeedForward]:
    """Multiply each row by `scale` on [-B, inf), where B bounds the scaled values (..., d); constant below, so in Phi."""
    if scale == 1:
        return []
    d, runs = values.shape[-1], []
    for row in range(d):
        bound = Fraction(float(np.abs(values[..., row]).max()))
        flat = (Fraction(0), -(scale - 1) * bound)
        phi = ThreePiece(-bound, -bound, (flat, flat, (Fraction(scale - 1), Fraction(0))))
        e = unit(row, d)
        runs.append(FeedForward(RESCALE_OUTPUT, ExactArray.of([e]), ExactArray.of([0]), ExactArray.of([e]), phi))
    return runs
