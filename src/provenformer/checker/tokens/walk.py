"""The walk through a token circuit: from weights, graph and witness to the largest error over all sequences.

Invariant: before every layer, at every token of every sequence of the alphabet, the executed number of each channel is
within its error of a
known number plus at most one atom of the graph, a whole number. A layer may write only channels for which the witness claims
an atom, and the claim is
proved from the weights at the whole numbers that its arguments can be. No sequence is listed: docs/tokens.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from provenformer.base.errors import Rejected
from provenformer.checker.tokens.heads import after_heads
from provenformer.checker.tokens.ranges import Ranges, ranges_of
from provenformer.checker.tokens.state import LARGEST, OWN, SMALLEST, Fresh, State, combination, read
from provenformer.checker.tokens.units import after_units
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Head
from provenformer.symbols.tokens.graph import Lin, TokenGraph

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24}


@dataclass(frozen=True)
class TokenBound:
    """Largest |output - program| over all sequences and tokens, as executed; infinite where nothing follows."""

    float64: float
    float32: float


Watch = Callable[[str, int, State], None]  # precision, layers so far, and what channels hold after them


def token_bound(network: CircuitNetwork, graph: TokenGraph, output: Lin, watch: Watch | None = None) -> TokenBound:
    """The bound that follows from the weights, or Rejected with block, channel and rule."""
    if network.token_dim != 1 or network.seq_len != graph.seq_len:
        raise Rejected("the program and the network have different sizes")
    if network.kernel_steps or any(claim.rows is not None for claim in network.witness):
        raise Rejected("the witness is that of a formula, not of a program on tokens")
    ranges = ranges_of(graph)
    found = {}
    with np.errstate(all="ignore"):  # what overflows has no bound, and fails
        for name, unit in UNITS.items():
            try:
                seen = partial(watch, name) if watch else lambda _layers, _state: None
                error = walk(rounded(network, name), graph, output, ranges, unit, seen)
            except Rejected:
                if name == "float64":
                    raise
                error = np.inf
            found[name] = error if np.isfinite(error) else np.inf
    if not np.isfinite(found["float64"]):
        raise Rejected("no finite bound follows from these weights")
    return TokenBound(**found)


def walk(
    network: CircuitNetwork,
    graph: TokenGraph,
    output: Lin,
    ranges: Ranges,
    unit: float,
    watch: Callable[[int, State], None],
    fresh: Fresh | None = None,
) -> float:
    """The largest error of an output, executed with this unit roundoff; `watch` is shown the state after every layer."""
    claims = _claims(network, graph)
    holds = np.full(network.model_dim, -1)
    holds[0] = 0
    state = State(network.positions.copy(), holds, np.zeros(network.model_dim), ranges, unit, fresh)
    if network.positions[0].any():
        raise Rejected("the channel of the tokens has positions")
    watch(0, state)
    for b, block in enumerate(network.circuit_blocks):
        after_heads(graph, block, state, claims.pop(2 * b + 1, {}), f"block {b}")
        state.require_moderate(f"block {b}, heads")
        watch(2 * b + 1, state)
        after_units(graph, block, state, claims.pop(2 * b + 2, {}), f"block {b}")
        state.require_moderate(f"block {b}, units")
        watch(2 * b + 2, state)
    if claims:
        raise Rejected(f"the witness makes claims after layer {min(claims)}, where the network has no layer")
    reading = read(state, network.W_out, network.b_out)
    known, atoms = combination(output, len(graph.atoms))
    apart = reading.against(0, known / output.den, atoms / output.den, ranges).max()
    return float((apart + reading.error[0].max()) * (1 + 1e-9) + 8 * OWN * reading.size.max())


def _claims(network: CircuitNetwork, graph: TokenGraph) -> dict[int, dict[int, int]]:
    """By layer and channel."""
    found: dict[int, dict[int, int]] = {}
    for i, claim in enumerate(network.witness):
        numbers = (claim.channel, claim.layers, claim.atom)
        if any(isinstance(v, bool) or not isinstance(v, int) for v in numbers):
            raise Rejected(f"claim {i} of the witness does not name channel, layer and atom by number")
        if not (0 <= claim.channel < network.model_dim and claim.layers > 0 and 0 <= claim.atom < len(graph.atoms)):
            raise Rejected(f"claim {i} of the witness names what is not there")
        at = found.setdefault(claim.layers, {})
        if claim.channel in at:
            raise Rejected(f"two claims of the witness are about channel {claim.channel} after {claim.layers} layers")
        at[claim.channel] = claim.atom
    return found


def rounded(network: CircuitNetwork, name: str) -> CircuitNetwork:
    """The network with the weights of an arithmetic."""

    def cast(array: np.ndarray) -> np.ndarray:
        size = np.abs(array)
        if not ((size == 0) | ((size >= SMALLEST) & (size <= LARGEST))).all():
            raise Rejected("a weight that is not 0 is below 2^-60 or above 2^60")
        return array.astype(name).astype(np.float64)

    blocks = tuple(
        CircuitBlock(
            tuple(Head(*(cast(v) for v in head.weights().values())) for head in block.heads),
            *(cast(v) for v in block.weights().values()),
        )
        for block in network.circuit_blocks
    )
    return CircuitNetwork(
        1, network.seq_len, blocks, cast(network.positions), cast(network.W_out), cast(network.b_out), network.channel_names,
        network.witness,
    )  # fmt: skip
