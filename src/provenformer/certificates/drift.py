"""How far a disguised circuit, executed, may be from the circuit in real arithmetic: a bound for any weights whatever.

With S the state of the circuit and S' that of the disguised network, S' = R (S + e) + r for the given R (`encode`): `e` is what
layers made of earlier deviations, in channels of the circuit, |e| <= `moved`; `r` is fresh rounding and what weights are off, in
the new coordinates, |r| <= `dust`. Every rule below is a triangle inequality; docs/drift.md writes them out. All terms are >= 0,
so computing the bound itself in float64 errs by a small share of it, for which SAFETY is far more than enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from provenformer.base.arrays import FloatArray
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Head
from provenformer.networks.disguise import Disguised
from provenformer.networks.program import directions

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126}  # results below may become 0
LARGEST = 2.0**100  # of weights and numbers: beyond nothing is claimed
SAFETY = 1 + 1e-6
EXP = 16  # roundings of a weight beside those of its sum: exp within 4 units in the last place, quotient


def drift(
    network: CircuitNetwork,
    sizes: Mapping[int, FloatArray],
    disguised: Disguised,
    largest_input: FloatArray,
    dtype: DTypeLike,
) -> float:
    """sup |disguised network executed in `dtype` - circuit in real arithmetic|, for inputs with |X_i| <= largest_input (d,).

    `sizes` (D,) bound the channels of the circuit, in real arithmetic, after so many layers, two per block, 0 .. 2 blocks.
    """
    precision, rounded = np.dtype(dtype).name, disguised.in_precision(dtype)
    if not moderate(rounded, TINY[precision]):
        return float("inf")
    with np.errstate(all="ignore"):
        found = Walk(network, rounded, largest_input, UNIT[precision], TINY[precision]).run(sizes)
    return float(found * SAFETY) if np.isfinite(found) else float("inf")


def moderate(disguised: Disguised, tiny: float) -> bool:
    """Whether no weight may overflow, or become 0 on its way whatever it is multiplied by."""
    seen: list[bool] = []

    def look(weight: FloatArray) -> FloatArray:
        size = np.abs(weight)
        seen.append(bool(((size == 0) | ((size >= tiny) & (size <= LARGEST))).all()))
        return weight

    disguised.mapped(look)
    return all(seen)


@dataclass(frozen=True)
class Read:
    """What a matrix reads: how large it is in the circuit, how far moved channels move it, and how far everything else does."""

    size: FloatArray
    moved: FloatArray
    fresh: FloatArray

    @property
    def off(self) -> FloatArray:
        return self.moved + self.fresh


class Walk:
    """Layer by layer: how far states and readings of the two may be apart. `made` are the columns that states are sums of."""

    def __init__(self, network: CircuitNetwork, disguised: Disguised, x: FloatArray, unit: float, tiny: float) -> None:
        self.network, self.disguised, self.unit, self.tiny = network, disguised, unit, tiny
        self.encode, self.width = np.abs(disguised.encode), len(disguised.encode)
        identity = np.eye(network.model_dim, network.token_dim)
        self.made: list[tuple[FloatArray, FloatArray]] = [
            (identity, x)
        ]  # what states are sums of: columns, and their largest factors
        self.moved = np.zeros(network.model_dim)
        start = np.abs(disguised.embedding) @ x
        known = np.abs(disguised.positions).max(axis=1)
        self.dust = (
            self.written(identity, disguised.embedding) @ x
            + self.written(network.positions, disguised.positions).max(axis=1)
            + self.sum(len(x) + 3) * (start + known)
            + tiny * (len(x) + 3)
        )

    def run(self, sizes: Mapping[int, FloatArray]) -> float:
        for b, (block, disguised) in enumerate(
            zip(self.network.circuit_blocks, self.disguised.circuit_blocks, strict=True)
        ):
            self._heads(block, disguised, sizes[2 * b])
            self._units(block, disguised, sizes[2 * b + 1])
        last = sizes[2 * self.network.blocks]
        out = self.read(self.network.W_out, self.disguised.W_out, self.network.b_out, self.disguised.b_out, last)
        return float(out.off.max())  # not a number where something is not bounded

    def sum(self, terms: int) -> float:
        """Relative rounding of a sum of so many products, in any order."""
        return terms * self.unit / (1 - terms * self.unit)

    def _here(self, terms: int) -> float:
        """The same for what is computed here."""
        return terms * 2.0**-53 / (1 - terms * 2.0**-53)

    def written(self, columns: FloatArray, disguised: FloatArray) -> FloatArray:
        """|disguised - encode @ columns|, at most."""
        rounding = self._here(len(columns) + 3) * (self.encode @ np.abs(columns) + np.abs(disguised))
        return np.asarray(np.abs(disguised - self.disguised.encode @ columns) + rounding)

    def state(self, size: FloatArray) -> FloatArray:
        """(D',): the largest number in the disguised state."""
        return np.asarray(self.encode @ (size + self.moved) + self.dust)

    def read(
        self, rows: FloatArray, disguised: FloatArray, bias: FloatArray, disguised_bias: FloatArray, size: FloatArray
    ) -> Read:
        """disguised @ S' + bias, executed, beside rows @ S + bias: (rows' R - rows) S, rows' R e, rows' r, and rounding."""
        gap = disguised @ self.disguised.encode - rows
        doubt = self._here(self.width + 3) * (np.abs(disguised) @ self.encode + np.abs(rows))
        by_columns = sum(
            (np.abs(gap @ columns) + self._here(len(columns) + 2) * (np.abs(gap) @ np.abs(columns))) @ factors
            for columns, factors in self._columns()
        )
        missed = np.minimum(np.abs(gap) @ size, by_columns) + doubt @ size
        executed = np.abs(disguised) @ self.state(size) + np.abs(disguised_bias)
        executed = np.where(executed <= LARGEST, executed, np.inf)
        fresh = (
            missed
            + (np.abs(gap) + doubt) @ self.moved
            + np.abs(disguised) @ self.dust
            + np.abs(disguised_bias - bias)
            + self.sum(self.width + 3) * executed
            + self.tiny * (self.width + 3)
        )
        return Read(np.abs(rows) @ size + np.abs(bias), np.abs(rows) @ self.moved, fresh)

    def _columns(self) -> list[tuple[FloatArray, FloatArray]]:
        """Columns and factors whose sums the states are; of the positions a token has one column, and all are counted."""
        return [*self.made, (self.network.positions, np.ones(self.network.seq_len))]

    def _heads(self, block: CircuitBlock, disguised: CircuitBlock, size: FloatArray) -> None:
        moved, dust = np.zeros_like(self.moved), np.zeros_like(self.dust)
        written, terms = self.state(size), 3
        for head, other in zip(block.heads, disguised.heads, strict=True):
            nothing = np.zeros(len(head.W_V))
            values = self.read(head.W_V, other.W_V, nothing, nothing, size)
            n, reach = self.network.seq_len, values.size + values.off
            spread, share = self._attention(head, other, size), (n + EXP) * self.unit * 1.01
            off = (
                values.off
                + spread * 2 * values.size
                + (share + self.sum(n + 2) * (1 + share)) * reach
                + self.tiny * (n + 2)
            )
            moved += np.abs(head.W_O) @ off
            dust += self.written(head.W_O, other.W_O) @ (values.size + off)
            written += np.abs(other.W_O) @ (values.size + off)
            terms += len(head.W_V)
            self.made.append((head.W_O, values.size))
        if block.heads:
            self.moved = self.moved + moved
            self.dust = self.dust + dust + self.sum(terms) * written + self.tiny * terms

    def _attention(self, head: Head, other: Head, size: FloatArray) -> float:
        """How far the weights of a query move, in total variation."""
        if not len(head.b_Q):
            return 0.0
        queries = self.read(head.W_Q, other.W_Q, head.b_Q, other.b_Q, size)
        keys = self.read(head.W_K, other.W_K, np.zeros(len(head.b_Q)), np.zeros(len(head.b_Q)), size)
        both = float((queries.size + queries.off) @ (keys.size + keys.off))
        scores = float(queries.size @ keys.off + queries.off @ keys.size + queries.off @ keys.off)
        if not both <= LARGEST:
            return float("nan")
        scores += self.sum(len(head.b_Q) + 4) * both + 4 * self.unit * both + self.tiny * (len(head.b_Q) + 4)
        away = self._not_on_top(head)
        return float(np.minimum(np.tanh(scores / 2), away * np.expm1(min(2 * scores, 50.0)) if scores < 25 else np.inf))

    def _not_on_top(self, head: Head) -> float:
        """The largest weight that keys beside the top one have together, where positions alone decide it; else 1."""
        constant = self.network.constant_channels
        if head.W_Q[:, ~constant].any() or head.W_K[:, ~constant].any():
            return 1.0
        at = self.network.positions
        scores = (head.W_Q @ at + head.b_Q[:, None]).T @ (head.W_K @ at)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        np.put_along_axis(powers, scores.argmax(axis=1)[:, None], 0.0, axis=1)
        largest = np.abs(head.W_Q) @ np.abs(at).max(axis=1) + np.abs(head.b_Q)
        doubt = self._here(2 * len(at) + 8) * float(largest @ (np.abs(head.W_K) @ np.abs(at).max(axis=1)))
        return float(min(1.0, powers.sum(axis=1).max() * np.exp(4 * doubt) * SAFETY)) if doubt < 1 else 1.0

    def _units(self, block: CircuitBlock, disguised: CircuitBlock, size: FloatArray) -> None:
        hidden = self.read(block.W_1, disguised.W_1, block.b_1, disguised.b_1, size)
        off, reach = hidden.off, hidden.size + hidden.off
        moved = np.max([self._moved(block, hidden.fresh, on) for on in self._switches(block, size, off)], axis=0)
        written = self.state(size) + np.abs(disguised.W_2) @ reach + np.abs(disguised.b_2)
        dust = self.written(block.W_2, disguised.W_2) @ reach
        dust += self.written(block.b_2[:, None], disguised.b_2[:, None])[:, 0]
        terms = len(off) + 3
        self.dust = self.dust + dust + self.sum(terms) * written + self.tiny * terms
        self.moved = moved
        self.made += [(block.W_2, hidden.size), (block.b_2[:, None], np.ones(1))]

    def _moved(self, block: CircuitBlock, fresh: FloatArray, on: NDArray[np.bool_]) -> FloatArray:
        """How far channels are moved after the units, at tokens at which no others are ever on."""
        some = replace(block, W_1=block.W_1[on], b_1=block.b_1[on], W_2=block.W_2[:, on])
        return np.asarray(_through(some, self.moved) + np.abs(some.W_2) @ fresh[on])

    def _switches(self, block: CircuitBlock, size: FloatArray, off: FloatArray) -> NDArray[np.bool_]:
        """(classes of tokens, units): which units may be on, here or in the circuit, by what positions say of it."""
        constant = self.network.constant_channels
        at, rows = self.network.positions[constant], block.W_1[:, constant]
        known = rows @ at + block.b_1[:, None]
        doubt = self._here(len(at) + 3) * (np.abs(rows) @ np.abs(at) + np.abs(block.b_1)[:, None])
        reach = np.abs(block.W_1[:, ~constant]) @ size[~constant] * SAFETY + off
        return np.unique(known + doubt * SAFETY + reach[:, None] > 0, axis=1).T


def _through(block: CircuitBlock, moved: FloatArray) -> FloatArray:
    """How far s + W_2 relu(W_1 s + b_1) moves, channel by channel, if channels move by `moved`.

    Units that read one direction w are a piecewise linear function of w s; with slopes t from its least to its largest a channel
    moves by (1 + t w) s at most, skip included: a + relu(b - a) has t in [0, 1] and moves no more than a or b does.
    """
    if not len(block.b_1):
        return moved
    rows, sign, which = directions(block.W_1)
    least, most = np.zeros((2, len(moved), len(rows)))
    knots = -block.b_1 * sign
    for g in range(len(rows)):
        units = np.flatnonzero(which == g)
        order = units[np.argsort(knots[units], kind="stable")]
        falling = -block.W_2[:, units[sign[units] < 0]].sum(axis=1)
        slopes = falling[:, None] + np.concatenate(
            [np.zeros((len(moved), 1)), np.cumsum(block.W_2[:, order], axis=1)], axis=1
        )
        doubt = (len(units) + 2) * 2.0**-52 * np.abs(block.W_2[:, units]).sum(axis=1)
        least[:, g], most[:, g] = slopes.min(axis=1) - doubt, slopes.max(axis=1) + doubt
    steepest = np.maximum(np.abs(least), np.abs(most))  # (D, directions)
    alone = np.abs(rows) @ moved  # how far each direction moves
    apart = steepest * alone
    out = moved + apart.sum(axis=1)
    for c, g in np.argwhere(steepest > 0):
        identity = np.zeros(len(moved))
        identity[c] = 1.0
        together = max(float(np.abs(identity + t * rows[g]) @ moved) for t in (least[c, g], most[c, g]))
        others = np.delete(apart[c], g).sum()
        out[c] = min(out[c], together + others)
    return np.asarray(out)
