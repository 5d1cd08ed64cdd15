"""softmax and logsumexp of symbolic arrays, in a form that needs neither large numbers nor their reciprocals."""

from __future__ import annotations

from typing import Any

import numpy

from provenformer.bounds.composites import one_axis

np: Any = numpy  # numpy dispatches its functions to symbols; its type stubs know only arrays


def softmax(x: Any, axis: int = -1) -> Any:
    """Over tokens as users write it, which becomes a head where it weighs values; over features as exp(x - logsumexp(x))."""
    at = one_axis("softmax", x, axis)
    if not _of_features(x, at):
        powers = np.exp(x)
        return powers / np.sum(powers, axis=at, keepdims=True)
    return np.exp(np.minimum(x - logsumexp(x, at, keepdims=True), 0.0))  # it is <= 0, which intervals do not see


def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    """log(exp a + exp b) = b + log(1 + exp(a - b)), pair by pair over features: slopes from 0 to 1, so errors do not grow."""
    at = one_axis("logsumexp", x, axis)
    if not _of_features(x, at):
        return np.log(np.sum(np.exp(x), axis=at, keepdims=keepdims))
    entries = [np.take(x, [i], axis=at) for i in range(x.shape[at])]
    while len(entries) > 1:
        joined = [b + np.log1p(np.exp(a - b)) for a, b in zip(entries[::2], entries[1::2], strict=False)]
        entries = joined + entries[2 * len(joined) :]
    return entries[0] if keepdims else np.squeeze(entries[0], axis=at)


def logaddexp(x1: Any, x2: Any) -> Any:
    """Smooth, so one table where both are functions of one value; the form with a maximum and a size would have kinks."""
    return x2 + np.log1p(np.exp(x1 - x2))


def _of_features(x: Any, axis: int) -> bool:
    """Whether an axis is one of features, of values of one token."""
    return x.values is None and axis + x.ndim not in (x.batch, *x.tokens) and len(x.tokens) < 2
