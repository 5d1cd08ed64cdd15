"""A small budget of the fuzzer (tests/support/fuzz), and everything that a long run has ever found."""

import json
from pathlib import Path

import numpy as np
import pytest
from fuzz.forgeries import try_forgery
from fuzz.kept import FOUND, again, random_case, tried

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("seed", range(40))
def test_what_compile_states_is_true(seed: int) -> None:
    case = random_case(np.random.default_rng((2026, seed)), circuit=bool(seed % 2))
    assert not tried(case)[0].wrong, case


@pytest.mark.parametrize("seed", range(60))
def test_a_forgery_is_rejected_or_true(seed: int) -> None:
    verdict = try_forgery((2026, seed))
    assert not verdict.wrong, verdict


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_findings_stay_fixed(path: Path) -> None:
    assert not again(json.loads(path.read_text()))
