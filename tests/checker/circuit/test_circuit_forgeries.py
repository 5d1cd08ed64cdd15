"""Folders that say something false about true weights, or about weights whose errors hide: none may be verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forging import forge
from hand_circuits import Draft, mean_row

import provenformer as pf
from provenformer.checker.circuit.derive import derive_circuit
from provenformer.networks.circuit import CircuitNetwork


def errors(network: CircuitNetwork, target: pf.Target) -> tuple[float, float]:
    """The largest in float64 and in float32, on samples."""
    x = target.sample(400)
    double, single = (float(np.abs(network.run(x, dtype) - target(x)).max()) for dtype in (np.float64, np.float32))
    return double, single


def tent(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.abs(x[..., :1, :] - 0.5), x[..., 1:, :]], axis=-2)


@pytest.mark.parametrize("weight", [1e-2, 1e-4, 1e-9])
def test_what_a_unit_reads_beside_its_argument_is_measured_without_what_is_known_of_it(weight: float) -> None:
    """x in [1000, 1001] less its position 1000.5 is small, x is not; a unit leans on it, its bias makes up for the position."""
    target = pf.Target(tent, 2, 3, support=((0.0, 1000.0), (1.0, 1001.0)), name="tent")
    draft = Draft(3, 2)
    draft.positions[1][:] = -1000.5
    out = draft.channel()
    draft.block()
    draft.unit({0: -1.0}, 0.5, {out: 1.0})
    draft.unit({0: 1.0, 1: weight}, -0.5 + weight * 1000.5, {out: 1.0})
    draft.claim(out, 2, 2)
    readout = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    network = replace(draft.network({}), W_out=readout, b_out=np.array([0.0, 1000.5]))
    found = derive_circuit(network, target)
    double, single = errors(network, target)
    assert double > 500 * weight
    assert double <= found.float64
    assert single <= found.float32


def test_heads_that_cancel_are_rounded_by_their_sizes() -> None:
    """2^20, then a thousand numbers too small beside it for float32, then -2^20: of the numbers nothing is left."""
    target, few, large = pf.targets.get("centered", 1, 2), 0.0624, 2.0**20
    draft = Draft(2)
    mean, one = draft.channel(), draft.channel(1.0)
    draft.block()
    for weight in (large, *(few,) * 1000, -large):
        draft.head([], [], [({one: weight}, mean, 1.0)])
    draft.head([], [], [({0: 1.0}, mean, 1.0)])
    draft.claim(mean, 1, 0, mean_row(2))
    network = draft.network({0: 1.0, mean: -1.0}, 1000 * few)
    found = derive_circuit(network, target)
    double, single = errors(network, target)
    assert single > 50
    assert single <= found.float32
    assert double <= found.float64


def test_a_bound_that_is_missed_by_a_hair_is_missed(tmp_path: Path) -> None:
    """A network that is off by 1e-3 everywhere: 1e-3 less half a billionth of it is no bound."""
    c = pf.compile(pf.targets.get("centered", 1, 3), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net")
    shifted = replace(c.network, b_out=c.network.b_out + 1e-3)
    short = 1e-3 * (1 - 5e-10)
    claim = {"bound": short, "terms": {"tables": short * 0.999, "rounding": short * 0.0009}, "details": {}}
    report = pf.verify(forge(tmp_path / "net", shifted, claim))
    assert errors(shifted, c.target)[0] > short
    assert not report
    assert "more than the claimed bound" in report.reason


def test_a_formula_of_ours_on_another_box_is_not_called_ours(tmp_path: Path) -> None:
    """Listed targets are in unit coordinates; the folder names the formula itself, which is another function on [0, 4]."""
    listed = pf.targets.get("rank", 1, 3, (0.0, 4.0))
    formula = pf.targets.get("rank", 1, 3).fn
    pf.compile(pf.Target(formula, 1, 3, support=(0.0, 4.0), name="rank"), tolerance=1e-2, norm_order=np.inf).save(
        tmp_path / "net"
    )
    with pytest.raises(pf.ProvenformerError, match="not imported unless you say so"):
        pf.verify(tmp_path / "net")
    report = pf.verify(tmp_path / "net", trust_target=True)
    assert report
    assert report.claim.whose.startswith("imported from provenformer.functions.targets:_rank")
    assert not pf.verify(tmp_path / "net", listed)


def test_a_claim_names_its_norm_and_its_box_in_full(tmp_path: Path) -> None:
    """On a small box d_2.0000004 is less than d_2; a box that is thin in its fifth row is not [0, 1]^5."""
    support = ((0.0,) * 6, (1.0, 1.0, 1.0, 1.0, 1e-9, 1.0))
    c = pf.compile(pf.targets.get("centered", 6, 2, support), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    c.save(tmp_path / "net")
    assert "over the box [0, 1]^4 x [0, 1e-09] x [0, 1] (" in pf.verify(tmp_path / "net").claim.sentence
    forge(tmp_path / "net", certificate={"norm_order": 2.0000004})
    assert "d_2.0000004(f, g)" in pf.verify(tmp_path / "net").claim.sentence
    assert "d_2.0000004 <=" in pf.load(tmp_path / "net", check_hashes=False).certificate.short


def test_a_bound_is_said_in_no_fewer_digits_than_make_it_true(tmp_path: Path) -> None:
    c = pf.compile(pf.targets.get("centered", 1, 3), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    c.save(tmp_path / "net")
    claim = {"bound": 0.0100049, "terms": {"tables": 0.005, "rounding": 0.005}}
    report = pf.verify(forge(tmp_path / "net", certificate=claim))
    assert "the bound 0.010005 holds" in report.reason
    assert "<= 0.010005 " in report.claim.sentence
    assert "<= 0.0101 " in pf.load(tmp_path / "net", check_hashes=False).certificate.short
