"""The one-dimensional version: exact gaps, and a search that is better than chance and never above the true distance."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provenformer.contextual.closest import closest_pair
from provenformer.contextual.layers import radius
from provenformer.contextual.line import best_line, check_line, exact_gap


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 8), st.booleans())
def test_gaps_are_exact(seed: int, count: int, dim: int, close: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, dim)).astype(np.float32)
    if close:  # closer than float64 can see in u.h
        x = np.float32(1e8) + x
        x[1] = np.nextafter(x[0], np.float32(np.inf))
    u = np.rint(rng.standard_normal(dim) * 2**20) / 2**20
    values = sorted(
        sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, u, strict=True)), Fraction(0)) for row in x
    )
    gap, span = exact_gap(x, u)
    assert gap == min(b - a for a, b in pairwise(values))
    assert span == values[-1] - values[0]


def test_the_search_beats_random_directions_and_stays_below_the_distance() -> None:
    x = np.random.default_rng(0).standard_normal((60, 12))
    r = radius(x)
    found = best_line("layer", x, r)
    rng = np.random.default_rng(1)
    chance = max(check_line("layer", x, rng.standard_normal(12), r).margin for _ in range(64))
    assert found.holds
    assert chance < found.margin <= closest_pair(x).distance / r
    assert np.linalg.norm(found.direction) == pytest.approx(1)


def test_equal_states_have_no_direction() -> None:
    x = np.random.default_rng(0).standard_normal((10, 4))
    x[7] = x[2]
    assert not best_line("layer", x, radius(x)).holds


def test_points_on_a_line_are_spaced_as_they_are() -> None:
    x = np.outer(np.arange(9.0), [3.0, 4.0])
    found = best_line("layer", x, 1.0)
    assert found.margin == pytest.approx(5)
    assert found.evenness == pytest.approx(1)
