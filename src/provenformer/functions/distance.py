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

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError

REPEATS = 16  # independent scramblings, for the error bar


@dataclass(frozen=True)
class Distance:
    """d_p within `error` (one standard error of the mean over independent repeats)."""

    value: float
    error: float
    samples: int

    def __float__(self) -> float:
        return self.value


def distance(
    f: Callable[[Any], Any],
    g: Callable[[Any], Any],
    *,
    token_dim: int,
    seq_len: int,
    norm_order: float = 2,
    support: tuple[Any, Any] = (0.0, 1.0),
    samples: int = 1 << 16,
    cells_per_axis: int | None = None,
    seed: int = 0,
) -> Distance:
    """d_p(f, g) over the box `support`, with an error bar. f, g: (..., d, n) arrays -> same shape."""
    if not 1 <= norm_order < np.inf:
        raise ProvenformerError(f"norm_order={norm_order} is outside [1, inf); use a finite p >= 1.")
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
    largest = max(float(v.max()) for v in off) or 1.0  # powers of numbers up to 1 do not overflow, nor all underflow
    means = [float(((v / largest) ** norm_order).sum(axis=(1, 2)).mean()) for v in off]
    mean, spread = float(np.mean(means)), float(np.std(means, ddof=1) / REPEATS**0.5)
    value = largest * (mean * volume) ** (1 / norm_order)
    error = spread / mean / norm_order * value if mean > 0 else 0.0  # d(m^(1/p)) = m^(1/p) dm / (p m)
    return Distance(value, error, per_repeat * REPEATS)


def _points(axes: int, count: int, cells_per_axis: int | None, seed: int) -> FloatArray:
    if cells_per_axis is not None and cells_per_axis**axes <= count:
        # Cubature by strata: every cell equally often, uniformly within.
        cells = np.stack(np.unravel_index(np.arange(cells_per_axis**axes), (cells_per_axis,) * axes), axis=1)
        each = np.tile(cells, (max(1, count // len(cells)), 1))
        return np.asarray((each + np.random.default_rng(seed).random(each.shape)) / cells_per_axis)
    from scipy.stats import qmc  # takes longer to load than everything else

    return np.asarray(qmc.Sobol(axes, seed=seed).random_base2(int(np.log2(count))))


def _values(function: Callable[[Any], Any], x: FloatArray) -> FloatArray:
    y = np.asarray(function(x.copy()), dtype=np.float64)  # a function may work in place: the other one gets the same x
    if y.shape != x.shape or not np.isfinite(y).all():
        raise ProvenformerError(
            f"a function returned shape {y.shape} or a value that is not finite for input shape {x.shape}; "
            "it must keep the shape and be finite on the support."
        )
    return y
