"""Certificates: d_p(f, g) <= bound, for every built-in target, close to the truth, at the sizes that were promised."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import measured

import provenformer as pf
from provenformer.bounds.cells import Cells

SIZES = [(1, 2, 8), (1, 3, 6)]
TERMS = ["piecewise", "lost cubes", "ramps", "softmax", "rounding"]


@cache
def norm(name: str, seq_len: int) -> float:
    f = pf.targets.get(name, 1, seq_len)
    return float(pf.distance(f, np.zeros_like, token_dim=1, seq_len=seq_len))


def test_five_percent_of_softmax_mean_in_a_thousand_blocks(tmp_path: Path) -> None:
    f, tolerance = pf.targets.get("softmax-mean", 1, 3), 0.05 * norm("softmax-mean", 3)
    c = pf.compile(f, tolerance=tolerance, norm_order=2, construction="sum")
    assert c.certificate.kind == "rigorous"
    assert c.certificate.bound <= tolerance
    assert c.network.blocks <= 300  # 215 when this was written; the promise is 1,000
    assert c.network.shape == (2, 1, 4)
    assert measured(f, c.network, 2, c.grid.cells_per_axis).value <= c.certificate.bound
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


def test_papers_construction_refuses_the_same_with_its_planned_size() -> None:
    f, tolerance = pf.targets.get("softmax-mean", 1, 3), 0.05 * norm("softmax-mean", 3)
    with pytest.raises(pf.ProvenformerError) as refusal:
        pf.compile(f, tolerance=tolerance, construction="paper")
    text = str(refusal.value)
    layers = int(text.split(" needs ")[1].split(" layers")[0].replace(",", ""))
    assert layers > 5 * 10**8
    assert "construction='sum'" in text
    assert "\n" not in text


@pytest.mark.parametrize("name", pf.targets.names())
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("norm_order", [1, 2, 4])
def test_measured_distance_is_below_the_bound_and_not_far(
    name: str, size: tuple[int, int, int], norm_order: int, tmp_path: Path
) -> None:
    d, n, cells = size
    f = pf.targets.get(name, d, n)
    c = pf.compile(f, cells_per_axis=cells, norm_order=norm_order)
    found = measured(f, c.network, norm_order, cells)
    assert c.certificate.kind == "rigorous"
    assert list(c.certificate.terms) == TERMS
    assert found.value <= c.certificate.bound + 4 * found.error
    assert c.certificate.bound <= 1.5 * (found.value - 4 * found.error)
    c.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report
    assert report.derived is not None
    assert report.derived <= c.certificate.bound
    assert report.derived >= 0.999 * c.certificate.bound


@pytest.mark.parametrize("name", pf.targets.names())
@pytest.mark.parametrize("norm_order", [1, 2, 4])
def test_papers_construction_keeps_its_bound(name: str, norm_order: int, tmp_path: Path) -> None:
    f = pf.targets.get(name, 1, 2)
    c = pf.compile(f, cells_per_axis=6, norm_order=norm_order, construction="paper")
    found = measured(f, c.network, norm_order, 6)
    assert found.value <= c.certificate.bound + 4 * found.error
    assert c.certificate.bound <= 1.5 * found.value
    assert (c.certificate.terms["lost cubes"] > 0) == f.equivariant
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


@pytest.mark.parametrize("token_dim", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_random_points_never_beat_the_worst_case(token_dim: int) -> None:
    """Good inputs: |f - g| at every sample is at most the largest |f - A| of its cube, itself below L * half a cell."""
    f = pf.targets.get("scaled-mean", token_dim, 2)
    c = pf.compile(f, cells_per_axis=4)
    x = f.sample(20_000, seed=5)
    on_ramp = ((x * 4) % 1 > 1 - c.certificate.ramp).any(axis=(1, 2))
    error = np.abs(c.network(x) - f(x)).max(axis=(1, 2))
    assert f.lipschitz is not None
    assert error[~on_ramp].max() <= f.lipschitz / 8 + 1e-9


def test_many_tokens(tmp_path: Path) -> None:
    """32! does not fit 64 bits, and 2^32 halves of a box do not fit memory."""
    f = pf.targets.get("scaled-mean", 1, 32)
    c = pf.compile(f, cells_per_axis=2)
    assert float(pf.distance(f, c.network, token_dim=1, seq_len=32)) <= c.certificate.bound < norm("scaled-mean", 32)
    cells = Cells.of(c.grid, c.piecewise.contexts, c.piecewise.values, positional=False)
    assert cells.multiplicity.sum() == pytest.approx(2**32, rel=1e-12)  # every cube belongs to one context
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


def test_sort_three_tokens(tmp_path: Path) -> None:
    f = pf.targets.get("sort", 1, 3)
    c = pf.compile(f, tolerance=0.05, construction="sum")
    assert c.certificate.kind == "rigorous"
    assert c.certificate.bound <= 0.05
    found = measured(f, c.network, 2, c.grid.cells_per_axis, samples=1 << 10)
    assert found.value <= c.certificate.bound + 4 * found.error
    assert c.network.positions is not None
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


@pytest.mark.slow
def test_sort_four_tokens(tmp_path: Path) -> None:
    f = pf.targets.get("sort", 1, 4)
    c = pf.compile(f, tolerance=0.05, construction="sum")
    assert c.certificate.kind == "rigorous"
    assert c.certificate.bound <= 0.05
    x = f.sample(2_000)
    off = (np.abs(c.network(x) - f(x)) ** 2).sum(axis=(1, 2))
    assert off.mean() ** 0.5 <= c.certificate.bound * 1.05
    assert off.mean() ** 0.5 >= c.certificate.bound / 1.5
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")


# The order of convergence.


def slope(cells: list[int], errors: list[float]) -> float:
    return float(np.polyfit(np.log(cells), np.log(errors), 1)[0])


def errors(construction: str, token_dim: int, norm_order: int, cells: list[int]) -> tuple[list[float], list[float]]:
    """Measured and certified, over grids."""
    f = pf.targets.get("scaled-mean", token_dim, 2)
    pairs = []
    for count in cells:
        c = pf.compile(f, cells_per_axis=count, norm_order=norm_order, construction=construction)
        pairs.append((measured(f, c.network, norm_order, count, samples=1 << 12).value, c.certificate.bound))
    first, second = zip(*pairs, strict=True)
    return list(first), list(second)


@pytest.mark.parametrize(
    ("construction", "token_dim", "norm_order", "order", "cells"),
    [
        ("sum", 1, 1, -1.0, [4, 8, 16, 32]),
        ("sum", 1, 2, -1.0, [4, 8, 16, 32]),
        ("sum", 1, 4, -1.0, [4, 8, 16, 32]),
        ("sum", 2, 2, -1.0, [2, 3, 4, 6]),
        ("paper", 1, 1, -1.0, [8, 16, 32]),
        ("paper", 1, 2, -0.5, [8, 16, 32]),
        ("paper", 1, 4, -0.25, [8, 16, 32]),
        ("paper", 2, 4, -0.5, [3, 4, 6]),
    ],
)
def test_order_of_convergence(
    construction: str, token_dim: int, norm_order: int, order: float, cells: list[int]
) -> None:
    """The error is about delta for sum, about delta^(d/p) for the paper's construction."""
    found, bounds = errors(construction, token_dim, norm_order, cells)
    assert slope(cells, found) == pytest.approx(order, abs=0.12)
    assert slope(cells, bounds) == pytest.approx(order, abs=0.15)


# Other supports, grids that are no powers of two.


@pytest.mark.parametrize(
    ("name", "token_dim", "support", "cells"),
    [
        ("scaled-mean", 1, (-3.0, 5.0), 5),
        ("scaled-mean", 1, (1000.0, 1001.0), 6),
        ("softmax-mean", 1, (0.0, 1e-3), 7),
        ("centered", 2, ((-1.0, 10.0), (2.0, 11.5)), 3),
        ("relative-max", 1, (-1e6, 1e6), 3),
        ("sort", 1, (-0.1, 0.3), 6),
        ("shift", 2, ((0.0, -7.0), (1.0, 7.0)), 3),
        ("running-max", 1, (1e6, 1e6 + 1), 5),
    ],
)
def test_supports_and_grids(name: str, token_dim: int, support: tuple[Any, Any], cells: int, tmp_path: Path) -> None:
    f = pf.targets.get(name, token_dim, 2, support)
    for construction in ("sum", "paper"):
        c = pf.compile(f, cells_per_axis=cells, construction=construction)
        found = measured(f, c.network, 2, cells)
        assert found.value <= c.certificate.bound + 4 * found.error
        assert c.certificate.bound <= 1.5 * found.value
        c.save(tmp_path / construction)
        assert pf.verify(tmp_path / construction), construction


def test_the_grid_is_the_coarsest_that_certifies() -> None:
    f = pf.targets.get("scaled-mean", 1, 2)
    c = pf.compile(f, tolerance=0.04, construction="sum")
    assert c.certificate.bound <= 0.04
    coarser = pf.compile(f, cells_per_axis=c.grid.cells_per_axis - 1)
    assert coarser.certificate.bound > 0.04


@pytest.mark.slow
def test_whole_space_for_functions_that_vanish_outside(tmp_path: Path) -> None:
    """Over all of R^(d x n): measured on a box three times as wide, and 0 beyond."""
    for d, cells in ((1, 6), (2, 3)):
        f = pf.Target(bump, d, 2, vanishes_outside=True, name="bump")
        c = pf.compile(f, cells_per_axis=cells)
        assert c.certificate.domain == "space"
        wide = pf.distance(
            lambda x: np.where(((x >= 0) & (x <= 1)).all(axis=(1, 2), keepdims=True), bump(x), 0.0),
            c.network, token_dim=d, seq_len=2, support=(-1.0, 2.0), samples=1 << 15,
        )  # fmt: skip
        assert wide.value <= c.certificate.bound + 4 * wide.error
        c.save(tmp_path / "net")
        assert pf.verify(tmp_path / "net", f)


def bump(x: np.ndarray) -> np.ndarray:
    """Equivariant, 0 on the border of the box."""
    hat = 4.0 * x * (1.0 - x)
    whole = hat * hat[..., ::-1]  # all tokens, two of them
    return whole * whole[..., ::-1, :]  # all rows, at most two


@pytest.mark.parametrize("hidden_dim", [4, 8, 16])
@pytest.mark.parametrize("size", [1e-16, 1e-12, 1e-7])
@pytest.mark.parametrize(("construction", "cells"), [("sum", 6), ("paper", 5), ("wide", 4)])
def test_values_that_the_ids_absorb_are_counted(construction: str, cells: int, size: float, hidden_dim: int) -> None:
    """fl(A - q) = -q for a tiny A: the network gives 0. A radius of 0 around that table was once all the rounding there was."""
    f = pf.Target(lambda x: size * (1.0 + 0.01 * x), 1, 3, name="absorbed")
    try:
        c = pf.compile(f, cells_per_axis=cells, construction=construction, hidden_dim=hidden_dim)
    except pf.ProvenformerError as refusal:  # where rounding would cost more than the values are worth
        if hidden_dim == 4 or "does not fit float64" not in str(refusal):
            raise
        return
    found = measured(f, c.network, 2, cells)
    assert found.value - 4 * found.error <= c.certificate.bound


@pytest.mark.parametrize("power", [0.2, 0.4, 0.45])
def test_a_black_box_with_a_heavy_tail_gets_an_estimate_that_says_so(power: float) -> None:
    """x^-0.45 has no variance of its square, and no finite sample bounds its mean: the certificate promises no confidence."""
    c = pf.compile(pf.Target(lambda x: np.asarray(x) ** -power, 1, 2), cells_per_axis=4)
    assert c.certificate.kind == "statistical"
    assert "estimate" in c.certificate.basis
    assert "%" not in c.certificate.basis
    assert "<=" not in c.certificate.short
    x = (np.arange(1 << 20) + 0.5) / (1 << 20)
    centre = (np.floor(4 * x) + 0.5) / 4
    seen = (2 * np.mean((x**-power - centre**-power) ** 2)) ** 0.5  # two tokens, midpoint rule: below the truth
    assert c.certificate.bound >= seen
