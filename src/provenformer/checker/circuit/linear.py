"""Linear combinations of atoms as the checker reads them off weights, their differences, and between what they lie.

    value_j = constant_j + sum over atoms of own * atom(j) + sum_k mix[j, k] atom(k)

The checker's own rounding in computing coefficients is kept as `slack`: the exact combination is within it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.symbols.graph import Graph, Lin

U = 2.0**-53


@dataclass(frozen=True, eq=False)
class Part:
    """The share of one atom. mix: None, (1, n) or (n, n); for an atom that is the same at every token (1, 1) or (n, 1).

    own: one factor, or one for every token (n,).
    """

    own: Any
    mix: FloatArray | None

    @cached_property
    def weight(self) -> float:
        """The largest sum of absolute coefficients of a row."""
        return float(np.abs(self.own).max()) + (0.0 if self.mix is None else float(np.abs(self.mix).sum(axis=1).max()))


@dataclass(frozen=True, eq=False)
class Combination:
    """constant is (1,) or (n,)."""

    parts: dict[int, Part]
    constant: FloatArray
    slack: float = 0.0

    @property
    def is_constant(self) -> bool:
        return not self.parts

    def without_constant(self) -> Combination:
        return Combination(self.parts, np.zeros(1), self.slack)


@dataclass(frozen=True, eq=False)
class Line:
    """An atom lies between along + low and along + high."""

    along: Combination
    low: float
    high: float


@dataclass(frozen=True)
class Ball:
    """An atom is scale x r, up to `off`; r the atom `factor`, and r^2 (sum over all such x, each once, of weight x^2) <= 1."""

    factor: int
    value: object  # which x
    scale: float
    weight: float  # of this x
    off: float


@dataclass(frozen=True, eq=False)
class Ranges:
    """low <= atom <= high on the box, which atoms are the same at every token, and what else is known of some (affine.py)."""

    low: dict[int, float]
    high: dict[int, float]
    uniform: dict[int, bool]
    lines: dict[int, Line] = field(default_factory=dict)
    balls: dict[int, Ball] = field(default_factory=dict)
    graph: Graph | None = None

    def size(self, atom: int) -> float:
        return max(abs(self.low[atom]), abs(self.high[atom]))


def atom_combination(atom: int, ranges: Ranges, rows: FloatArray | None = None) -> Combination:
    """rows @ atom, or the atom itself."""
    if rows is None:
        return Combination({atom: Part(1.0, None)}, np.zeros(1))
    if rows.ndim == 1:
        return Combination({atom: Part(rows, None)}, np.zeros(1))
    if ranges.uniform[atom]:
        sums = rows.sum(axis=1, keepdims=True)
        slack = len(rows[0]) * U * float(np.abs(rows).sum(axis=1).max()) * ranges.size(atom)
        return Combination({atom: _tidied(0.0, sums)}, np.zeros(1), slack)
    return Combination({atom: Part(0.0, rows)}, np.zeros(1))


def of_lin(lin: Lin, ranges: Ranges, n: int) -> Combination:
    """A combination of the graph as the checker writes it; one row stands for every token."""
    if lin.rows not in (1, n):
        raise Rejected(f"the formula has an argument of {lin.rows} rows, neither one nor one per token")
    parts: dict[int, Part] = {}
    slack = lin.slack
    for atom, term in lin.terms.items():
        uniform = ranges.uniform[atom]
        if term.own and not uniform and lin.rows != n:
            raise Rejected("the formula has a combination of one row that reads its own token")
        mix = term.mix
        if mix is not None and mix.shape not in {(1, n), (lin.rows, n)}:
            raise Rejected(f"the formula has a matrix of shape {mix.shape} on {lin.rows} rows")
        if mix is not None and uniform:
            slack += n * U * float(np.abs(mix).sum(axis=1).max()) * ranges.size(atom)
            mix = mix.sum(axis=1, keepdims=True)
        part = _tidied(term.own, mix)
        if _is_there(part):
            parts[atom] = part
    return Combination(parts, np.atleast_1d(lin.constant), slack)


def _is_there(part: Part) -> bool:
    return bool(np.any(part.own)) or part.mix is not None


def _tidied(own: Any, mix: FloatArray | None) -> Part:
    """Without a matrix that does nothing, with the (1, 1) of a uniform atom taken into `own`, and factors by token into a matrix
    that is there anyway: what cancels is gone."""
    if mix is not None and mix.shape == (1, 1):
        own, mix = own + float(mix[0, 0]), None
    if mix is not None and np.ndim(own) and mix.shape == (len(own), len(own)):
        own, mix = 0.0, mix + np.diag(own)
    if mix is not None and not mix.any():
        mix = None
    return Part(own, mix)


def combine(pieces: Iterable[tuple[float, Combination]], ranges: Ranges) -> Combination:
    """sum of factor * combination."""
    pieces = [(factor, one) for factor, one in pieces if factor]
    parts: dict[int, Part] = {}
    constant: FloatArray = np.zeros(1)
    slack, terms = 0.0, 0.0
    for factor, one in pieces:
        constant = constant + factor * one.constant
        slack += abs(factor) * one.slack
        if len(pieces) > 1 or abs(factor) != 1.0:
            terms += abs(factor) * size_of(one, ranges)
        for atom, part in one.parts.items():
            before = parts.get(atom)
            mix = None if part.mix is None else part.mix if factor == 1.0 else factor * part.mix
            if before is not None and before.mix is not None:
                mix = before.mix if mix is None else before.mix + mix
            parts[atom] = _tidied((before.own if before else 0.0) + factor * part.own, mix)
    parts = {atom: part for atom, part in parts.items() if _is_there(part)}
    return Combination(parts, constant, (slack + (len(pieces) + 2) * U * terms) * (1 + 1e-12))


def difference(one: Combination, other: Combination, ranges: Ranges) -> Combination:
    """one - other; exactly 0 where both are the same arrays."""
    return combine([(1.0, one), (-1.0, other)], ranges)


def mixed(weights: FloatArray, one: Combination, ranges: Ranges) -> Combination:
    """weights @ one: weights (1, n) or (n, n), rows the tokens that it goes to."""
    n = weights.shape[1]
    parts: dict[int, Part] = {}
    totals = weights.sum(axis=1, keepdims=True)
    gain = float(np.abs(weights).sum(axis=1).max())
    for atom, part in one.parts.items():
        uniform = ranges.uniform[atom]
        mix: FloatArray | None = None
        if np.any(part.own):
            own = np.broadcast_to(np.asarray(part.own), (n,))
            mix = part.own * totals if isinstance(part.own, float) and uniform else weights * own
            mix = mix.sum(axis=1, keepdims=True) if uniform else mix
        if part.mix is not None:
            moved = totals * part.mix if part.mix.shape[0] == 1 else weights @ part.mix
            mix = moved if mix is None else mix + moved
        parts[atom] = _tidied(0.0, mix)
    constant = (weights @ np.broadcast_to(one.constant, (n,))) if len(one.constant) > 1 else totals[:, 0] * one.constant
    slack = gain * (one.slack + (n + 4) * U * size_of(one, ranges)) * (1 + 1e-12)
    return Combination({a: p for a, p in parts.items() if _is_there(p)}, constant, slack)


def span(one: Combination, ranges: Ranges) -> tuple[FloatArray, FloatArray]:
    """low <= value_j <= high, per token: (1,) or (n,), rounded outwards, slack included."""
    low = high = one.constant
    terms: FloatArray = np.abs(one.constant)
    count = 4
    for atom, part in one.parts.items():
        plus, minus = row_sums(part, ranges.uniform[atom])
        bottom, top = ranges.low[atom], ranges.high[atom]
        low = low + plus * bottom + minus * top
        high = high + plus * top + minus * bottom
        terms = terms + part.weight * ranges.size(atom)
        count += 4 + (0 if part.mix is None else part.mix.shape[1])
    off = count * U * terms * (1 + 1e-9) + one.slack
    return low - off, high + off


def row_sums(part: Part, uniform: bool) -> tuple[FloatArray, FloatArray]:
    """Per row: the sum of the positive, and of the negative coefficients."""
    own, mix = part.own, part.mix
    if mix is None:
        return np.maximum(np.atleast_1d(own), 0.0), np.minimum(np.atleast_1d(own), 0.0)
    if uniform:
        whole = own + mix[:, 0]
        return np.maximum(whole, 0.0), np.minimum(whole, 0.0)
    sums, sizes = mix.sum(axis=1), np.abs(mix).sum(axis=1)
    plus, minus = (sizes + sums) / 2, (sums - sizes) / 2
    if np.any(own):
        diagonal = mix[0] if len(mix) == 1 else np.diagonal(mix)
        plus = plus - np.maximum(diagonal, 0.0) + np.maximum(diagonal + own, 0.0)
        minus = minus - np.minimum(diagonal, 0.0) + np.minimum(diagonal + own, 0.0)
    return plus, minus


def size_of(one: Combination, ranges: Ranges) -> float:
    """At least sum |coefficient| |atom| + |constant|, for rounding."""
    total = float(np.abs(one.constant).max())
    return (total + sum(part.weight * ranges.size(atom) for atom, part in one.parts.items())) * (1 + 1e-9)


def largest(one: Combination, ranges: Ranges) -> float:
    """The largest |value| at any token."""
    low, high = span(one, ranges)
    return float(max(-low.min(), high.max(), 0.0))


def hull(one: Combination, ranges: Ranges) -> tuple[float, float]:
    """The range over all tokens."""
    low, high = span(one, ranges)
    return float(low.min()), float(high.max())


def sign_of(one: Combination, ranges: Ranges) -> int:
    """1 if no term, and so no value of the stored combination, is below 0; -1 if none is above; else 0. Slack is left out."""
    for sign in (1, -1):
        if (sign * one.constant < 0).any():
            continue
        for atom, part in one.parts.items():
            low, high = ranges.low[atom], ranges.high[atom]
            weights = [np.array([part.own]), *(() if part.mix is None else (part.mix,))]
            ends = [(w * low, w * high) for w in (sign * each for each in weights)]
            if any((np.minimum(a, b) < 0).any() for a, b in ends):
                break
        else:
            return sign
    return 0


def inner(one: Combination, other: Combination, n: int) -> float:
    """A scalar product of coefficients (constants left out), for fits only: no bound rests on it."""
    total = 0.0
    for atom, a in one.parts.items():
        b = other.parts.get(atom)
        if b is None:
            continue
        total += float(np.broadcast_to(np.asarray(a.own * b.own), (n,)).sum())
        for own, mix in ((a.own, b.mix), (b.own, a.mix)):
            if np.any(own) and mix is not None:
                total += float((own * (np.ravel(mix) if 1 in mix.shape else np.diagonal(mix))).sum())
        if a.mix is not None and b.mix is not None:
            rows = n if a.mix.shape[0] == 1 and b.mix.shape[0] == 1 else 1
            total += rows * float((a.mix * b.mix).sum())
    return total


def token_factors(one: Combination, other: Combination, n: int) -> FloatArray:
    """Per token a number p_j with one_j close to p_j other_j (constants left out): a fit, no bound rests on it."""
    top, bottom = np.zeros(n), np.zeros(n)
    if all(part.mix is None for part in (*one.parts.values(), *other.parts.values())):
        for atom, part in other.parts.items():
            own = np.broadcast_to(np.asarray(part.own), (n,))
            bottom, top = bottom + own * own, top + own * (one.parts[atom].own if atom in one.parts else 0.0)
        return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)
    for atom, part in other.parts.items():
        rows = _dense(part, n)
        bottom += (rows * rows).sum(axis=1)
        if atom in one.parts:
            top += (_dense(one.parts[atom], n) * rows).sum(axis=1)
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)


def scaled_rows(factors: FloatArray, one: Combination, n: int, ranges: Ranges) -> Combination:
    """factors_j one_j, without its constant."""
    parts = {
        atom: Part(factors * part.own, None)
        if part.mix is None
        else Part(0.0, factors[:, None] * (_dense(part, n) if not ranges.uniform[atom] else _column(part, n)))
        for atom, part in one.parts.items()
    }
    top = float(np.abs(factors).max())
    return Combination(parts, np.zeros(1), top * (one.slack + 2 * U * size_of(one, ranges)) * (1 + 1e-12))


def _dense(part: Part, n: int) -> FloatArray:
    """Coefficients (n, keys); of an atom that is the same at every token, in a column."""
    if part.mix is not None and part.mix.shape[1] == 1 and n > 1:
        return _column(part, n)
    rows = np.zeros((n, n)) if part.mix is None else np.broadcast_to(part.mix, (n, n)).copy()
    rows[np.arange(n), np.arange(n)] += part.own
    return rows


def _column(part: Part, n: int) -> FloatArray:
    own = np.broadcast_to(np.asarray(part.own), (n,))[:, None]
    return np.broadcast_to(own + (0.0 if part.mix is None else part.mix), (n, 1)).copy()
