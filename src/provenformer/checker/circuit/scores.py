"""Attention scores of a head against those of the formula: two sums of products, of a value at the query and one at the key.

What all keys of a query share does not change softmax, so differences are measured up to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.linear import Combination, Ranges, combine, hull, inner, largest, size_of

Sums = Sequence[Combination]
DIFFERENT = 1e-6  # known scores further apart than this count as masked, not as moved


@dataclass(frozen=True, eq=False)
class Products:
    """Scores sum_r queries_r(j) keys_r(k)."""

    queries: Sums
    keys: Sums


@dataclass(frozen=True)
class Gap:
    """Scores are at most `shift` apart, up to what all keys of a query share, but for keys that weigh at most the two tails."""

    shift: float
    tail_found: float
    tail_wanted: float


def score_gap(
    found: Products, wanted: Products, bias: FloatArray | None, unsure: FloatArray, ranges: Ranges, n: int
) -> Gap:
    """A head's scores against the formula's: |found - wanted - bias|, up to a function of the query.

    unsure   (query, key): how far the checker's own rounding may have moved the products of positions that are in `found`
    """
    q, k, queries, keys = found.queries, found.keys, wanted.queries, wanted.keys
    shift = _varying_keys(q, k, queries, keys, ranges, n)
    if any(len(one.constant) > 1 for one in (*k, *keys)):
        shift += _known_keys(q, k, queries, keys, ranges, n)
    for a, b in (*zip(q, k, strict=True), *zip(queries, keys, strict=True)):
        shift += a.slack * (size_of(b, ranges) + b.slack) + b.slack * size_of(a, ranges)
    return _known(found, wanted, bias, shift, unsure, (_reach(found, ranges), _reach(wanted, ranges)), n)


def _reach(scores: Products, ranges: Ranges) -> float:
    """How far what is not known beforehand may lift or lower a score against another of the same query, halved."""
    total = 0.0
    for query, key in zip(scores.queries, scores.keys, strict=True):
        total += largest(query, ranges) * _half(key.without_constant(), ranges)
        total += largest(query.without_constant(), ranges) * float(np.ptp(key.constant)) / 2
    return total * (1 + 1e-9)


def _varying_keys(q: Sums, k: Sums, queries: Sums, keys: Sums, ranges: Ranges, n: int) -> float:
    """Keys without their known part, in a basis of the formula's keys: coefficient by coefficient, and what is left of each."""
    formula, head = ([one.without_constant() for one in part] for part in (keys, k))
    basis = _independent(formula, n)
    total = 0.0
    gathered: list[list[tuple[float, Combination]]] = [[] for _ in basis]
    for sign, at_query, at_key in ((1.0, q, head), (-1.0, queries, formula)):
        for one, key in zip(at_query, at_key, strict=True):
            shares = _coordinates(key, basis, n)
            for parts, share in zip(gathered, shares, strict=True):
                parts.append((sign * share, one))
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
            for i, share in enumerate(shares):
                vectors[i] = vectors[i] + sign * share * known
                sizes[i] += abs(share) * float(np.abs(known).max())
            left = combine([(1.0, one), *((-share, b) for share, b in zip(shares, basis, strict=True))], ranges)
            total += largest(left, ranges) * float(np.abs(known).max())
    for b, vector, size in zip(basis, vectors, sizes, strict=True):
        total += (float(np.ptp(vector)) / 2 + 2.0**-50 * size) * largest(b, ranges)
    return total


def _known(
    found: Products,
    wanted: Products,
    bias: FloatArray | None,
    shift: float,
    unsure: FloatArray,
    reach: tuple[float, float],
    n: int,
) -> Gap:
    """What is known of queries times what is known of keys, and the formula's bias: two n x n matrices of numbers.

    A key on which they differ must be negligible in both: masked. With M the keys on which they differ, softmax p restricted
    to the others moves by as much as p(M), so the total variation between two such is at most that of the restrictions plus
    p(M) + q(M).
    """
    (has, size), (should, other) = (_matrix(scores, n) for scores in (found, wanted))
    should = should + (0.0 if bias is None else bias)
    has, should, unsure = np.broadcast_arrays(has, should, unsure)
    gap = has - should
    top = np.argmax(should, axis=1)[:, None]
    gap = gap - np.take_along_axis(gap, top, axis=1)
    terms = len(found.queries) + len(wanted.queries) + 4
    numbers = terms * 2.0**-52 * (size + other + np.abs(should)) + unsure
    off = numbers + np.take_along_axis(numbers, top, axis=1)
    masked = np.abs(gap) > DIFFERENT + off
    tails = []
    for scores, far in ((has, reach[0]), (should, reach[1])):
        spare = scores - np.max(np.where(masked, -np.inf, scores), axis=1, keepdims=True)
        weights = np.exp(np.minimum(spare + 2 * far + 2 * off, 700.0))
        tails.append(float(np.sum(np.where(masked, weights, 0.0), axis=1).max()) * (1 + 1e-9))
    kept = np.where(masked, 0.0, gap)
    shift = shift + float((kept.max(axis=1) - kept.min(axis=1)).max()) / 2 + float(np.where(masked, 0.0, off).max())
    return Gap(shift, tails[0], tails[1])


def _matrix(scores: Products, n: int) -> tuple[FloatArray, FloatArray]:
    """Known queries times known keys, and the sums of absolute values; (1, 1) when no key differs from another."""
    a, b = (
        np.stack([np.broadcast_to(one.constant, (n,)) for one in part]) if part else np.zeros((0, n))
        for part in (scores.queries, scores.keys)
    )
    if (b == b[:, :1]).all():
        return np.zeros((1, 1)), np.zeros((1, 1))
    return a.T @ b, np.abs(a).T @ np.abs(b)


def _independent(combinations: Sums, n: int) -> list[Combination]:
    """A basis of their span, up to rounding: pivoted elimination on the Gram matrix. Any choice gives a true bound."""
    gram = np.array([[inner(a, b, n) for b in combinations] for a in combinations]).reshape(2 * (len(combinations),))
    chosen: list[int] = []
    left = np.diagonal(gram).copy()
    while len(chosen) < len(combinations) and left.max() > 1e-12 * np.diagonal(gram).max():
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
