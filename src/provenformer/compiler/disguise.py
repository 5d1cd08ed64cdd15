"""A compiled circuit in disguise, with what can still be promised of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.certificates.drift import drift
from provenformer.checker.circuit.state import State
from provenformer.checker.circuit.walk import circuit_bound
from provenformer.checker.tokens.disguised import disguised_bound
from provenformer.checker.tokens.ranges import ranges_of
from provenformer.compiler.request import require_tolerance, require_whole
from provenformer.functions.distance import entries_factor
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.disguise import Disguised, DisguisedCircuit, Kind, disguise, with_noise

if TYPE_CHECKING:
    from provenformer.compiler.circuit import CompiledCircuit
    from provenformer.compiler.programs import ProgramCircuit

PRECISIONS = ("float64", "float32")
SMALLEST_NOISE = -60.0  # a power of two, relative to the largest weight of a matrix
HALVINGS = 12  # of the range from there to 1, on a logarithmic scale


def disguised_circuit(
    c: CompiledCircuit, *, seed: int, rotate: bool, compress: bool, within: float | None
) -> DisguisedCircuit:
    """See CompiledCircuit.disguised."""
    sizes = channel_sizes(c)
    made = _disguised(c.network, lambda made: bounded(c, made, sizes), seed, rotate, compress, within)
    return DisguisedCircuit(**vars(made))


def disguised_program(c: ProgramCircuit, *, seed: int, rotate: bool, compress: bool, within: float | None) -> Disguised:
    """See CompiledTokens.disguised."""
    graph, output, ranges = c.traced.graph, c.traced.output, ranges_of(c.traced.graph)
    half = 0.5 / output.den  # of the distance of neighbouring outputs
    if within is not None and not require_tolerance(within) < half:
        raise ProvenformerError(
            f"within={within:g} is not below {half:g}, half the distance of neighbouring outputs; allow less."
        )
    made = _disguised(
        c.network,
        lambda made: replace(made, bounds=vars(disguised_bound(c.network, made, graph, output, ranges))),
        seed,
        rotate,
        compress,
        half if within is None else within,
        noisy=within is not None,
    )
    return replace(made, bounds={name: bound for name, bound in made.bounds.items() if bound < half})


def _disguised(
    network: CircuitNetwork,
    with_bounds: Callable[[Disguised], Disguised],
    seed: int,
    rotate: bool,
    compress: bool,
    within: float | None,
    noisy: bool = True,
) -> Disguised:
    """The network in disguise, with bounds; with as much noise as keeps them `within`, where that is asked for."""
    if require_whole("seed", seed) < 0:
        raise ProvenformerError(f"seed={seed} is negative; give a whole number from 0 up.")
    plain = with_bounds(disguise(network, seed, rotate, compress))
    if within is None:
        return plain
    limit = require_tolerance(within)
    if not plain.bounds["float64"] <= limit:
        raise ProvenformerError(
            f"without noise the bound is {plain.bounds['float64']:.3g} already (within={limit:g}); allow more, or compile with a "
            "smaller tolerance."
        )
    low, high, best = SMALLEST_NOISE, 0.0, plain
    for _ in range(HALVINGS if noisy else 0):
        middle = (low + high) / 2
        tried = with_bounds(with_noise(plain, 2.0**middle, seed))
        if tried.bounds["float64"] <= limit:
            low, best = middle, tried
        else:
            high = middle
    return best


def bounded(c: CompiledCircuit, disguised: Kind, sizes: dict[int, FloatArray]) -> Kind:
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
