"""What compile hands out, its own verify accepts; what verify would not accept, compile refuses in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import measured

import provenformer as pf
from provenformer.base.errors import ProvenformerError


def accepted(folder: Path, f: pf.Target, cells: int, **options: Any) -> pf.Compiled:
    c = pf.compile(f, cells_per_axis=cells, **options)
    c.save(folder / "net")
    report = pf.verify(folder / "net", f)
    assert report, report.reason
    return c


@pytest.mark.parametrize("support", [(-1.0, 1.0), (-3.0, 7.0), (0.0, 1e6), (1e-3, 2e-3), (1e3, 1e3 + 1e-3)])
@pytest.mark.parametrize(("construction", "hidden"), [("sum", 4), ("sum", 8), ("paper", 4), ("wide", 4)])
def test_positions_on_any_support(tmp_path: Path, support: tuple[float, float], construction: str, hidden: int) -> None:
    for n, cells in ((2, 4), (3, 2), (4, 2)):
        f = pf.targets.get("reverse", 1, n, support)
        accepted(tmp_path, f, cells, construction=construction, hidden_dim=hidden)


def rooted(x: Any) -> Any:
    return np.sqrt(x) * np.mean(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("order", [1, 1.3, 2, 64])
@pytest.mark.parametrize("construction", ["sum", "paper", "wide"])
def test_lost_cubes_and_steep_functions(tmp_path: Path, construction: str, order: float) -> None:
    accepted(tmp_path, pf.Target(rooted, 1, 2), 4, construction=construction, norm_order=order)


def test_rounding_that_shows_in_the_bound(tmp_path: Path) -> None:
    """Some 10,000 steps: the rounding of a wide network is a visible part of its bound, in the range on ramps, too."""
    f = pf.targets.get("shift", 1, 3)
    accepted(tmp_path, f, 16, construction="wide", norm_order=64, kind="lipschitz")


@pytest.mark.parametrize("size", [1e-15, 1e-12, 1e-9])
@pytest.mark.parametrize(("construction", "hidden"), [("sum", 4), ("sum", 8), ("paper", 8), ("wide", 4)])
def test_small_values_absorbed_by_large_ids(tmp_path: Path, size: float, construction: str, hidden: int) -> None:
    """Values below the last digit of their ids come out as 0; the certificate counts them as what they have become."""
    f = pf.Target(lambda x: size * (1 + 0.01 * x), 1, 2)
    try:
        c = accepted(tmp_path, f, 6, construction=construction, hidden_dim=hidden)
    except ProvenformerError:  # one line, as below
        return
    found = measured(f, c.network, 2, 6)
    assert found.value - 4 * found.error <= c.certificate.bound


@pytest.mark.parametrize("support", [(0.0, 1.0), (-0.3, 0.1), (1e3, 1e3 + 1.0), (0.0, 1000.0)])
def test_the_whole_space_around_any_support(tmp_path: Path, support: tuple[float, float]) -> None:
    """Left of the box the first layer has slope 1: the frame that is not 0 must be a ramp of a *cell* wide all the same."""
    low, high = support
    width = high - low

    def bump(x: Any) -> Any:
        u = np.maximum(4.0 * (x - low) * (high - x) / width**2, 0.0)
        return u * np.min(u, axis=-1, keepdims=True)

    f = pf.Target(bump, 1, 2, support=support, vanishes_outside=True)
    c = accepted(tmp_path, f, 16)
    assert c.certificate.domain == "space"
    ramp = c.certificate.ramp * width / 16
    x = np.stack([low - ramp * np.linspace(1.1, 40, 400) - 1e-12 * abs(low), np.full(400, low + 0.4 * width)], axis=1)
    assert (c.network(x[:, None]) == 0).all()


@pytest.mark.parametrize(
    ("name", "cells", "hidden", "why"), [("shift", 16, 16, "rounding may cost"), ("sort", 40, 4, "overflow")]
)
def test_refused_where_float64_is_not_enough(name: str, cells: int, hidden: int, why: str) -> None:
    """The paper's ids need more bits than merged layers leave: it once answered wrong under an absurd bound."""
    f = pf.targets.get(name, 1, 2)
    with pytest.raises(ProvenformerError, match=why) as refusal:
        pf.compile(f, cells_per_axis=cells, construction="paper", hidden_dim=hidden, kind="lipschitz")
    assert "use fewer cells" in str(refusal.value)
    assert "\n" not in str(refusal.value)
