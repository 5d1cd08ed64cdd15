"""The attention half of a block, one written channel at a time. Rules and proofs: docs/circuits-verify.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.affine import affine_range
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, combine, difference, hull, inner, largest, mixed, of_lin
from provenformer.checker.circuit.precision import CAST, ELEMENTARY, LARGEST, TINY, UNIT, gamma_of, sum_rounding
from provenformer.checker.circuit.scores import Products, score_gap
from provenformer.checker.circuit.softmax import largest_gap, movement, movement_of
from provenformer.checker.circuit.state import Channel, Reading, State
from provenformer.networks.circuit import Head
from provenformer.symbols.graph import Attend, Graph, Largest

NO_WEIGHT = 2.0**-70  # keys below this weight are summed up separately: adding something tiny errs by no more than that

UNDERFLOWS = -746.0  # exp of anything below is 0


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
        return bool(self.known.all())

    @cached_property
    def query_values(self) -> list[Combination]:
        return [
            Combination(r.value.parts, r.value.constant + bias, r.value.slack)
            for r, bias in zip(self.queries, self.head.b_Q, strict=True)
        ]

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Which products query times key are of positions alone."""
        varying = self.state.varying
        reads = [w[:, varying].any(axis=1) for w in (self.head.W_Q, self.head.W_K)]
        return np.asarray(~(reads[0] | reads[1]), dtype=np.bool_)

    @cached_property
    def sizes(self) -> tuple[FloatArray, FloatArray]:
        """Of the known products, (query, key): the sum of their absolute terms, and how many roundings they suffer.

        Terms that are exactly 0 are added exactly.
        """
        head, state = self.head, self.state
        positions = np.broadcast_to(state.constants, (len(state.channels), state.seq_len))
        W_Q, W_K, b_Q = head.W_Q[self.known], head.W_K[self.known], head.b_Q[self.known, None]
        there = (positions != 0).astype(np.float64)
        q, k = np.abs(W_Q) @ np.abs(positions) + np.abs(b_Q), np.abs(W_K) @ np.abs(positions)
        each = [((W_Q != 0) @ there).max(initial=0.0), ((W_K != 0) @ there).max(initial=0.0)]
        if (q == q[:, :1]).all():
            q = q[:, :1]
        terms = (q != 0).astype(np.float64).T @ (k != 0).astype(np.float64)
        return q.T @ k, terms + sum(each) + 8

    def without_slack(self, combinations: list[Combination]) -> list[Combination]:
        """Known ones without their slack: their products have a bound of their own, entry by entry."""
        pairs = zip(combinations, self.known, strict=True)
        return [Combination(one.parts, one.constant) if known else one for one, known in pairs]

    @cached_property
    def roundings(self) -> FloatArray:
        """(arithmetics,): roundings in a row that a known product, and the sum of all products, can suffer."""
        return np.asarray(self.sizes[1].max(initial=8.0) + np.count_nonzero(~self.known) + 4 * CAST)

    @cached_property
    def flushed(self) -> FloatArray:
        """(arithmetics,): how far known products move when results too small for the arithmetic become 0."""
        head, known = self.head, self.known
        sizes = np.abs(self.state.constants).max(axis=1)
        q, k = np.abs(head.W_Q[known]) @ sizes + np.abs(head.b_Q[known]), np.abs(head.W_K[known]) @ sizes
        return np.asarray(2 * TINY * self.roundings * (1 + float(q.sum()) + float(k.sum())))

    @cached_property
    def moved(self) -> FloatArray:
        """(arithmetics,): how far execution may move any score from the exact one, up to what all keys of a query share.

        q~ k~ - q k = (q~ - q)(k~ - m) + q (k~ - k) + (q~ - q) m, and the last term is shared: m is the middle of k's range.
        """
        ranges = self.state.ranges
        total, size = np.zeros(len(UNIT)), np.full(len(UNIT), float(self.sizes[0].max(initial=0.0)))
        total = total + 2 * gamma_of(self.roundings) * size + self.flushed
        for r in np.flatnonzero(~self.known):
            query, value, key, bias = self.queries[r], self.query_values[r], self.keys[r], self.head.b_Q[r]
            q, (low, high) = max(map(abs, affine_range(value, ranges))), affine_range(key.value, ranges)
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
        """Positional scores: softmax weights (query, key), one row if all are equal, and how far they move as executed."""
        head, state, n = self.head, self.state, self.state.seq_len
        known = np.broadcast_to(state.constants, (len(state.channels), n))
        q, k = head.W_Q @ known + head.b_Q[:, None], head.W_K @ known
        size = self.sizes[0]
        if (q == q[:, :1]).all():  # with their signs: equal sizes are not enough
            q = q[:, :1]
        read = known[head.W_K.any(axis=0)]
        shared = bool((read == read[:, :1]).all())  # all keys read the same numbers, so their scores are equal
        scores = np.broadcast_to(q.T @ k[:, :1], (q.shape[1], n)) if shared else q.T @ k
        spare = scores - scores.max(axis=1, keepdims=True)
        weights, total = _normalised(spare)
        size = size + np.abs(scores) + np.abs(scores).max(axis=1, keepdims=True)
        units = 2 * gamma_of(self.roundings)
        here = 0.0 if shared else 2 * (self.roundings[0] + 4) * 2.0**-53  # of the scores as computed here
        logs = spare - np.log(total).astype(np.float64)
        pairs = zip(units + here, self.flushed, strict=True)
        moved = np.array([movement_of(logs, u * size + tiny) for u, tiny in pairs])
        own = 16 * 2.0**-53 if spare.any() else 2.0**-53  # exp to four units in the last place, or of 0
        return weights, np.where((UNIT == 0) | (size.max() <= LARGEST), moved + own, np.inf)

    @cached_property
    def summing(self) -> tuple[int, float]:
        """How many keys can matter to a sum over keys, and the weight of all others together."""
        if not self.positional:
            return self.state.seq_len, 0.0
        weights = self.matrix[0]
        matters = weights > NO_WEIGHT
        return int(matters.sum(axis=1).max()), float(np.where(matters, 0.0, weights).sum(axis=1).max()) * (1 + 1e-9)


def _normalised(spare: FloatArray) -> tuple[FloatArray, Any]:
    """exp(spare), each row divided by its sum, and the sums, in long numbers; the largest of every row of `spare` is 0."""
    query, key = np.nonzero(~(spare < UNDERFLOWS))  # exp of all others is 0
    powers = np.exp(spare[query, key]).astype(np.longdouble)
    total = np.add.reduceat(powers, np.searchsorted(query, np.arange(len(spare))))[:, None]
    weights = np.zeros(spare.shape)
    weights[query, key] = powers / total[query, 0]
    return weights, total


@dataclass(frozen=True, eq=False)
class Values:
    """What a head adds to one channel before its weights are known: a combination at every key."""

    reading: Reading
    computing: FloatArray  # (arithmetics,): exp, sums, division and products, in any order
    size: FloatArray  # (arithmetics,): the largest |number| that is added, all that cancels in it counted by its size
    share: float  # the largest weight of all tokens together at which the values may differ from 0

    @classmethod
    def of(cls, scores: Scores, channel: int) -> Values:
        head, state = scores.head, scores.state
        used, values = head.W_O[channel], head.W_V[head.W_O[channel] != 0]
        row = used[used != 0] @ values
        size = (np.abs(used[used != 0]) @ np.abs(values)) @ state.size
        longest = int(np.count_nonzero(values, axis=1).max(initial=0))
        keys, tail = scores.summing
        share, counted = _where_not_zero(scores, used, keys)
        # a head without queries adds n ones, which is exact
        normaliser = keys if len(head.b_Q) else 0
        count = normaliser + counted + ELEMENTARY + longest + int(np.count_nonzero(used)) + 12
        reading = state.read(row)
        own = (len(used) + 2) * 2.0**-53 * size[0]  # of the product W_O W_V as computed here
        if np.count_nonzero(used) == 1 and (np.abs(used).max() == 1 or np.count_nonzero(row) == 1):
            own = 0.0 if np.abs(used).max() == 1 else 2.0**-53 * size[0] * share  # it is a copy, or one product
        flushed = count * TINY * float(np.abs(used).sum())  # values that become 0, before W_O makes them larger
        beside = (
            4 * tail * size * (UNIT > 0)
        )  # of keys that hardly weigh: their weights may become 0, also behind a gate
        size = size * share * (1 + 1e-9)
        return cls(reading, sum_rounding(count, size) + flushed + beside + own, size, share)

    def spread(self, state: State) -> FloatArray:
        """The range of the executed values."""
        low, high = affine_range(self.reading.value, state.ranges)
        return high - low + 2 * self.reading.error.plain


def _where_not_zero(scores: Scores, used: FloatArray, keys: int) -> tuple[float, int]:
    """The weight of the tokens at which values may differ from 0, and how many there are: few, behind a gate."""
    reads = np.flatnonzero(scores.head.W_V[used != 0].any(axis=0))
    only = scores.state.channels[int(reads[0])].only if len(reads) == 1 else None
    if only is None or not scores.positional:
        return 1.0, keys
    share = float((scores.matrix[0] * only).sum(axis=1).max()) * (1 + 1e-12)
    return min(share, 1.0), min(keys, int(only.sum()))


def write_mixture(where: str, heads: list[Scores], channel: int, claim: Combination) -> Channel:
    """Heads that look at positions alone: what they add is linear, and is compared with the claim coefficient by coefficient."""
    state = heads[0].state
    ranges, before = state.ranges, state.channels[channel]
    total, error, extra = before.holds, Error.absolute(before.error.plain), np.zeros(len(UNIT))
    size = state.size[
        channel
    ]  # of all that is added: heads may cancel, and what is left says nothing of their rounding
    for scores in heads:
        values = Values.of(scores, channel)
        size = size + values.size
        weights, variation = scores.matrix
        total = combine([(1.0, total), (1.0, mixed(weights, values.reading.value, ranges))], ranges)
        extra = extra + variation * values.spread(state) + values.computing
        alone = len(heads) == 1 and before.holds.is_constant
        moved = values.reading.error if values.share == 1 else Error.absolute(values.share * values.reading.error.plain)
        error = moved.plus(error.plain) if alone else error.plus(moved.plain)
    if not claim.parts.keys() <= total.parts.keys():
        raise Rejected(f"{where}: the heads read nothing of the value that is claimed; it is not there yet")
    gap = largest(difference(total.without_constant(), claim, ranges), ranges)
    # what is relative is so to the mixture as it is executed, without what the channel held before
    error = error.beside(extra + gap + largest(before.holds, ranges))
    error = error.plus(extra + gap + sum_rounding(len(heads) + 2, size))
    return Channel(Combination(claim.parts, total.constant, claim.slack), error)


def write_gathered(scores: Scores, channel: int, claim: Combination, known: dict[object, Channel]) -> Channel | None:
    """write_mixture of one gated token by a head that weighs all tokens alike: which token it is makes no difference, so what
    was proved of one is `known` of all. None where it is not that."""
    state, weights = scores.state, scores.matrix[0]
    used = np.flatnonzero(scores.head.W_O[channel])
    reads = np.flatnonzero(scores.head.W_V[used[0]]) if len(used) == 1 else used[:0]
    if len(reads) != 1 or len(weights) != 1 or (weights != weights[0, 0]).any():
        return None
    source, before = state.channels[int(reads[0])], state.channels[channel]
    if source.only is None or not _is_zero(before.holds) or source.holds.constant.any() or claim.constant.any():
        return None
    parts = [_of_one_token(source.holds, source.only, state), _of_one_token(claim, source.only, state)]
    if None in parts:
        return None
    numbers = (float(scores.head.W_O[channel, used[0]]), float(scores.head.W_V[used[0], reads[0]]))
    key = (id(scores), numbers, *parts, source.error, before.error)
    if key not in known:
        known[key] = write_mixture(scores.where, [scores], channel, claim)
    return replace(known[key], holds=replace(known[key].holds, parts=claim.parts))


def _is_zero(holds: Combination) -> bool:
    return not holds.parts and not holds.constant.any() and not holds.slack


def _of_one_token(one: Combination, only: NDArray[np.bool_], state: State) -> tuple[int, float, float] | None:
    """(atom, factor, slack) of a combination that is a multiple of an atom at the one token that `only` has; else None."""
    if len(one.parts) != 1 or np.count_nonzero(only) != 1:
        return None
    ((atom, part),) = one.parts.items()
    rows = part.own if part.mix is None else part.mix
    single = part.mix is None or (part.mix.shape == (1, state.seq_len) and not np.any(part.own))
    if state.ranges.uniform[atom] or not single or np.shape(rows)[-1:] != only.shape or np.any(rows * ~only):
        return None
    return atom, float(np.ravel(rows)[only][0]), one.slack


def write_attention(scores: Scores, channel: int, operation: Attend, claim: Combination, graph: Graph) -> Channel:
    """Softmax of scores that depend on the input."""
    state = scores.state
    values = Values.of(scores, channel)
    wanted = of_lin(operation.values, state.ranges, graph.seq_len)
    offset, gap = _offset(values.reading.value, wanted, state)
    queries, keys = (
        [of_lin(lin, state.ranges, graph.seq_len) for lin in part] for part in (operation.queries, operation.keys)
    )
    found = Products(scores.without_slack(scores.query_values), scores.without_slack([r.value for r in scores.keys]))
    unsure = scores.sizes[0] * scores.sizes[1] * 2.0**-52
    apart = score_gap(found, Products(queries, keys), operation.bias, unsure, state.ranges, graph.seq_len)
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
    key = combine(
        [(float(q.constant[0]), k.value) for q, k in zip(scores.query_values, scores.keys, strict=True)], ranges
    )
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
