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

from provenformer.base.arrays import FloatArray
from provenformer.networks.thin import Network, ReluRun, SoftmaxRun

LIMIT_BITS = 1000.0  # float64 ends at 2^1024
_U = 2.0**-53


def first_overflow(network: Network, largest_input: float) -> tuple[int, int] | None:
    """(run, layer) before which a number might pass 2^1000, or None when no number can."""
    bits = float(np.log2(max(largest_input, 1.0)))
    top = np.inf  # no number of the first row is larger; unknown until a layer caps it
    for index, run in enumerate(network.runs):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if isinstance(run, ReluRun):
                factor, constant, needed = _steps_down(run, min(top, 2.0 ** min(bits, 1020.0))) or _relu(run)
            else:
                factor, constant, needed = _softmax(run)
            # M_i <= (M_0 + sum of constants) * product of factors, as every factor is at least 1.
            added, grown = (np.concatenate([[0.0], np.cumsum(v)]) for v in (constant, np.log2(factor)))
            before = np.logaddexp2(bits, np.log2(added)) + grown
            over = ~(before[:-1] * needed[0] + needed[1] < LIMIT_BITS)
        if over.any():
            return index, int(np.argmax(over))
        size = 2.0 ** min(bits, 1020.0)
        top = _cap(run, min(top, size), -size) if isinstance(run, ReluRun) and len(run) == 1 else np.inf
        bits = float(before[-1]) if len(run) else bits
    return None


Growth = tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]


def _relu(run: ReluRun) -> Growth:
    """Factors, constants, and how many bits a product inside a layer may have: M times all weights and biases."""
    reads, writes = np.abs(run.W_1).sum(axis=2), np.abs(run.W_2)  # (layers, r), (layers, d, r)
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
    rounding = _rounding(run)
    constant = np.where(one_direction, peak + outer * largest + rounding * sizes, sizes)
    constant = 2 * (constant + np.abs(run.b_2).max(axis=1))
    read = np.maximum(reads.max(axis=1), np.abs(run.b_1).max(axis=1))
    inside = np.log2(1.0 + read) + np.log2(2.0 + crude + sizes + constant)
    return 1.0 + slope + rounding * crude, constant, (np.ones(len(run)), inside)


def _rounding(run: ReluRun) -> float:
    """Of a layer relative to all that enters its sums, in any order: d products and sums to read, r to write, and some more."""
    _, units, rows = run.W_1.shape
    return float((units + rows + 8) * _U)


def _cap(run: ReluRun, top: float, low: float) -> float:
    """The largest number in the first row after one layer, if it was in [low, top] and the layer reads that row only.

    The layer and a bound on its rounding are piecewise linear, so the sum is largest at an end or at a break.
    """
    used = run.W_2[0, 0] != 0
    if not run.W_2[0, 0].any() and run.b_2[0, 0] == 0:
        return top  # another row
    reads, biases, out = run.W_1[0, used, 0], run.b_1[0, used], run.W_2[0, 0, used]
    if run.W_1[0, used, 1:].any() or (reads == 0).any() or not np.isfinite(top):
        return np.inf
    with np.errstate(over="ignore"):
        points = np.append(np.clip(-biases / reads, low, top), (low, top))
    hidden = np.maximum(reads * points[:, None] + biases, 0.0)
    # Rounding is relative to what enters a sum; a lone x - b near its break is exact (Sterbenz).
    entering = np.abs(reads * points[:, None]) + np.abs(biases)
    sizes = np.abs(out) * np.where((np.abs(reads) == 1) & (entering >= 4 * hidden), hidden, entering)
    values = points + (out * hidden).sum(axis=1) + run.b_2[0, 0]
    # As many terms as units that are used: each a rounded difference, a rounded product and rounded sums.
    return float((values + _rounding(run) * (np.abs(points) + sizes.sum(axis=1))).max())


def _steps_down(run: ReluRun, top: float) -> Growth | None:
    """Steps that only lower what they read: a read never grows, so each layer adds its height at most once, no factor.

    A read t above step i becomes t - |height| up to rounding; that is a step down when the rounding of the two large terms,
    relative to the largest read there can be (`top`), is less than the height. Two products, each of a rounded difference.
    """
    if not len(run):
        return None
    direction, b_1 = run.W_1[:1, :1], run.b_1
    falling_off = not run.W_2[:, :, 2:].any() and not run.b_2.any() and run.W_1.shape[1] == 4
    # All units: one that writes nothing must not read itself beyond float64 either.
    if not falling_off or (direction != run.W_1).any() or (run.W_2[:, :, 1] != -run.W_2[:, :, 0]).any():
        return None
    ramp = b_1[:, 0] - b_1[:, 1]
    heights = run.W_2[:, :, 0] * ramp[:, None]  # (layers, d)
    down = -(heights * direction[0, 0]).sum(axis=1)
    size = (np.abs(run.W_2[:, :, 0]) * np.abs(direction[0, 0])).sum(axis=1)
    first_row = (direction[0, 0] == np.eye(len(direction[0, 0]))[0]).all()
    if not first_row:
        return None
    largest = top + np.abs(b_1[:, :2]).max(axis=1)  # only reads above a step, which is above 0, are touched
    if not ((ramp > 0) & (b_1[:, 0] < 0) & (16 * _U * size * largest < down)).all():
        return None
    grown = 2 * np.abs(heights).max(axis=1) + 16 * _U * np.abs(run.W_2).max(axis=(1, 2)) * largest
    inside = np.log2(2.0 + np.abs(run.W_2).max(axis=(1, 2)) + np.abs(b_1).max(axis=1)) + 8.0
    return np.ones(len(run)), grown, (np.ones(len(run)), inside)


def _softmax(run: SoftmaxRun) -> Growth:
    sizes = {name: np.abs(getattr(run, name)).sum(axis=2) for name in ("W_V", "W_K", "W_Q")}  # (layers, heads)
    gain = (np.abs(run.W_O) * sizes["W_V"][:, :, None]).sum(axis=1).max(axis=1)
    scores = ((1.0 + sizes["W_K"]) * (1.0 + sizes["W_Q"] + np.abs(run.b_Q))).max(axis=1)
    inside = np.log2(2.0 + scores) + np.log2(2.0 + gain + sizes["W_V"].max(axis=1) + np.abs(run.W_O).max(axis=(1, 2)))
    degree = 1.0 + (sizes["W_K"].any(axis=1) & sizes["W_Q"].any(axis=1))  # a score is a product of two reads
    return 1.0 + 1.01 * gain, np.zeros(len(run)), (degree, inside)
