"""Intervals for quantiles: whole sequences are drawn again with replacement, since tokens of one sequence are not independent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from provenformer.contextual.closest import Floats
from provenformer.contextual.corpus import Ints

RESAMPLES = 300
LEVEL = 0.95


def quantile_intervals(
    values: Floats, sequence: Ints, quantiles: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> list[tuple[float, float, float]]:
    """Per quantile its value and a percentile interval of 95 %."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    owners, owner = np.unique(sequence[order], return_inverse=True)
    rng = np.random.default_rng(seed)
    drawn = np.empty((resamples, len(quantiles)))
    for k in range(resamples):
        weight = np.bincount(rng.integers(len(owners), size=len(owners)), minlength=len(owners))[owner]
        total = np.cumsum(weight)
        places = np.searchsorted(total, np.asarray(quantiles) * total[-1])
        drawn[k] = ordered[np.minimum(places, len(ordered) - 1)]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return [(float(v), float(a), float(b)) for v, a, b in zip(np.quantile(ordered, quantiles), low, high, strict=True)]


def mean_interval(
    values: Floats, sequence: Ints, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """The mean and a percentile interval of 95 %."""
    owners, owner = np.unique(sequence, return_inverse=True)
    sums, counts = np.bincount(owner, values), np.bincount(owner)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(owners), size=(resamples, len(owners)))
    means = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(values.mean()), float(low), float(high)
