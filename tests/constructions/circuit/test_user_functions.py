"""Functions of many trades compile and hold on samples, or are refused in one line; a refusal may become a circuit that holds."""

import re
from pathlib import Path

import numpy as np
import pytest
from user_functions import CASES, Case, sequences

import provenformer as pf

TOLERANCE = 1e-2
MARKED = [pytest.param(case, marks=[pytest.mark.long] * case.long, id=case.fn.__name__) for case in CASES]
BY_NAME = pytest.mark.parametrize("case", MARKED)


def compiled(case: Case, seq_len: int, refused: str) -> pf.CompiledCircuit | None:
    """The circuit, or None for a refusal that was expected."""
    target = case.target(seq_len)
    try:
        return pf.compile(target, tolerance=TOLERANCE, norm_order=np.inf, construction="circuit")
    except pf.ProvenformerError as refusal:
        if not refused or not re.search(refused, str(refusal)) or "\n" in str(refusal):
            raise
        return None


def require_true(c: pf.CompiledCircuit, count: int) -> None:
    certificate = c.certificate
    assert certificate.kind == "rigorous"
    assert certificate.bound <= TOLERANCE
    x = sequences(c.target, count)
    expected = c.target(x)
    assert np.abs(c.network(x) - expected).max() <= certificate.bound
    if "float32" in certificate.bounds:
        assert np.abs(c.network.run(x, np.float32) - expected).max() <= certificate.bounds["float32"]


@BY_NAME
def test_a_few_tokens(case: Case) -> None:
    c = compiled(case, case.few, case.refused)
    if c is not None:
        require_true(c, count=60)


@pytest.mark.long
@BY_NAME
def test_as_many_tokens_as_is_natural(case: Case, tmp_path: Path) -> None:
    c = compiled(case, case.natural, case.refused_long or case.refused)
    if c is not None:
        require_true(c, count=10)
        c.save(tmp_path / "net")
        assert pf.verify(tmp_path / "net", c.target)
