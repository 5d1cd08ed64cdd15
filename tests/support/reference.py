"""A slow, obvious reference for the paper's layers, written from the paper and not from the package.

Plain Python: matrices are lists of rows of Fractions, every sum is a loop, attention computes the whole score matrix
and its hardmax. `paper_layers` and `appendix_c_layers` write out the networks of Proposition 4 and Appendix C in the
paper's own (ascending) order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from provenformer.networks.modified import AttentionLayer, FeedForwardLayer, ThreePiece

Matrix = list[list[Fraction]]


def matrix(rows: Any) -> Matrix:
    """Any two-dimensional nesting of exact numbers or floats as Fractions."""
    return [[Fraction(v) for v in row] for row in rows]


def multiply(a: Matrix, b: Matrix) -> Matrix:
    return [
        [sum((x * y for x, y in zip(row, col, strict=True)), Fraction(0)) for col in zip(*b, strict=True)] for row in a
    ]


def add(a: Matrix, b: Matrix) -> Matrix:
    return [[x + y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)]


def transpose(a: Matrix) -> Matrix:
    return [list(col) for col in zip(*a, strict=True)]


def hardmax_columns(scores: Matrix) -> Matrix:
    """sigma_H: in every column the arg max gets 1, a k-way tie 1/k each."""
    out = []
    for column in zip(*scores, strict=True):
        winners = [k for k, v in enumerate(column) if v == max(column)]
        out.append([Fraction(1, len(winners)) if k in winners else Fraction(0) for k in range(len(column))])
    return transpose(out)


def phi_at(phi: Phi | ThreePiece, t: Fraction) -> Fraction:
    """A three-piece function, piece by piece."""
    left, middle, right = phi.pieces
    slope, intercept = left if t < phi.low else middle if t < phi.high else right
    return slope * t + intercept


def apply_attention(layer: Any, x: Matrix) -> Matrix:
    """X + sum over heads of W_O W_V X hardmax((W_K X)^T (W_Q X + b_Q 1^T))."""
    out = x
    for W_O, W_V, W_K, W_Q, b_Q in zip(layer.W_O, layer.W_V, layer.W_K, layer.W_Q, layer.b_Q, strict=True):
        queries = [[v + b for v in row] for row, b in zip(multiply(matrix(W_Q), x), b_Q, strict=True)]
        scores = multiply(transpose(multiply(matrix(W_K), x)), queries)
        out = add(out, multiply(multiply(matrix(W_O), multiply(matrix(W_V), x)), hardmax_columns(scores)))
    return out


def apply_feed_forward(layer: Any, x: Matrix) -> Matrix:
    """X + W_2 phi(W_1 X + b_1 1^T) + b_2 1^T."""
    pre = [[v + b for v in row] for row, b in zip(multiply(matrix(layer.W_1), x), layer.b_1, strict=True)]
    hidden = [[phi_at(layer.phi, t) for t in row] for row in pre]
    return [[v + b for v in row] for row, b in zip(add(x, multiply(matrix(layer.W_2), hidden)), layer.b_2, strict=True)]


def apply_layer(layer: Any, x: Matrix) -> Matrix:
    return apply_attention(layer, x) if hasattr(layer, "W_Q") else apply_feed_forward(layer, x)


def require_in_class(layer: Any, d: int) -> None:
    """The class of the modified network: h <= 2 heads with m = 1, or one hidden unit with phi in Phi."""
    if isinstance(layer, AttentionLayer):
        heads = layer.W_O.shape[0]
        assert heads <= 2
        assert layer.W_O.shape == (heads, d, 1)
        assert layer.W_V.shape == layer.W_K.shape == layer.W_Q.shape == (heads, 1, d)
        assert layer.b_Q.shape == (heads, 1)
        entries = [layer.W_O, layer.W_V, layer.W_K, layer.W_Q, layer.b_Q]
    else:
        assert isinstance(layer, FeedForwardLayer)
        assert layer.W_1.shape == (1, d)
        assert layer.b_1.shape == (1,)
        assert layer.W_2.shape == (d, 1)
        assert layer.b_2.shape == (d,)
        assert len(layer.phi.pieces) == 3
        assert layer.phi.low <= layer.phi.high
        # A piece on an empty interval does not count: the constant one must be real.
        real = [layer.phi.pieces[0], layer.phi.pieces[2]] + [layer.phi.pieces[1]] * (layer.phi.low < layer.phi.high)
        assert any(slope == 0 for slope, _ in real)
        entries = [layer.W_1, layer.b_1, layer.W_2, layer.b_2]
    assert all(isinstance(v, Fraction) for part in entries for v in part.ravel())


# The paper's construction, layer by layer, in the paper's order.


@dataclass(frozen=True)
class Phi:
    """Linear pieces (slope, intercept) on (-inf, low), [low, high), [high, inf)."""

    low: Fraction
    high: Fraction
    pieces: Sequence[tuple[Fraction, Fraction]]


@dataclass(frozen=True)
class Feed:
    """A feed-forward layer with one hidden unit."""

    W_1: Matrix
    b_1: list[Fraction]
    W_2: Matrix
    b_2: list[Fraction]
    phi: Phi


@dataclass(frozen=True)
class Attend:
    """An attention layer: one entry per head."""

    W_O: list[Matrix]
    W_V: list[Matrix]
    W_K: list[Matrix]
    W_Q: list[Matrix]
    b_Q: list[list[Fraction]]


Layer = Feed | Attend
ZERO = (Fraction(0), Fraction(0))
# (A_L) as columns: the sequence of ids -> n columns of d values.
CellValues = Callable[[tuple[int, ...]], Sequence[Sequence[Fraction]]]


def feed(W_1: Sequence[Any], b_1: Fraction, W_2: Sequence[Any], phi: Phi) -> Feed:
    column = [[Fraction(v)] for v in W_2]
    return Feed(matrix([W_1]), [Fraction(b_1)], column, [Fraction(0)] * len(column), phi)


def unit(i: int, d: int) -> list[int]:
    return [int(k == i) for k in range(d)]


def id_vector(d: int, N: int) -> list[int]:
    return [N**i for i in range(d)]


def token(l: int, d: int, N: int) -> list[Fraction]:  # noqa: E741
    """The grid token with id l (units of delta)."""
    return [Fraction(l // N**i % N, N) for i in range(d)]


def lemma_5_layers(d: int, n: int, N: int) -> list[Layer]:
    """One layer for everything outside [0, 1), then N for the cells; row by row."""
    delta = Fraction(1, N)
    out: list[Layer] = []
    outside = (Fraction(-1), -(Fraction(N) ** (n * d)))
    for row in range(d):
        e = unit(row, d)
        out.append(feed(e, Fraction(0), e, Phi(Fraction(0), Fraction(1), (outside, ZERO, outside))))
        out += [feed(e, -k * delta, e, quantum(delta)) for k in range(N)]
    return out


def quantum(delta: Fraction) -> Phi:
    """-t on [0, delta), else 0."""
    return Phi(Fraction(0), delta, (ZERO, (Fraction(-1), Fraction(0)), ZERO))


def c_1_layers(d: int, n: int, N: int) -> list[Layer]:
    delta = Fraction(1, N)
    return [feed(unit(i, d), -k * delta, unit(i, d), quantum(delta)) for i in range(d) for k in range(n * N)]


def psi(d: int, N: int, gains: Sequence[int], biases: Sequence[Fraction]) -> Attend:
    """One head gain * psi(X; b) = gain e1 u^T X hardmax((u^T X)^T (u^T X - b 1^T)) per (gain, b)."""
    u = matrix([id_vector(d, N)])
    heads = len(gains)
    outputs = [[[Fraction(gain * e)] for e in unit(0, d)] for gain in gains]
    return Attend(outputs, [u] * heads, [u] * heads, [u] * heads, [[-b] for b in biases])


def selective_shifts(d: int, N: int, gain: int, ids: Sequence[Fraction], final_gain: int) -> list[Layer]:
    """gain * Psi(X; l - delta/2, l + delta/2) for the ids l in increasing order, then final_gain * psi(X; 0)."""
    half = Fraction(1, 2 * N)
    sweep: list[Layer] = [psi(d, N, (gain, -gain), (l - half, l + half)) for l in ids]  # noqa: E741
    return [*sweep, psi(d, N, (final_gain,), (Fraction(0),))]


def lemma_6_layers(d: int, n: int, N: int) -> list[Layer]:
    return selective_shifts(d, N, N**d, [Fraction(k, N) for k in range(N**d)], N ** ((n + 1) * d))


def c_2_layers(d: int, n: int, N: int, gain: int) -> list[Layer]:
    starts = [j * sum(Fraction(N) ** i for i in range(d)) for j in range(n)]
    ids = sorted({s + Fraction(k, N) for s in starts for k in range(N**d)})
    return selective_shifts(d, N, gain, ids, n * N ** ((n + 1) * d + 1))


def run(layers: Sequence[Any], x: Matrix) -> Matrix:
    for layer in layers:
        x = apply_layer(layer, x)
    return x


def value_layers(
    d: int, N: int, contexts: Sequence[Matrix], shifts: Sequence[Layer], values: Sequence[Any]
) -> list[Layer]:
    """Per context and column: add (A_L)_j - g_c(L)_j where |u.z - q(L)_j| < delta/2 (half-open), as Lemma 7 (c)."""
    half, u = Fraction(1, 2 * N), id_vector(d, N)
    bump = Phi(-half, half, (ZERO, (Fraction(0), Fraction(1)), ZERO))
    out: list[Layer] = []
    for context, value in zip(contexts, values, strict=True):
        mapped = run(shifts, context)
        for column, wanted in zip(transpose(mapped), value, strict=True):
            q = sum((w * v for w, v in zip(u, column, strict=True)), Fraction(0))
            out.append(feed(u, -q, [a - b for a, b in zip(wanted, column, strict=True)], bump))
    return out


def paper_layers(d: int, n: int, N: int, cell_values: CellValues) -> dict[str, list[Layer]]:
    """Proposition 4: g_q, g_c, g_v as printed; M is found by looking at every point of the extended grid."""
    K, delta, u = N**d, Fraction(1, N), id_vector(d, N)
    shifts = lemma_6_layers(d, n, N)
    t_l, t_r = delta ** (-2 * n * d + 1) * (K - 1), delta ** (-(2 * n + 1) * d + 1) * (K - 1)
    M = max(abs(v) for L in extended_grid(d, n, N) for row in run(shifts, L) for v in row)
    one = (Fraction(0), Fraction(1))
    values: list[Layer] = [feed(u, Fraction(0), [-(M + 1)] * d, Phi(t_l, t_r, (one, ZERO, one)))]
    negative = Phi(Fraction(0), Fraction(0), ((Fraction(-1), Fraction(0)), ZERO, ZERO))
    values += [feed(unit(i, d), Fraction(0), unit(i, d), negative) for i in range(d)]
    sets = list(combinations(range(K), n))
    contexts = [transpose([token(l, d, N) for l in ids]) for ids in sets]  # noqa: E741
    values += value_layers(d, N, contexts, shifts, [cell_values(ids) for ids in sets])
    return {"quantise": lemma_5_layers(d, n, N), "contextual map": shifts, "values": values}


def appendix_c_layers(d: int, n: int, N: int, cell_values: CellValues, gain: int) -> dict[str, list[Layer]]:
    """Appendix C, for inputs X + E; `gain` is N^d as printed or the repaired one."""
    shifts = c_2_layers(d, n, N, gain)
    sequences = list(product(range(N**d), repeat=n))
    contexts = [transpose([[v + j for v in token(l, d, N)] for j, l in enumerate(ids)]) for ids in sequences]  # noqa: E741
    values = value_layers(d, N, contexts, shifts, [cell_values(ids) for ids in sequences])
    return {"quantise": c_1_layers(d, n, N), "contextual map": shifts, "values": values}


def extended_grid(d: int, n: int, N: int) -> list[Matrix]:
    """{-N^(nd), 0, 1/N, .., 1 - 1/N}^(d x n)."""
    axis = [-(Fraction(N) ** (n * d)), *(Fraction(k, N) for k in range(N))]
    return [[list(entries[i * n : (i + 1) * n]) for i in range(d)] for entries in product(axis, repeat=d * n)]


def weights(layer: Any) -> tuple[Any, ...]:
    """All weights of a layer (ours or the package's) as one hashable value; switched-off heads are left out."""

    def flat(part: Any) -> tuple[Fraction, ...]:
        return tuple(Fraction(v) for v in np.array(part, dtype=object).ravel())

    if hasattr(layer, "W_Q"):
        heads = zip(layer.W_O, layer.W_V, layer.W_K, layer.W_Q, layer.b_Q, strict=True)
        return tuple(tuple(flat(p) for p in head) for head in heads if any(flat(head[0])))
    phi = (layer.phi.low, layer.phi.high, tuple(layer.phi.pieces))
    return (*(flat(p) for p in (layer.W_1, layer.b_1, layer.W_2, layer.b_2)), phi)


def shift_ids(ids: Sequence[int], sweep: Sequence[int], gain: int) -> list[int]:
    """The selective shifts on ids alone, in units of delta: a column whose id is l gains gain * (max - min)."""
    out = list(ids)
    for l in sweep:  # noqa: E741
        move = gain * (max(out) - min(out))
        out = [v + move if v == l else v for v in out]
    return out


def last_shift(ids: Sequence[int], gain: int) -> list[Fraction]:
    """psi(X; 0): the largest id for positive columns, the smallest for negative ones, the mean for 0 (a full tie)."""
    mean = Fraction(sum(ids), len(ids))
    return [v + gain * (Fraction(max(ids)) if v > 0 else Fraction(min(ids)) if v < 0 else mean) for v in ids]
