"""The attention half of a block, one written channel at a time. Rules and proofs: docs/circuits-verify.md."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, combine, difference, hull, inner, largest, mixed, of_lin
from provenformer.checker.circuit.precision import CAST, ELEMENTARY, LARGEST, UNIT, gamma_of, sum_rounding
from provenformer.checker.circuit.scores import Products, score_gap
from provenformer.checker.circuit.softmax import largest_gap, movement, movement_of
from provenformer.checker.circuit.state import Channel, Reading, State
from provenformer.networks.circuit import Head
from provenformer.symbols.graph import Attend, Graph, Largest


@dataclass(frozen=True, eq=False)
class Scores:
    """What a head's queries and keys stand for. Every bound that does not depend on what is written."""

    where: str
    head: Head
    state: State
    queries: list[Reading]  # without the bias
    keys: list[Reading]

    @classmethod
    def of(cls, where: str, head: Head, state: State) -> Scores:
        return cls(where, head, state, [state.read(row) for row in head.W_Q], [state.read(row) for row in head.W_K])

    @property
    def positional(self) -> bool:
        """Whether they depend on positions alone."""
        return all(r.value.is_constant for r in (*self.queries, *self.keys))

    @cached_property
    def query_values(self) -> list[Combination]:
        return [
            Combination(r.value.parts, r.value.constant + bias, r.value.slack)
            for r, bias in zip(self.queries, self.head.b_Q, strict=True)
        ]

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Which products query times key are of numbers known beforehand."""
        pairs = zip(self.queries, self.keys, strict=True)
        return np.array([q.value.is_constant and k.value.is_constant for q, k in pairs], dtype=bool)

    @cached_property
    def sizes(self) -> tuple[FloatArray, FloatArray]:
        """Of the known products, (query, key): the sum of their absolute terms, and how many are not exactly 0."""
        head, state = self.head, self.state
        constants = np.abs(np.broadcast_to(state.constants, (len(state.channels), state.seq_len)))
        q = np.abs(head.W_Q[self.known]) @ constants + np.abs(head.b_Q[self.known, None])
        k = np.abs(head.W_K[self.known]) @ constants
        if (q == q[:, :1]).all():
            q = q[:, :1]
        return q.T @ k, (q != 0).astype(np.float64).T @ (k != 0).astype(np.float64)

    @cached_property
    def roundings(self) -> FloatArray:
        """(arithmetics,): roundings in a row that a product of two weighted sums, and the sum of such, can suffer."""
        nonzero = [int(np.count_nonzero(w, axis=1).max(initial=0)) for w in (self.head.W_Q, self.head.W_K)]
        terms = int(self.sizes[1].max(initial=0.0)) + int(np.count_nonzero(~self.known))
        return np.asarray(sum(nonzero) + terms + 10 + 4 * CAST)

    @cached_property
    def moved(self) -> FloatArray:
        """(arithmetics,): how far execution may move any score from the exact one, up to what all keys of a query share.

        q~ k~ - q k = (q~ - q)(k~ - m) + q (k~ - k) + (q~ - q) m, and the last term is shared: m is the middle of k's range.
        """
        ranges = self.state.ranges
        total, size = np.zeros(len(UNIT)), np.full(len(UNIT), float(self.sizes[0].max(initial=0.0)))
        total = total + 2 * gamma_of(self.roundings) * size
        for r in np.flatnonzero(~self.known):
            query, value, key, bias = self.queries[r], self.query_values[r], self.keys[r], self.head.b_Q[r]
            q, (low, high) = largest(value, ranges), hull(key.value, ranges)
            k, half = max(abs(low), abs(high)), (high - low) / 2
            e_q = query.error.plain + query.rounding + (2 + 2 * CAST) * UNIT * (q + abs(bias) + query.error.plain)
            e_k = key.error.plain + key.rounding
            total = total + e_q * (half + e_k) + q * e_k
            size = size + (q + e_q) * (k + e_k)
        # the sum of products, and the largest score subtracted before exp
        total = total + (2 * gamma_of(self.roundings) + 4 * UNIT) * size
        return np.where((UNIT == 0) | (size <= LARGEST), total, np.inf)

    @cached_property
    def matrix(self) -> tuple[FloatArray, FloatArray]:
        """Positional scores: the softmax weights (query, key), one row if all are equal, and their total variation as executed."""
        head, state, n = self.head, self.state, self.state.seq_len
        known = np.broadcast_to(state.constants, (len(state.channels), n))
        q, k = head.W_Q @ known + head.b_Q[:, None], head.W_K @ known
        size = self.sizes[0]
        if len(size) == 1:
            q = q[:, :1]
        scores = np.broadcast_to(q.T @ k, (len(size), n))
        spare = scores - scores.max(axis=1, keepdims=True)
        weights = np.exp(spare)
        weights = (weights / weights.sum(axis=1, keepdims=True, dtype=np.longdouble)).astype(np.float64)
        size = size + np.abs(scores) + np.abs(scores).max(axis=1, keepdims=True)
        units = 2 * gamma_of(self.roundings)
        units[0] = 2 * (self.roundings[0] + 4) * 2.0**-53 if spare.any() else 0.0  # of the scores as computed here
        moved = np.array([movement_of(weights, np.minimum(u * size, 700.0)) for u in units])
        own = 16 * 2.0**-53 if spare.any() else 2.0**-53  # exp to four units in the last place, or of 0
        return weights, np.where((UNIT == 0) | (size.max() <= LARGEST), moved + (UNIT > 0) * moved[0] + own, np.inf)

@dataclass(frozen=True, eq=False)
class Values:
    """What a head adds to one channel before its weights are known: a combination at every key."""

    reading: Reading
    computing: FloatArray  # (arithmetics,): exp, sums, division and products, in any order

    @classmethod
    def of(cls, scores: Scores, channel: int) -> Values:
        head, state = scores.head, scores.state
        used = head.W_O[channel]
        row = used @ head.W_V
        size = (np.abs(used) @ np.abs(head.W_V)) @ state.size
        longest = int(np.count_nonzero(head.W_V[used != 0], axis=1).max(initial=0))
        count = 2 * state.seq_len + ELEMENTARY + longest + int(np.count_nonzero(used)) + 12
        reading = state.read(row)
        own = (len(used) + 2) * 2.0**-53 * size[0]  # of the product W_O W_V as computed here
        return cls(reading, sum_rounding(count, size * (1 + 1e-9)) + own)

    def spread(self, state: State) -> FloatArray:
        """The range of the executed values."""
        low, high = hull(self.reading.value, state.ranges)
        return high - low + 2 * self.reading.error.plain


def write_mixture(heads: list[Scores], channel: int, claim: Combination) -> Channel:
    """Heads that look at positions alone: what they add is linear, and is compared with the claim coefficient by coefficient."""
    state = heads[0].state
    ranges, before = state.ranges, state.channels[channel]
    total, error, extra = before.holds, Error.absolute(before.error.plain), np.zeros(len(UNIT))
    for scores in heads:
        values = Values.of(scores, channel)
        weights, variation = scores.matrix
        total = combine([(1.0, total), (1.0, mixed(weights, values.reading.value, ranges))], ranges)
        extra = extra + variation * values.spread(state) + values.computing
        alone = len(heads) == 1 and before.holds.is_constant
        error = values.reading.error.plus(error.plain) if alone else error.plus(values.reading.error.plain)
    extra = extra * (1 + error.rho.max(axis=0))  # what is relative is so to the exact mixture
    gap = largest(difference(total.without_constant(), claim, ranges), ranges)
    size = largest(total, ranges) + error.plain + state.size[channel]
    error = error.plus(extra + gap + sum_rounding(len(heads) + 2, size))
    return Channel(Combination(claim.parts, total.constant, claim.slack), error)


def write_attention(scores: Scores, channel: int, operation: Attend, claim: Combination, graph: Graph) -> Channel:
    """Softmax of scores that depend on the input."""
    state = scores.state
    values = Values.of(scores, channel)
    wanted = of_lin(operation.values, state.ranges, graph.seq_len)
    offset, gap = _offset(values.reading.value, wanted, state)
    queries, keys = ([of_lin(lin, state.ranges, graph.seq_len) for lin in part] for part in (operation.queries, operation.keys))
    found = Products(scores.query_values, [r.value for r in scores.keys])
    apart = score_gap(found, Products(queries, keys), operation.bias, state.ranges, graph.seq_len)
    variation = movement(scores.moved + apart.shift) + apart.tail_wanted + apart.tail_found * np.exp(2 * scores.moved)
    error = values.reading.error.plain + gap + np.minimum(variation, 1.0) * values.spread(state) + values.computing
    return _written(state, channel, claim, offset, error)


def write_largest(scores: Scores, channel: int, operation: Largest, claim: Combination, graph: Graph) -> Channel:
    """Softmax of a multiple of the values themselves: close to their maximum, from below."""
    state, n = scores.state, graph.seq_len
    ranges = state.ranges
    if not all(q.is_constant and (q.constant == q.constant[0]).all() for q in scores.query_values):
        raise Rejected(f"{scores.where}: the query of a maximum must be the same number at every token")
    wanted = of_lin(operation.of, ranges, n)
    key = combine([(float(q.constant[0]), k.value) for q, k in zip(scores.query_values, scores.keys, strict=True)], ranges)
    norm = inner(wanted, wanted, n)
    sharpness = inner(key, wanted, n) / norm if norm else 0.0
    if not (np.isfinite(sharpness) and sharpness > 0):
        raise Rejected(f"{scores.where}: its keys do not grow with the values whose maximum it takes")
    low, high = hull(difference(key, combine([(sharpness, wanted)], ranges), ranges), ranges)
    apart = scores.moved + (high - low) / 2 + sharpness * wanted.slack
    values = Values.of(scores, channel)
    offset, gap = _offset(values.reading.value, wanted, state)
    below = largest_gap(n, apart) / sharpness * (1 + 1e-12)
    error = values.reading.error.plain + gap + below + values.computing
    return _written(state, channel, claim, offset, error)


def _offset(value: Combination, wanted: Combination, state: State) -> tuple[float, float]:
    """A number c and a bound of |value - wanted - c|."""
    gap = difference(value, wanted, state.ranges)
    offset = float(gap.constant.max() + gap.constant.min()) / 2
    rest = Combination(gap.parts, gap.constant - offset, gap.slack)
    return offset, largest(rest, state.ranges)


def _written(state: State, channel: int, claim: Combination, offset: float, error: FloatArray) -> Channel:
    """A channel that held a known number, after something was added to it."""
    before = state.channels[channel]
    error = error + largest(before.holds.without_constant(), state.ranges) + before.error.plain
    size = largest(claim, state.ranges) + abs(offset) + error + state.size[channel]
    constant = before.holds.constant + offset
    return Channel(Combination(claim.parts, constant, claim.slack), Error.absolute(error + sum_rounding(4, size)))
