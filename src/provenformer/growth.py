"""How large can a number inside a network become, for any input up to a given size, good or on a ramp?

The clip at the end bounds the output on the ramps, but only if nothing overflows on the way: inf - inf is not a number.
So `verify` asks for a bound on every intermediate number, for all inputs, with float64 rounding in any order.

With M the largest absolute value of a state:
- feed-forward, units that read one direction up to sign: the change is largest at a break, and beyond the breaks it is
  linear with a slope that the units' weights sum to (0 for a bump). So M' <= M (1 + slope) + constant, plus rounding,
  which is relative to sum |W_2| (|W_1| M + |b_1|). Units that read different directions: sum |W_2| |W_1| as slope.
- attention: weights sum to 1, so M' <= M (1 + sum |W_O| |W_V|), up to rounding.

Layers multiply, so we add logarithms: linear in the number of layers, nothing can overflow here.
"""

from __future__ import annotations

import numpy as np

from provenformer.network import Network, ReluRun, SoftmaxRun
from provenformer.targets import FloatArray

LIMIT_BITS = 1000.0  # float64 ends at 2^1024
_U = 2.0**-53


def first_overflow(network: Network, largest_input: float) -> tuple[int, int] | None:
    """(run, layer) before which a number might pass 2^1000, or None when no number can."""
    bits = float(np.log2(max(largest_input, 1.0)))
    for index, run in enumerate(network.runs):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            factor, constant, needed = _relu(run) if isinstance(run, ReluRun) else _softmax(run)
            # M_i <= (M_0 + sum of constants) * product of factors, as every factor is at least 1.
            added, grown = (np.concatenate([[0.0], np.cumsum(v)]) for v in (constant, np.log2(factor)))
            before = np.logaddexp2(bits, np.log2(added)) + grown
            over = ~(before[:-1] * needed[0] + needed[1] < LIMIT_BITS)
        if over.any():
            return index, int(np.argmax(over))
        bits = float(before[-1]) if len(run) else bits
    return None


Growth = tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]


def _relu(run: ReluRun) -> Growth:
    """Factors, constants, and how many bits a product inside a layer may have: M times all weights and biases."""
    reads, writes = np.abs(run.W_1).sum(axis=2), np.abs(run.W_2)  # (layers, 4), (layers, d, 4)
    crude = np.einsum("iru,iu->ir", writes, reads).max(axis=1)
    used = writes.any(axis=1)
    first = np.take_along_axis(run.W_1, used.argmax(axis=1)[:, None, None], axis=1)  # of a unit that is used
    same, opposite = (first == run.W_1).all(axis=2), (-first == run.W_1).all(axis=2)
    slopes = [np.abs((run.W_2 * side[:, None, :]).sum(axis=2)).max(axis=1) for side in (same, opposite & ~same)]
    one_direction = (same | opposite | ~used).all(axis=1)
    outer = np.maximum(*slopes)
    slope = np.where(one_direction, outer * np.abs(first[:, 0]).sum(axis=1), crude)
    biases = np.where(used, run.b_1, 0.0)
    largest = np.abs(biases).max(axis=1)
    sizes = np.einsum("iru,iu->ir", writes, np.abs(biases)).max(axis=1)
    sign = np.where(same, 1.0, -1.0)
    # Unit u at the break of unit b: (layers, b, u).
    at_breaks = np.maximum(sign[:, None, :] * -(sign * biases)[:, :, None] + biases[:, None, :], 0.0)
    peak = np.abs(np.einsum("iru,ibu->irb", run.W_2, at_breaks)).max(axis=(1, 2))
    constant = np.where(one_direction, peak + outer * largest + 32 * _U * sizes, sizes)
    constant = 2 * (constant + np.abs(run.b_2).max(axis=1))
    read = np.maximum(reads.max(axis=1), np.abs(run.b_1).max(axis=1))
    inside = np.log2(1.0 + read) + np.log2(2.0 + crude + sizes + constant)
    return 1.0 + slope + 32 * _U * crude, constant, (np.ones(len(run)), inside)


def _softmax(run: SoftmaxRun) -> Growth:
    sizes = {name: np.abs(getattr(run, name)).sum(axis=2) for name in ("W_V", "W_K", "W_Q")}  # (layers, heads)
    gain = (np.abs(run.W_O) * sizes["W_V"][:, :, None]).sum(axis=1).max(axis=1)
    scores = ((1.0 + sizes["W_K"]) * (1.0 + sizes["W_Q"] + np.abs(run.b_Q))).max(axis=1)
    inside = np.log2(2.0 + scores) + np.log2(2.0 + gain + sizes["W_V"].max(axis=1) + np.abs(run.W_O).max(axis=(1, 2)))
    degree = 1.0 + (sizes["W_K"].any(axis=1) & sizes["W_Q"].any(axis=1))  # a score is a product of two reads
    return 1.0 + 1.01 * gain, np.zeros(len(run)), (degree, inside)
