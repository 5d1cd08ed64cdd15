"""A compiled circuit in disguise, with what can still be promised of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.certificates.drift import drift
from provenformer.checker.circuit.state import State
from provenformer.checker.circuit.walk import circuit_bound
from provenformer.compiler.request import require_tolerance, require_whole
from provenformer.functions.distance import entries_factor
from provenformer.networks.disguise import Disguised, disguise, with_noise

if TYPE_CHECKING:
    from provenformer.compiler.circuit import CompiledCircuit

PRECISIONS = ("float64", "float32")
SMALLEST_NOISE = -60.0  # a power of two, relative to the largest weight of a matrix
HALVINGS = 12  # of the range from there to 1, on a logarithmic scale


def disguised_circuit(
    c: CompiledCircuit, *, seed: int, rotate: bool, compress: bool, within: float | None
) -> Disguised:
    """See CompiledCircuit.disguised."""
    if require_whole("seed", seed) < 0:
        raise ProvenformerError(f"seed={seed} is negative; give a whole number from 0 up.")
    sizes = channel_sizes(c)
    plain = bounded(c, disguise(c.network, seed, rotate, compress), sizes)
    if within is None:
        return plain
    limit = require_tolerance(within)
    if not plain.bounds["float64"] <= limit:
        raise ProvenformerError(
            f"without noise the bound is {plain.bounds['float64']:.3g} already (within={limit:g}); allow more, or compile with a "
            "smaller tolerance."
        )
    low, high, best = SMALLEST_NOISE, 0.0, plain
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried = bounded(c, with_noise(plain, 2.0**middle, seed), sizes)
        if tried.bounds["float64"] <= limit:
            low, best = middle, tried
        else:
            high = middle
    return best


def bounded(c: CompiledCircuit, disguised: Disguised, sizes: dict[int, FloatArray]) -> Disguised:
    """With bounds on the distance from the target: that of the circuit in real arithmetic, and how far this is from that."""
    whole = entries_factor(c.target, c.norm_order)
    x = np.maximum(np.abs(c.target.low), np.abs(c.target.high))
    added = {name: drift(c.network, sizes, disguised, x, name) * whole for name in PRECISIONS}
    return replace(disguised, bounds={name: c.certificate.bounds["float64"] + value for name, value in added.items()})


def channel_sizes(c: CompiledCircuit) -> dict[int, FloatArray]:
    """(D,) after so many layers: the largest |number| of every channel in real arithmetic, as the checker proves it."""
    sizes: dict[int, FloatArray] = {}

    def watch(layers: int, state: State) -> None:
        sizes[layers] = state.size[:, 0].copy()

    circuit_bound(c.network, c.traced.graph, c.traced.outputs, c.target.low, c.target.high, watch)
    return sizes
