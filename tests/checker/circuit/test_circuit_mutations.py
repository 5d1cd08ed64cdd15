"""Altered circuits: rejected, or the bound that comes out is true on samples, in float64 and in float32. Never unsound.

`CIRCUIT_MUTATIONS=400 pytest tests/checker/circuit/test_circuit_mutations.py` alters every circuit 400 times.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_mutations import mutations
from forging import forge
from hand_circuits import CASES, Case, centred, probes

import provenformer as pf
from provenformer import storage
from provenformer.base.errors import Rejected
from provenformer.certificates.certificate import Certificate
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.constructions.circuit.build import build
from provenformer.constructions.circuit.parts import lower
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.trace import Traced, samples, trace

EACH = int(os.environ.get("CIRCUIT_MUTATIONS", "12"))


def layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - np.mean(x, axis=-1, keepdims=True)) / np.sqrt(np.var(x, axis=-1, keepdims=True) + 0.1)


def masked_attention(x: np.ndarray) -> np.ndarray:
    n = x.shape[-1]
    scores = x[..., 0, :, None] * x[..., 0, None, :] + np.where(np.tril(np.ones((n, n))) > 0, 0.0, -1e9)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = weights / np.sum(weights, axis=-1, keepdims=True)
    return np.sum(weights[..., None, :, :] * x[..., :, None, :], axis=-1)


TARGETS: dict[str, pf.Target] = {
    **{name: pf.targets.get(name, 1, 5) for name in pf.targets.names() if name != "rank"},
    "layer norm": pf.Target(layer_norm, 1, 4, name="layer norm"),
    "masked attention": pf.Target(masked_attention, 2, 4, equivariant=False, name="masked attention"),
    "cumulative sum": pf.Target(lambda x: np.cumsum(x, axis=-1), 1, 4, equivariant=False, name="cumulative sum"),
    "gates": pf.Target(lambda x: np.abs(x - 0.3) * 2 + x * np.arange(4.0), 1, 4, equivariant=False, name="gates"),
}


def built(target: pf.Target) -> tuple[CircuitNetwork, Traced]:
    traced = trace(target)
    return build(lower(traced.graph, traced.outputs), 1e-2, 10_000).network, traced


def outcomes(
    network: CircuitNetwork,
    bound: Callable[[CircuitNetwork], CircuitBound],
    fn: Callable[[Any], Any],
    x: np.ndarray,
    count: int,
    seed: int,
) -> Counter[str]:
    """What became of altered networks; an unsound one fails here, with what was altered."""
    wanted = fn(x)
    seen: Counter[str] = Counter()
    for what, altered in mutations(network, np.random.default_rng(seed), count):
        try:
            found = bound(altered)
        except Rejected:
            seen["rejected"] += 1
            continue
        with np.errstate(all="ignore"):
            double, single = (np.abs(altered.run(x, dtype) - wanted).max() for dtype in (np.float64, np.float32))
        assert double <= found.float64 or found.float64 == np.inf, (what, double, found)
        assert single <= found.float32 or found.float32 == np.inf, (what, single, found)
        seen["a bound"] += 1
    return seen


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_altered_circuits_by_hand(make: Callable[[], Case]) -> None:
    case = make()
    seen = outcomes(
        case.network, lambda net: circuit_bound(net, case.graph, case.outputs, case.low, case.high), case.fn, probes(case, 60),
        EACH, 1,
    )  # fmt: skip
    assert seen["rejected"] >= EACH // 8
    assert seen["a bound"] >= EACH // 8


@pytest.mark.parametrize("name", TARGETS)
def test_genuine_circuits_are_accepted_and_altered_ones_never_unsound(name: str) -> None:
    target = TARGETS[name]
    network, traced = built(target)

    def bound(net: CircuitNetwork) -> CircuitBound:
        return circuit_bound(net, traced.graph, traced.outputs, target.low, target.high)

    x = samples(target, 12)
    found = bound(network)
    assert found.float64 <= 1e-2
    assert np.abs(network(x) - target(x)).max() <= found.float64
    assert np.abs(network.run(x, np.float32) - target(x)).max() <= found.float32
    seen = outcomes(network, bound, target, x, EACH, 2)
    assert seen["rejected"] >= EACH // 8


def saved(folder: Path) -> tuple[Case, Certificate]:
    """A circuit of a built-in target as a folder."""
    case = centred(5, 0.0, 1.0)
    target = pf.targets.get("centered", 1, 5)
    traced = trace(target)
    found = circuit_bound(case.network, traced.graph, traced.outputs, target.low, target.high)
    bounds = {"float64": found.float64, "float32": found.float32}
    terms = {"tables": found.exact, "attention": 0.0, "rounding": found.float64 - found.exact}
    claim = Certificate(
        found.float64, terms, "rigorous", None, "box", "by hand", 0.0, (0.0,), (0.0,), {"bounds": bounds}
    )
    storage.save(folder, case.network, claim, {"construction": "circuit", "target": storage.target_spec(target)})
    return case, claim


def test_a_folder_is_verified_and_a_forged_one_is_not(tmp_path: Path) -> None:
    case, _ = saved(tmp_path / "net")
    assert pf.verify(tmp_path / "net")
    rejected = 0
    for _, altered in mutations(case.network, np.random.default_rng(3), EACH):
        try:
            forge(tmp_path / "net", altered)
            report = pf.verify(tmp_path / "net")
        except pf.ProvenformerError:
            rejected += 1
            continue
        x = probes(case, 60)
        with np.errstate(all="ignore"):
            error = np.abs(altered(x) - case.fn(x)).max()
        if report:
            assert error <= report.claimed
        else:
            assert report.reason
            rejected += 1
    assert rejected >= EACH // 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bound": 1e-20}, "more than the claimed bound"),
        ({"details": {"bounds": {"float64": 1.0, "float32": 1e-12}}}, "in float32, more than"),
        ({"details": {"bounds": {"float16": 1.0}}}, "something else than float64 and float32"),
        ({"details": {"sup": 1e-30}}, "for the largest entry, more than the 1e-30"),
        ({"details": {"sup": "small"}}, "for the largest entry, more than the small"),
        ({"kind": "statistical"}, "rigorous"),
        ({"terms": {"tables": 1.0}}, "sum is at most its bound"),
        ({"terms": {"luck": 0.0}}, "terms other than"),
        ({"terms": {}}, "for tables and attention, more than the 0 that the certificate states"),
        ({"terms": {"tables": 0.0, "attention": 0.0, "rounding": 0.0}}, "for tables and attention, more than the 0"),
        ({"bound": 1e-12, "terms": {"rounding": 9e-13}}, "for tables and attention, more than the 0"),
        ({"bound": 1e-12, "terms": {"tables": 9e-13}}, "for rounding, more than the 0"),
    ],
)
def test_a_certificate_that_says_too_much_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    saved(tmp_path / "net")
    forge(tmp_path / "net", certificate=change)
    report = pf.verify(tmp_path / "net")
    assert not report
    assert reason in report.reason


def test_a_claim_in_another_norm_is_scaled(tmp_path: Path) -> None:
    """d_2 <= sup sqrt(d n vol): here sqrt(5)."""
    _, claim = saved(tmp_path / "net")
    terms = {name: value * 5**0.5 * 1.001 for name, value in claim.terms.items()}
    change = {"norm_order": 2.0, "bound": claim.bound * 5**0.5 * 1.001, "terms": terms, "details": {}}
    assert pf.verify(forge(tmp_path / "net", certificate=change))
    change["bound"] = claim.bound * 2.0
    assert not pf.verify(forge(tmp_path / "net", certificate={**change, "terms": {"rounding": 0.0}}))
