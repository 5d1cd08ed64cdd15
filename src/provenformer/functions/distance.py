"""distance(f, g): the paper's d_p(f, g) = (integral of ||f - g||_p^p)^(1/p) over a box, measured, with an error bar.

Scrambled Sobol points in several independent scramblings: their spread gives the error bar. When g is constant on the
cells of a grid (a compiled network), points are stratified over the cells instead: the same number of random points in
each of many cells, which removes the variance between cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray, real_numbers
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.functions.targets import Target

REPEATS = 16  # independent scramblings, for the error bar


@dataclass(frozen=True)
class Distance:
    """d_p within `error` (one standard error of the mean over independent repeats; 0 for the sup norm, which has none)."""

    value: float
    error: float
    samples: int

    def __float__(self) -> float:
        return self.value


def distance(
    f: Callable[[Any], Any],
    g: Callable[[Any], Any],
    *,
    token_dim: int | None = None,
    seq_len: int | None = None,
    norm_order: float = 2,
    support: tuple[Any, Any] | None = None,
    samples: int = 1 << 16,
    cells_per_axis: int | None = None,
    seed: int = 0,
) -> Distance:
    """d_p(f, g) over the box `support`, with an error bar. f, g: (..., d, n) arrays -> same shape.

    What is not given of sizes and support is that of f or g, whichever is a Target; else sizes are needed, and the box is [0, 1].
    With norm_order=np.inf the value is the largest difference found, below which the sup norm cannot be, without an error bar.
    Returns a Distance, which is also a float; raises ProvenformerError for sizes or a box that make no sense.
    """
    known = next((each for each in (f, g) if isinstance(each, Target)), None)
    token_dim = token_dim if known is None or token_dim is not None else known.token_dim
    seq_len = seq_len if known is None or seq_len is not None else known.seq_len
    if token_dim is None or seq_len is None:
        raise ProvenformerError("token_dim and seq_len are needed when neither function is a Target; give both.")
    support = support or ((0.0, 1.0) if known is None else known.support)
    if not norm_order >= 1:
        raise ProvenformerError(f"norm_order={norm_order} is outside [1, inf]; use p >= 1 or np.inf.")
    if samples < REPEATS:
        raise ProvenformerError(f"samples={samples} is below the limit {REPEATS}; use more samples.")
    low, high = (np.broadcast_to(np.asarray(v, dtype=np.float64), (token_dim,))[:, None] for v in support)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ProvenformerError(f"support={support} is not a finite box with low < high; give (low, high).")
    volume = float(np.prod(high - low) ** seq_len)
    axes = token_dim * seq_len
    per_repeat = max(1, samples // REPEATS)
    off = []
    for repeat in range(REPEATS):
        unit = _points(axes, per_repeat, cells_per_axis, seed * REPEATS + repeat)
        x = low + unit.reshape(-1, token_dim, seq_len) * (high - low)
        off.append(np.abs(_values(f, x) - _values(g, x)))
    if norm_order == np.inf:
        return Distance(max(float(v.max()) for v in off), 0.0, per_repeat * REPEATS)
    largest = max(float(v.max()) for v in off) or 1.0  # powers of numbers up to 1 do not overflow, nor all underflow
    means = [float(((v / largest) ** norm_order).sum(axis=(1, 2)).mean()) for v in off]
    mean, spread = float(np.mean(means)), float(np.std(means, ddof=1) / REPEATS**0.5)
    value = largest * (mean * volume) ** (1 / norm_order)
    error = spread / mean / norm_order * value if mean > 0 else 0.0  # d(m^(1/p)) = m^(1/p) dm / (p m)
    return Distance(value, error, per_repeat * REPEATS)


def entries_factor(target: Target, norm_order: float | None) -> float:
    """d_p <= sup |f - g| times this: (d n vol)^(1/p) rounded up, 1 for the sup norm. In logarithms: volumes underflow."""
    if norm_order is None or norm_order == np.inf:
        return 1.0
    axes = target.token_dim * target.seq_len
    each = np.log(target.high - target.low)
    logs = target.seq_len * float(each.sum()) + np.log(axes)
    off = 2.0**-50 * (axes + (target.token_dim + 4) * (target.seq_len * float(np.abs(each).sum()) + np.log(axes)))
    with np.errstate(over="ignore", under="ignore"):
        return max(float(np.exp((logs + off) / norm_order)) * (1 + 1e-9), float(np.finfo(np.float64).tiny))


def _points(axes: int, count: int, cells_per_axis: int | None, seed: int) -> FloatArray:
    if cells_per_axis is not None and cells_per_axis**axes <= count:
        # Cubature by strata: every cell equally often, uniformly within.
        cells = np.stack(np.unravel_index(np.arange(cells_per_axis**axes), (cells_per_axis,) * axes), axis=1)
        each = np.tile(cells, (max(1, count // len(cells)), 1))
        return np.asarray((each + np.random.default_rng(seed).random(each.shape)) / cells_per_axis)
    from scipy.stats import qmc  # takes longer to load than everything else  # noqa: PLC0415

    return np.asarray(qmc.Sobol(axes, seed=seed).random_base2(int(np.log2(count))))


def _values(function: Callable[[Any], Any], x: FloatArray) -> FloatArray:
    found = function(x.copy())  # a function may work in place: the other one gets the same x
    try:
        y = real_numbers(found)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProvenformerError(
            f"a function does not return real numbers ({one_line(error)}); give one that does."
        ) from error
    if y.shape != x.shape or not np.isfinite(y).all():
        raise ProvenformerError(
            f"a function returned shape {y.shape} or a value that is not finite for input shape {x.shape}; "
            "it must keep the shape and be finite on the support."
        )
    return y
