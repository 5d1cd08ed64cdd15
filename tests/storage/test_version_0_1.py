"""Folders that version 0.1 saved load, give the same bits and verify with the same bound."""

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
    assert np.array_equal(saved.network(np.array(expected["inputs"])), expected["outputs"])
    report = pf.verify(FOLDERS / name)
    assert report
    assert report.derived == pytest.approx(expected["derived"], rel=1e-12)
