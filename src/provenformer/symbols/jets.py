"""Enclosures of a formula and of its first two derivatives on many cells at once, in interval arithmetic.

A cell on which a derivative is not bounded (sqrt at 0) gets an infinite enclosure. A cell that leaves the domain of log, sqrt
or of a division is an Untraceable, which names the operation, the range and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.bounds.intervals import Interval
from provenformer.symbols.formula import Formula

np: Any = numpy  # numpy dispatches its functions to intervals; its type stubs know only arrays
TINY = 1e-150  # roots below it count as 0: their reciprocals' cubes would overflow
RANGE_CELLS = 400
LOG_2 = Interval(np.nextafter(np.log(2.0), 0.0), np.nextafter(np.log(2.0), 1.0))
TWO_OVER_ROOT_PI = Interval(*(2 / np.sqrt(np.pi) * (1 + sign * 2.0**-50) for sign in (-1.0, 1.0)))


@dataclass(frozen=True, eq=False)
class Jet:
    """Enclosures of value, first and second derivative, one entry per cell."""

    value: Interval
    first: Interval
    second: Interval


def jet(formula: Formula, low: FloatArray, high: FloatArray) -> Jet:
    """On every cell [low_i, high_i]."""
    with np.errstate(all="ignore"):
        found = _jet(formula, np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
    return Jet(found.value, _known(found.first), _known(found.second))


def formula_range(formula: Formula, low: float, high: float) -> tuple[float, float]:
    """Bounds of a formula on [low, high]: cell by cell, at the ends of those on which it is monotone."""
    edges = cells(low, high, RANGE_CELLS)
    inside = jet(formula, edges[:-1], edges[1:])
    at = jet(formula, edges, edges).value
    monotone = (inside.first.lo >= 0) | (inside.first.hi <= 0)
    bottom = np.where(monotone, np.minimum(at.lo[:-1], at.lo[1:]), inside.value.lo)
    top = np.where(monotone, np.maximum(at.hi[:-1], at.hi[1:]), inside.value.hi)
    return float(bottom.min()), float(top.max())


def distance(formula: Formula, z: FloatArray, off: float) -> float:
    """At most so far are the numbers formula(z), as numpy computes them, from its values within `off` of z."""
    low, high = (np.nextafter(z - off, -np.inf), np.nextafter(z + off, np.inf)) if off else (z, z)
    around = jet(formula, low, high).value  # refuses what leaves a domain
    with np.errstate(all="ignore"):
        values = formula(z)
        found = float(np.nextafter(np.maximum(around.hi - values, values - around.lo), np.inf).max())
    if not np.isfinite(found):
        raise Untraceable(
            "a constant of the formula is not finite; keep what it computes from constants in float64's range."
        )
    return found


def slope_range(formula: Formula, low: float, high: float) -> tuple[float, float]:
    """inf and sup of formula' on [low, high]; may be infinite."""
    edges = cells(low, high, RANGE_CELLS)
    first = jet(formula, edges[:-1], edges[1:]).first
    return float(first.lo.min()), float(first.hi.max())


def slope_bound(formula: Formula, low: float, high: float) -> float:
    """sup |formula'| on [low, high]; may be infinite."""
    return max(map(abs, slope_range(formula, low, high)))


def cells(low: float, high: float, count: int) -> FloatArray:
    """Edges of cells that cover [low, high], fine near both ends, where derivatives may be large."""
    width = high - low
    if width <= 0:
        return numpy.array([low, high])
    near = width * np.geomspace(1e-14, 0.5, count // 2)
    inner = np.concatenate([low + width * np.linspace(0.0, 1.0, count), low + near, high - near])
    return numpy.unique(numpy.clip(numpy.concatenate([[low, high], inner]), low, high))


def _known(x: Interval) -> Interval:
    """Where an enclosure is not a number nothing is known."""
    return Interval(np.where(np.isnan(x.lo), -np.inf, x.lo), np.where(np.isnan(x.hi), np.inf, x.hi))


def _jet(formula: Formula, low: FloatArray, high: FloatArray) -> Jet:
    one = np.ones_like(low)
    if formula.operation == "variable":
        return Jet(Interval(low, high), Interval(one, one), Interval(0 * one, 0 * one))
    if formula.operation == "constant":
        return Jet(
            Interval(formula.value * one, formula.value * one), Interval(0 * one, 0 * one), Interval(0 * one, 0 * one)
        )
    parts = [_jet(part, low, high) for part in formula.parts]
    if formula.operation == "divide":
        return _divide(parts[0], parts[1], formula.parts[0])
    return RULES[formula.operation](*parts)


def _add(a: Jet, b: Jet) -> Jet:
    return Jet(a.value + b.value, a.first + b.first, a.second + b.second)


def _multiply(a: Jet, b: Jet) -> Jet:
    first = a.value * b.first + a.first * b.value
    return Jet(a.value * b.value, first, a.value * b.second + 2.0 * (a.first * b.first) + a.second * b.value)


def _divide(a: Jet, b: Jet, numerator: Formula) -> Jet:
    zero = (b.value.lo <= 0) & (b.value.hi >= 0)
    if zero.any():
        raise Untraceable(
            f"division by a value in [{b.value.lo.min():.4g}, {b.value.hi.max():.4g}], which contains 0; "
            "keep the denominator away from 0, for example by adding a positive constant."
        )
    inverse = 1.0 / b.value
    if numerator.operation == "constant":
        k, square = numerator.value, np.square(inverse)
        second = 2.0 * (square * inverse) * np.square(b.first) - square * b.second
        return Jet(k * inverse, -k * (square * b.first), k * second)
    value = a.value * inverse
    first = (a.first - value * b.first) * inverse
    return Jet(value, first, (a.second - 2.0 * (first * b.first) - value * b.second) * inverse)


def _chain(a: Jet, value: Interval, first: Interval, second: Interval) -> Jet:
    """Outer function with these derivatives at a."""
    return Jet(value, first * a.first, second * np.square(a.first) + first * a.second)


def _square(a: Jet) -> Jet:
    two = np.full_like(a.value.lo, 2.0)
    return _chain(a, np.square(a.value), 2.0 * a.value, Interval(two, two))


def _exp(a: Jet) -> Jet:
    value = np.exp(a.value)
    return _chain(a, value, value, value)


def _log(a: Jet) -> Jet:
    if (a.value.lo <= 0).any():
        _refuse_domain("np.log", a.value)
    inverse = 1.0 / a.value
    return _chain(a, np.log(a.value), inverse, -np.square(inverse))


def _sqrt(a: Jet) -> Jet:
    if (a.value.lo < -1e-290).any():  # one rounding outwards of 0 is no negative value
        _refuse_domain("np.sqrt", a.value)
    value = np.sqrt(Interval(np.maximum(a.value.lo, 0.0), np.maximum(a.value.hi, 0.0)))
    value = Interval(np.maximum(value.lo, 0.0), value.hi)
    bounded = value.lo > TINY
    safe = Interval(np.where(bounded, value.lo, TINY), np.maximum(value.hi, TINY))
    inverse = 1.0 / safe
    far = np.where(bounded, 0.0, np.inf)
    first, second = 0.5 * inverse, -0.25 * (inverse * np.square(inverse))
    return _chain(a, value, Interval(first.lo, first.hi + far), Interval(second.lo - far, second.hi))


def _tanh(a: Jet) -> Jet:
    value = np.tanh(a.value)
    slope = 1.0 - np.square(value)
    slope = _clipped(slope, 0.0, 1.0)
    return _chain(a, value, slope, -2.0 * (value * slope))


def _arctan(a: Jet) -> Jet:
    slope = 1.0 / (1.0 + np.square(a.value))
    return _chain(a, np.arctan(a.value), slope, -2.0 * (a.value * np.square(slope)))


def _same(function: Any) -> Callable[[Jet], Jet]:
    """A rule for functions whose derivatives are easily told: function(a) -> value, first, second."""
    return lambda a: _chain(a, *function(a.value))


def _log1p(a: Jet) -> Jet:
    if (a.value.lo <= -1).any():
        _refuse_domain("np.log1p", a.value)
    inverse = 1.0 / (1.0 + a.value)
    return _chain(a, np.log1p(a.value), inverse, -np.square(inverse))


def _log2(a: Jet) -> Jet:
    if (a.value.lo <= 0).any():
        _refuse_domain("np.log2", a.value)
    inverse = 1.0 / (a.value * LOG_2)
    return _chain(a, np.log2(a.value), inverse, -np.square(inverse) * LOG_2)


def _exp2(a: Jet) -> Jet:
    value = np.exp2(a.value)
    return _chain(a, value, value * LOG_2, value * np.square(LOG_2))


def _expit(a: Jet) -> Jet:
    value = _clipped(a.value.elementwise("expit", a.value), 0.0, 1.0)
    slope = _clipped(0.25 - np.square(value - 0.5), 0.0, 0.25)  # y (1 - y), with y once
    return _chain(a, value, slope, slope * (1.0 - 2.0 * value))


def _erf(a: Jet) -> Jet:
    slope = TWO_OVER_ROOT_PI * np.exp(-np.square(a.value))
    return _chain(a, a.value.elementwise("erf", a.value), slope, -2.0 * (a.value * slope))


def _clipped(x: Interval, low: float, high: float) -> Interval:
    return Interval(np.clip(x.lo, low, high), np.clip(x.hi, low, high))


def _maximum(a: Jet, b: Jet, sign: float = 1.0) -> Jet:
    """max (min with sign -1): the winner where it is decided; at a kink the hull of slopes, and nothing of the second."""
    first = (a.value.lo >= b.value.hi) if sign > 0 else (a.value.hi <= b.value.lo)
    second = (b.value.lo >= a.value.hi) if sign > 0 else (b.value.hi <= a.value.lo)

    def pick(x: Interval, y: Interval, low: Any, high: Any) -> Interval:
        return Interval(
            np.where(first, x.lo, np.where(second, y.lo, low)), np.where(first, x.hi, np.where(second, y.hi, high))
        )

    value = (np.maximum if sign > 0 else np.minimum)(a.value, b.value)
    hull = np.minimum(a.first.lo, b.first.lo), np.maximum(a.first.hi, b.first.hi)
    return Jet(value, pick(a.first, b.first, *hull), pick(a.second, b.second, -np.inf, np.inf))


def _absolute(a: Jet) -> Jet:
    either = _maximum(a, Jet(-a.value, -a.first, -a.second))
    return Jet(np.absolute(a.value), either.first, either.second)  # not below 0, also where its argument changes sign


def _refuse_domain(name: str, x: Interval) -> None:
    raise Untraceable(
        f"{name} of a value in [{x.lo.min():.4g}, {x.hi.max():.4g}] leaves its domain; "
        "add a positive constant inside, as in np.sqrt(np.var(x) + 0.01); write a variance as np.var(x), not as E[x^2] - E[x]^2."
    )


RULES: dict[str, Callable[..., Jet]] = {
    "add": _add,
    "multiply": _multiply,
    "square": _square,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "tanh": _tanh,
    "arctan": _arctan,
    "sin": _same(lambda v: (np.sin(v), np.cos(v), -np.sin(v))),
    "cos": _same(lambda v: (np.cos(v), -np.sin(v), -np.cos(v))),
    "sinh": _same(lambda v: (np.sinh(v), np.cosh(v), np.sinh(v))),
    "cosh": _same(lambda v: (np.cosh(v), np.sinh(v), np.cosh(v))),
    "expm1": _same(lambda v: (np.expm1(v), np.exp(v), np.exp(v))),
    "log1p": _log1p,
    "exp2": _exp2,
    "log2": _log2,
    "expit": _expit,
    "erf": _erf,
    "absolute": _absolute,
    "maximum": _maximum,
    "minimum": lambda a, b: _maximum(a, b, -1.0),
}
