"""What softmax can do at most. Each function is a lemma of docs/circuits-verify.md."""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray

NEGLIGIBLE_LOG, NEGLIGIBLE = -690.0, 2.0**-995  # e^-690 is below 2^-995


def movement(score_error: FloatArray) -> FloatArray:
    """How far softmax moves in total variation when every score moves by at most eps: tanh(eps / 2).

    A set of weight a becomes one of weight at most a e^2eps / (1 + a (e^2eps - 1)), since odds change by at most e^2eps. The
    gain is largest at a = 1 / (1 + e^eps), where it is tanh(eps / 2).
    """
    return np.tanh(score_error / 2) * (1 + 1e-12)


def movement_of(log_weights: FloatArray, score_error: FloatArray) -> float:
    """The same for known weights (queries, keys), in logarithms, and a bound per score: the better of two, worst over queries.

    One: with eta = sum p_k (e^eps_k - 1) the normaliser changes by a factor within 1 +- eta, and the weights move by at most
    eta / (1 - eta). Two: a set or its complement avoids the top key, so its weight a is at most rest = 1 - p_top, and its
    odds change by at most e^2eps: it moves by at most rest (e^2eps - 1), with eps the largest.
    """
    queries, keys = log_weights.shape
    largest = score_error.max(axis=1)
    sums = 1 + 1e-12 + keys * 2.0**-52  # of sums of that many terms
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Only what may weigh something when it is moved, also what is not a number; everything else counts as NEGLIGIBLE.
        query, key = np.nonzero(~(log_weights + score_error <= NEGLIGIBLE_LOG))
        logs, errors = log_weights[query, key], score_error[query, key]
        weights = np.exp(logs)
        # a weight may underflow to 0 where e^eps is large enough to bring it back
        gain = np.where(errors < 1, weights * np.expm1(errors), np.exp(logs + errors))
        eta = np.bincount(query, gain, queries) * sums + keys * (NEGLIGIBLE * (largest != 0) + 2.0**-1000 * largest)
        first = np.where(eta < 1, eta / (1 - np.minimum(eta, 1.0)), np.inf)
        top = np.argmax(log_weights, axis=1)
        rest = np.bincount(query, np.where(key == top[query], 0.0, weights), queries) * sums
        second = (rest + keys * (2.0**-52 + NEGLIGIBLE)) * np.expm1(2 * largest)
    return float(np.minimum(np.fmin(first, second), 1.0).max() * (1 + 1e-12))


def largest_gap(keys: int, score_error: FloatArray) -> FloatArray:
    """w with max z - sum softmax(s) z <= w / lambda for scores s within eps of lambda z, over `keys` numbers z.

    With t_k = lambda (max z - z_k) the left side times lambda is F = sum a_k t_k e^-t_k / (1 + sum a_k e^-t_k), the sums over
    all but the top key, a_k <= e^2eps. F <= w is sum a_k (t_k - w) e^-t_k <= w, and (t - w) e^-t <= e^-(1 + w). So it is
    enough that (keys - 1) e^2eps <= w e^(1 + w).
    """
    need = np.log(max(keys - 1, 1)) + 2 * score_error + 1e-12
    w = np.where(np.isfinite(need), np.maximum(need, 1.0), 1.0)
    for _ in range(60):  # Newton for w + 1 + log w = need
        w = np.maximum(w - (w + 1 + np.log(w) - need) / (1 + 1 / w), 1e-300)
    w = w * (1 + 1e-9)
    return np.where(w + 1 + np.log(w) >= need, w, np.inf)
