"""What a certificate says beside its bound: terms, clip and cells must follow from the weights, or the folder is rejected."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import forge

import provenformer as pf
from provenformer.networks.thin import Network, ReluRun

CASES = [("scaled-mean", "sum", 4), ("centered", "paper", 4), ("sort", "sum", 8), ("softmax-mean", "wide", 4)]


@pytest.fixture(params=CASES, ids=str)
def compiled(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[pf.Compiled, Path]:
    name, construction, hidden = request.param
    c = pf.compile(pf.targets.get(name, 1, 2), cells_per_axis=4, construction=construction, hidden_dim=hidden)
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")
    return c, tmp_path / "net"


def refused(folder: Path, certificate: dict[str, Any]) -> str:
    """Why verify does not accept the folder with these fields of its certificate replaced."""
    forge(folder, certificate=certificate)
    try:
        report = pf.verify(folder)
    except pf.ProvenformerError as error:  # not even well-formed
        return str(error)
    assert not report
    return report.reason


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.999])
def test_no_term_may_be_smaller_than_it_is(compiled: tuple[pf.Compiled, Path], factor: float) -> None:
    c, folder = compiled
    for name, value in c.certificate.terms.items():
        if value < 1e-300 or (name == "rounding" and (factor > 0 or pf.verify(folder).terms["rounding"] == 0)):
            continue  # nothing there, or the term leaves room
        assert "certificate states" in refused(folder, {"terms": {**c.certificate.terms, name: factor * value}}), name
        c.save(folder)


def test_terms_may_be_larger_but_not_than_the_bound(compiled: tuple[pf.Compiled, Path]) -> None:
    c, folder = compiled
    terms = {**c.certificate.terms, "rounding": 0.1}
    assert "add up to more" in refused(folder, {"terms": terms})
    forge(folder, certificate={"terms": terms, "bound": 2.0})
    assert pf.verify(folder)


@pytest.mark.parametrize("terms", [{}, {"piecewise": 1.0}, {"everything": 0.1}])
def test_terms_have_their_names(compiled: tuple[pf.Compiled, Path], terms: dict[str, float]) -> None:
    assert refused(compiled[1], {"terms": terms})


def test_no_term_is_negative(compiled: tuple[pf.Compiled, Path]) -> None:
    c, folder = compiled
    assert refused(folder, {"terms": {**c.certificate.terms, "softmax": -1e-3}})


@pytest.mark.parametrize("end", ["clip_low", "clip_high"])
@pytest.mark.parametrize("shift", [9.0, -9.0, 1e-3, -1e-3])
def test_the_clip_is_the_networks(compiled: tuple[pf.Compiled, Path], end: str, shift: float) -> None:
    c, folder = compiled
    assert "clip" in refused(folder, {end: [value + shift for value in getattr(c.certificate, end)]})
    assert refused(folder, {end: [*getattr(c.certificate, end), 0.0]})


def test_the_cells_are_the_manifests(compiled: tuple[pf.Compiled, Path]) -> None:
    c, folder = compiled
    for details in ({"boxes": -1}, {**c.certificate.details, "cells_per_axis": 40}):
        assert refused(folder, {"details": details})


def test_the_number_of_pairs_is_that_of_the_data(tmp_path: Path) -> None:
    inputs = np.arange(4.0).reshape(2, 1, 2)
    pf.memorize(inputs, inputs).save(tmp_path / "net")
    details = pf.load(tmp_path / "net").certificate.details
    assert "pairs are not those" in refused(tmp_path / "net", {"details": {**details, "pairs": 1_000_000}})


def test_pairs_are_claimed_for_the_engine_that_ran_them(tmp_path: Path) -> None:
    """Weights that add up to the answer in one order of the sums: the claim does not speak of any other."""
    x = np.array([[[1.0, 2.0]], [[2.0, 4.0]]])
    network, turned = (
        Network(1, 2, (ReluRun("values", np.zeros((1, 4, 1)), np.ones((1, 4)), np.array([[out]]), np.zeros((1, 1))),))
        for out in ([1e16, -1e16, 1.0, 1.0], [1.0, 1e16, 1.0, -1e16])
    )
    assert np.abs(turned(x) - network(x)).max() == 2
    honest = pf.memorize(x, network(x))
    stated = replace(honest.certificate, bound=0.0, terms={"rounding": 0.0})
    replace(honest, network=network, certificate=stated).save(tmp_path / "net")
    report = pf.verify(tmp_path / "net")
    assert report
    assert "by numpy in float64" in report.claim.basis


def _others() -> dict[str, Any]:
    x = np.array([[[0.0, 1.0]], [[1.0, 2.0]], [[3.0, 0.5]]])
    return {
        "circuit": pf.compile(pf.targets.get("scaled-mean", 1, 2), tolerance=0.1),
        "program": pf.compile_tokens(pf.programs.get("histogram", 3, 3)),
        "pairs": pf.memorize(x, 2 * x - 1),
        "constant pairs": pf.memorize(x, np.full(x.shape, 3.0)),
    }


@pytest.mark.parametrize("kind", ["circuit", "program", "pairs", "constant pairs"])
@pytest.mark.parametrize("false", [{"ramp": 1e18}, {"clip_low": [1e18]}, {"clip_high": [-7.0]}], ids=str)
def test_ramp_and_clip_of_what_is_no_table(kind: str, false: dict[str, Any], tmp_path: Path) -> None:
    _others()[kind].save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")
    assert "clip" in refused(tmp_path / "net", false)


@pytest.mark.parametrize("value", ["x", None, [1], {"a": 1}, -1.0], ids=str)
def test_a_tolerance_that_is_none(compiled: tuple[pf.Compiled, Path], value: Any) -> None:
    """It is shown on the page about a network."""
    c, folder = compiled
    assert "tolerance" in refused(folder, {"details": {**c.certificate.details, "tolerance": value}})
