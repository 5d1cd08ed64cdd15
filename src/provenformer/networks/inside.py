"""What happens inside a circuit network on given sequences: channels by name, and what every head looks at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from provenformer.base.arrays import FloatArray, require_sequences
from provenformer.networks.circuit import CircuitNetwork, Head


def distinct_names(network: CircuitNetwork) -> tuple[str, ...]:
    """The names of the channels, with the channel's number where two have the same."""
    names = network.channel_names
    return tuple(name if names.count(name) == 1 else f"{name} ({c})" for c, name in enumerate(names))


def layer_states(network: CircuitNetwork, x: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """How many layers, two per block, and all channels (batch, D, n) after them: at the start and after every layer there is."""
    states = network.states(x, every_attention_layer=True)
    yield 0, next(states).values
    for b, block in enumerate(network.circuit_blocks):
        for layers in [2 * b + 1] * bool(block.heads) + [2 * b + 2]:
            yield layers, next(states).values


def named_states(network: CircuitNetwork, x: FloatArray) -> Iterator[dict[str, FloatArray]]:
    """At the start and after every block, each channel (..., n) by its name, for sequences (..., d, n)."""
    x = require_sequences(x, network.token_dim, network.seq_len)
    shape, names = (*x.shape[:-2], x.shape[-1]), distinct_names(network)
    for state in network.states(x.reshape(-1, *x.shape[-2:])):
        yield {name: state.values[:, c].reshape(shape) for c, name in enumerate(names)}


def patterns(network: CircuitNetwork, x: FloatArray) -> Iterator[FloatArray]:
    """Per block the weights (..., heads, query, key) for sequences (..., d, n); those of a query add up to 1."""
    x = require_sequences(x, network.token_dim, network.seq_len)
    shape, n = x.shape[:-2], network.seq_len
    states = network.states(x.reshape(-1, *x.shape[-2:]))
    for block, state in zip(network.circuit_blocks, states, strict=False):  # the last state is the result
        found = [pattern(head, state.values) for head in block.heads]
        stacked = np.stack(found, axis=1) if found else np.zeros((len(state.values), 0, n, n))
        yield stacked.reshape(*shape, len(found), n, n)


def pattern(head: Head, state: FloatArray) -> FloatArray:
    """(batch, query, key) for states (batch, D, n)."""
    queries, keys = head.W_Q @ state + head.b_Q[:, None], head.W_K @ state
    scores = np.swapaxes(queries, 1, 2) @ keys
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))
