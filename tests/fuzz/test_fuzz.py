"""A small budget of the fuzzer (tests/support/fuzz), and everything that a long run has ever found."""

import json
from pathlib import Path

import numpy as np
import pytest
from fuzz.forgeries import try_forgery
from fuzz.functions import Case, try_case

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("seed", range(12))
def test_what_compile_states_is_true(seed: int) -> None:
    case = Case.random(np.random.default_rng((2026, seed)))
    assert not try_case(case).wrong, case


@pytest.mark.parametrize("seed", range(60))
def test_a_forgery_is_rejected_or_true(seed: int) -> None:
    verdict = try_forgery((2026, seed))
    assert not verdict.wrong, verdict


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_findings_stay_fixed(path: Path) -> None:
    finding = json.loads(path.read_text())
    if "case" in finding:
        assert not try_case(Case(**finding["case"])).wrong
    else:
        assert not try_forgery(tuple(finding["seed"])).wrong
