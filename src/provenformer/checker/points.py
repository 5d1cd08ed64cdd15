"""Feed-forward runs on finitely many tokens, each number known up to a radius (float64, any order of the sums).

A short run is applied to every token. A long run is read back as windows: layer i must be 0 up to its start s_i, the starts
must decrease, and a token hit by one layer must end below every later start. Then each token is hit exactly once and one
binary search finds where: linear in the number of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.networks.thin import ReluRun

U = 2.0**-53
TINY = 2.0**-1000  # covers what underflow can lose, however many products
SHORT_RUN = 64  # up to this many layers, a run is applied to every point


@dataclass(frozen=True)
class Where:
    """A place in the network, for messages."""

    run: int
    stage: str

    def layer(self, i: int) -> str:
        return f"layer {i} of run {self.run} ({self.stage})"


def feed_points(where: Where, run: ReluRun, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A feed-forward run on finitely many tokens (count, d), each entry known up to a radius."""
    if len(run) <= SHORT_RUN:
        for i in range(len(run)):
            every = np.full(len(points), i)
            points, radius = apply_layers(run, every, points, radius)
        return points, radius
    direction = run.W_1[0, 0]
    if (direction != run.W_1).any() or run.b_2.any():
        raise Rejected(f"run {where.run} ({where.stage}): a long run must read one direction and have b_2 = 0")
    # Where each layer starts: the smallest break of a unit that is used.
    used = (run.W_2 != 0).any(axis=1)  # (layers, 4)
    starts = np.where(used, -run.b_1, np.inf).min(axis=1)
    order = np.flatnonzero(np.diff(starts) >= 0)
    if len(order):
        raise Rejected(f"{where.layer(int(order[0]) + 1)}: its window does not start below the one before it")
    t, spread = read(direction, points, radius)
    hit = np.searchsorted(-starts, -t, side="right")  # the first layer that starts below t
    _require_clear(where, starts, t, spread)
    inside = hit < len(run)
    changed, error = apply_layers(run, hit[inside], points[inside], radius[inside])
    after, after_spread = read(direction, changed, error)
    again = after + after_spread > starts[-1]
    late = again & (hit[inside] < len(run) - 1)
    if late.any():
        first = int(hit[inside][np.flatnonzero(late)[0]])
        raise Rejected(f"{where.layer(first)}: a token it finishes lies above the start of a later window")
    points, radius = points.copy(), radius.copy()
    points[inside], radius[inside] = changed, error
    return points, radius


def read(direction: FloatArray, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """W_1 x and how far it may be off: the points' radius and, unless the sum is exact, rounding."""
    terms = points * direction
    size = np.abs(terms).sum(axis=1)
    passed = radius @ np.abs(direction)
    exact = (quarters(points) & quarters(direction)).all(axis=1) & (size < 2.0**48) & (passed == 0)
    return terms.sum(axis=1), passed + np.where(exact, 0.0, _rounding(len(direction)) * size + TINY)


def quarters(values: FloatArray) -> Any:
    """Multiples of 1/4. Products of two are multiples of 1/16: sums below 2^48 are exact, in any order, fused or not."""
    return values * 4 % 1 == 0


def _rounding(terms: int) -> float:
    """Two computations of a sum of so many products, each in its own order, differ by at most this times the sizes."""
    return 2 * (terms + 4) * U


def _require_clear(where: Where, starts: FloatArray, t: FloatArray, spread: FloatArray) -> None:
    """No token may be within its radius of a start: which layers see it must be certain."""
    increasing = starts[::-1]
    at = np.searchsorted(increasing, t)
    below = np.abs(t - increasing[np.maximum(at - 1, 0)])
    above = np.abs(t - increasing[np.minimum(at, len(increasing) - 1)])
    unclear = np.minimum(below, above) < 2 * spread
    if unclear.any():
        layer = len(starts) - 1 - int(min(at[np.flatnonzero(unclear)[0]], len(starts) - 1))
        raise Rejected(f"{where.layer(layer)}: a token lies within rounding of its start")


def apply_layers(run: ReluRun, layer: Any, points: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Layer `layer[k]` on point k, in float64, with a radius that covers rounding in any order of the sums."""
    W_1, b_1, W_2, b_2 = run.W_1[layer], run.b_1[layer], run.W_2[layer], run.b_2[layer]
    reads = W_1 * points[:, None, :]  # (count, 4, d)
    read = reads.sum(axis=2)
    pre = read + b_1
    pre_size = np.abs(reads).sum(axis=2) + np.abs(b_1)
    blur = np.einsum("kus,ks->ku", np.abs(W_1), radius)  # of W_1 x
    short = (quarters(W_1) & quarters(points)[:, None, :]).all(axis=2) & quarters(b_1) & (pre_size < 2.0**48)
    # Sterbenz: the difference of two floats within a factor two of each other is exact; here with room for the radius.
    single = ((W_1 != 0).sum(axis=2) == 1) & np.isin(np.abs(W_1), (0.0, 1.0)).all(axis=2)
    close = (read * b_1 <= 0) & (np.abs(b_1) <= 1.9 * np.abs(read)) & (np.abs(read) <= 1.9 * np.abs(b_1))
    pre_exact = (short & (blur == 0)) | (single & close & (blur <= 2.0**-10 * np.abs(read))) | (single & (b_1 == 0))
    fresh_pre = np.where(pre_exact, 0.0, _rounding(W_1.shape[2] + 1) * pre_size + TINY)
    pre_radius = blur + fresh_pre
    unclear = (W_2 != 0).any(axis=1) & (np.abs(pre) < pre_radius)
    on = pre > 0
    hidden = np.where(on, pre, 0.0)
    terms = W_2 * hidden[:, None, :]  # (count, d, 4)
    out = points + terms.sum(axis=2) + b_2
    size = np.abs(points) + np.abs(terms).sum(axis=2) + np.abs(b_2)
    exact = (quarters(W_2) & quarters(hidden)[:, None, :]).all(axis=2) & quarters(points) & quarters(b_2)
    exact &= (size < 2.0**48) & (pre_exact & (blur == 0)).all(axis=1)[:, None] & (radius == 0)
    # k terms: k - 1 rounded additions and a rounded product, in any order, fused or not; the same for our own sum.
    count = ((terms != 0) | (unclear[:, None, :] & (W_2 != 0))).sum(axis=2) + 1 + (b_2 != 0)
    rounded = 2.01 * count * U * (size + np.abs(W_2 * pre_radius[:, None, :]).sum(axis=2)) + TINY
    own = fresh_pre * (on | unclear)
    fresh = np.where(exact, 0.0, rounded) + (np.abs(W_2) * own[:, None, :]).sum(axis=2)
    spread = _passed_on(W_1, W_2, on, unclear, radius, pre_radius) + fresh
    untouched = ~(on | unclear).any(axis=1)[:, None] & (b_2 == 0)
    zeroed = _zeroed(W_1, b_1, W_2, b_2, on, unclear)
    out = np.where(zeroed, 0.0, out)
    return out, np.where(untouched, radius, np.where(zeroed, 0.0, spread))


def _passed_on(W_1: Any, W_2: Any, on: Any, unclear: Any, radius: FloatArray, pre_radius: FloatArray) -> FloatArray:
    """How an error of the input passes through a layer, per row.

    Through the slope of the layer where it is linear; with one unit within rounding of its break through the larger of
    the two slopes; with more, each unit's radius times |W_2| without cancellation.
    """

    def slope(active: Any) -> FloatArray:
        weights = W_2 * active[:, None, :]
        passed = np.abs(np.eye(W_1.shape[2]) + np.einsum("kru,kus->krs", weights, W_1))
        sizes = np.einsum("kru,kus->krs", np.abs(weights), np.abs(W_1))
        passed += (W_1.shape[1] + 4) * U * sizes  # its own rounding: as many products and sums as units
        return np.asarray(np.einsum("krs,ks->kr", passed, radius))

    doubts = unclear.sum(axis=1)[:, None]
    either = np.maximum(slope(on), slope(on ^ unclear))
    crude = radius + (np.abs(W_2) * (pre_radius * (on | unclear))[:, None, :]).sum(axis=2)
    return np.where(doubts > 1, crude, either)


def _zeroed(W_1: Any, b_1: Any, W_2: Any, b_2: Any, on: Any, unclear: Any) -> Any:
    """Rows that a layer sets to exactly 0: x + ReLU(-x) for a clearly negative x is 0 without rounding."""
    d = W_1.shape[2]
    negation = (-np.eye(d)[:, None, None, :] == W_1).all(axis=3) & (b_1 == 0) & on & ~unclear  # (row, count, 4)
    writes = (W_2 != 0) & on[:, None, :]  # (count, row, 4)
    alone = writes.sum(axis=2) == 1
    hit = (writes & (W_2 == 1) & negation.transpose(1, 0, 2)).any(axis=2)
    return alone & hit & (b_2 == 0) & ~(unclear[:, None, :] & (W_2 != 0)).any(axis=2)
