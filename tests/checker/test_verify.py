"""verify on honest networks: it holds, it is linear in the number of layers, and it says what it found."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import provenformer as pf
from provenformer.bounds.integrals import Kind
from provenformer.certificates.claim import YOURS, claim_about
from provenformer.checker import points, walk
from provenformer.checker import verify as verification
from provenformer.networks.thin import ReluRun


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many numbers verify's steps on points and contexts were given, in total; and how often they were called."""
    seen = {"numbers": 0, "calls": 0}

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object) -> object:
            seen["calls"] += 1
            seen["numbers"] += sum(a.size for a in args if isinstance(a, np.ndarray))
            seen["numbers"] += sum(int(np.size(v)) for a in args if isinstance(a, ReluRun) for v in (a.W_2, a.b_1))
            return function(*args)

        return wrapper

    for name in ("feed_points", "attend"):
        monkeypatch.setattr(walk, name, counted(getattr(walk, name)))
    for name in ("read", "_require_clear"):
        monkeypatch.setattr(points, name, counted(getattr(points, name)))
    return seen


def cost(cells: int, folder: Path, work: dict[str, int]) -> tuple[int, int, int]:
    c = pf.compile(pf.targets.get("centered", 1, 3), cells_per_axis=cells, kind="lipschitz")
    c.save(folder)
    work.update(numbers=0, calls=0)
    assert pf.verify(folder)
    return c.network.layers, work["numbers"], work["calls"]


def test_work_is_linear_in_the_number_of_layers(tmp_path: Path, work: dict[str, int]) -> None:
    """Counted, not timed: twenty times the layers cost about twenty times the numbers, in the same number of calls."""
    sizes = [cost(cells, tmp_path / "net", work) for cells in (12, 20, 32)]
    layers = np.array([s[0] for s in sizes], dtype=float)
    numbers = np.array([s[1] for s in sizes], dtype=float)
    assert layers[-1] / layers[0] > 15
    per_layer = numbers / layers
    assert per_layer.max() <= 1.6 * per_layer.min()
    assert sizes[0][2] == sizes[2][2]


def test_a_hundred_thousand_layers(tmp_path: Path) -> None:
    """10^5 layers, a few arrays of their size at a time: nothing is kept per layer and point."""
    c = pf.compile(pf.targets.get("centered", 1, 3), cells_per_axis=59, kind="lipschitz")
    assert c.network.layers >= 100_000
    c.save(tmp_path / "net")
    tracemalloc.start()
    report = pf.verify(tmp_path / "net")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report
    assert peak < 1200 * 8 * c.network.layers


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize(
    ("name", "d", "n", "cells"),
    [("softmax-mean", 1, 2, 9), ("scaled-mean", 2, 2, 3), ("running-max", 1, 3, 3), ("rank", 1, 3, 5)],
)
@pytest.mark.parametrize("kind", ["rigorous", "lipschitz", "statistical"])
def test_honest_networks_of_every_kind(
    construction: str, name: str, d: int, n: int, cells: int, kind: Kind, tmp_path: Path
) -> None:
    c = pf.compile(pf.targets.get(name, d, n), cells_per_axis=cells, construction=construction, kind=kind)
    c.save(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report, report.reason
    assert report.claimed == c.certificate.bound
    assert set(report.terms) == {"table", "rounding", "ramps"}
    assert report.terms["rounding"] <= c.certificate.terms["rounding"]
    said = "it is not a bound" if kind == "statistical" else "holds"
    assert said in report.reason
    assert ("holds" in report.reason) == (kind != "statistical")


def test_a_report_is_true_or_false() -> None:
    c = pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=2)
    claim = claim_about(c.certificate, c.target, YOURS, None)
    assert not pf.Report(False, 1.0, None, "no", {}, claim)
    assert pf.Report(True, 1.0, 0.5, "yes", {}, claim)


def test_verify_shares_no_code_with_the_construction() -> None:
    """It may use the network's class, the grid, the target and the bound on integrals; nothing that builds layers."""
    files = [Path(verification.__file__), *Path(walk.__file__).parent.glob("*.py")]
    text = "\n".join(file.read_text() for file in files)
    for module in (
        "sums",
        "codes",
        "quantize",
        "values",
        "context",
        "relax",
        "compiler",
        "certify",
        "modified",
        "piecewise",
    ):
        assert f"provenformer.{module} " not in text
        assert f"import {module}" not in text
