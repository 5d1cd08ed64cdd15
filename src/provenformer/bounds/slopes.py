"""Interval slopes: bounds on all partial derivatives of a numpy function over boxes, by forward differentiation.

`Slope(value, slope)` carries an enclosure of the function, an interval array of shape (1, *shape), and of its derivatives,
shape (directions or 1, *shape), where `shape` is what the user's function sees: (boxes, d, n) at first. At a kink (max,
clip, sort, ...) the slope is the hull of all that can occur, so it encloses Clarke's generalised gradient and Lebourg's
mean value theorem applies: on a box around c,

    f(x) - f(c)  lies in  sum_k slope_k (x_k - c_k).

Where a derivative is unbounded (the square root at 0) so is its enclosure. As for intervals, what is not understood raises
`TypeError` (numpy_calls.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from provenformer.bounds import composites
from provenformer.bounds.intervals import Interval, as_interval, hull
from provenformer.bounds.numpy_calls import AbstractArray, logsumexp, run, softmax

np: Any = numpy  # numpy dispatches its functions to intervals and slopes; its type stubs know only arrays


class Slope(AbstractArray):
    """A function value and its slopes in all input directions, as intervals."""

    __slots__ = ("slope", "value")
    plural = "slopes"

    def __init__(self, value: Interval, slope: Interval) -> None:
        self.value = value
        self.slope = slope

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape[1:]

    def lift(self, value: Any) -> Slope:
        if isinstance(value, Slope):
            return value
        point = as_interval(value)[None]
        return Slope(point, as_interval(np.zeros(point.shape)))

    def elementwise(self, name: str, *operands: Slope) -> Slope:
        return _ELEMENTWISE[name](*_aligned(operands))

    def whole_power(self, exponent: int) -> Slope:
        if exponent == 1:
            return self
        return Slope(self.value**exponent, float(exponent) * self.value ** (exponent - 1) * self.slope)

    def along(self, name: str, axis: int) -> Slope:
        return _ALONG[name](self, axis)

    def extent(self) -> tuple[float, float]:
        return self.value.extent()

    def rearranged(self, parts: Sequence[Slope], move: composites.Move) -> Slope:
        """The move, in each direction: a move knows nothing of the axis in front."""
        directions = max(part.slope.shape[0] for part in parts)

        def each(pick: Callable[[Slope], Any], count: int) -> Any:
            arrays = [np.broadcast_to(a, (count, *a.shape[1:])) for a in map(pick, parts)]
            return np.stack([move(*(a[k] for a in arrays)) for k in range(count)])

        return Slope(
            Interval(each(lambda p: p.value.lo, 1), each(lambda p: p.value.hi, 1)),
            Interval(each(lambda p: p.slope.lo, directions), each(lambda p: p.slope.hi, directions)),
        )


def slopes_of(fn: Callable[[Any], Any], lo: Any, hi: Any) -> Slope:
    """Run a function on boxes lo <= x <= hi of shape (boxes, d, n), differentiating in each of the d n entries."""
    boxes, d, n = lo.shape
    seed = np.broadcast_to(np.eye(d * n).reshape(d * n, 1, d, n), (d * n, boxes, d, n))
    y = run(fn, Slope(Interval(lo[None], hi[None]), Interval(seed, seed)))
    if not isinstance(y, Slope) or y.shape != (boxes, d, n):
        raise TypeError("the function does not keep the shape of a slope")
    full = (d * n, boxes, d, n)
    return Slope(y.value, Interval(np.broadcast_to(y.slope.lo, full), np.broadcast_to(y.slope.hi, full)))


def _aligned(operands: Sequence[Slope]) -> list[Slope]:
    """Operands with equally many axes: missing ones go between the directions and the user's axes."""
    count = max(one.ndim for one in operands)

    def fit(a: Interval) -> Interval:
        shape = (a.shape[0], *(1,) * (count + 1 - a.ndim), *a.shape[1:])
        return a if a.ndim == count + 1 else Interval(a.lo.reshape(shape), a.hi.reshape(shape))

    return [Slope(fit(one.value), fit(one.slope)) for one in operands]


def _where(condition: Any, a: Interval, b: Interval) -> Interval:
    return Interval(np.where(condition, a.lo, b.lo), np.where(condition, a.hi, b.hi))


def _negative(a: Slope) -> Slope:
    return Slope(-a.value, -a.slope)


def _multiply(a: Slope, b: Slope) -> Slope:
    return Slope(a.value * b.value, a.value * b.slope + a.slope * b.value)


def _divide(a: Slope, b: Slope) -> Slope:
    ratio = a.value / b.value
    return Slope(ratio, (a.slope - ratio * b.slope) / b.value)


def _chain(function: Any, derivative: Callable[[Interval, Interval], Interval]) -> Callable[[Slope], Slope]:
    """An elementary function with derivative(argument, result)."""

    def apply(a: Slope) -> Slope:
        value = function(a.value)
        return Slope(value, derivative(a.value, value) * a.slope)

    return apply


def _primitive(name: str) -> Callable[..., Any]:
    return lambda a: a.elementwise(name, a)


def _root_slope(_: Interval, y: Interval) -> Interval:
    """1 / (2 sqrt(x)), without bound where x may be 0."""
    safe = Interval(np.where(y.lo > 0, y.lo, 1.0), np.where(y.hi > 0, y.hi, 1.0))
    found = 0.5 / Interval(np.minimum(safe.lo, safe.hi), safe.hi)
    return Interval(np.where(y.hi > 0, found.lo, 0.0), np.where(y.lo > 0, found.hi, np.inf))


def _absolute(a: Slope) -> Slope:
    sign = Interval(np.where(a.value.lo >= 0, 1.0, -1.0), np.where(a.value.hi <= 0, -1.0, 1.0))
    return Slope(np.absolute(a.value), sign * a.slope)


def _sign(a: Slope) -> Slope:
    """Without bound where it may jump, whatever the argument's own slope is."""
    jumps = (a.value.lo <= 0) & (a.value.hi >= 0) & np.ones(a.slope.shape, dtype=bool)
    return Slope(np.sign(a.value), Interval(np.where(jumps, -np.inf, 0.0), np.where(jumps, np.inf, 0.0)))


def _maximum(a: Slope, b: Slope) -> Slope:
    slope = hull(a.slope, b.slope)
    slope = _where(a.value.lo >= b.value.hi, a.slope, slope)
    slope = _where(b.value.lo > a.value.hi, b.slope, slope)
    return Slope(np.maximum(a.value, b.value), slope)


def _minimum(a: Slope, b: Slope) -> Slope:
    return _negative(_maximum(_negative(a), _negative(b)))


def _entries(a: Slope, axis: int) -> list[Slope]:
    """Slices along an axis, each of length one."""
    picks = [(..., slice(i, i + 1), *(slice(None),) * (-1 - axis)) for i in range(a.shape[axis])]
    return [Slope(a.value[pick], a.slope[pick]) for pick in picks]


def _joined(parts: Sequence[Slope], axis: int) -> Slope:
    values, slopes = [p.value for p in parts], [p.slope for p in parts]
    return Slope(np.concatenate(values, axis=axis), np.concatenate(slopes, axis=axis))


def _linear(name: str) -> Callable[[Slope, int], Slope]:
    return lambda a, axis: Slope(a.value.along(name, axis), a.slope.along(name, axis))


def _largest(a: Slope, axis: int) -> Slope:
    best, *rest = _entries(a, axis)
    for entry in rest:
        best = _maximum(best, entry)
    return best


def _running_largest(a: Slope, axis: int) -> Slope:
    out = _entries(a, axis)
    for i in range(1, len(out)):
        out[i] = _maximum(out[i - 1], out[i])
    return _joined(out, axis)


def _mirrored(rule: Callable[[Slope, int], Slope]) -> Callable[[Slope, int], Slope]:
    return lambda a, axis: _negative(rule(_negative(a), axis))


def _sort(a: Slope, axis: int) -> Slope:
    """The k-th smallest moves with whichever entries can be the k-th: those whose interval meets its own."""
    value = np.sort(a.value, axis=axis)
    slope = Interval(np.full(a.slope.shape, np.inf), np.full(a.slope.shape, -np.inf))
    for entry in _entries(a, axis):
        possible = (entry.value.lo <= value.hi) & (entry.value.hi >= value.lo)
        slope = _where(possible, hull(slope, entry.slope), slope)
    return Slope(value, slope)


def _softmax(x: Slope, axis: Any = -1) -> Slope:
    """The slope of w_j is w_j sum_k w_k (x_j' - x_k'); entry j itself drops out."""
    at = composites.one_axis("softmax", x, axis)
    weights = softmax(x.value, axis=at)
    wide = np.moveaxis(x.slope, at, -1)
    off = wide[..., :, None] - wide[..., None, :]  # (.., j, k)
    off = np.where(np.eye(wide.shape[-1], dtype=bool), 0.0, off)
    moved = np.sum(np.moveaxis(weights, at, -1)[..., None, :] * off, axis=-1)
    return Slope(weights, weights * np.moveaxis(moved, -1, at))


def _logsumexp(x: Slope, axis: Any = -1, keepdims: Any = False) -> Slope:
    at = composites.one_axis("logsumexp", x, axis)
    slope = np.sum(softmax(x.value, axis=at) * x.slope, axis=at, keepdims=keepdims)
    return Slope(logsumexp(x.value, axis=at, keepdims=keepdims), slope)


_PI = Interval(3.141592653589793, np.nextafter(3.141592653589793, 4.0))  # the nearest float is below pi
_LOG_2 = np.log(as_interval(2.0))
_ELEMENTWISE: dict[str, Callable[..., Slope]] = {
    "add": lambda a, b: Slope(a.value + b.value, a.slope + b.slope),
    "subtract": lambda a, b: Slope(a.value - b.value, a.slope - b.slope),
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _maximum,
    "minimum": _minimum,
    "negative": _negative,
    "absolute": _absolute,
    "square": _chain(np.square, lambda x, _: 2.0 * x),
    "sqrt": _chain(np.sqrt, _root_slope),
    "exp": _chain(np.exp, lambda _, y: y),
    "exp2": _chain(np.exp2, lambda _, y: _LOG_2 * y),
    "expm1": _chain(np.expm1, lambda x, _: np.exp(x)),
    "log": _chain(np.log, lambda x, _: 1.0 / x),
    "log2": _chain(np.log2, lambda x, _: 1.0 / (_LOG_2 * x)),
    "log1p": _chain(np.log1p, lambda x, _: 1.0 / (1.0 + x)),
    "sin": _chain(np.sin, lambda x, _: np.cos(x)),
    "cos": _chain(np.cos, lambda x, _: -np.sin(x)),
    "sinh": _chain(np.sinh, lambda x, _: np.cosh(x)),
    "cosh": _chain(np.cosh, lambda x, _: np.sinh(x)),
    "tanh": _chain(np.tanh, lambda _, y: 1.0 - np.square(y)),
    "arctan": _chain(np.arctan, lambda x, _: 1.0 / (1.0 + np.square(x))),
    "expit": _chain(_primitive("expit"), lambda _, y: 0.25 - np.square(y - 0.5)),
    "sign": _sign,
    "erf": _chain(_primitive("erf"), lambda x, _: 2.0 / np.sqrt(_PI) * np.exp(-np.square(x))),
}
_ALONG: dict[str, Callable[[Slope, int], Slope]] = {
    "sum": _linear("sum"),
    "max": _largest,
    "min": _mirrored(_largest),
    "sort": _sort,
    "cumsum": _linear("cumsum"),
    "cummax": _running_largest,
    "cummin": _mirrored(_running_largest),
}
Slope.own_rules = {"softmax": _softmax, "logsumexp": _logsumexp}
