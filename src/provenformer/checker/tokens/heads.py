"""Heads of a token circuit: sums with known weights, and the token of the highest score.

Executed scores s~ are within E of the scores s that the weights stand for. Then sum_k |w~_k - w_k| <= e^(2E) - 1; and, with
r the weight of all keys but one,
<= 2 r e^(2E). A pick's scores are lambda times whole numbers up to eps, so keys that do not have the highest weigh at most
e^(-lambda + 2 eps) each.
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.tokens.state import LARGEST, OWN, Reading, State, combination, read, rounding
from provenformer.checker.tokens.unique import require_one_value
from provenformer.networks.circuit import CircuitBlock
from provenformer.symbols.tokens.graph import Pick, TokenGraph, Total

NEGLIGIBLE = 2.0**-50
TINY = 2.0**-120  # what may be flushed to 0 in float32, times a large number


def after_heads(graph: TokenGraph, block: CircuitBlock, state: State, claims: dict[int, int], place: str) -> None:
    """The state after the heads, if every channel that they write holds what is claimed."""
    errors: dict[int, float] = {}
    for number, head in enumerate(block.heads):
        queries, keys = read(state, head.W_Q, head.b_Q), read(state, head.W_K, np.zeros(len(head.W_K)))
        moved = _moved(queries, keys, state.unit)
        values = read(state, head.W_V, np.zeros(len(head.W_V)))
        for channel in map(int, np.flatnonzero(head.W_O.any(axis=1))):
            if channel not in claims:
                raise Rejected(f"{place}, head {number} writes channel {channel}, of which nothing is claimed")
            if channel in errors:
                raise Rejected(f"{place}: two heads write channel {channel}")
            if state.atom[channel] >= 0 or state.known[channel].any():
                raise Rejected(f"{place} writes channel {channel}, which is in use")
            value = _value(values, head.W_O[channel], state.unit)
            operation = graph.atoms[claims[channel]].operation
            if isinstance(operation, Total):
                error = _total(operation, queries, keys, moved, value, state)
            elif isinstance(operation, Pick):
                error = _pick(graph, operation, queries, keys, moved, value, state)
            else:
                raise Rejected(f"{place}: a head is claimed to do what units do (channel {channel})")
            errors[channel] = error + float(state.error[channel])
    if missing := [c for c in claims if c not in errors]:
        raise Rejected(f"{place}: no head writes channel {missing[0]}")
    for channel, error in errors.items():
        state.atom[channel], state.error[channel] = claims[channel], error


def _moved(queries: Reading, keys: Reading, unit: float) -> FloatArray:
    """(n, n): how far executed scores, less the largest, may be from what the weights stand for."""
    sizes = queries.size.T @ keys.size
    if not (sizes <= LARGEST).all():
        raise Rejected("a score may exceed 2^60")
    errors = queries.error.T @ keys.size + queries.size.T @ keys.error + queries.error.T @ keys.error
    terms = (queries.size > 0).astype(np.int64).T @ (keys.size > 0).astype(np.int64)  # adding 0 does not round
    rounded = rounding(terms + 2, unit) * sizes
    return np.asarray(errors + rounded + rounding(1, unit) * sizes.max(axis=1, keepdims=True) + 8 * unit)


def _value(plain: Reading, out: FloatArray, unit: float) -> Reading:
    """What a head moves into a channel, as one row."""
    size = (np.abs(out) @ plain.size)[None]
    share = float(rounding(int(np.count_nonzero(out)) + 1, unit))
    error = (np.abs(out) @ plain.error)[None] + share * size
    return Reading((out @ plain.known)[None], (out @ plain.atoms)[None], error, size, (np.abs(out) @ plain.fresh)[None])


def _rounded(value: Reading, many: int, n: int, unit: float) -> float:
    """Of softmax itself (exp, sum, quotient) and of the weighted sum, if all keys but so many weigh less than NEGLIGIBLE each.

    Their sum tau rounds by at most tau (1 + 2 n u) in any order, since a float sum errs by no more than its smaller term;
    the others
    round `many` - 1 times (Lemma 7 of docs/circuits-verify.md), in the normaliser and in the weighted sum.
    """
    share = float(rounding(2 * many + 12, unit)) + 4 * n * NEGLIGIBLE + n * TINY
    return share * float(value.size.max()) + float(value.error.max()) * (1 + 1e-6)


def _total(operation: Total, queries: Reading, keys: Reading, moved: FloatArray, value: Reading, state: State) -> float:
    """A sum with known weights: scores are known, and so is softmax."""
    if queries.atoms.any() or keys.atoms.any():
        raise Rejected("the weights of a sum over tokens depend on the tokens")
    n = len(moved)
    scores = queries.known.T @ keys.known
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    weights = np.exp(logs)
    most = moved.max(axis=1)
    tail = np.where(
        np.arange(n) == logs.argmax(axis=1)[:, None], 0.0, np.exp(np.minimum(logs + 2 * most[:, None], 700.0))
    ).sum(axis=1)
    change = np.minimum(np.expm1(np.minimum(2 * most, 700.0)), 2 * tail) + 64 * n * OWN
    size = state.ranges.size
    factor = value.atoms[0, operation.of]
    other = np.abs(np.delete(value.atoms[0], operation.of)) @ np.delete(size, operation.of, axis=0)
    difference = (
        np.abs(weights * factor - operation.counts) @ size[operation.of]
        + np.abs(value.known[0]).max()
        + other.max(initial=0.0)
    )
    worst = float((difference + change * value.size.max()).max())
    many = int((logs + 2 * most[:, None] > np.log(NEGLIGIBLE)).sum(axis=1).max())
    return worst + _rounded(value, many, n, state.unit)


def _pick(
    graph: TokenGraph, pick: Pick, queries: Reading, keys: Reading, moved: FloatArray, value: Reading, state: State
) -> float:
    """A value from the token of the highest score."""
    n, atoms = graph.seq_len, len(graph.atoms)
    require_one_value(graph, pick, state.ranges)
    wanted_q = [combination(lin, atoms) for lin in pick.queries]
    wanted_k = [combination(lin, atoms) for lin in pick.keys]
    formula = _expanded(
        np.array([q[0] for q in wanted_q]), np.array([q[1] for q in wanted_q]),
        np.array([k[0] for k in wanted_k]), np.array([k[1] for k in wanted_k]), pick.bias.astype(np.float64),
    )  # fmt: skip
    head = _expanded(queries.known, queries.atoms, keys.known, keys.atoms, np.zeros((1, n)))
    square = sum(float((f * f).sum()) for f in formula)
    sharp = sum(float((h * f).sum()) for h, f in zip(head, formula, strict=True)) / square if square else 0.0
    if not sharp > 0:
        raise Rejected("a head does not look for the token that it should")
    positions, of_query, of_key, both = (np.abs(h - sharp * f) for h, f in zip(head, formula, strict=True))
    size = state.ranges.size
    apart = positions + size.T @ of_query + (size.T @ of_key).T + size.T @ both @ size
    eps = float((apart + moved).max()) * (1 + 1e-9)
    rest = float(np.exp(min(700.0, np.log(max(n - 1, 1)) - sharp * (1 - 1e-9) + 2 * eps)))
    known, coefficients = combination(pick.value, atoms)
    difference = float(value.against(0, known, coefficients, state.ranges).max())
    alone = pick.because != "largest" and rest < NEGLIGIBLE
    return difference + 2 * rest * float(value.size.max()) + _rounded(value, 1 if alone else n, n, state.unit)


def _expanded(
    q_known: FloatArray, q_atoms: FloatArray, k_known: FloatArray, k_atoms: FloatArray, bias: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """A bilinear score: of positions (n, n), of atoms of the query (atoms, n), of atoms of the key (atoms, n), of both.

    What is the same for all keys of a query does not matter: it is taken off.
    """
    positions = q_known.T @ k_known + bias
    of_query = q_atoms.T @ k_known  # atom a of the query times a known number of the key
    of_key = k_atoms.T @ q_known  # atom b of the key times a known number of the query
    return positions - positions[:, :1], of_query - of_query[:, :1], of_key, q_atoms.T @ k_atoms
