"""Modified networks (Section 1 of the docs): hardmax attention and three-piece activations, evaluated exactly.

A network is a tuple of *runs*: stacks of layers of one kind, one array entry per layer. Nothing here is a Python
object per layer; `ModifiedNetwork.layer(i)` gives any single layer as the paper's matrices. Evaluation is layer by
layer in Python integers over one common denominator, so it is exact for every float64 input.

Layers, as in the paper, with m = 1 and r = 1:
    attention      X + sum_h W_O W_V X hardmax((W_K X)^T (W_Q X + b_Q))
    feed-forward   X + W_2 phi(W_1 X + b_1) + b_2,   phi in Phi
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import ClassVar, Literal

import numpy as np

from provenformer.base.arrays import FloatArray, HoldsArrays, require_sequences
from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import Array, ExactArray, denominator_of_floats, floats_over, integer_dtype, to_float
from provenformer.networks.stack import LayerStack, first_where

Piece = tuple[Fraction, Fraction]  # slope, intercept
ZERO: Piece = (Fraction(0), Fraction(0))


@dataclass(frozen=True)
class ThreePiece:
    """phi in Phi: linear pieces on (-inf, low), [low, high), [high, inf), at least one of them constant."""

    low: Fraction
    high: Fraction
    pieces: tuple[Piece, Piece, Piece]

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ProvenformerError(f"phi has its breaks out of order ({self.low} > {self.high}); swap them.")
        if all(slope != 0 for slope, _ in self.pieces):
            raise ProvenformerError("phi has no constant piece, so it is not in the class Phi; make one slope 0.")

    @classmethod
    def window(cls, low: Fraction, high: Fraction, slope: int = 0, intercept: int = 0) -> ThreePiece:
        """slope * t + intercept on [low, high) and 0 elsewhere."""
        return cls(low, high, (ZERO, (Fraction(slope), Fraction(intercept)), ZERO))

    def __call__(self, t: Fraction) -> Fraction:
        slope, intercept = self.pieces[bisect_right((self.low, self.high), t)]
        return slope * t + intercept


@dataclass(frozen=True, eq=False, repr=False)
class FeedForward(HoldsArrays):
    """A run of feed-forward layers with one hidden unit each; they share phi."""

    attends: ClassVar[bool] = False
    stage: str
    W_1: ExactArray  # (layers, d)
    b_1: ExactArray  # (layers,)
    W_2: ExactArray  # (layers, d)
    phi: ThreePiece
    b_2: ExactArray | None = None  # (layers, d); None is 0

    def __len__(self) -> int:
        return self.W_2.shape[0]


@dataclass(frozen=True, eq=False, repr=False)
class Attention(HoldsArrays):
    """A run of attention layers with heads of size one."""

    attends: ClassVar[bool] = True
    stage: str
    W_O: ExactArray  # (layers, heads, d)
    W_V: ExactArray  # (layers, heads, d)
    W_K: ExactArray  # (layers, heads, d)
    W_Q: ExactArray  # (layers, heads, d)
    b_Q: ExactArray  # (layers, heads)

    def __len__(self) -> int:
        return self.W_O.shape[0]


Run = FeedForward | Attention


@dataclass(frozen=True, eq=False, repr=False)
class FeedForwardLayer(HoldsArrays):
    """One feed-forward layer as the paper writes it: W_1 (1 x d), b_1 (1), W_2 (d x 1), b_2 (d), in Fractions."""

    stage: str
    W_1: Array
    b_1: Array
    W_2: Array
    b_2: Array
    phi: ThreePiece


@dataclass(frozen=True, eq=False, repr=False)
class AttentionLayer(HoldsArrays):
    """One attention layer: per head W_O (d x 1), W_V, W_K, W_Q (1 x d), b_Q (1), stacked over heads, in Fractions."""

    stage: str
    W_O: Array
    W_V: Array
    W_K: Array
    W_Q: Array
    b_Q: Array


@dataclass(frozen=True, eq=False, repr=False)
class Step(HoldsArrays):
    """A moment of a trace: after which stage and layer, and the exact state."""

    stage: str
    layer: int  # how many layers have been applied
    num: Array  # (batch, d, n)
    den: int

    def values(self) -> Array:
        """The state as Fractions."""
        return np.array([Fraction(int(v), self.den) for v in self.num.ravel()], dtype=object).reshape(self.num.shape)

    def floats(self) -> FloatArray:
        """The state, correctly rounded."""
        return to_float(self.num, self.den)


@dataclass(frozen=True, eq=False, repr=False)
class ModifiedNetwork(LayerStack):
    """A composition of modified blocks, with positions E added first when given (Theorem 3)."""

    token_dim: int
    seq_len: int
    runs: tuple[Run, ...]
    positions: ExactArray | None = None  # E, (d, n)
    closed_at: tuple[float, ...] | None = None  # with positions: the upper end of the box, per row

    hidden_dim = 1

    @property
    def nbytes(self) -> int:
        """Memory held by the weights."""
        return sum(v.nbytes for run in self.runs for v in vars(run).values() if isinstance(v, ExactArray))

    def layer(self, index: int) -> FeedForwardLayer | AttentionLayer:
        """Any single layer as the paper's matrices."""
        run, i = self._find(index)
        if isinstance(run, Attention):
            return AttentionLayer(
                run.stage, run.W_O[i][:, :, None], run.W_V[i][:, None], run.W_K[i][:, None], run.W_Q[i][:, None],
                run.b_Q[i][:, None],
            )  # fmt: skip
        none = np.array([Fraction(0)] * self.token_dim, dtype=object)
        return FeedForwardLayer(
            run.stage, run.W_1[i][None, :], run.b_1[np.array([i])], run.W_2[i][:, None],
            none if run.b_2 is None else run.b_2[i], run.phi,
        )  # fmt: skip

    def __call__(self, x: FloatArray) -> FloatArray:
        """The output, exact and then correctly rounded, for x of shape (..., d, n)."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        *_, final = self.trace(x)
        return final.floats().reshape(x.shape)

    def trace(self, x: FloatArray, every: Literal["stage", "layer"] = "stage") -> Iterator[Step]:
        """The exact state of a batch (batch, d, n) at the start and after every stage or every layer."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        x = x.reshape(-1, *x.shape[-2:])
        if self.closed_at is not None:
            # The last cube of a positional network is closed: on the next token's window lies only a set of measure 0.
            x = np.where(x == np.array(self.closed_at)[:, None], np.nextafter(x, -np.inf), x)
        den = denominator_of_floats(x)
        if self.positions is not None:
            den = lcm(den, self.positions.common_denominator)
        num = floats_over(x, den)
        if self.positions is not None:
            num = num + self.positions.over(den)
        yield from self.trace_exact(num, den, every)

    def trace_exact(self, num: Array, den: int, every: Literal["stage", "layer"] = "stage") -> Iterator[Step]:
        """The same from an exact state num / den, positions already added."""
        now = num.copy()
        yield Step("input", 0, now, den)
        done = 0
        for i, run in enumerate(self.runs):
            steps = _attend(run, num, den) if isinstance(run, Attention) else _feed(run, num, den)
            for changed in steps:
                done += 1
                if changed is not None:
                    num, den = changed
                if every == "layer":
                    now = now if changed is None else num.copy()
                    yield Step(run.stage, done, now, den)
            if every == "stage" and (i + 1 == len(self.runs) or self.runs[i + 1].stage != run.stage):
                yield Step(run.stage, done, num.copy(), den)


def hardmax(scores: Array) -> Array:
    """Column-wise one-hot of the arg max, 1/k on a k-way tie, as Fractions (the paper's sigma_H), axis -2."""
    best = scores == scores.max(axis=-2, keepdims=True)
    ties = best.sum(axis=-2, keepdims=True)
    share: Array = np.frompyfunc(lambda k: Fraction(1, int(k)), 1, 1)(ties)
    return np.asarray(best * share)


def _feed(run: FeedForward, num: Array, den: int) -> Iterator[tuple[Array, int] | None]:
    """Apply a feed-forward run; yields the state after each layer, None where a layer changes nothing.

    Only tokens on which phi is not 0 change. A float64 shadow of W_1 X finds them: rounding is monotone, so a shadow
    strictly on one side of a rounded break proves the exact number on that side; everything else is decided exactly.
    """
    batch, d, n = num.shape
    weights = [w for w in (run.W_1, run.b_1, run.W_2, run.b_2) if w is not None]
    common = lcm(den, *(w.common_denominator for w in weights))
    tokens: Array = num.transpose(0, 2, 1).reshape(-1, d) * (common // den)
    den = common
    low, high = _float_breaks(run, run.phi.low), _float_breaks(run, run.phi.high)
    live = [piece != ZERO for piece in run.phi.pieces]
    one_direction = run.W_1.num.strides[0] == 0 or len(run) == 1
    busy = -1
    for i in range(len(run)):
        if i == 0 or not one_direction:
            direction = run.W_1[i]
            pre = _dot(tokens, direction)
            shadow = to_float(pre, den)
        if busy < i:
            skips = one_direction and run.b_2 is None
            busy = _next_busy(np.sort(shadow), low, high, live, i) if skips else i
        if i < busy:
            yield None
            continue
        if run.b_2 is None:
            touched = (live[0] & (shadow <= low[i])) | (live[2] & (shadow >= high[i]))
            touched |= live[1] & (shadow >= low[i]) & (shadow <= high[i])
            hit = np.flatnonzero(touched)
        else:
            hit = np.arange(len(tokens))
        if hit.size:
            change = _changes(run, i, pre[hit], den)
            growth = lcm(*{f.denominator // gcd(f.denominator, den) for f in change.ravel()})
            if growth > 1:
                den *= growth
                tokens *= growth
                pre *= growth
            tokens[hit] += np.frompyfunc(lambda f, over: f.numerator * (over // f.denominator), 2, 1)(change, den)
            pre[hit] = _dot(tokens[hit], direction)
            shadow[hit] = to_float(pre[hit], den)
        yield tokens.reshape(batch, n, d).transpose(0, 2, 1), den


def _next_busy(shadows: FloatArray, low: FloatArray, high: FloatArray, live: list[bool], start: int) -> int:
    """The first layer from `start` on that may touch one of these tokens (sorted), or the number of layers."""

    def touches(at: slice) -> Array:
        within = np.searchsorted(shadows, low[at], "left") < np.searchsorted(shadows, high[at], "right")
        return np.asarray(
            (live[0] & (shadows[0] <= low[at])) | (live[1] & within) | (live[2] & (shadows[-1] >= high[at]))
        )

    return first_where(touches, start, len(low)) if shadows.size else len(low)


def _changes(run: FeedForward, i: int, pre: Array, den: int) -> Array:
    """W_2 phi(pre / den + b_1) + b_2 for layer i as Fractions, (tokens, d)."""
    b_1, W_2 = run.b_1[np.array([i])][0], run.W_2[i]
    offset = Fraction(0) if run.b_2 is None else run.b_2[i]
    # Few different numbers occur once tokens are quantised: evaluate each once.
    known = {t: W_2 * run.phi(Fraction(t, den) + b_1) + offset for t in set(pre.tolist())}
    return np.stack([known[t] for t in pre.tolist()])


def _float_breaks(run: FeedForward, at: Fraction) -> FloatArray:
    """The break of phi, moved by each layer's bias, as correctly rounded floats: W_1 X crosses it at `at - b_1`."""
    if run.b_1.dyadic is None:
        den = lcm(run.b_1.den, at.denominator)
        nums = int(at * den) - run.b_1.num.astype(object) * (den // run.b_1.den)
        return to_float(nums, den)
    return np.array([float(at - b) for b in run.b_1[:]])


def _dot(tokens: Array, direction: Array) -> Array:
    """W_1 X for integer weights, in Python integers."""
    total = sum(tokens[:, k] * _whole(w) for k, w in enumerate(direction) if w)
    return np.zeros(len(tokens), dtype=object) if isinstance(total, int) else total


def _attend(run: Attention, num: Array, den: int) -> Iterator[tuple[Array, int] | None]:
    """Apply an attention run; yields the state after each layer. int64 while it fits, Python integers beyond.

    With head size one the score of key k for query j is a product of two numbers, so column j attends to the largest
    key if its query is positive, to the smallest if negative, and to all alike if it is 0.
    """
    shared = gcd(int(np.gcd.reduce(num.ravel())) if num.size else den, den)  # quantised numbers are short: make them so
    common = lcm(den // shared, run.b_Q.common_denominator)
    num, den = num // shared * (common * shared // den), common
    ties = lcm(*range(1, num.shape[-1] + 1))  # a mean over ties is an integer over this
    for i in range(len(run)):
        W_O, W_V, W_K, W_Q = (w[i] for w in (run.W_O, run.W_V, run.W_K, run.W_Q))
        gain_den = lcm(*(g.denominator for g in W_O.ravel()))
        gains = np.array([int(g * gain_den) for g in W_O.ravel()], dtype=object).reshape(W_O.shape)
        bias = run.b_Q.over(den, i)
        reach = max(1, *(int(sum(abs(w))) for w in (*W_V, *W_K, *W_Q)))
        largest = int(abs(num).max()) if num.size else 0
        bound = (largest + 1) * reach * num.shape[-1] * ties * (1 + int(abs(gains).sum())) * gain_den
        num = num.astype(integer_dtype(max(bound, *(int(abs(b)) for b in bias))), copy=False)
        change: Array = np.zeros(num.shape, dtype=num.dtype)
        for head in range(W_O.shape[0]):
            keys, queries, values = (_project(w[head], num) for w in (W_K, W_Q, W_V))
            mixed = _mean_of_attended(keys, queries + int(bias[head]), values, ties)
            change += np.stack([mixed * int(g) for g in gains[head]], axis=1)
        whole, rest = change // (ties * gain_den), change % (ties * gain_den)  # np.divmod has no object loop
        if rest.any():  # a mean that is not on the grid: refine the denominator
            num, den = num.astype(object) * (ties * gain_den) + change, den * ties * gain_den
        else:
            num = num + whole
        yield num.astype(object), den


def _project(weights: Array, num: Array) -> Array:
    """w.X for integer weights: (batch, n)."""
    out: Array = np.zeros((num.shape[0], num.shape[2]), dtype=num.dtype)
    for k, w in enumerate(weights):
        if w:
            out = out + num[:, k] * _whole(w)
    return out


def _whole(weight: Fraction) -> int:
    """A projection weight as an integer; all constructions have only such, and cutting off a fraction would be wrong."""
    if weight.denominator != 1:
        raise ProvenformerError(f"weight {weight} of W_1, W_V, W_K or W_Q is not an integer; scale the layer.")
    return weight.numerator


def _mean_of_attended(keys: Array, queries: Array, values: Array, ties: int) -> Array:
    """`ties` times the mean value of the columns that each query attends to."""

    def mean_where(chosen: Array) -> Array:
        total = np.where(chosen, values, 0).sum(axis=-1, keepdims=True)
        return np.asarray(total * (ties // chosen.sum(axis=-1, keepdims=True)))

    largest = mean_where(keys == keys.max(axis=-1, keepdims=True))
    smallest = mean_where(keys == keys.min(axis=-1, keepdims=True))
    everyone = mean_where(np.ones(keys.shape, dtype=bool))
    return np.where(queries > 0, largest, np.where(queries < 0, smallest, everyone))
