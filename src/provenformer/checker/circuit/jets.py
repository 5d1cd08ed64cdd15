"""Second order jets: enclosures of phi, phi' and phi'' on cells of one variable, by running phi's numpy formula.

At a kink that lies inside a cell (max, abs, clip) the first derivative is the hull of both sides and the second is unbounded: the
caller then uses a rule that needs the first alone. Anything not listed raises `TypeError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from provenformer.bounds.intervals import Interval, as_interval

np: Any = numpy  # numpy dispatches its functions to intervals and jets; its type stubs know only arrays


class Jet(numpy.lib.mixins.NDArrayOperatorsMixin):
    """Value, first and second derivative, as intervals of one shape."""

    __slots__ = ("first", "second", "value")
    __array_priority__ = 3000

    def __init__(self, value: Interval, first: Interval, second: Interval) -> None:
        self.value, self.first, self.second = value, first, second

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a jet cannot become a plain array")

    def __bool__(self) -> bool:
        raise TypeError("a jet has no truth value")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Jet:
        if method != "__call__" or kwargs:
            raise TypeError(f"numpy.{ufunc.__name__} ({method}) is not available on jets")
        if ufunc is np.power:
            return _power(_as_jet(inputs[0]), inputs[1])
        rule = _UNARY.get(ufunc) or _SPECIAL.get(ufunc.__name__)
        if rule is not None:
            return _chain(_as_jet(inputs[0]), *rule(_as_jet(inputs[0]).value))
        if ufunc in _OTHERS:
            return _OTHERS[ufunc](*(_as_jet(v) for v in inputs))
        raise TypeError(f"numpy.{ufunc.__name__} is not available on jets")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Jet:
        del types
        if func is not np.clip:
            raise TypeError(f"numpy.{func.__name__} is not available on jets")
        return _clip(*args, **kwargs)


def jet_of(fn: Callable[[Any], Any], low: Any, high: Any) -> Jet:
    """phi, phi', phi'' on every cell low_i <= z <= high_i."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    one, zero = Interval(np.ones_like(low), np.ones_like(low)), Interval(np.zeros_like(low), np.zeros_like(low))
    with np.errstate(all="ignore"):
        jet = _as_jet(fn(Jet(Interval(low, high), one, zero)))
    return Jet(*(_whole(part, low.shape) for part in (jet.value, jet.first, jet.second)))


def _whole(part: Interval, shape: tuple[int, ...]) -> Interval:
    """Of full shape; an entry that is not a number says nothing and becomes the whole line."""
    low, high = np.broadcast_to(part.lo, shape), np.broadcast_to(part.hi, shape)
    return Interval(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def _as_jet(value: Any) -> Jet:
    if isinstance(value, Jet):
        return value
    point = as_interval(value)
    zero = Interval(np.zeros(point.shape), np.zeros(point.shape))
    return Jet(point, zero, zero)


def _chain(a: Jet, value: Interval, first: Interval, second: Interval) -> Jet:
    return Jet(value, first * a.first, second * np.square(a.first) + first * a.second)


def _multiply(a: Jet, b: Jet) -> Jet:
    if a is b:
        return _chain(a, *_UNARY[np.square](a.value))
    return Jet(
        a.value * b.value,
        a.value * b.first + a.first * b.value,
        a.value * b.second + 2.0 * (a.first * b.first) + a.second * b.value,
    )


def _power(a: Jet, exponent: Any) -> Jet:
    if not isinstance(exponent, int | np.integer) or exponent < 1:
        raise TypeError("only whole powers >= 1 are available on jets")
    k = int(exponent)
    if k == 1:
        return a
    second = a.value ** (k - 2) if k > 2 else as_interval(1.0)
    return _chain(a, a.value**k, float(k) * a.value ** (k - 1), float(k * (k - 1)) * second)


def _select(first_wins: Any, second_wins: Any, a: Jet, b: Jet, value: Interval) -> Jet:
    """The branch of a or b where it is decided, else the hull of slopes and no bound on the second derivative."""

    def pick(x: Interval, y: Interval, low: Any, high: Any) -> Interval:
        return Interval(
            np.where(first_wins, x.lo, np.where(second_wins, y.lo, low)),
            np.where(first_wins, x.hi, np.where(second_wins, y.hi, high)),
        )

    first = pick(a.first, b.first, np.minimum(a.first.lo, b.first.lo), np.maximum(a.first.hi, b.first.hi))
    return Jet(value, first, pick(a.second, b.second, -np.inf, np.inf))


def _maximum(a: Jet, b: Jet) -> Jet:
    return _select(a.value.lo >= b.value.hi, b.value.lo >= a.value.hi, a, b, np.maximum(a.value, b.value))


def _minimum(a: Jet, b: Jet) -> Jet:
    return _select(a.value.hi <= b.value.lo, b.value.hi <= a.value.lo, a, b, np.minimum(a.value, b.value))


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Jet:
    out = _as_jet(a) if a_min is None else _maximum(_as_jet(a), _as_jet(a_min))
    return out if a_max is None else _minimum(out, _as_jet(a_max))


def _absolute(a: Jet) -> Jet:
    return _select(a.value.lo >= 0, a.value.hi <= 0, a, -a, np.absolute(a.value))


def _sqrt(v: Interval) -> tuple[Interval, Interval, Interval]:
    """Down to 0, where the derivatives are unbounded."""
    y = np.sqrt(v)
    away = np.maximum(y.lo, 0.0) > 0
    safe = Interval(np.where(away, y.lo, 1.0), np.where(away, y.hi, 1.0))
    first, second = 0.5 / safe, -0.25 / (safe * np.square(safe))
    return (
        y,
        Interval(np.where(away, first.lo, 0.0), np.where(away, first.hi, np.inf)),
        Interval(np.where(away, second.lo, -np.inf), np.where(away, second.hi, 0.0)),
    )


def _within(a: Interval, low: float, high: float) -> Interval:
    """An enclosure that mathematics narrows."""
    return Interval(np.clip(a.lo, low, high), np.clip(a.hi, low, high))


def _tanh(v: Interval) -> tuple[Interval, Interval, Interval]:
    y = _within(np.tanh(v), -1.0, 1.0)
    first = _within(1.0 - np.square(y), 0.0, 1.0)
    return y, first, -2.0 * (y * first)


def _arctan(v: Interval) -> tuple[Interval, Interval, Interval]:
    first = 1.0 / (1.0 + np.square(v))
    return np.arctan(v), first, -2.0 * (v * np.square(first))


def _same(function: Any) -> Callable[[Interval], tuple[Interval, Interval, Interval]]:
    """exp and its kin: the derivatives of exp(kv) + c are k exp(kv), k^2 exp(kv)."""

    def apply(v: Interval) -> tuple[Interval, Interval, Interval]:
        y = np.exp(v)
        return function(v), y, y

    return apply


def _log(scale: float, function: Any, shift: float = 0.0) -> Callable[[Interval], tuple[Interval, Interval, Interval]]:
    def apply(v: Interval) -> tuple[Interval, Interval, Interval]:
        inverse = 1.0 / (v + shift)
        return function(v), scale * inverse, -scale * np.square(inverse)

    return apply


def _exp2(v: Interval) -> tuple[Interval, Interval, Interval]:
    y = np.exp2(v)
    return y, _LN2 * y, _LN2 * (_LN2 * y)


def _log2(v: Interval) -> tuple[Interval, Interval, Interval]:
    inverse = 1.0 / v
    return np.log2(v), inverse / _LN2, -(np.square(inverse) / _LN2)


def _expit(v: Interval) -> tuple[Interval, Interval, Interval]:
    """y, y (1 - y), y (1 - y) (1 - 2 y); the second as 1/4 - (y - 1/2)^2, which has y only once."""
    y = _within(v.elementwise("expit", v), 0.0, 1.0)
    first = _within(0.25 - np.square(y - 0.5), 0.0, 0.25)
    return y, first, first * (1.0 - 2.0 * y)


def _erf(v: Interval) -> tuple[Interval, Interval, Interval]:
    first = _ERF * np.exp(-np.square(v))
    return v.elementwise("erf", v), first, -2.0 * (v * first)


_LN2 = Interval(np.array(0.693147180559945), np.array(0.693147180559946))  # log 2 = 0.69314718055994530..
_ERF = Interval(np.array(1.12837916709551), np.array(1.12837916709552))  # 2 / sqrt(pi) = 1.1283791670955125..
# functions of scipy.special, by name: it is not loaded for their sake
_SPECIAL: dict[str, Callable[[Interval], tuple[Interval, Interval, Interval]]] = {"expit": _expit, "erf": _erf}
# ufunc: enclosure of the argument -> enclosures of the function and its two derivatives
_UNARY: dict[Any, Callable[[Interval], tuple[Interval, Interval, Interval]]] = {
    np.square: lambda v: (np.square(v), 2.0 * v, as_interval(2.0)),
    np.exp: _same(np.exp),
    np.expm1: _same(np.expm1),
    np.log: _log(1.0, np.log),
    np.log1p: _log(1.0, np.log1p, 1.0),
    np.exp2: _exp2,
    np.log2: _log2,
    np.sqrt: _sqrt,
    np.tanh: _tanh,
    np.arctan: _arctan,
    np.sin: lambda v: (np.sin(v), np.cos(v), -np.sin(v)),
    np.cos: lambda v: (np.cos(v), -np.sin(v), -np.cos(v)),
    np.sinh: lambda v: (np.sinh(v), np.cosh(v), np.sinh(v)),
    np.cosh: lambda v: (np.cosh(v), np.sinh(v), np.cosh(v)),
    np.reciprocal: lambda v: (1.0 / v, -np.square(1.0 / v), 2.0 * np.square(1.0 / v) / v),
}
_OTHERS: dict[Any, Callable[..., Jet]] = {
    np.add: lambda a, b: Jet(a.value + b.value, a.first + b.first, a.second + b.second),
    np.subtract: lambda a, b: Jet(a.value - b.value, a.first - b.first, a.second - b.second),
    np.multiply: _multiply,
    np.divide: lambda a, b: _multiply(a, np.reciprocal(b)),
    np.negative: lambda a: Jet(-a.value, -a.first, -a.second),
    np.positive: lambda a: a,
    np.absolute: _absolute,
    np.maximum: _maximum,
    np.minimum: _minimum,
}
