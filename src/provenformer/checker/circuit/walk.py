"""The walk through a circuit network: layer by layer, channel by channel, from the weights, the graph and the witness alone.

Invariant: before every layer, each channel's executed number is within its error of what it holds, at every token, for every
input of the box, in real arithmetic, float64 and float32. A layer may write only channels for which the witness claims what
they hold afterwards, and the claim is proved from the weights by one of the rules of docs/circuits-verify.md. A wrong claim
fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.folds import write_folded
from provenformer.checker.circuit.gates import write_gates
from provenformer.checker.circuit.heads import Scores, write_attention, write_gathered, write_largest, write_mixture
from provenformer.checker.circuit.kernels import write_pair_mean
from provenformer.checker.circuit.limits import overflow, require_moderate_weights
from provenformer.checker.circuit.linear import Combination, Ranges, atom_combination, difference, largest, of_lin
from provenformer.checker.circuit.pairs import write_comparison, write_product
from provenformer.checker.circuit.precision import ARITHMETICS, CAST, TINY, UNIT, sum_rounding
from provenformer.checker.circuit.ranges import ranges_of
from provenformer.checker.circuit.state import Channel, State
from provenformer.checker.circuit.sums import write_pair_sum
from provenformer.checker.circuit.units import Written, write_bias, write_scaled, write_table
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim
from provenformer.symbols.graph import Apply, Attend, Compare, Graph, Largest, Lin, PairMean, PairSum, Pieces, Product


@dataclass(frozen=True)
class CircuitBound:
    """sup |f - g| over the box and all entries: of the weights in real arithmetic, and as executed."""

    exact: float
    float64: float
    float32: float


def circuit_bound(
    network: CircuitNetwork, graph: Graph, outputs: list[Lin], low: FloatArray, high: FloatArray,
    watch: Callable[[int, State], object] = lambda _layers, _state: None,
) -> CircuitBound:  # fmt: skip
    """The bound that follows from the weights, or Rejected with block, channel and rule.

    `watch` is called with the number of layers and the state at the start and after every layer.
    """
    d, n = network.token_dim, network.seq_len
    if (graph.token_dim, graph.seq_len, len(outputs)) != (d, n, d):
        raise Rejected("the formula and the network have different sizes")
    ranges = ranges_of(graph, low, high)
    claims = _claims(network, graph)
    with np.errstate(all="ignore"):  # an arithmetic that overflows has an infinite bound, or none: both fail
        beyond = require_moderate_weights(network)
        state = _start(network, ranges)
        watch(0, state)
        for b, block in enumerate(network.circuit_blocks):
            beyond = beyond + overflow(f"block {b}", block, state)
            state = _after_heads(network, graph, b, block, state, claims.pop(2 * b + 1, {}))
            watch(2 * b + 1, state)
            beyond = beyond + overflow(f"block {b}", block, state)
            state = _after_units(network, graph, b, block, state, claims.pop(2 * b + 2, {}))
            watch(2 * b + 2, state)
        if claims:
            raise Rejected(f"the witness makes claims after layer {min(claims)}, where the network has no layer")
        beyond = beyond + overflow("readout", CircuitBlock((), *_readout_as_units(network)), state)
        worst = np.max([_readout(network, row, lin, state, graph) for row, lin in enumerate(outputs)], axis=0) + beyond
    worst = np.where(np.isnan(worst), np.inf, worst)
    worst[0] = min(worst[0], worst[1])  # real arithmetic is an execution whose roundings are all 0
    if not np.isfinite(worst[0]):
        raise Rejected("no finite bound follows from these weights")
    return CircuitBound(**dict(zip(ARITHMETICS, map(float, worst), strict=True)))


def _claims(network: CircuitNetwork, graph: Graph) -> dict[int, dict[int, Claim]]:
    """By layer and channel; malformed ones are rejected here."""
    found: dict[int, dict[int, Claim]] = {}
    for i, claim in enumerate(network.witness):
        numbers = (claim.channel, claim.layers, claim.atom)
        if any(isinstance(v, bool) or not isinstance(v, int) for v in numbers):
            raise Rejected(f"claim {i} of the witness does not name channel, layer and atom by number")
        if not (0 <= claim.channel < network.model_dim and claim.layers > 0 and 0 <= claim.atom < len(graph.atoms)):
            raise Rejected(f"claim {i} of the witness names a channel, layer or atom that does not exist")
        n = network.seq_len
        if claim.rows is not None and claim.rows.shape not in {(1, n), (n, n), (n,)}:
            raise Rejected(f"claim {i} of the witness has a matrix of shape {claim.rows.shape}")
        of_layer = found.setdefault(claim.layers, {})
        if claim.channel in of_layer:
            raise Rejected(f"the witness claims two values for channel {claim.channel} after layer {claim.layers}")
        of_layer[claim.channel] = claim
    return found


def _start(network: CircuitNetwork, ranges: Ranges) -> State:
    """Inputs and positions; in float32 both are rounded, and their sum."""
    channels = []
    for c, positions in enumerate(network.positions):
        known = positions[:1].copy() if (positions == positions[0]).all() else positions
        size = float(np.abs(positions).max())
        cast = np.abs(positions - positions.astype(np.float32).astype(np.float64)).max()
        error = CAST * cast
        holds = Combination({}, known)
        if c < network.token_dim:
            holds = Combination(atom_combination(c, ranges).parts, known)
            reach = size + ranges.size(c)
            error = error + CAST * UNIT * ranges.size(c) + TINY + (UNIT * 2 * reach if size else 0.0)
        channels.append(Channel(holds, Error.absolute(error), fixed=c >= network.token_dim))
    return State(tuple(channels), ranges, network.seq_len)


def _name(network: CircuitNetwork, block: int, channel: int) -> str:
    names = network.channel_names
    return f"block {block}, channel {channel}" + (f" ({names[channel]})" if channel < len(names) else "")


def _require_claims(network: CircuitNetwork, block: int, by: str, written: set[int], claims: dict[int, Claim]) -> None:
    for channel in sorted(written - claims.keys()):
        raise Rejected(f"{_name(network, block, channel)}: {by} write it, but the witness claims nothing for it there")
    for channel in sorted(claims.keys() - written):
        raise Rejected(f"{_name(network, block, channel)}: the witness claims that {by} write it, but they do not")


def _replaced(state: State, new: dict[int, Channel]) -> State:
    if not new:
        return state
    return State(tuple(new.get(c, channel) for c, channel in enumerate(state.channels)), state.ranges, state.seq_len)


def _claimed(state: State, claim: Claim) -> Combination:
    return atom_combination(claim.atom, state.ranges, claim.rows)


def _after_heads(
    network: CircuitNetwork, graph: Graph, b: int, block: CircuitBlock, state: State, claims: dict[int, Claim]
) -> State:
    written = {int(c) for head in block.heads for c in np.flatnonzero(head.W_O.any(axis=1))}
    _require_claims(network, b, "heads", written, claims)
    scores = [Scores.of(f"block {b}, head {k}", head, state) for k, head in enumerate(block.heads)]
    new: dict[int, Channel] = {}
    known: dict[object, Channel] = {}
    for c in sorted(written):
        where = _name(network, b, c)
        writing = [one for one in scores if one.head.W_O[c].any()]
        claim, operation = claims[c], graph.atoms[claims[c].atom].operation
        combination = _claimed(state, claim)
        if all(one.positional for one in writing) and (
            claim.rows is not None or not isinstance(operation, Attend | Largest)
        ):
            alone = write_gathered(writing[0], c, combination, known) if len(writing) == 1 else None
            new[c] = alone or write_mixture(where, writing, c, combination)
            continue
        if claim.rows is not None or len(writing) != 1 or not isinstance(operation, Attend | Largest):
            raise Rejected(
                f"{where}: {len(writing)} heads whose scores depend on the input write it; one must, and attend"
            )
        if isinstance(operation, Attend):
            new[c] = write_attention(writing[0], c, operation, combination, graph)
        else:
            new[c] = write_largest(writing[0], c, operation, combination, graph)
    return _replaced(state, new)


def _after_units(
    network: CircuitNetwork, graph: Graph, b: int, block: CircuitBlock, state: State, claims: dict[int, Claim]
) -> State:
    written = {int(c) for c in np.flatnonzero(block.W_2.any(axis=1) | (block.b_2 != 0))}
    _require_claims(network, b, "units", written, claims)
    new = write_gates(block, state, claims)
    for c in sorted(written - new.keys()):
        units = Written.of(_name(network, b, c), block, c, state, graph)
        operation, claim = graph.atoms[claims[c].atom].operation, _claimed(state, claims[c])
        before = state.channels[c]
        if not len(units.coefficients):
            new[c] = write_bias(units, claim)
        elif claims[c].rows is not None:
            new[c] = write_scaled(units, claim, before)
        elif isinstance(operation, Apply | Product) and operation.folded is not None:
            new[c] = write_folded(units, operation, claim, before)
        elif isinstance(operation, Apply | Pieces):
            new[c] = write_table(units, operation, claim, before)
        elif isinstance(operation, Product):
            new[c] = write_product(units, operation, claim, before)
        elif isinstance(operation, PairMean):
            new[c] = write_pair_mean(units, operation, claim, before)
        elif isinstance(operation, PairSum):
            new[c] = write_pair_sum(units, operation, claim, before)
        elif isinstance(operation, Compare):
            new[c] = write_comparison(units, operation, claim, before)
        else:
            raise Rejected(f"{units.where}: units cannot compute {type(operation).__name__}")
    return _replaced(state, new)


def _readout_as_units(network: CircuitNetwork) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """The readout as W_1, b_1 (and nothing after it), for the question whether it overflows."""
    size = network.model_dim
    return network.W_out, network.b_out, np.zeros((size, len(network.W_out))), np.zeros(size)


def _readout(network: CircuitNetwork, row: int, lin: Lin, state: State, graph: Graph) -> FloatArray:
    """|W_out state + b_out - f| in one row of the output."""
    wanted = of_lin(lin, state.ranges, graph.seq_len)
    reading = state.read(network.W_out[row])
    bias = float(network.b_out[row])
    value = Combination(reading.value.parts, reading.value.constant + bias, reading.value.slack)
    gap = largest(difference(value, wanted, state.ranges), state.ranges)
    size = np.abs(network.W_out[row]) @ state.size + abs(bias)
    rounding = sum_rounding(int(np.count_nonzero(network.W_out[row])) + 3, size) + 2.0**-52 * abs(bias)
    return np.asarray(reading.error.plain + gap + rounding)
