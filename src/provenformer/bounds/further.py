"""Further numpy functions that are made of others (composites.py): windows and padding, quantiles, interpolation, angles.

As there: a rule's parameters are numpy's, constants that are no floats are enclosed, and what jumps is refused with its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy

from provenformer.bounds.composites import entries_along, is_abstract, like, moved, one_axis, require_constant

np: Any = numpy  # numpy dispatches its functions to abstract arrays; its type stubs know only arrays
PADDED = ("edge", "reflect", "symmetric", "wrap")  # modes that repeat entries, and compute nothing
MOST_WINDOWS = 4096  # entries of one window


def pad(array: Any, pad_width: Any, mode: Any = "constant", kwargs: Any = None) -> Any:
    """Of the modes those that only repeat entries, or put one number beside them."""
    require_constant("pad", pad_width)
    given = dict(kwargs or {})
    if mode == "constant":
        value = require_constant("pad", given.pop("constant_values", 0.0))
        if given or np.ndim(value):
            raise TypeError(
                "numpy.pad: only one number as constant_values= is available; pad each side with its own call"
            )
        return moved([array, float(value)], lambda a, v: np.pad(a, pad_width, constant_values=v))
    if mode not in PADDED or given:
        raise TypeError(
            f"numpy.pad: mode={mode!r} with {sorted(given)} is not available; use constant or {', '.join(PADDED)}"
        )
    return moved([array], lambda a: np.pad(a, pad_width, mode=mode))


def quantile(a: Any, q: Any, axis: Any = None, keepdims: Any = False) -> Any:
    """Between the two sorted entries next to (n - 1) q; several q are stacked in front, as numpy does."""
    at, shares = one_axis("quantile", a, axis), np.asarray(require_constant("quantile", q), dtype=float)
    if shares.ndim > 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise TypeError("numpy.quantile: q must be a number, or a list of numbers, from 0 to 1")
    entries = entries_along(np.sort(a, axis=at), at)
    found = [_between(entries, float(share)) for share in np.ravel(shares)]
    found = found if keepdims else [np.squeeze(one, axis=at) for one in found]
    return np.stack(found, axis=0) if shares.ndim else found[0]


def percentile(a: Any, q: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return quantile(a, np.asarray(require_constant("percentile", q), dtype=float) / 100.0, axis, keepdims)


def _between(entries: Sequence[Any], share: float) -> Any:
    place = (len(entries) - 1) * share
    low = int(place)
    part = place - low
    if not part:
        return entries[low]
    return entries[low] * (1.0 - part) + entries[low + 1] * part


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """Linear between constant points, constant beyond them: a sum of clipped ramps, each with its own slope."""
    points, values = (np.asarray(require_constant("interp", v), dtype=float) for v in (xp, fp))
    if points.ndim != 1 or points.shape != values.shape or len(points) < 2 or not (np.diff(points) > 0).all():
        raise TypeError("numpy.interp: the points must be constants, at least two, in increasing order")
    total = x.lift(np.full(np.shape(x), values[0]))
    for (a, b), (u, v) in zip(pairwise(points), pairwise(values), strict=True):
        if u != v:
            slope = (x.lift(v) - u) / (x.lift(b) - a)
            total = total + slope * (np.minimum(np.maximum(x, a), b) - a)
    return total


def average(a: Any, axis: Any = None, weights: Any = None, keepdims: Any = False) -> Any:
    if weights is None:
        return np.mean(a, axis=axis, keepdims=keepdims)
    if np.shape(weights) != np.shape(a):  # one weight per entry along the axes, in the order in which they are named
        axes = [int(one) % np.ndim(a) for one in (axis if isinstance(axis, tuple) else (axis,))]
        along = [size if at in axes else 1 for at, size in enumerate(np.shape(a))]
        weights = np.reshape(np.transpose(weights, np.argsort(axes)), along)
    one = like([a, weights])
    whole = np.sum(np.broadcast_to(one.lift(weights), np.shape(a)), axis=axis, keepdims=keepdims)
    return np.sum(a * weights, axis=axis, keepdims=keepdims) / whole


def arctan2(x1: Any, x2: Any) -> Any:
    """The angle of (x2, x1). It jumps where x1 = 0 and x2 < 0: one of the two must keep its sign."""
    one = like([x1, x2])
    (low, high), right = one.lift(x1).extent(), one.lift(x2).extent()[0]
    if right > 0:
        return np.arctan(x1 / x2)
    quarter = 2.0 * np.arctan(one.lift(1.0))
    if low > 0:
        return quarter - np.arctan(x2 / x1)
    if high < 0:
        return -quarter - np.arctan(x2 / x1)
    raise TypeError(
        f"numpy.arctan2 of y in [{low:.4g}, {high:.4g}] and x from {right:.4g} up jumps where y = 0 and x < 0; keep x > 0 or "
        "y away from 0"
    )


def logaddexp(x1: Any, x2: Any) -> Any:
    """log(exp a + exp b) without large numbers."""
    return np.maximum(x1, x2) + np.log1p(np.exp(-np.absolute(x1 - x2)))


def log10(x: Any) -> Any:
    return np.log(x) / np.log(x.lift(10.0))


def ndtr(x: Any) -> Any:
    """The normal distribution function."""
    scaled = x / np.sqrt(x.lift(2.0))
    return 0.5 + 0.5 * scaled.elementwise("erf", scaled)


def radians(x: Any) -> Any:
    return x * (np.arctan(x.lift(1.0)) / 45.0)


def degrees(x: Any) -> Any:
    return x * (45.0 / np.arctan(x.lift(1.0)))


def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """Copies of the windows: nobody may write to them anyway."""
    if not is_abstract(x):
        raise TypeError("numpy.lib.stride_tricks.sliding_window_view: the window depends on the input; give a constant")
    window = require_constant("sliding_window_view", window_shape)
    if np.prod(window, dtype=float) > MOST_WINDOWS:
        raise TypeError(f"windows of more than {MOST_WINDOWS:,} entries are not available; use smaller ones")
    return moved([x], lambda a: np.array(numpy.lib.stride_tricks.sliding_window_view(a, window, axis=axis)))


INSTEAD = {
    "partition": "use np.sort, or np.quantile",
    "fft": "multiply with the constant matrix of the transform, cosines and sines, by @",
    "convolve": "add up shifted slices of np.pad(x, ..), each times its weight",
    "correlate": "add up shifted slices of np.pad(x, ..), each times its weight",
    "linalg": "write out the formula; a denominator that may be 0 needs a positive constant added",
    "cov": "use means of products of what is centred",
    "corrcoef": "use means of products of what is centred, and np.var",
}


def instead_of(name: str) -> str:
    """The remedy for a function that has no rule, if there is one that is known."""
    last = name.split(".")[1:]
    return next((f"; {remedy}" for known, remedy in INSTEAD.items() if known in last), "")
