"""Interval slopes: bounds on all partial derivatives of a numpy function over boxes, by forward differentiation.

`Slope(value, slope)` carries an enclosure of the function, shape (1, boxes, d, n), and of its derivatives, shape
(directions, boxes, d, n). At a kink (max, clip, sort, ...) the slope is the hull of all that can occur, so it encloses
Clarke's generalised gradient and Lebourg's mean value theorem applies: on a box around c,

    f(x) - f(c)  lies in  sum_k slope_k (x_k - c_k).

As for intervals, a function that is not listed raises `TypeError`. The first axis holds the directions and is not the
user's: anything that would index or reduce it raises as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from provenformer.bounds.intervals import Interval, as_interval

np: Any = numpy  # numpy dispatches its functions to intervals and slopes; its type stubs know only arrays


class _Shape(tuple[int, ...]):
    """A shape that is read from the end: from the front a slope has one axis more than the user's array."""

    def __getitem__(self, index: Any) -> Any:
        ends = (index.start, index.stop) if isinstance(index, slice) else (index,)
        if any(end is not None and end >= 0 for end in ends):
            raise TypeError("the first axis of a slope holds the directions; use shape[-1] and shape[-2]")
        return super().__getitem__(index)


class Slope(numpy.lib.mixins.NDArrayOperatorsMixin):
    """A function value and its slopes in all input directions, as intervals."""

    __slots__ = ("slope", "value")
    __array_priority__ = 2000

    def __init__(self, value: Interval, slope: Interval) -> None:
        self.value = value
        self.slope = slope

    @property
    def shape(self) -> tuple[int, ...]:
        return _Shape(self.value.shape)

    @property
    def ndim(self) -> int:
        return self.value.ndim

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a slope cannot become a plain array; use the numpy functions that slopes support")

    def __bool__(self) -> bool:
        raise TypeError("a slope has no truth value; a comparison can be undecided")

    def __float__(self) -> float:
        raise TypeError("a slope is not a number")

    def __len__(self) -> int:
        raise TypeError("the first axis of a slope holds the directions; use shape[-1] and shape[-2]")

    def __getitem__(self, index: Any) -> Slope:
        parts = index if isinstance(index, tuple) else (index,)
        # Without an ellipsis the user counts axes from the front, and a slope has one more there than the user's array.
        if parts[0] is not Ellipsis:
            raise TypeError("the first axis of a slope holds the directions; index from the end: x[..., i]")
        return Slope(self.value[index], self.slope[index])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce" and ufunc in _REDUCE and not kwargs.get("out"):
            axis = kwargs.get("axis", 0)
            return _REDUCE[ufunc](inputs[0], axis, bool(kwargs.get("keepdims", False)))
        if method == "accumulate" and ufunc in _ACCUMULATE:
            return _ACCUMULATE[ufunc](inputs[0], kwargs.get("axis", 0 if len(inputs) < 2 else inputs[1]))
        if method == "__call__" and ufunc is np.power and not kwargs:
            return _power(_as_slope(inputs[0]), inputs[1])
        if method == "__call__" and ufunc in _UFUNCS and not kwargs:
            return _UFUNCS[ufunc](*(_as_slope(v) for v in inputs))
        raise TypeError(f"numpy.{ufunc.__name__} ({method}) is not available on slopes")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        if func not in _FUNCTIONS:
            raise TypeError(f"numpy.{func.__name__} is not available on slopes")
        return _FUNCTIONS[func](*args, **kwargs)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Slope:
        return _sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Slope:
        return _mean(self, axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Slope:
        return _largest(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Slope:
        return _smallest(self, axis, keepdims)


def slopes_of(fn: Callable[[Any], Any], lo: Any, hi: Any) -> Slope:
    """Run a function on boxes lo <= x <= hi of shape (boxes, d, n), differentiating in each of the d n entries."""
    boxes, d, n = lo.shape
    seed = np.broadcast_to(np.eye(d * n).reshape(d * n, 1, d, n), (d * n, boxes, d, n))
    y = fn(Slope(Interval(lo[None], hi[None]), Interval(seed, seed)))
    if not isinstance(y, Slope) or y.shape != (1, boxes, d, n):
        raise TypeError("the function does not keep the shape of a slope")
    full = (d * n, boxes, d, n)
    return Slope(y.value, Interval(np.broadcast_to(y.slope.lo, full), np.broadcast_to(y.slope.hi, full)))


def _as_slope(value: Any) -> Slope:
    if isinstance(value, Slope):
        return value
    point = as_interval(value)
    return Slope(point, Interval(np.zeros(point.shape), np.zeros(point.shape)))


def _axis(a: Slope, axis: Any) -> int:
    """One axis that is the user's, counted from the end so that it fits value and slope alike."""
    if not isinstance(axis, int | np.integer) or not -a.ndim < axis < 0:
        raise TypeError("slopes reduce one axis at a time, counted from the end, never the first (the directions)")
    return int(axis) % a.ndim - a.ndim


def _hull(a: Interval, b: Interval) -> Interval:
    return Interval(np.minimum(a.lo, b.lo), np.maximum(a.hi, b.hi))


def _where(condition: Any, a: Interval, b: Interval) -> Interval:
    return Interval(np.where(condition, a.lo, b.lo), np.where(condition, a.hi, b.hi))


def _negative(a: Slope) -> Slope:
    return Slope(-a.value, -a.slope)


def _multiply(a: Slope, b: Slope) -> Slope:
    return Slope(a.value * b.value, a.value * b.slope + a.slope * b.value)


def _power(a: Slope, exponent: Any) -> Slope:
    if not isinstance(exponent, int) or exponent < 1:
        raise TypeError("only whole powers >= 1 are available on slopes")
    return a if exponent == 1 else _multiply(_power(a, exponent - 1), a)


def _divide(a: Slope, b: Slope) -> Slope:
    ratio = a.value / b.value
    return Slope(ratio, (a.slope - ratio * b.slope) / b.value)


def _chain(function: Any, derivative: Callable[[Interval, Interval], Interval]) -> Callable[[Slope], Slope]:
    """An elementary function with derivative(argument, result)."""

    def apply(a: Slope) -> Slope:
        value = function(a.value)
        return Slope(value, derivative(a.value, value) * a.slope)

    return apply


def _absolute(a: Slope) -> Slope:
    sign = Interval(np.where(a.value.lo >= 0, 1.0, -1.0), np.where(a.value.hi <= 0, -1.0, 1.0))
    return Slope(np.absolute(a.value), sign * a.slope)


def _maximum(a: Slope, b: Slope) -> Slope:
    slope = _hull(a.slope, b.slope)
    slope = _where(a.value.lo >= b.value.hi, a.slope, slope)
    slope = _where(b.value.lo > a.value.hi, b.slope, slope)
    return Slope(np.maximum(a.value, b.value), slope)


def _minimum(a: Slope, b: Slope) -> Slope:
    return _negative(_maximum(_negative(a), _negative(b)))


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Slope:
    out = _as_slope(a) if a_min is None else _maximum(_as_slope(a), _as_slope(a_min))
    return out if a_max is None else _minimum(out, _as_slope(a_max))


def _sum(a: Any, axis: Any = None, keepdims: bool = False) -> Slope:
    at = _axis(a, axis)
    return Slope(np.sum(a.value, axis=at, keepdims=keepdims), np.sum(a.slope, axis=at, keepdims=keepdims))


def _mean(a: Any, axis: Any = None, dtype: None = None, out: None = None, keepdims: bool = False) -> Slope:
    del dtype, out
    return _divide(_sum(a, axis, keepdims), _as_slope(float(a.shape[_axis(a, axis)])))


def _entries(a: Slope, axis: int) -> list[Slope]:
    """Slices along an axis, each of length one."""
    picks = [(..., slice(i, i + 1), *(slice(None),) * (-1 - axis)) for i in range(a.shape[axis])]
    return [a[pick] for pick in picks]


def _largest(a: Any, axis: Any = None, keepdims: bool = False) -> Slope:
    at = _axis(a, axis)
    best, *rest = _entries(a, at)
    for entry in rest:
        best = _maximum(best, entry)
    return best if keepdims else _sum(best, at)


def _smallest(a: Any, axis: Any = None, keepdims: bool = False) -> Slope:
    return _negative(_largest(_negative(a), axis, keepdims))


def _cumsum(a: Any, axis: Any = None) -> Slope:
    at = _axis(a, axis)
    return Slope(np.cumsum(a.value, axis=at), np.cumsum(a.slope, axis=at))


def _running_largest(a: Any, axis: Any) -> Slope:
    at = _axis(a, axis)
    out = _entries(a, at)
    for i in range(1, len(out)):
        out[i] = _maximum(out[i - 1], out[i])
    return _concatenate(out, at)


def _sort(a: Any, axis: int = -1) -> Slope:
    """The k-th smallest moves with whichever entries can be the k-th: those whose interval meets its own."""
    at = _axis(a, axis)
    value = np.sort(a.value, axis=at)
    entries = _entries(a, at)
    slope = Interval(np.full(a.slope.shape, np.inf), np.full(a.slope.shape, -np.inf))
    for entry in entries:
        possible = (entry.value.lo <= value.hi) & (entry.value.hi >= value.lo)
        slope = _where(possible, _hull(slope, entry.slope), slope)
    return Slope(value, slope)


def _concatenate(arrays: Any, axis: int = 0) -> Slope:
    parts = [_as_slope(v) for v in arrays]
    at = _axis(parts[0], axis)
    directions = max(p.slope.shape[0] for p in parts)

    def full(interval: Interval) -> Interval:
        shape = (directions, *interval.shape[1:])
        return Interval(np.broadcast_to(interval.lo, shape), np.broadcast_to(interval.hi, shape))

    slopes = np.concatenate([full(p.slope) for p in parts], axis=at)
    return Slope(np.concatenate([p.value for p in parts], axis=at), slopes)


def _moved(function: Any) -> Callable[..., Slope]:
    """Functions that only move entries along one of the user's axes."""

    def apply(a: Any, *args: Any, axis: Any = None) -> Slope:
        at = _axis(a, axis)
        return Slope(function(a.value, *args, axis=at), function(a.slope, *args, axis=at))

    return apply


_UFUNCS: dict[Any, Callable[..., Slope]] = {
    np.add: lambda a, b: Slope(a.value + b.value, a.slope + b.slope),
    np.subtract: lambda a, b: Slope(a.value - b.value, a.slope - b.slope),
    np.multiply: _multiply,
    np.divide: _divide,
    np.negative: _negative,
    np.positive: lambda a: a,
    np.absolute: _absolute,
    np.square: _chain(np.square, lambda x, _: 2.0 * x),
    np.exp: _chain(np.exp, lambda _, y: y),
    np.log: _chain(np.log, lambda x, _: 1.0 / x),
    np.sqrt: _chain(np.sqrt, lambda _, y: 0.5 / y),
    np.tanh: _chain(np.tanh, lambda _, y: 1.0 - np.square(y)),
    np.arctan: _chain(np.arctan, lambda x, _: 1.0 / (1.0 + np.square(x))),
    np.maximum: _maximum,
    np.minimum: _minimum,
}
_REDUCE: dict[Any, Callable[..., Slope]] = {np.add: _sum, np.maximum: _largest, np.minimum: _smallest}
_ACCUMULATE: dict[Any, Callable[..., Slope]] = {
    np.add: _cumsum,
    np.maximum: _running_largest,
    np.minimum: lambda a, axis: _negative(_running_largest(_negative(a), axis)),
}
_FUNCTIONS: dict[Any, Callable[..., Slope]] = {
    np.sum: _sum,
    np.mean: _mean,
    np.max: _largest,
    np.min: _smallest,
    np.cumsum: _cumsum,
    np.clip: _clip,
    np.sort: _sort,
    np.concatenate: _concatenate,
    np.flip: _moved(np.flip),
    np.roll: _moved(np.roll),
}
