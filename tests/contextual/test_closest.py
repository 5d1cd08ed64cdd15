"""Nearest neighbours and the closest pair: exact against brute force, also where products lose all digits."""

from typing import Any

import numpy as np
import pytest
from benchmarks.neighbours import measured
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from provenformer.contextual import closest
from provenformer.contextual.closest import closest_pair, nearest, projections, rows_by_content


def cloud(seed: int, count: int, dim: int, kind: str, dtype: Any) -> np.ndarray:
    """Vectors as they occur: spread, in tight clusters, or far from the origin and hardly apart."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, dim))
    if kind == "clusters":
        x = x[rng.integers(max(1, count // 8), size=count)] + 1e-4 * rng.standard_normal((count, dim))
    if kind == "far":
        x = 1e3 + 1e-2 * x
    return x.astype(dtype)


def brute_force(x: np.ndarray) -> np.ndarray:
    """All distances by subtraction in float64; infinite from a row to itself."""
    between = cdist(x.astype(np.float64), x.astype(np.float64))
    np.fill_diagonal(between, np.inf)
    return between


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 90),
    st.integers(1, 40),
    st.sampled_from(["spread", "clusters", "far"]),
    st.sampled_from([np.float32, np.float64]),
)
def test_both_are_exact(seed: int, count: int, dim: int, kind: str, dtype: Any) -> None:
    x = cloud(seed, count, dim, kind, dtype)
    between = brute_force(x)
    found = nearest(x, np.arange(count))
    np.testing.assert_allclose(found.distance, between.min(axis=1), rtol=1e-12)
    np.testing.assert_allclose(between[np.arange(count), found.index], found.distance, rtol=1e-12)
    pair = closest_pair(x)
    assert pair.distance == pytest.approx(between.min(), rel=1e-12)
    assert pair.first != pair.second


@pytest.mark.parametrize("block", [1 << 6, 1 << 12])
def test_blocks_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    x = cloud(1, 300, 24, "clusters", np.float32)
    monkeypatch.setattr(closest, "BLOCK", block)
    np.testing.assert_allclose(nearest(x, np.arange(0, 300, 7)).distance, brute_force(x).min(axis=1)[::7], rtol=1e-12)


def test_without_any_help_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closest, "MOST_PAIRS", -1)
    x = cloud(2, 200, 50, "spread", np.float32)
    assert closest_pair(x).distance == pytest.approx(brute_force(x).min(), rel=1e-12)


def test_planted_collisions_are_found() -> None:
    """An exact copy; and one that differs in the last bit of one number, where a product in float32 sees nothing."""
    x = (100 + np.random.default_rng(3).standard_normal((5000, 64))).astype(np.float32)
    x[4321] = x[17]
    assert (closest_pair(x).first, closest_pair(x).second, closest_pair(x).distance) == (17, 4321, 0.0)
    x[4321, 5] = np.nextafter(x[4321, 5], np.float32(np.inf))
    pair = closest_pair(x)
    assert {pair.first, pair.second} == {17, 4321}
    assert pair.distance == float(x[4321, 5]) - float(x[17, 5]) > 0
    assert nearest(x, np.array([17])).index.tolist() == [4321]


def test_the_projection_shortens_every_distance() -> None:
    x = cloud(4, 200, 30, "spread", np.float64)
    assert (cdist(projections(x, 8), projections(x, 8)) <= cdist(x, x) * (1 + 1e-12)).all()


def test_rows_are_told_apart_by_content_alone() -> None:
    x = np.array([[0.0, 1.0, 2.0], [-0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [0.0, 2.0, 1.0]])
    groups = rows_by_content(x)
    assert groups[0] == groups[1]
    assert len(set(groups.tolist())) == 3


def test_the_memory_bound_holds() -> None:
    """docs/contextual.md; `python -m benchmarks neighbours` does the same with a million vectors."""
    found = measured(50_000)
    assert found.peak <= found.limit
    assert found.pair == {123, 49_999}
    for query, distance in list(found.nearest.items())[::100]:
        others = np.linalg.norm(found.x.astype(np.float64) - found.x[query], axis=1)
        others[query] = np.inf
        assert distance == pytest.approx(others.min(), rel=1e-12)
