"""Fast evaluation of networks, layer by layer in float64, bit for bit equal to `network.evaluate`.

Tokens are cut into blocks that stay in cache; each block goes through a whole run of feed-forward layers before the next
one starts, blocks in parallel, so weights are streamed once per block. Two things make it fast without changing a bit:

- compiled loops (numba, cached on disk) instead of a dozen numpy calls per layer;
- where all layers of a run read one direction (every constructed run does), the smallest and largest read of a block decide
  whether a unit is off for the whole block. Rounding is monotone, so this is exact, and a layer whose units are all off
  adds exact zeros: it is skipped. In a downward sweep that is almost every layer.

Sums are taken in the order of the reference and never fused: numba keeps IEEE semantics unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numba import get_num_threads, njit, prange, set_num_threads

from provenformer.base.arrays import FloatArray
from provenformer.networks import thin as reference
from provenformer.networks.thin import Network, ReluRun

BLOCK = 256  # tokens: d rows of 2 KB each, with room for temporaries in the first-level cache
THREAD_WORK = 1 << 24  # layers of four units times numbers, a few milliseconds: a thread more must have that much to do


def evaluate(network: Network, x: FloatArray) -> FloatArray:
    """g(x) for a batch (batch, d, n)."""
    return reference.evaluate(network, x, feed_forward)


def feed_forward(run: ReluRun, tokens: FloatArray) -> FloatArray:
    """A run of feed-forward layers on tokens (d, count)."""
    out = tokens.copy()
    if not len(run):
        return out
    direction = run.W_1[0, 0]
    shared = bool(run.W_1.strides[0] == 0 or len(run) == 1) and bool((np.abs(run.W_1[0]) == np.abs(direction)).all())
    with _threads(run.W_2.size // 4 * tokens.shape[1]):
        _apply(run, out, direction, shared)
    return out


@contextmanager
def _threads(work: int) -> Iterator[None]:
    """As many threads as the work is worth, of those that numba may use here: waking one takes longer than a small run."""
    allowed = get_num_threads()
    set_num_threads(max(1, min(allowed, work // THREAD_WORK)))
    try:
        yield
    finally:
        set_num_threads(allowed)


def _apply(run: ReluRun, out: FloatArray, direction: FloatArray, shared: bool) -> None:
    """The loop for the weights of this run, on tokens (d, count) in place."""
    weights = (run.W_1[:1] if run.W_1.strides[0] == 0 else run.W_1, run.b_1, run.W_2, run.b_2)
    if run.W_1.shape[1] != 4:
        _wide_rows(out, *(np.ascontiguousarray(w) for w in weights))
    elif len(out) == 1:
        # Same arithmetic with the loops over rows written out: the compiler vectorises over tokens.
        if shared and (run.W_1[0] >= 0).all():
            _one_row_one_direction(out[0], *(np.ascontiguousarray(w) for w in weights))
        else:
            _one_row(out[0], np.ascontiguousarray(run.W_1), *(np.ascontiguousarray(w) for w in weights[1:]))
    elif shared and (run.W_1[0] == direction).all():
        _rows_one_direction(out, direction.copy(), *(np.ascontiguousarray(w) for w in weights[1:]))
    else:
        _rows(out, np.ascontiguousarray(run.W_1), *(np.ascontiguousarray(w) for w in weights[1:]))


@njit(cache=True, parallel=True)
def _one_row(x, W_1, b_1, W_2, b_2):  # type: ignore[no-untyped-def]
    """d = 1, any weights."""
    blocks = (len(x) + BLOCK - 1) // BLOCK
    for block in prange(blocks):
        part = x[block * BLOCK : (block + 1) * BLOCK]
        for i in range(len(b_1)):
            w0, w1, w2, w3 = W_1[i, 0, 0], W_1[i, 1, 0], W_1[i, 2, 0], W_1[i, 3, 0]
            a0, a1, a2, a3 = b_1[i, 0], b_1[i, 1], b_1[i, 2], b_1[i, 3]
            v0, v1, v2, v3 = W_2[i, 0, 0], W_2[i, 0, 1], W_2[i, 0, 2], W_2[i, 0, 3]
            shift = b_2[i, 0]
            for k in range(len(part)):
                t = part[k]
                change = v0 * max(w0 * t + a0, 0.0) + v1 * max(w1 * t + a1, 0.0)
                change = change + v2 * max(w2 * t + a2, 0.0)
                change = change + v3 * max(w3 * t + a3, 0.0)
                part[k] = t + change + shift


@njit(cache=True, parallel=True)
def _one_row_one_direction(x, W_1, b_1, W_2, b_2):  # type: ignore[no-untyped-def]
    """d = 1, one non-negative weight for all units and layers: units that are off on the whole block are skipped."""
    w = W_1[0, 0, 0]
    blocks = (len(x) + BLOCK - 1) // BLOCK
    for block in prange(blocks):
        part = x[block * BLOCK : (block + 1) * BLOCK]
        largest = w * part.max()
        for i in range(len(b_1)):
            a0, a1, a2, a3 = b_1[i, 0], b_1[i, 1], b_1[i, 2], b_1[i, 3]
            shift = b_2[i, 0]
            if largest + max(max(a0, a1), max(a2, a3)) <= 0.0 and shift == 0.0:
                continue
            v0, v1, v2, v3 = W_2[i, 0, 0], W_2[i, 0, 1], W_2[i, 0, 2], W_2[i, 0, 3]
            for k in range(len(part)):
                t = w * part[k]
                change = v0 * max(t + a0, 0.0) + v1 * max(t + a1, 0.0)
                change = change + v2 * max(t + a2, 0.0)
                change = change + v3 * max(t + a3, 0.0)
                part[k] = part[k] + change + shift
            largest = w * part.max()


@njit(cache=True, parallel=True)
def _rows(x, W_1, b_1, W_2, b_2):  # type: ignore[no-untyped-def]
    """Any d, any weights; the innermost loops run over tokens, so they are vectorised."""
    d, count = x.shape
    blocks = (count + BLOCK - 1) // BLOCK
    for block in prange(blocks):
        start, stop = block * BLOCK, min(count, (block + 1) * BLOCK)
        size = stop - start
        hidden = np.empty((4, BLOCK))
        change = np.empty(BLOCK)
        for i in range(len(b_1)):
            for unit in range(4):
                h = hidden[unit]
                w = W_1[i, unit, 0]
                for k in range(size):
                    h[k] = w * x[0, start + k]
                for row in range(1, d):
                    w = W_1[i, unit, row]
                    for k in range(size):
                        h[k] = h[k] + w * x[row, start + k]
                bias = b_1[i, unit]
                for k in range(size):
                    h[k] = max(h[k] + bias, 0.0)
            for row in range(d):
                v0, v1, v2, v3, shift = W_2[i, row, 0], W_2[i, row, 1], W_2[i, row, 2], W_2[i, row, 3], b_2[i, row]
                for k in range(size):
                    change[k] = ((v0 * hidden[0, k] + v1 * hidden[1, k]) + v2 * hidden[2, k]) + v3 * hidden[3, k]
                for k in range(size):
                    x[row, start + k] = x[row, start + k] + change[k] + shift


@njit(cache=True, parallel=True)
def _rows_one_direction(x, direction, b_1, W_2, b_2):  # type: ignore[no-untyped-def]
    """Any d, one direction for all units and layers: the reads of a block are kept and decide what is skipped."""
    d, count = x.shape
    blocks = (count + BLOCK - 1) // BLOCK
    for block in prange(blocks):
        start, stop = block * BLOCK, min(count, (block + 1) * BLOCK)
        reads = np.empty(stop - start)
        for k in range(start, stop):
            t = direction[0] * x[0, k]
            for row in range(1, d):
                t = t + direction[row] * x[row, k]
            reads[k - start] = t
        largest = reads.max()
        for i in range(len(b_1)):
            top = max(max(b_1[i, 0], b_1[i, 1]), max(b_1[i, 2], b_1[i, 3]))
            shifted = False
            for row in range(d):
                shifted = shifted or b_2[i, row] != 0.0
            if largest + top <= 0.0 and not shifted:
                continue
            for k in range(start, stop):
                t = reads[k - start]
                if t + top <= 0.0 and not shifted:
                    continue
                h0, h1 = max(t + b_1[i, 0], 0.0), max(t + b_1[i, 1], 0.0)
                h2, h3 = max(t + b_1[i, 2], 0.0), max(t + b_1[i, 3], 0.0)
                for row in range(d):
                    change = W_2[i, row, 0] * h0 + W_2[i, row, 1] * h1
                    change = change + W_2[i, row, 2] * h2
                    change = change + W_2[i, row, 3] * h3
                    x[row, k] = x[row, k] + change + b_2[i, row]
                t = direction[0] * x[0, k]
                for row in range(1, d):
                    t = t + direction[row] * x[row, k]
                reads[k - start] = t
            largest = reads.max()


@njit(cache=True, parallel=True)
def _wide_rows(x, W_1, b_1, W_2, b_2):  # type: ignore[no-untyped-def]
    """Any d, any number of units per layer; W_1 has one entry when all layers share it."""
    d, count = x.shape
    units = b_1.shape[1]
    blocks = (count + BLOCK - 1) // BLOCK
    for block in prange(blocks):
        start, stop = block * BLOCK, min(count, (block + 1) * BLOCK)
        hidden = np.empty(BLOCK)
        change = np.empty((d, BLOCK))
        for i in range(len(b_1)):
            shared = i if len(W_1) > 1 else 0
            change[:] = 0.0
            for unit in range(units):
                on = False
                for k in range(start, stop):
                    t = W_1[shared, unit, 0] * x[0, k]
                    for row in range(1, d):
                        t = t + W_1[shared, unit, row] * x[row, k]
                    h = max(t + b_1[i, unit], 0.0)
                    hidden[k - start] = h
                    on = on or h > 0.0
                if on:  # a unit that is off on the whole block adds exact zeros
                    for row in range(d):
                        w = W_2[i, row, unit]
                        for k in range(stop - start):
                            change[row, k] = change[row, k] + w * hidden[k]
            for row in range(d):
                for k in range(start, stop):
                    x[row, k] = x[row, k] + change[row, k - start] + b_2[i, row]
