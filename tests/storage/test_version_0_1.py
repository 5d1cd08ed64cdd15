"""Folders that version 0.1 saved load, give the same outputs and verify with the same bound."""

import json
from pathlib import Path

import numpy as np
import pytest

import provenformer as pf

FOLDERS = Path(__file__).parent / "version-0.1"
EXPECTED = json.loads((FOLDERS / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_loads_runs_and_verifies(name: str) -> None:
    expected = EXPECTED[name]
    saved = pf.load(FOLDERS / name)
    outputs = saved.network(np.array(expected["inputs"]))
    # A wide network is run by matrix products, whose order of summation is the library's: up to rounding, not bit for bit.
    rounding = 1e-11 if saved.manifest["construction"] == "wide" else 0.0
    np.testing.assert_allclose(outputs, expected["outputs"], rtol=0, atol=rounding)
    report = pf.verify(FOLDERS / name)
    assert report
    # Rounding is counted by units since: the room at cell edges and the radius of a wide network differ in their last digits.
    assert report.derived == pytest.approx(expected["derived"], rel=1e-9)
