"""Attention scores of a head against those of the formula: two sums of products of combinations, one at the query, one at the key.

What all keys of a query share does not change softmax, so differences are measured up to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.linear import Combination, Ranges, combine, hull, inner, largest, size_of

Sums = Sequence[Combination]


def score_gap(q: Sums, k: Sums, queries: Sums, keys: Sums, bias: FloatArray | None, ranges: Ranges, n: int) -> float:
    """A bound of |sum q_r(j) k_r(i) - sum queries_s(j) keys_s(i) - bias[j, i]|, up to a function of j."""
    parts = [_varying_keys(q, k, queries, keys, ranges, n), _known(q, k, queries, keys, bias, n)]
    if any(len(one.constant) > 1 for one in (*k, *keys)):
        parts.append(_known_keys(q, k, queries, keys, ranges, n))
    unsure = [
        a.slack * (size_of(b, ranges) + b.slack) + b.slack * size_of(a, ranges)
        for a, b in (*zip(q, k, strict=True), *zip(queries, keys, strict=True))
    ]
    return float(sum(parts) + sum(unsure))


def _varying_keys(q: Sums, k: Sums, queries: Sums, keys: Sums, ranges: Ranges, n: int) -> float:
    """Keys without their known part, in a basis of the formula's keys: coefficient by coefficient, and what is left of each."""
    formula, head = ([one.without_constant() for one in part] for part in (keys, k))
    basis = _independent(formula, n)
    total = 0.0
    gathered: list[list[tuple[float, Combination]]] = [[] for _ in basis]
    for sign, at_query, at_key in ((1.0, q, head), (-1.0, queries, formula)):
        for one, key in zip(at_query, at_key, strict=True):
            shares = _coordinates(key, basis, n)
            for b, share in enumerate(shares):
                gathered[b].append((sign * share, one))
            left = combine([(1.0, key), *((-share, b) for share, b in zip(shares, basis, strict=True))], ranges)
            if left.parts or left.slack:
                total += largest(one, ranges) * _half(left, ranges)
    for b, parts in zip(basis, gathered, strict=True):
        total += largest(combine(parts, ranges), ranges) * _half(b, ranges)
    return total


def _known_keys(q: Sums, k: Sums, queries: Sums, keys: Sums, ranges: Ranges, n: int) -> float:
    """Queries without their known part times what is known of the keys, in a basis of the formula's queries (or the head's)."""
    formula, head = ([one.without_constant() for one in part] for part in (queries, q))
    basis = _independent([*formula, *head], n)
    total = 0.0
    vectors = [np.zeros(n) for _ in basis]
    sizes = np.zeros(len(basis))
    for sign, at_query, at_key in ((1.0, head, k), (-1.0, formula, keys)):
        for one, key in zip(at_query, at_key, strict=True):
            if one.is_constant:
                continue
            known = np.broadcast_to(key.constant, (n,))
            known = known - (known.max() + known.min()) / 2
            shares = _coordinates(one, basis, n)
            for b, share in enumerate(shares):
                vectors[b] = vectors[b] + sign * share * known
                sizes[b] += abs(share) * float(np.abs(known).max())
            left = combine([(1.0, one), *((-share, b) for share, b in zip(shares, basis, strict=True))], ranges)
            total += largest(left, ranges) * float(np.abs(known).max())
    for b, vector, size in zip(basis, vectors, sizes, strict=True):
        total += (float(np.ptp(vector)) / 2 + 2.0**-50 * size) * largest(b, ranges)
    return total


def _known(q: Sums, k: Sums, queries: Sums, keys: Sums, bias: FloatArray | None, n: int) -> float:
    """What is known of queries times what is known of keys, and the formula's bias: an n x n matrix of numbers."""

    def table(at_query: Sums, at_key: Sums) -> tuple[FloatArray, FloatArray]:
        a, b = (
            np.stack([np.broadcast_to(one.constant, (n,)) for one in part]) if part else np.zeros((0, n))
            for part in (at_query, at_key)
        )
        if (b == b[:, :1]).all():
            return np.zeros((1, 1)), np.zeros((1, 1))  # shared by all keys
        return a.T @ b, np.abs(a).T @ np.abs(b)

    (found, size), (wanted, other) = table(q, k), table(queries, keys)
    gap = found - wanted - (0.0 if bias is None else bias)
    off = (len(q) + len(queries) + 4) * 2.0**-52 * float((size + other).max() + (0.0 if bias is None else np.abs(bias).max()))
    return float((gap.max(axis=1) - gap.min(axis=1)).max()) / 2 + off


def _independent(combinations: Sums, n: int) -> list[Combination]:
    """A basis of their span, up to rounding: pivoted elimination on the Gram matrix. Any choice gives a true bound."""
    gram = np.array([[inner(a, b, n) for b in combinations] for a in combinations]).reshape(len(combinations), -1)
    chosen: list[int] = []
    left = np.diagonal(gram).copy() if len(gram) else np.zeros(0)
    while len(chosen) < len(combinations) and left.max(initial=0.0) > 1e-12 * np.diagonal(gram).max():
        chosen.append(int(np.argmax(left)))
        among = gram[np.ix_(chosen, chosen)]
        shares = np.linalg.lstsq(among, gram[chosen], rcond=None)[0]
        left = np.diagonal(gram) - np.sum(shares * gram[chosen], axis=0)
        left[chosen] = 0.0
    return [combinations[i] for i in chosen]


def _coordinates(one: Combination, basis: Sums, n: int) -> list[float]:
    """Shares of the basis in a combination; exactly one where it is the basis element itself."""
    if not basis:
        return []
    if any(one is b for b in basis):
        return [1.0 if one is b else 0.0 for b in basis]
    gram = np.array([[inner(a, b, n) for b in basis] for a in basis])
    shares = np.linalg.lstsq(gram, np.array([inner(one, b, n) for b in basis]), rcond=None)[0]
    return [float(v) for v in shares]


def _half(one: Combination, ranges: Ranges) -> float:
    low, high = hull(one, ranges)
    return (high - low) / 2

