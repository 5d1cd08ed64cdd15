"""Step 3: real softmax and ReLU in place of hardmax and jumps (Lemma 9), with sharpness that follows from a bound.

Jumps. A jump of phi at c becomes a ramp on [c - ramp, c]; each of the two breaks takes two ReLUs. The ReLUs of a break
face away from a constant piece, so on that piece all four are exactly 0. Where a layer reads inputs (quantising), the
ramp is a strip of inputs on which nothing is promised, so its width follows from the tolerance (certify.py). Where a
layer reads ids, numbers are whole units apart and the ramp is a quarter of a unit.

Hardmax. Scores are products (key - key') * query with |key - key'| >= unit and |query| >= unit/2 on quantised inputs, so
with inverse temperature lambda a wrong column weighs at most exp(-lambda unit^2 / 2). `inverse_temperature` makes that
less than 2^-1074, the smallest float64: executed, softmax is hardmax; on paper, the error is below every other term.

Clip. At the end each row is clipped to the range of the values and 0: exact, two ReLUs. On a ramp the raw output can be of
the size of the ids; clipped it costs at most (measure of the ramps)^(1/p) * (range + |f|).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.exact import ExactArray
from provenformer.networks.modified import ZERO, Attention, FeedForward, ModifiedNetwork, ThreePiece
from provenformer.networks.stages import CLIP, QUANTISE, VALUES
from provenformer.networks.thin import FloatRun, Network, ReluRun, SoftmaxRun

TINY_WIDTH = 4  # hidden units per layer of the class T^(2,1,4)
ID_RAMP = Fraction(1, 4)  # in units; ids are whole units apart and read half a unit off


def inverse_temperature(unit_width: Fraction = Fraction(1)) -> float:
    """lambda, a power of two with exp(-lambda unit^2 / 2) < 2^-1074 (ln 2 * 1074 < 745)."""
    needed = 2 * 746 / unit_width**2
    return float(1 << int(needed).bit_length())


def relaxed_tiny(in_cells: ModifiedNetwork, ramp: float, clip: tuple[FloatArray, FloatArray], width: int) -> Network:
    """From a modified network that counts in cells to the network that runs: ramps, then the clip, then width for depth."""
    network = relax(in_cells, {QUANTISE: Fraction(ramp)}, *clip)
    if width == TINY_WIDTH:
        return network
    runs = tuple(
        merge_bumps(run, width) if isinstance(run, ReluRun) and run.stage == VALUES and len(run) > 1 else run
        for run in network.runs
    )
    return replace(network, runs=runs)


def relax(modified: ModifiedNetwork, ramps: dict[str, Fraction], low: FloatArray, high: FloatArray) -> Network:
    """The softmax/ReLU network of a modified network that counts in cells.

    `ramps` gives the width of the ramps, in cells, for stages that read inputs; stages that read ids use a quarter of a
    unit. The output is clipped to [low, high] per row.
    """
    runs: list[FloatRun] = []
    for run in modified.runs:
        if isinstance(run, Attention):
            runs.append(_softmax(run))
        else:
            relaxed = _relu(run, ramps.get(run.stage, ID_RAMP))
            runs.append(_without_fall(relaxed) if run.stage == VALUES and len(run) > 1 else relaxed)
    positions = None if modified.positions is None else modified.positions.to_float()
    return Network(modified.token_dim, modified.seq_len, (*runs, clip(low, high)), positions)


def _without_fall(run: ReluRun) -> ReluRun:
    """Value bumps that never come down again: their two falling units are switched off.

    In a downward sweep no id lies above a window when its turn comes, so nothing changes on good inputs. On a ramp a number
    may; then it is lowered by the step instead of collecting the rounding of four large terms that ought to cancel, layer
    after layer. So no number grows, however many layers there are (growth.py).
    """
    W_2 = run.W_2.copy()
    W_2[:, :, 2:] = 0.0
    # An id is then 1/2 and 1/4 above the two breaks instead of 3/4 and 1/2: products with powers of two are exact.
    return replace(run, W_2=W_2, b_1=run.b_1 - float(ID_RAMP))


def merge_bumps(run: ReluRun, hidden_dim: int) -> ReluRun:
    """Value bumps, downwards, as staircases of `hidden_dim` / 2 steps: two units per bump instead of a layer of four.

    A token above a group was finished by an earlier layer, so the last step need not come down again; within a group
    each step adds only the difference to the step below it. That is also what keeps rounding small.
    """
    steps = hidden_dim // 2
    layers, d = -(-len(run) // steps), run.W_2.shape[1]
    start, ramp = -run.b_1[:, 0], float(run.b_1[0, 0] - run.b_1[0, 1])
    height = run.W_2[:, :, 0] * ramp  # what a bump adds on its plateau
    next_lower = np.zeros_like(height)
    next_lower[:-1] = height[1:]
    next_lower[steps - 1 :: steps] = 0.0  # the lowest step of a group starts from 0
    rise = (height - next_lower) / ramp
    b_1, W_2 = np.zeros((layers * steps, 2)), np.zeros((layers * steps, d, 2))
    b_1[: len(run), 0], b_1[: len(run), 1] = -start, -(start + ramp)
    W_2[: len(run), :, 0], W_2[: len(run), :, 1] = rise, -rise
    return ReluRun(
        run.stage,
        np.broadcast_to(np.tile(run.W_1[:1, :1], (1, hidden_dim, 1)), (layers, hidden_dim, d)),
        b_1.reshape(layers, hidden_dim),
        W_2.reshape(layers, steps, d, 2).transpose(0, 2, 1, 3).reshape(layers, d, hidden_dim),
        np.broadcast_to(np.zeros((1, d)), (layers, d)),
    )


def clip(low: FloatArray, high: FloatArray) -> ReluRun:
    """One layer per row: x + ReLU(low - x) - ReLU(x - high)."""
    d = len(low)
    W_1, b_1, W_2 = np.zeros((d, 4, d)), np.zeros((d, 4)), np.zeros((d, d, 4))
    for row in range(d):
        W_1[row, :2, row] = -1.0, 1.0
        b_1[row, :2] = low[row], -high[row]
        W_2[row, row, :2] = 1.0, -1.0
    return ReluRun(CLIP, W_1, b_1, W_2, np.zeros((d, d)))


def _softmax(run: Attention) -> SoftmaxRun:
    sharp = inverse_temperature()
    W_K, W_Q, b_Q = run.W_K.to_float(), run.W_Q.to_float(), run.b_Q.to_float()
    if W_K.any():  # zero keys need no temperature: the softmax is uniform
        W_Q, b_Q = _scaled(W_Q, sharp), b_Q * sharp
    return SoftmaxRun(run.stage, run.W_O.to_float(), run.W_V.to_float(), W_K, W_Q, b_Q)


def _scaled(array: FloatArray, factor: float) -> FloatArray:
    """The product; an entry stored once for all layers stays stored once."""
    if array.strides[0] == 0:
        return np.broadcast_to(array[:1] * factor, array.shape)
    return array * factor


def relu_units(phi: ThreePiece, ramp: Fraction) -> tuple[list[tuple[int, Fraction, Fraction]], Fraction]:
    """phi as four units (sign, break, coefficient), value = coefficient * ReLU(sign * (t - break)), and a constant.

    Lemma 9's formula, for whichever piece is constant: breaks to its right use ReLUs that face right, breaks to its left
    ReLUs that face left. A break without a jump needs no ramp: its first unit has coefficient 0.
    """
    constant = [i for i, (slope, _) in enumerate(phi.pieces) if slope == 0]
    base = next((i for i in constant if phi.pieces[i] == ZERO), constant[0])  # a zero piece needs no b_2
    units: list[tuple[int, Fraction, Fraction]] = []
    for i, at in enumerate((phi.low, phi.high)):
        (slope_l, shift_l), (slope_r, shift_r) = phi.pieces[i], phi.pieces[i + 1]
        start = at - ramp
        jump = slope_r * at + shift_r - (slope_l * at + shift_l)
        if jump == 0:
            between, start = slope_l, at
        else:
            between = (slope_r * at + shift_r - (slope_l * start + shift_l)) / ramp
        sign = 1 if i >= base else -1
        if sign > 0:
            units += [(1, start, between - slope_l), (1, at, slope_r - between)]
        else:
            units += [(-1, at, slope_r - between), (-1, start, between - slope_l)]
    return units, phi.pieces[base][1]


def _relu(run: FeedForward, ramp: Fraction) -> ReluRun:
    """Every layer of a run with its phi as four ReLUs: W_1 is the direction four times, the coefficients go into W_2."""
    units, constant = relu_units(run.phi, ramp)
    direction = run.W_1.to_float()
    signs = np.array([float(sign) for sign, _, _ in units])
    W_1 = np.broadcast_to(signs[:, None] * direction[:1, None, :], (len(run), 4, direction.shape[1]))
    if run.W_1.num.strides[0] != 0 and len(run) > 1:
        W_1 = signs[:, None] * direction[:, None, :]
    bias = run.b_1.to_float()  # (layers,), integers or halves: exact, and so are the sums below within 52 bits
    b_1 = np.stack([sign * (bias - float(at)) for sign, at, _ in units], axis=1)
    W_2 = _outer(run.W_2, [coefficient for _, _, coefficient in units])
    d = direction.shape[1]
    b_2 = np.broadcast_to(np.zeros((1, d)), (len(run), d))
    if constant:
        b_2 = _outer(run.W_2, [constant])[:, :, 0]
    if run.b_2 is not None:
        b_2 = b_2 + run.b_2.to_float()
    return ReluRun(run.stage, W_1, b_1, W_2, b_2)


def _outer(W_2: ExactArray, coefficients: list[Fraction]) -> FloatArray:
    """W_2 (layers, d) times each coefficient: (layers, d, units), each product rounded once when it is a power of two."""
    base = W_2.to_float()
    factors = np.array([float(c) for c in coefficients])
    if base.strides[0] == 0:
        return np.broadcast_to(base[:1, :, None] * factors, (*base.shape, len(factors)))
    return np.asarray(base[:, :, None] * factors)
