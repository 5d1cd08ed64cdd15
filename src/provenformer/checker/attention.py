"""Attention layers on all contexts: uniform, or decided so clearly that the other columns weigh less than any float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.points import TINY, U, Where, quarters, read
from provenformer.networks.thin import SoftmaxRun

CERTAIN = 746.0  # exp(-746) is below the smallest float64


def attend(
    where: Where, run: SoftmaxRun, state: FloatArray, radius: FloatArray, alike: Any
) -> tuple[FloatArray, FloatArray]:
    """Attention layers on contexts (count, n, d), each entry known up to a radius; `alike` columns are equal bit by bit."""
    count, n, d = state.shape
    for i in range(len(run)):
        flat = (state.reshape(-1, d), radius.reshape(-1, d))
        change, error, size = np.zeros_like(state), np.zeros_like(state), np.abs(state)
        picks: list[FloatArray] = []
        for head in np.flatnonzero(run.W_O[i].any(axis=1)):
            key, key_radius = (v.reshape(count, n) for v in read(run.W_K[i, head], *flat))
            query, query_radius = (v.reshape(count, n) for v in read(run.W_Q[i, head], *flat))
            bias = run.b_Q[i, head]
            size_q = np.abs(query) + np.abs(bias)
            plain = quarters(query) & quarters(bias) & (size_q < 2.0**48) & (query_radius == 0)
            query_radius = query_radius + np.where(plain, 0.0, 4 * U * size_q + TINY)
            picks.append(_weights(where, i, (key, key_radius), (query + bias, query_radius), alike))
        # Opposite heads that attend alike compute the same number twice: it cancels without rounding.
        opposite = (run.W_O[i, 0] == -run.W_O[i, 1]).all() and (run.W_V[i, 0] == run.W_V[i, 1]).all()
        cancels = (picks[0] == picks[1]).all(axis=1) if opposite and len(picks) == 2 else np.zeros((count, n), bool)
        for head, pick in zip(np.flatnonzero(run.W_O[i].any(axis=1)), picks, strict=True):
            W_O, values = run.W_O[i, head], [v.reshape(count, n) for v in read(run.W_V[i, head], *flat)]
            among = (pick != 0).astype(np.float64)
            mixed, passed = (
                np.where(cancels, 0.0, np.einsum("ck,ckj->cj", v, among) / among.sum(axis=1))[..., None] for v in values
            )
            # Weights 1, 1/2 or 1/4, whole values and gains: nothing is rounded, not even where heads cancel.
            short: Any = np.isin(pick, (0.0, 0.25, 0.5, 1.0))
            short = short.all(axis=1)[..., None] & (W_O % 1 == 0)
            weighed = np.einsum("ck,ckj->cj", np.abs(values[0]), pick)[..., None] * np.abs(W_O)
            short &= ((values[0] % 1 == 0) & (values[1] == 0)).all(axis=1)[:, None, None] & (weighed < 2.0**48)
            # A product with a power of two is exact: opposite ones cancel, fused or not.
            power_of_two = np.abs(np.frexp(W_O)[0]) == 0.5
            quiet = short | (cancels[..., None] & (power_of_two | (W_O == 0)))
            change += mixed * W_O
            # n products, n - 1 sums, the weight and the gain; our own sum of whole numbers only rounds its weights.
            ours = np.where((values[0] % 1 == 0).all(axis=1)[:, None, None], 4, n + 6)
            error += passed * np.abs(W_O) + np.where(quiet, 0.0, (n + 5 + ours) * U * weighed + TINY)
            size = size + weighed
        state = state + change
        whole = quarters(state) & quarters(change) & (size < 2.0**48) & (radius == 0) & (error == 0)
        radius = radius + error + np.where(whole | ((change == 0) & (error == 0)), 0.0, 8 * U * (size + radius))
    return state, radius


def _weights(
    where: Where, i: int, keys: tuple[FloatArray, FloatArray], queries: tuple[FloatArray, FloatArray], alike: Any
) -> FloatArray:
    """Softmax weights (count, key, query): uniform where scores are all equal, else one clear winner (or equal winners)."""
    scores = keys[0][:, :, None] * queries[0][:, None, :]
    doubt = (
        keys[1][:, :, None] * np.abs(queries[0])[:, None, :]
        + np.abs(keys[0])[:, :, None] * queries[1][:, None, :]
        + keys[1][:, :, None] * queries[1][:, None, :]
        + 8 * U * np.abs(scores)
        + np.where((keys[0] == 0)[:, :, None] & (keys[1] == 0)[:, :, None], 0.0, TINY)
    )
    best = scores.max(axis=1, keepdims=True)
    # Equal keys, known exactly or equal bit by bit, give equal scores: they are tied with the winner.
    winner = scores.argmax(axis=1)[:, None]
    winner_key = np.take_along_axis(np.broadcast_to(keys[0][:, :, None], scores.shape), winner, axis=1)
    known = (keys[1] == 0).all(axis=1)[:, None, None] & (keys[0][:, :, None] == winner_key)
    same = np.take_along_axis(alike, np.broadcast_to(winner, scores.shape), axis=2)  # (count, key, query)
    tied = known | same | ((scores == 0) & (best == 0) & (doubt.max(axis=1, keepdims=True) == 0))
    behind = best - scores - 2 * doubt.max(axis=1, keepdims=True)
    if not (tied | (behind >= CERTAIN)).all():
        raise Rejected(f"{where.layer(i)}: attention is neither uniform nor decided (gap {behind[~tied].min():.3g})")
    return np.asarray(tied / tied.sum(axis=1, keepdims=True))
