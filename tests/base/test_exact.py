"""Exact numbers in arrays: floats as dyadic rationals, correct rounding, nothing lost at any size."""

from fractions import Fraction
from itertools import chain
from math import inf, nextafter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provenformer.base.exact import INT64_LIMIT, ExactArray, denominator_of_floats, floats_over, integer_dtype, to_float

floats = st.floats(allow_nan=False, allow_infinity=False)
AWKWARD = [5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0, 0.1, 1 / 3, 2.0**60, 1.0]
ints = st.integers(-(2**200), 2**200)


@given(st.lists(floats, max_size=6))
@example(AWKWARD)
@example([0.0])
@example([5e-324])
def test_floats_round_trip(values: list[float]) -> None:
    """The denominator is the smallest power of two that works; nothing is lost, subnormals and huge floats included."""
    array = np.array(values, dtype=np.float64)
    den = denominator_of_floats(array)
    assert den == max((Fraction(v).denominator for v in values), default=1)
    for scale in (den, 3 * den):
        nums = floats_over(array, scale)
        assert all(type(v) is int for v in nums)
        assert [Fraction(int(v), scale) for v in nums] == [Fraction(v) for v in values]
        assert to_float(nums, scale).tolist() == [v + 0.0 for v in values]


def is_nearest(value: float, exact: Fraction) -> bool:
    """Correctly rounded: no neighbour is nearer (beyond the largest float: infinity from the usual threshold on)."""
    if value in (inf, -inf):
        return abs(exact) >= 2**1024 - 2**970
    gap = abs(Fraction(value) - exact)
    around = [v for v in (nextafter(value, inf), nextafter(value, -inf)) if abs(v) != inf]
    return all(gap <= abs(Fraction(v) - exact) for v in around)


@given(st.lists(ints, min_size=1, max_size=5), st.integers(1, 2**120))
@example([2**53 + 1, -(2**53) - 1], 1)
@example([1, -1], 2**1080)
@example([2**1030, -(2**1030)], 1)
@example([2**62 - 1, 3], 7)
@example(list(range(1, 200)), 2**53 + 1)
@example(list(range(1, 200)), 2**62 + 2**9 + 1)
def test_to_float_rounds_correctly_and_monotonely(nums: list[int], den: int) -> None:
    """Each entry is the nearest float64, so order is kept."""
    nums = sorted(nums)
    got = to_float(np.array(nums, dtype=object), den)
    assert all(is_nearest(float(v), Fraction(n, den)) for v, n in zip(got, nums, strict=True))
    assert (got[1:] >= got[:-1]).all()
    if max(map(abs, nums)) < 2**62:
        assert to_float(np.array(nums, dtype=np.int64), den).tolist() == got.tolist()


@given(st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=1, max_size=5), st.integers(1, 2**53 - 1))
def test_to_float_of_short_integers(nums: list[int], den: int) -> None:
    """The fast branch is a single correctly rounded division."""
    assert to_float(np.array(nums), den).tolist() == [n / den for n in nums]


entries = st.one_of(ints, st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**6))


@given(st.lists(st.lists(entries, min_size=2, max_size=2), min_size=1, max_size=4), st.integers(1, 12))
def test_exact_array_is_its_entries(rows: list[list[Any]], factor: int) -> None:
    """of, indexing, over and to_float agree with Fractions."""
    array = ExactArray.of(rows)
    wanted = [[Fraction(v) for v in row] for row in rows]
    assert array.shape == (len(rows), 2)
    assert array[:].tolist() == wanted
    assert array[0].tolist() == wanted[0]
    den = array.common_denominator * factor
    assert array.over(den).tolist() == [[v * den for v in row] for row in wanted]
    assert all(
        is_nearest(float(a), b) for a, b in zip(array.to_float().ravel(), chain.from_iterable(wanted), strict=True)
    )
    large = max(abs(v * array.den) for row in wanted for v in row) >= INT64_LIMIT
    assert array.num.dtype == (object if large else np.int64)


@given(st.lists(st.tuples(st.integers(-(2**61), 2**61), floats), min_size=1, max_size=5), st.integers(1, 100))
@example([(1, 5e-324), (2**61, 1e308)], 3)
def test_exact_array_with_a_dyadic_part(pairs: list[tuple[int, float]], den: int) -> None:
    """num / den + dyadic, exactly, for any mixture of sizes."""
    array = ExactArray(np.array([n for n, _ in pairs]), den, np.array([v for _, v in pairs]))
    wanted = [Fraction(n, den) + Fraction(v) for n, v in pairs]
    assert array[:].tolist() == wanted
    common = array.common_denominator
    assert array.over(common).tolist() == [v * common for v in wanted]
    assert all(is_nearest(float(a), b) for a, b in zip(array.to_float(), wanted, strict=True))


def test_a_repeated_entry_is_stored_once() -> None:
    """A million equal layers take the memory of one."""
    array = ExactArray.repeat([1, Fraction(1, 3)], 10**6)
    assert array.shape == (10**6, 2)
    assert array[999_999].tolist() == [1, Fraction(1, 3)]
    assert array.nbytes == 16
    assert array.to_float()[123].tolist() == [1.0, 1 / 3]


@pytest.mark.parametrize("bound", [2**62 - 1, 2**62])
def test_integer_dtype_leaves_room_for_a_sum(bound: int) -> None:
    """Twice the bound never exceeds what the dtype holds."""
    dtype = integer_dtype(bound)
    assert dtype is object or 2 * bound <= np.iinfo(dtype).max
    assert int((np.array([bound], dtype=dtype) + np.array([bound], dtype=dtype))[0]) == 2 * bound
