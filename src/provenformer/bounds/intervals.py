"""Interval arrays: run an ordinary numpy function on boxes and get bounds that hold for every point of each box.

`Interval(lo, hi)` stands for all arrays between two float64 arrays. Every operation rounds outwards by at least one
unit in the last place, so the bounds hold for the real-number function, whatever rounding the function itself would
have. Only the functions listed here are accepted; everything else (comparisons included: they could be undecided)
raises `TypeError`, and the caller then falls back to a weaker kind of certificate. Nothing passes silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_ULPS = 4.0 * 2.0**-52  # numpy states errors below one unit in the last place for these; we allow four


def _down(x: Any) -> FloatArray:
    return np.asarray(np.nextafter(x, -np.inf), dtype=np.float64)


def _up(x: Any) -> FloatArray:
    return np.asarray(np.nextafter(x, np.inf), dtype=np.float64)


class Interval(np.lib.mixins.NDArrayOperatorsMixin):
    """All real arrays x with lo <= x <= hi."""

    __slots__ = ("hi", "lo")
    __array_priority__ = 1000

    def __init__(self, lo: Any, hi: Any) -> None:
        self.lo = np.asarray(lo, dtype=np.float64)
        self.hi = np.asarray(hi, dtype=np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lo.shape

    @property
    def ndim(self) -> int:
        return self.lo.ndim

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("an interval cannot become a plain array; use the numpy functions that intervals support")

    def __bool__(self) -> bool:
        raise TypeError("an interval has no truth value; a comparison of intervals can be undecided")

    def __float__(self) -> float:
        raise TypeError("an interval is not a number")

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, index: Any) -> Interval:
        return Interval(self.lo[index], self.hi[index])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method in ("reduce", "accumulate"):
            table = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}[method]
            if ufunc in table and not kwargs.get("out"):
                axis = kwargs.get("axis", 0 if len(inputs) < 2 else inputs[1])
                return table[ufunc](inputs[0], axis, bool(kwargs.get("keepdims", False)))
        if method == "__call__" and ufunc is np.power and not kwargs:
            return _power(as_interval(inputs[0]), inputs[1])
        if method == "__call__" and ufunc in _UFUNCS and not kwargs:
            return _UFUNCS[ufunc](*(as_interval(v) for v in inputs))
        raise TypeError(f"numpy.{ufunc.__name__} ({method}) is not available on intervals")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        if func not in _FUNCTIONS:
            raise TypeError(f"numpy.{func.__name__} is not available on intervals")
        return _FUNCTIONS[func](*args, **kwargs)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Interval:
        return _sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Interval:
        return _mean(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Interval:
        return _extreme(np.max)(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Interval:
        return _extreme(np.min)(self, axis, keepdims)

    def reshape(self, *shape: Any) -> Interval:
        return Interval(self.lo.reshape(*shape), self.hi.reshape(*shape))

    def swapaxes(self, a: int, b: int) -> Interval:
        return Interval(self.lo.swapaxes(a, b), self.hi.swapaxes(a, b))


def as_interval(value: Any) -> Interval:
    """An interval, or a plain number or array as the point it is (a float64 is exactly itself)."""
    if isinstance(value, Interval):
        return value
    array = np.asarray(value)
    if array.dtype == object or not np.can_cast(array.dtype, np.float64):
        raise TypeError(f"cannot mix {array.dtype} with intervals")
    return Interval(array, array)


def _add(a: Interval, b: Interval) -> Interval:
    return Interval(_down(a.lo + b.lo), _up(a.hi + b.hi))


def _subtract(a: Interval, b: Interval) -> Interval:
    return Interval(_down(a.lo - b.hi), _up(a.hi - b.lo))


def _multiply(a: Interval, b: Interval) -> Interval:
    products = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    low = np.minimum(np.minimum(products[0], products[1]), np.minimum(products[2], products[3]))
    high = np.maximum(np.maximum(products[0], products[1]), np.maximum(products[2], products[3]))
    return Interval(_down(low), _up(high))


def _divide(a: Interval, b: Interval) -> Interval:
    if np.any((b.lo <= 0) & (b.hi >= 0)):
        raise TypeError("division by an interval that contains 0")
    return _multiply(a, Interval(_down(1.0 / b.hi), _up(1.0 / b.lo)))


def _absolute(a: Interval) -> Interval:
    low = np.where((a.lo <= 0) & (a.hi >= 0), 0.0, np.minimum(np.abs(a.lo), np.abs(a.hi)))
    return Interval(low, np.maximum(np.abs(a.lo), np.abs(a.hi)))


def _square(a: Interval) -> Interval:
    size = _absolute(a)
    return Interval(np.maximum(_down(size.lo * size.lo), 0.0), _up(size.hi * size.hi))


def _power(a: Interval, exponent: Any) -> Interval:
    if isinstance(exponent, Interval) or np.ndim(exponent) or int(exponent) != exponent or exponent < 1:
        raise TypeError("only whole powers >= 1 are available on intervals")
    even = _square(a) if exponent >= 2 else a
    if exponent <= 2:
        return even
    half = _power(a, int(exponent) // 2)
    return _square(half) if exponent % 2 == 0 else _multiply(_square(half), a)


def _monotone(
    function: Callable[[FloatArray], FloatArray], low_limit: float = -np.inf
) -> Callable[[Interval], Interval]:
    """An increasing function that numpy computes to within four units in the last place."""

    def apply(a: Interval) -> Interval:
        if np.any(a.lo < low_limit):
            raise TypeError(f"an interval leaves the domain of {getattr(function, '__name__', 'a function')}")
        low, high = function(a.lo), function(a.hi)
        tiny = np.finfo(np.float64).tiny
        return Interval(low - np.abs(low) * _ULPS - tiny, high + np.abs(high) * _ULPS + tiny)

    return apply


def _sum(a: Any, axis: Any = None, keepdims: bool = False) -> Interval:
    """Sum along axes, one rounded addition after the other."""
    a = as_interval(a)
    axes = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for one in sorted((ax % a.ndim for ax in axes), reverse=True):
        total = Interval(np.take(a.lo, [0], axis=one), np.take(a.hi, [0], axis=one))
        for i in range(1, a.shape[one]):
            total = _add(total, Interval(np.take(a.lo, [i], axis=one), np.take(a.hi, [i], axis=one)))
        a = total if keepdims else Interval(total.lo.squeeze(one), total.hi.squeeze(one))
    return as_interval(a)


def _mean(a: Any, axis: Any = None, dtype: None = None, out: None = None, keepdims: bool = False) -> Interval:
    del dtype, out
    a = as_interval(a)
    total = _sum(a, axis, keepdims)
    return _divide(total, as_interval(float(a.lo.size // max(1, total.lo.size))))


def _cumsum(a: Any, axis: int = -1) -> Interval:
    if axis is None or axis % a.ndim != a.ndim - 1:
        raise TypeError("cumsum on intervals is available along the last axis only")
    total, out = a[..., :1], [a[..., :1]]
    for j in range(1, a.shape[-1]):
        total = _add(total, a[..., j : j + 1])
        out.append(total)
    return _concatenate(out, axis=-1)


def _concatenate(arrays: Any, axis: int = 0) -> Interval:
    parts = [as_interval(v) for v in arrays]
    return Interval(np.concatenate([p.lo for p in parts], axis), np.concatenate([p.hi for p in parts], axis))


def _stack(arrays: Any, axis: int = 0) -> Interval:
    parts = [as_interval(v) for v in arrays]
    return Interval(np.stack([p.lo for p in parts], axis), np.stack([p.hi for p in parts], axis))


def _extreme(function: Callable[..., Any]) -> Callable[..., Interval]:
    """max and min are increasing in every entry: apply them to both ends. No rounding happens."""

    def apply(a: Any, axis: Any = None, keepdims: bool = False) -> Interval:
        return Interval(function(a.lo, axis=axis, keepdims=keepdims), function(a.hi, axis=axis, keepdims=keepdims))

    return apply


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Interval:
    low, high = -np.inf if a_min is None else a_min, np.inf if a_max is None else a_max
    return Interval(np.clip(a.lo, low, high), np.clip(a.hi, low, high))


def _both_ends(function: Callable[..., Any]) -> Callable[..., Interval]:
    """Functions that only move entries, and np.sort, which is increasing in every entry."""

    def apply(a: Any, *args: Any, **kwargs: Any) -> Interval:
        return Interval(function(a.lo, *args, **kwargs), function(a.hi, *args, **kwargs))

    return apply


def _accumulate(ufunc: Any) -> Callable[[Any, int, bool], Interval]:
    return lambda a, axis, _keepdims: Interval(ufunc.accumulate(a.lo, axis), ufunc.accumulate(a.hi, axis))


_UFUNCS: dict[Any, Callable[..., Interval]] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
    np.negative: lambda a: Interval(-a.hi, -a.lo),
    np.positive: lambda a: a,
    np.absolute: _absolute,
    np.square: _square,
    np.exp: _monotone(np.exp),
    np.log: _monotone(np.log, np.finfo(np.float64).tiny),
    np.sqrt: _monotone(np.sqrt, 0.0),
    np.tanh: _monotone(np.tanh),
    np.arctan: _monotone(np.arctan),
    np.maximum: lambda a, b: Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi)),
    np.minimum: lambda a, b: Interval(np.minimum(a.lo, b.lo), np.minimum(a.hi, b.hi)),
}
_REDUCE: dict[Any, Callable[..., Interval]] = {
    np.add: _sum,
    np.maximum: _extreme(np.max),
    np.minimum: _extreme(np.min),
}
_ACCUMULATE: dict[Any, Callable[..., Interval]] = {
    np.add: lambda a, axis, _keepdims: _cumsum(a, axis),
    np.maximum: _accumulate(np.maximum),
    np.minimum: _accumulate(np.minimum),
}
_FUNCTIONS: dict[Any, Callable[..., Interval]] = {
    np.sum: _sum,
    np.mean: _mean,
    np.max: _extreme(np.max),
    np.min: _extreme(np.min),
    np.cumsum: _cumsum,
    np.clip: _clip,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.sort: _both_ends(np.sort),
    np.flip: _both_ends(np.flip),
    np.roll: _both_ends(np.roll),
    np.reshape: _both_ends(np.reshape),
    np.swapaxes: _both_ends(np.swapaxes),
    np.moveaxis: _both_ends(np.moveaxis),
    np.expand_dims: _both_ends(np.expand_dims),
    np.broadcast_to: _both_ends(np.broadcast_to),
    np.zeros_like: lambda a: as_interval(np.zeros(a.shape)),
    np.ones_like: lambda a: as_interval(np.ones(a.shape)),
}
