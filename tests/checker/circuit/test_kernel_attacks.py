"""Kernels over pairs with units added at the ends of the range: the bound is that of the units that are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from circuit_mutations import with_block

import provenformer as pf
from provenformer.checker.circuit.derive import derive_circuit
from provenformer.compiler import circuit as compiler
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.networks.circuit import CircuitNetwork


def differences(x: Any) -> Any:
    return np.mean(np.tanh(x[..., :, None] - x[..., None, :]), axis=-1)


@pytest.fixture(scope="module")
def compiled() -> CompiledCircuit:
    target = pf.Target(differences, 1, 3, equivariant=False, support=(-1.0, 1.0), name="differences")
    with patch.object(compiler, "choose_steps", lambda graph, *_: (0.25,) * len(graph.kernels)):  # else it is gathered
        return pf.compile(target, tolerance=0.1, norm_order=np.inf, construction="circuit")


def with_units(network: CircuitNetwork, side: float, knots: list[float], weights: list[float]) -> CircuitNetwork:
    """relu(side x - knot), written where the kernel's mean is."""
    block, size, more = network.circuit_blocks[-1], network.model_dim, len(knots)
    W_1, W_2 = np.zeros((more, size)), np.zeros((size, more))
    W_1[:, 0] = side
    W_2[np.flatnonzero(network.W_out[0])[-1]] = weights
    new = replace(
        block, W_1=np.vstack([block.W_1, W_1]), b_1=np.append(block.b_1, -np.array(knots)), W_2=np.hstack([block.W_2, W_2])
    )  # fmt: skip
    return with_block(network, network.blocks - 1, new)


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("weight", [10.0, -1e4])
@pytest.mark.parametrize("second", [1.01, 1.04])
def test_units_that_are_undone_beyond_the_range_count_within_it(
    compiled: CompiledCircuit, side: float, weight: float, second: float
) -> None:
    """On from 0.9 on, taken off from `second` on, so that nothing is left at 1.05, where a cell like its neighbour ends."""
    back = -weight * 0.15 / (1.05 - second)
    network = with_units(compiled.network, side, [0.9, second], [weight, back])
    x = side * np.array([[[1.0, 0.0, 0.5]], [[0.95, 0.2, 1.0]]])
    off = float(np.abs(network(x) - differences(x)).max())
    assert off > 0.5
    assert off <= derive_circuit(network, compiled.target).float64


def test_units_beyond_the_range_alone_do_not_matter(compiled: CompiledCircuit) -> None:
    network = with_units(compiled.network, 1.0, [1.3], [10.0])
    assert derive_circuit(network, compiled.target).float64 <= 1.01 * compiled.certificate.bound
