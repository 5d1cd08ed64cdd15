"""Folders that say something false about true weights, or about weights whose errors hide: none may be verified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
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
