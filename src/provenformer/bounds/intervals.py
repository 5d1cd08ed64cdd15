"""Interval arrays: run an ordinary numpy function on boxes and get bounds that hold for every point of each box.

`Interval(lo, hi)` stands for all arrays between two float64 arrays. Every operation rounds outwards by at least one
unit in the last place, so the bounds hold for the real-number function, whatever rounding the function itself would
have. An end that is not known is infinite, never nan: a nan (0 times infinity, infinity minus infinity) becomes an
unbounded end where it arises, so that no comparison, sort or maximum can lose it.

What numpy calls are understood is decided in numpy_calls.py; everything else (comparisons included: they could be
undecided) raises `TypeError`, and the caller falls back to a weaker kind of certificate. Nothing passes silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.bounds import composites
from provenformer.bounds.numpy_calls import AbstractArray, constant

FloatArray = NDArray[np.float64]
# numpy's own loops are within one unit in the last place, its vector library within four, glibc within two; scipy's erf is
# measured at 2.25. We allow eight. docs/numerics.md has the measurements.
_ULPS = 8.0 * 2.0**-52
_TINY = float(np.finfo(np.float64).tiny)
_LARGEST = float(np.finfo(np.float64).max)
# Beyond this the place of an extremum in float64 says too little, and sin and cos are only known to lie in [-1, 1].
_LARGE_ANGLE = 2.0**30


def _down(x: Any) -> FloatArray:
    return np.asarray(np.nextafter(x, -np.inf), dtype=np.float64)


def _up(x: Any) -> FloatArray:
    return np.asarray(np.nextafter(x, np.inf), dtype=np.float64)


class Interval(AbstractArray):
    """All real arrays x with lo <= x <= hi. An end is a float or infinite, never nan."""

    __slots__ = ("hi", "lo")
    plural = "intervals"

    def __init__(self, lo: Any, hi: Any) -> None:
        self.lo = _known(np.asarray(lo, dtype=np.float64), -np.inf)
        self.hi = _known(np.asarray(hi, dtype=np.float64), np.inf)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lo.shape

    def lift(self, value: Any) -> Interval:
        return as_interval(value)

    def elementwise(self, name: str, *operands: Interval) -> Interval:
        with np.errstate(all="ignore"):  # what overflows becomes an unbounded end
            return _ELEMENTWISE[name](*operands)

    def whole_power(self, exponent: int) -> Interval:
        with np.errstate(all="ignore"):
            return _power(self, exponent)

    def along(self, name: str, axis: int) -> Interval:
        with np.errstate(all="ignore"):
            return _ALONG[name](self, axis)

    def extent(self) -> tuple[float, float]:
        return float(self.lo.min()), float(self.hi.max())

    def rearranged(self, parts: Sequence[Interval], move: composites.Move) -> Interval:
        return Interval(move(*(part.lo for part in parts)), move(*(part.hi for part in parts)))


def as_interval(value: Any) -> Interval:
    """An interval, or a plain number or array as the point it is (a float64 is exactly itself)."""
    if isinstance(value, Interval):
        return value
    point = constant(value, Interval.plural)
    return Interval(point, point)


def _known(end: FloatArray, unknown: float) -> FloatArray:
    lost = np.isnan(end)
    return np.where(lost, unknown, end) if lost.any() else end


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    return Interval(np.minimum(a.lo, b.lo), np.maximum(a.hi, b.hi))


def _add(a: Interval, b: Interval) -> Interval:
    low, high = a.lo + b.lo, a.hi + b.hi
    # A float64 sum that is 0 is exact (small sums are never rounded): what is >= 0 stays so.
    return Interval(np.where(low == 0, low, _down(low)), np.where(high == 0, high, _up(high)))


def _negative(a: Interval) -> Interval:
    return Interval(-a.hi, -a.lo)


def _multiply(a: Interval, b: Interval) -> Interval:
    products = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    low = np.minimum(np.minimum(products[0], products[1]), np.minimum(products[2], products[3]))
    high = np.maximum(np.maximum(products[0], products[1]), np.maximum(products[2], products[3]))
    low, high = _down(low), _up(high)
    return Interval(np.where((a.lo >= 0) & (b.lo >= 0), np.maximum(low, 0.0), low), high)


def _divide(a: Interval, b: Interval) -> Interval:
    if np.any((b.lo <= 0) & (b.hi >= 0)):
        raise TypeError(f"division by an interval that contains 0: {_worst(b, (b.lo <= 0) & (b.hi >= 0))}")
    inverse = Interval(_down(1.0 / b.hi), _up(1.0 / b.lo))
    # The inverse of what is positive (or negative) is so too, even when it underflows.
    return _multiply(
        a,
        Interval(
            np.where(b.lo > 0, np.maximum(inverse.lo, 0.0), inverse.lo),
            np.where(b.hi < 0, np.minimum(inverse.hi, 0.0), inverse.hi),
        ),
    )


def _worst(a: Interval, where: Any) -> str:
    at = tuple(np.argwhere(where)[0])
    return f"[{a.lo[at]:.4g}, {a.hi[at]:.4g}]"


def _absolute(a: Interval) -> Interval:
    low = np.where((a.lo <= 0) & (a.hi >= 0), 0.0, np.minimum(np.abs(a.lo), np.abs(a.hi)))
    return Interval(low, np.maximum(np.abs(a.lo), np.abs(a.hi)))


def _square(a: Interval) -> Interval:
    size = _absolute(a)
    return Interval(np.maximum(_down(size.lo * size.lo), 0.0), _up(size.hi * size.hi))


def _power(a: Interval, exponent: int) -> Interval:
    """By squaring: even powers of what may have either sign stay >= 0."""
    if exponent <= 2:
        return _square(a) if exponent == 2 else a
    half = _power(a, exponent // 2)
    return _square(half) if exponent % 2 == 0 else _multiply(_square(half), a)


def _monotone(
    function: Callable[[FloatArray], FloatArray],
    domain: tuple[float, bool] = (-np.inf, True),
    image: tuple[float, float] = (-np.inf, np.inf),
) -> Callable[[Interval], Interval]:
    """An increasing function computed to within eight units in the last place, with values in `image`.

    `domain` is its left end and whether that belongs to it.
    """

    def apply(a: Interval) -> Interval:
        outside = (a.lo < domain[0]) if domain[1] else (a.lo <= domain[0])
        if np.any(outside):
            name = getattr(function, "__name__", "a function")
            raise TypeError(f"the interval {_worst(a, outside)} leaves the domain of {name}")
        return _around(function(a.lo), function(a.hi), image)

    return apply


def _around(low: FloatArray, high: FloatArray, image: tuple[float, float]) -> Interval:
    """Computed ends, moved outwards by what the computation may be off; what overflows upwards exceeds the largest float."""
    low = np.clip(low, -np.inf, _LARGEST)
    high = np.clip(high, -_LARGEST, np.inf)
    low = np.clip(low - np.abs(low) * _ULPS - _TINY, *image)
    return Interval(low, np.clip(high + np.abs(high) * _ULPS + _TINY, *image))


def _cosh(a: Interval) -> Interval:
    size = _absolute(a)
    return _around(np.cosh(size.lo), np.cosh(size.hi), (1.0, np.inf))


def _wave(function: Callable[[FloatArray], FloatArray], crest: float) -> Callable[[Interval], Interval]:
    """sin or cos: largest at (2k + crest) pi, smallest half a turn later, monotone in between.

    x / pi is off by less than 2^-50 (|x| + 1), so an extremum is never missed; one that is just outside does no harm, since
    the function is flat there.
    """

    def apply(a: Interval) -> Interval:
        doubt = 2.0**-48 * (np.maximum(np.abs(a.lo), np.abs(a.hi)) + 1.0)
        turns_low, turns_high = (a.lo / np.pi - crest) - doubt, (a.hi / np.pi - crest) + doubt
        has_crest = np.floor(turns_high / 2) * 2 >= turns_low
        has_trough = np.floor((turns_high - 1) / 2) * 2 + 1 >= turns_low
        ends = function(a.lo), function(a.hi)
        # Reducing a large angle may cost absolute accuracy near a zero; below pi/4 nothing is reduced.
        reduced = np.where(np.maximum(np.abs(a.lo), np.abs(a.hi)) < 0.78, 0.0, 2.0**-51)
        near = _around(np.minimum(*ends) - reduced, np.maximum(*ends) + reduced, (-1.0, 1.0))
        unknown = ~(np.maximum(np.abs(a.lo), np.abs(a.hi)) <= _LARGE_ANGLE)
        return Interval(np.where(has_trough | unknown, -1.0, near.lo), np.where(has_crest | unknown, 1.0, near.hi))

    return apply


def _expit(a: Interval) -> Interval:
    """1 / (1 + exp(-x)): x occurs once, so nothing is lost."""
    one = as_interval(1.0)
    out = _divide(one, _add(one, _ELEMENTWISE["exp"](_negative(a))))
    return Interval(np.clip(out.lo, 0.0, 1.0), np.clip(out.hi, 0.0, 1.0))


def _erf(a: Interval) -> Interval:
    from scipy.special import erf  # takes longer to load than everything else  # noqa: PLC0415

    return _around(erf(a.lo), erf(a.hi), (-1.0, 1.0))


def _entries(a: Interval, axis: int) -> list[Interval]:
    """Slices along an axis, each of length one."""
    return [Interval(np.take(a.lo, [i], axis=axis), np.take(a.hi, [i], axis=axis)) for i in range(a.shape[axis])]


def _sum(a: Interval, axis: int) -> Interval:
    """One rounded addition after the other."""
    if not a.shape[axis]:
        return as_interval(a.lo.sum(axis=axis, keepdims=True))  # of nothing: 0
    total, *rest = _entries(a, axis)
    for entry in rest:
        total = _add(total, entry)
    return total


def _cumsum(a: Interval, axis: int) -> Interval:
    if not a.shape[axis]:
        return a
    out = _entries(a, axis)
    for i in range(1, len(out)):
        out[i] = _add(out[i - 1], out[i])
    return Interval(np.concatenate([v.lo for v in out], axis), np.concatenate([v.hi for v in out], axis))


def _both_ends(function: Callable[..., Any]) -> Callable[[Interval, int], Interval]:
    """Functions that are increasing in every entry and compute nothing: apply them to both ends (there is no nan)."""
    return lambda a, axis: Interval(function(a.lo, axis), function(a.hi, axis))


def _logsumexp(x: Interval, axis: Any = -1, keepdims: Any = False) -> Interval:
    """Increasing in every entry: the ends are those of points, where subtracting the largest costs nothing."""
    at = composites.one_axis("logsumexp", x, axis)
    ends = []
    for end in (x.lo, x.hi):
        largest = np.clip(end.max(axis=at, keepdims=True), -_LARGEST, _LARGEST)
        shifted = as_interval(end) - as_interval(largest)
        ends.append(np.log(np.sum(np.exp(shifted), axis=at, keepdims=True)) + largest)
    low, high = (end if keepdims else np.squeeze(end, axis=at) for end in ends)
    return Interval(low.lo, high.hi)


_POSITIVE = (_TINY, True)
_ELEMENTWISE: dict[str, Callable[..., Interval]] = {
    "add": _add,
    "subtract": lambda a, b: _add(a, _negative(b)),
    "multiply": _multiply,
    "divide": _divide,
    "maximum": lambda a, b: Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi)),
    "minimum": lambda a, b: Interval(np.minimum(a.lo, b.lo), np.minimum(a.hi, b.hi)),
    "negative": _negative,
    "absolute": _absolute,
    "square": _square,
    "sqrt": _monotone(np.sqrt, (0.0, True), (0.0, np.inf)),
    "exp": _monotone(np.exp, image=(0.0, np.inf)),
    "exp2": _monotone(np.exp2, image=(0.0, np.inf)),
    "expm1": _monotone(np.expm1, image=(-1.0, np.inf)),
    "log": _monotone(np.log, _POSITIVE),
    "log2": _monotone(np.log2, _POSITIVE),
    "log1p": _monotone(np.log1p, (-1.0, False)),
    "sin": _wave(np.sin, 0.5),
    "cos": _wave(np.cos, 0.0),
    "sinh": _monotone(np.sinh),
    "cosh": _cosh,
    "tanh": _monotone(np.tanh, image=(-1.0, 1.0)),
    "arctan": _monotone(np.arctan),
    "expit": _expit,
    "erf": _erf,
    "sign": lambda a: Interval(np.sign(a.lo), np.sign(a.hi)),
}
_ALONG: dict[str, Callable[[Interval, int], Interval]] = {
    "sum": _sum,
    "max": _both_ends(lambda end, axis: np.max(end, axis=axis, keepdims=True)),
    "min": _both_ends(lambda end, axis: np.min(end, axis=axis, keepdims=True)),
    "sort": _both_ends(np.sort),
    "cumsum": _cumsum,
    "cummax": _both_ends(np.maximum.accumulate),
    "cummin": _both_ends(np.minimum.accumulate),
}
Interval.own_rules = {"logsumexp": _logsumexp}
