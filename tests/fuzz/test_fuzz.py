"""A small budget of the fuzzer (tests/support/fuzz), and everything that a long run has ever found."""

import json
from pathlib import Path

import numpy as np
import pytest
from fuzz.forgeries import genuine, ours, try_forgery
from fuzz.kept import FOUND, again, random_case, tried

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("seed", range(40))
def test_what_compile_states_is_true(seed: int) -> None:
    case = random_case(np.random.default_rng((2026, seed)), "circuit" if seed % 2 else "table")
    assert not tried(case)[0].wrong, case


@pytest.mark.parametrize("seed", range(30))
def test_what_compile_tokens_states_is_true(seed: int) -> None:
    case = random_case(np.random.default_rng((2026, seed)), "program")
    assert not tried(case)[0].wrong, case


@pytest.mark.parametrize("index", ours("tokens"))
def test_a_forgery_of_a_program_is_rejected_or_true(index: int) -> None:
    for seed in range(3):
        verdict = try_forgery((2026, index, seed), genuine(index))
        assert not verdict.wrong, verdict


@pytest.mark.parametrize("seed", range(60))
def test_a_forgery_is_rejected_or_true(seed: int) -> None:
    verdict = try_forgery((2026, seed))
    assert not verdict.wrong, verdict


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_findings_stay_fixed(path: Path) -> None:
    assert not again(json.loads(path.read_text()))
