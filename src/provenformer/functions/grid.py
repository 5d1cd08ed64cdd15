"""The grid of cubes, column ids and contexts, with exact counts that enumerate nothing (Sections 2 and 9 of the docs).

Grid: `cells_per_axis` = N = 1/delta cells on each of the token_dim * seq_len axes. A token (column) on the grid has an
*id* in 0..K-1 (units of delta), K = N^token_dim: the base-N number whose lowest digit is the token's first row.

A *context* is what a network must tell apart: a set of ids (distinct tokens, Theorem 2 as in the paper), a multiset
(tokens may repeat, the sum construction) or a sequence (positions known, Theorem 3). Contexts are ranked in
lexicographic order of their (sorted, for sets and multisets) ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations, combinations_with_replacement, pairwise, product
from math import comb, prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError

ContextKind = Literal["sets", "multisets", "sequences"]
COUNT_BITS = 1 << 22
EXACT_SHARE_BITS = 1 << 16  # beyond, reducing a fraction takes longer than everything else
IntArray = NDArray[np.int64]


def product_of(numbers: range) -> int:
    """Their product, by halves: factors of equal length are multiplied much faster."""
    if len(numbers) <= 8:
        return prod(numbers)
    middle = len(numbers) // 2
    return product_of(numbers[:middle]) * product_of(numbers[middle:])


def binomial(top: int, chosen: int) -> int:
    """C(top, chosen); `math.comb` multiplies factor by factor, which takes minutes where `top` has thousands of bits."""
    if top < chosen:
        return 0
    chosen = min(chosen, top - chosen)
    return product_of(range(top - chosen + 1, top + 1)) // product_of(range(1, chosen + 1))


@dataclass(frozen=True)
class Grid:
    """N cells per axis of the unit cube of sequences with `seq_len` tokens of `token_dim` numbers."""

    token_dim: int
    seq_len: int
    cells_per_axis: int

    def __post_init__(self) -> None:
        for name, low, remedy in (
            ("token_dim", 1, "a token has at least one number"),
            ("seq_len", 2, "with one token a Transformer is only a residual network; use at least 2 tokens"),
            ("cells_per_axis", 2, "the construction needs at least 2 cells per axis"),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise ProvenformerError(f"{name}={value!r} is not a whole number; give an integer >= {low}.")
            if value < low:
                raise ProvenformerError(f"{name}={value} is below the limit {low}: {remedy}.")
            object.__setattr__(self, name, int(value))  # numpy integers would overflow in the exact counts
        if self.token_dim * self.seq_len * self.cells_per_axis.bit_length() > COUNT_BITS:
            names = ("token_dim", "seq_len", "cells_per_axis")
            sizes = ", ".join(f"{name}={str(getattr(self, name))[:40]}" for name in names)
            raise ProvenformerError(
                f"{sizes} give a number of cubes with more than {COUNT_BITS:,} bits, the most that is counted; use smaller sizes."
            )

    @property
    def cell_width(self) -> Fraction:
        """delta = 1/N."""
        return Fraction(1, self.cells_per_axis)

    @cached_property
    def column_count(self) -> int:
        """K = N^d, the number of tokens on the grid."""
        return int(self.cells_per_axis**self.token_dim)

    @cached_property
    def id_vector(self) -> tuple[int, ...]:
        """u = (1, N, .., N^(d-1)): the id of a column x is u.x."""
        return tuple(self.cells_per_axis**i for i in range(self.token_dim))

    def columns(self, ids: IntArray) -> IntArray:
        """The grid tokens with these ids, in cells: shape (*ids.shape, token_dim)."""
        return np.stack([ids // w % self.cells_per_axis for w in self.id_vector], axis=-1)

    def count(self, kind: ContextKind) -> int:
        """How many contexts there are."""
        k, n = self.column_count, self.seq_len
        return {
            "sets": lambda: binomial(k, n),
            "multisets": lambda: binomial(k + n - 1, n),
            "sequences": lambda: int(k**n),
        }[kind]()

    def column_layers(self, kind: ContextKind) -> int:
        """How many different (context, token) pairs there are: one value layer each."""
        k, n = self.column_count, self.seq_len
        # A multiset with a marked element is that element and a multiset of n - 1 others.
        return {
            "sets": lambda: n * binomial(k, n),
            "multisets": lambda: k * binomial(k + n - 2, n - 1),
            "sequences": lambda: int(n * k**n),
        }[kind]()

    @property
    def lost_share(self) -> Fraction:
        """The share of cubes in which two tokens coincide (there the paper's network is 0).

        Of grids whose number of cubes is longer than 2^16 bits an upper bound: n (n - 1) / 2 pairs, each with share 1 / K.
        """
        k, n = self.column_count, self.seq_len
        if k.bit_length() * n > EXACT_SHARE_BITS:
            return min(Fraction(1), Fraction(n * (n - 1), 2 * k))
        return 1 - Fraction(product_of(range(k - n + 1, k + 1)), k**n)

    def contexts(self, kind: ContextKind) -> IntArray:
        """All contexts as ids, shape (count, seq_len), in rank order."""
        ids: range = range(self.column_count)
        rows: dict[ContextKind, Iterable[tuple[int, ...]]] = {
            "sets": combinations(ids, self.seq_len) if kind == "sets" else (),
            "multisets": combinations_with_replacement(ids, self.seq_len) if kind == "multisets" else (),
            "sequences": product(ids, repeat=self.seq_len) if kind == "sequences" else (),
        }
        count = self.count(kind)
        flat = np.fromiter(chain.from_iterable(rows[kind]), dtype=np.int64, count=count * self.seq_len)
        return flat.reshape(count, self.seq_len)

    def rank(self, ids: tuple[int, ...], kind: ContextKind) -> int:
        """The position of a context in `contexts(kind)`, without enumerating."""
        ids = tuple(int(i) for i in ids)
        self._require_context(ids, kind)
        k, n = self.column_count, self.seq_len
        if kind == "sequences":
            return sum(i * k ** (n - 1 - j) for j, i in enumerate(ids))
        if kind == "multisets":  # the usual bijection with sets: add 0, 1, .., n - 1
            ids, k = tuple(i + j for j, i in enumerate(ids)), k + n - 1
        # Sets before this one: all, minus those at or after it (counted from the other end).
        return comb(k, n) - 1 - sum(comb(k - 1 - i, n - j) for j, i in enumerate(ids))

    def unrank(self, rank: int, kind: ContextKind) -> tuple[int, ...]:
        """The context at a position: the inverse of `rank`."""
        if not 0 <= rank < self.count(kind):
            raise ProvenformerError(f"rank={rank} is outside 0..{self.count(kind) - 1} ({kind}); use a smaller rank.")
        k, n = self.column_count, self.seq_len
        if kind == "sequences":
            return tuple(rank // k ** (n - 1 - j) % k for j in range(n))
        size = k if kind == "sets" else k + n - 1
        left, ids = comb(size, n) - 1 - rank, []
        for j in range(n):
            low, high = 0, size  # the largest m with comb(m, n - j) <= left
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if comb(middle, n - j) <= left else (low, middle)
            left -= comb(low, n - j)
            ids.append(size - 1 - low)
        return tuple(ids) if kind == "sets" else tuple(i - j for j, i in enumerate(ids))

    def _require_context(self, ids: tuple[int, ...], kind: ContextKind) -> None:
        k, n = self.column_count, self.seq_len
        ordered = kind == "sequences" or all(a < b if kind == "sets" else a <= b for a, b in pairwise(ids))
        if len(ids) != n or not ordered or not all(0 <= i < k for i in ids):
            rule = {"sets": "increasing", "multisets": "non-decreasing", "sequences": "arbitrary"}[kind]
            raise ProvenformerError(f"context {ids} is not {n} {rule} ids in 0..{k - 1}; sort it or check the ids.")

    def extended_points(self, limit: int = 10**6) -> IntArray:
        """All of the extended grid G+ (Lemma 5's range) in cells, shape (count, d, n); -1 stands for the marker."""
        entries = self.token_dim * self.seq_len
        count = (self.cells_per_axis + 1) ** entries
        if count > limit:
            raise ProvenformerError(
                f"the extended grid has {count:,} points (limit {limit:,}); use fewer cells or tokens."
            )
        axis = np.arange(-1, self.cells_per_axis)
        points = np.stack(np.meshgrid(*[axis] * entries, indexing="ij"), axis=-1)
        return points.reshape(count, self.token_dim, self.seq_len)
