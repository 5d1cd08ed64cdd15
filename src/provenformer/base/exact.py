"""Exact numbers in arrays: integers over one denominator, plus an optional dyadic (float64) part.

An array of weights is `num / den + dyadic`, all three exact: `num` is int64 where every entry fits and Python
integers where it does not, and a float64 is a dyadic rational. So a million layers are a few plain arrays, and no
overflow or rounding can happen: whatever leaves these arrays leaves them as Python integers or `Fraction`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Index = int | slice | tuple[int | slice | Array, ...] | Array

# int64 arithmetic stays below this; sums of two such numbers still fit.
INT64_LIMIT = 2**62


def size_of(value: int) -> str:
    """An integer for people: with separators, or what power of ten it is about when it would fill the line."""
    if abs(value) < 10**15:
        return f"{value:,}"
    bits = value.bit_length()
    return f"{value:.3e}" if bits < 997 else f"about 10^{(bits - 1) * 0.30103:,.0f}"


def integer_dtype(bound: int) -> type:
    """The dtype in which integers of absolute value up to `bound` can be added without overflow."""
    return np.int64 if bound < INT64_LIMIT else object


def denominator_of_floats(values: Array) -> int:
    """The smallest power of two that turns every (finite) float64 of `values` into an integer."""
    values = np.asarray(values, dtype=np.float64)
    values = values[values != 0.0]
    if not values.size:
        return 1
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)  # exact: |mantissa| < 1 has 53 bits
    trailing = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)  # a power of two: log2 is exact
    return 1 << max(0, int((53 - exponent - trailing).max()))


def floats_over(values: Array, den: int) -> Array:
    """`values * den` as Python integers; `den` must be a multiple of `denominator_of_floats(values)`."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    out = np.empty(flat.size, dtype=object)
    for i, value in enumerate(flat.tolist()):
        top, bottom = value.as_integer_ratio()
        out[i] = top * (den // bottom)
    return out.reshape(np.shape(values))


def to_float(num: Array, den: int) -> NDArray[np.float64]:
    """`num / den`, each entry correctly rounded (hence monotone in `num`); beyond the float range it is +-inf."""
    num = np.asarray(num)
    if num.dtype != object and den < 2**53 and (not num.size or np.abs(num).max() < 2**53):
        return np.asarray(num / float(den), dtype=np.float64)
    return np.array([_divide(int(v), den) for v in num.ravel()], dtype=np.float64).reshape(num.shape)


def _divide(num: int, den: int) -> float:
    try:
        return num / den
    except OverflowError:
        return float("inf") if num > 0 else float("-inf")


@dataclass(frozen=True, eq=False, repr=False)
class ExactArray:
    """The exact array `num / den + dyadic`."""

    num: Array
    den: int = 1
    dyadic: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, values: Sequence[Any] | Array) -> ExactArray:
        """From nested lists (or an object array) of ints and Fractions."""
        array = np.array(values, dtype=object)
        fractions = [Fraction(v) for v in array.ravel()]
        den = lcm(*(f.denominator for f in fractions))
        nums = [f.numerator * (den // f.denominator) for f in fractions]
        bound = max((abs(v) for v in nums), default=0)
        return cls(np.array(nums, dtype=integer_dtype(bound)).reshape(array.shape), den)

    @classmethod
    def repeat(cls, values: Sequence[Any] | Array, count: int) -> ExactArray:
        """The same entry for each of `count` layers, stored once."""
        one = cls.of(values)
        return cls(np.broadcast_to(one.num, (count, *one.num.shape)), one.den)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num.shape

    def __repr__(self) -> str:
        return f"ExactArray({self.shape}, over {self.den}{'' if self.dyadic is None else ', and floats'})"

    @property
    def common_denominator(self) -> int:
        """A denominator over which every entry, the dyadic part included, is an integer."""
        return self.den if self.dyadic is None else lcm(self.den, denominator_of_floats(self.dyadic))

    def over(self, den: int, index: Index = slice(None)) -> Array:
        """Entries times `den` as Python integers; `den` must be a multiple of `common_denominator`."""
        out: Array = self.num[index].astype(object) * (den // self.den)
        if self.dyadic is not None:
            out = out + floats_over(self.dyadic[index], den)
        return out

    def __getitem__(self, index: Index) -> Array:
        """Entries as an object array of Fractions."""
        num = np.asarray(self.num[index], dtype=object)
        out = np.array([Fraction(int(v), self.den) for v in num.ravel()], dtype=object).reshape(num.shape)
        if self.dyadic is not None:
            parts = np.asarray(self.dyadic[index], dtype=np.float64)
            out = out + np.array([Fraction(v) for v in parts.ravel().tolist()], dtype=object).reshape(parts.shape)
        return out

    def to_float(self) -> NDArray[np.float64]:
        """The nearest float64 of every entry."""
        if self.dyadic is None:
            if self.num.ndim and self.num.strides[0] == 0:  # a repeated entry: round it once
                return np.broadcast_to(to_float(self.num[:1], self.den), self.num.shape)
            return to_float(self.num, self.den)
        if (
            self.num.dtype != object
            and self.den & (self.den - 1) == 0
            and (not self.num.size or np.abs(self.num).max() < 2**53)
        ):
            return self.num / float(self.den) + self.dyadic  # an exact quotient: the sum is rounded once
        den = self.common_denominator
        return to_float(self.over(den), den)

    @property
    def nbytes(self) -> int:
        """Memory held by the arrays (a repeated entry counts once; a Python integer counts as 40 bytes)."""

        def held(array: Array) -> int:
            base = array.base if array.base is not None and 0 in array.strides else array
            return int(base.size * (40 if base.dtype == object else base.itemsize))

        return held(self.num) + (0 if self.dyadic is None else held(self.dyadic))
