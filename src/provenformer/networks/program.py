"""A circuit network ready to run in one precision: what weights are 0 is not computed, what positions decide is computed once.

States are (D, batch, n), so that a weight matrix meets all tokens of all sequences at once; steps change them in place. Heads and
units read and write a few channels each. Units of one table differ in sign and bias only, so what they read is computed once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray

if TYPE_CHECKING:
    from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Head

Array = NDArray[Any]  # float64, or float32 when a network is run in that
Step = Callable[[Array], None]  # changes a state
Look = Callable[[Array, Array], Array]  # state, values (v, batch, key) -> what every query gets (v, batch, query or 1)
MEMORY = 2**22  # numbers in the largest array of one pass: what is run at once is chosen by it
HIDDEN = 2**17  # numbers of hidden units at a time: they stay near the processor
LARGE = 1 << 16  # entries from which on a matrix is kept without its zeros,
SPARSE = 1 / 32  # if no larger share of them is something else
FEW_KEYS = 1 / 8  # share of keys that weigh something below which they are looked up one by one


@dataclass(frozen=True, eq=False)
class Program:
    """The blocks as steps, heads and units apart."""

    positions: Array
    token_dim: int
    blocks: list[tuple[Step, Step]]
    readout: Callable[[Array], Array]
    at_once: int  # sequences

    @classmethod
    def of(cls, network: CircuitNetwork, dtype: np.dtype[Any]) -> Self:
        positions, constant = network.positions.astype(dtype), network.constant_channels
        blocks = [
            (_attention(block, positions, constant, dtype), _feed_forward(block, dtype))
            for block in network.circuit_blocks
        ]
        W_out, b_out = _Reads.of(network.W_out, dtype), network.b_out.astype(dtype)[:, None, None]
        attends = network.seq_len if any(block.heads for block in network.circuit_blocks) else 1
        at_once = max(1, MEMORY // (max(network.model_dim, attends) * network.seq_len))
        return cls(positions, network.token_dim, blocks, lambda state: W_out(state) + b_out, at_once)

    def run(self, batch: FloatArray) -> FloatArray:
        """(batch, d, n) to the same; a large batch in parts, on all cores."""
        parts = [batch[i : i + self.at_once] for i in range(0, len(batch), self.at_once)]
        workers = min(len(parts), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
        if workers <= 1:
            found = [self.output(self.start(part)) for part in parts]
        else:
            with ThreadPoolExecutor(workers) as pool:
                found = list(pool.map(lambda part: self.output(self.start(part)), parts))
        return np.asarray(np.concatenate(found) if found else batch, dtype=np.float64)

    def start(self, x: FloatArray) -> Array:
        """(D, batch, n) from (batch, d, n)."""
        state = np.repeat(self.positions[:, None, :], len(x), axis=1)
        state[: self.token_dim] += x.swapaxes(0, 1).astype(state.dtype)
        return state

    def output(self, state: Array, first: int = 0) -> Array:
        """(batch, d, n) from a state before block `first`, which is used up."""
        for steps in self.blocks[first:]:
            for step in steps:
                step(state)
        return self.readout(state).swapaxes(0, 1)


@dataclass(frozen=True, eq=False)
class _Reads:
    """A weight matrix on the channels that it reads."""

    channels: NDArray[np.int64]
    weights: Any  # an array, or a sparse one

    @classmethod
    def of(cls, matrix: FloatArray, dtype: np.dtype[Any]) -> Self:
        channels = np.flatnonzero(matrix.any(axis=0))
        return cls(channels, _packed(matrix[:, channels].astype(dtype)))

    def __call__(self, state: Array) -> Array:
        """(rows, batch, n) from (D, batch, n)."""
        return _product(self.weights, state[self.channels])


@dataclass(frozen=True, eq=False)
class _Writes:
    """A weight matrix on the channels that it writes."""

    channels: NDArray[np.int64]
    weights: Any  # an array, or a sparse one

    @classmethod
    def of(cls, matrix: FloatArray, dtype: np.dtype[Any]) -> Self:
        channels = np.flatnonzero(matrix.any(axis=1))
        return cls(channels, _packed(matrix[channels].astype(dtype)))

    def __call__(self, values: Array) -> Array:
        """What is added to those channels, (channels, batch, n or 1) from (columns, batch, n or 1)."""
        return _product(self.weights, values)


def _packed(matrix: Array) -> Any:
    """Large matrices that are nearly all zeros without these, as when every token is gathered."""
    if matrix.size < LARGE or np.count_nonzero(matrix) > SPARSE * matrix.size:
        return matrix
    from scipy.sparse import csr_array  # takes long to load, and few networks need it  # noqa: PLC0415

    return csr_array(matrix)


def _product(weights: Any, values: Array) -> Array:
    """weights @ values along the first axis of (columns, batch, n); either may have no rows."""
    batch, n = values.shape[1:]
    return np.asarray(weights @ values.reshape(len(values), batch * n)).reshape(weights.shape[0], batch, n)


def _feed_forward(block: CircuitBlock, dtype: np.dtype[Any]) -> Step:
    """state += W_2 relu(W_1 state + b_1) + b_2, some units at a time."""
    rows, sign, which = directions(block.W_1)
    reads, writes = _Reads.of(rows, dtype), _Writes.of(block.W_2, dtype)
    signs, b_1 = sign.astype(dtype)[:, None, None], block.b_1.astype(dtype)[:, None, None]
    biased = np.flatnonzero(block.b_2)
    b_2 = block.b_2[biased].astype(dtype)[:, None, None]

    def step(state: Array) -> None:
        if len(b_1):
            read = reads(state)
            count = max(1, HIDDEN // max(1, read[0].size))
            total = np.zeros((len(writes.channels), *state.shape[1:]), dtype=dtype)
            for i in range(0, len(b_1), count):
                hidden = read[which[i : i + count]]
                hidden *= signs[i : i + count]
                hidden += b_1[i : i + count]
                np.maximum(hidden, 0, out=hidden)
                total += _Writes(writes.channels, writes.weights[:, i : i + count])(hidden)
            state[writes.channels] += total
        state[biased] += b_2

    return step


def directions(W_1: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Rows that differ in more than sign, and of every unit its sign and which of them it reads: W_1 = sign * rows[which]."""
    if not W_1.size:
        return W_1, np.ones(len(W_1)), np.arange(len(W_1))
    first = np.argmax(W_1 != 0, axis=1)
    sign = np.where(W_1[np.arange(len(W_1)), first] < 0, -1.0, 1.0)
    known: dict[bytes, int] = {}
    used = W_1[:, W_1.any(axis=0)] * sign[:, None] + 0.0  # no negative zeros: equal rows have equal bytes
    which = np.array([known.setdefault(row.tobytes(), len(known)) for row in used])
    _, shown = np.unique(which, return_index=True)
    return W_1[shown] * sign[shown, None], sign, which


def _attention(block: CircuitBlock, positions: Array, constant: NDArray[np.bool_], dtype: np.dtype[Any]) -> Step:
    """state += what all heads give; all of them read the same state."""
    heads = [
        (_Reads.of(head.W_V, dtype), _look(head, positions, constant, dtype), _Writes.of(head.W_O, dtype))
        for head in block.heads
    ]

    def step(state: Array) -> None:
        found = [(writes, writes(look(state, values(state)))) for values, look, writes in heads]
        for writes, added in found:
            state[writes.channels] += added

    return step


def _look(head: Head, positions: Array, constant: NDArray[np.bool_], dtype: np.dtype[Any]) -> Look:
    """What queries get of values. Weights that depend on positions alone are the same for every sequence: they are kept."""
    reads_query, reads_key = _Reads.of(head.W_Q, dtype), _Reads.of(head.W_K, dtype)
    b_Q = head.b_Q.astype(dtype)[:, None, None]
    if not head.W_Q[:, ~constant].any() and not head.W_K[:, ~constant].any():
        at = positions[:, None, :]
        return _kept(_softmax(reads_query(at) + b_Q, reads_key(at))[0])
    if not head.W_Q.any():  # one query for all tokens
        return lambda state, values: _mixed(values, _softmax(b_Q.repeat(state.shape[1], 1), reads_key(state)))
    return lambda state, values: _mixed(values, _softmax(reads_query(state) + b_Q, reads_key(state)))


def _kept(weights: Array) -> Look:
    """Known weights (key, query): one column if all are equal; key by key if few of them are not 0."""
    if (weights == weights[:, :1]).all():
        column = weights[:, :1].copy()
        return lambda _, values: np.asarray(values @ column)
    counts = np.count_nonzero(weights, axis=0)
    most = int(counts.max())
    if most > FEW_KEYS * len(weights):
        return lambda _, values: np.asarray(values @ weights)
    query, key = np.nonzero(weights.T)
    nth = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)  # of the keys of its query
    keys, shares = np.zeros((most, weights.shape[1]), dtype=np.int64), np.zeros((most, weights.shape[1]), weights.dtype)
    keys[nth, query], shares[nth, query] = key, weights[key, query]

    def look(_: Array, values: Array) -> Array:
        total = values[..., keys[0]] * shares[0]
        for key, share in zip(keys[1:], shares[1:], strict=True):
            total += values[..., key] * share
        return np.asarray(total)

    return look


def _softmax(queries: Array, keys: Array) -> Array:
    """(batch, key, query) from (m, batch, query) and (m, batch, key)."""
    scores = np.matmul(keys.transpose(1, 2, 0), queries.transpose(1, 0, 2))
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return np.asarray(scores)


def _mixed(values: Array, weights: Array) -> Array:
    """(v, batch, query) from values (v, batch, key) and the weights of each sequence."""
    return np.asarray(np.matmul(values.transpose(1, 0, 2), weights).transpose(1, 0, 2))
