"""Selectors: which tokens k a token j looks at. A truth value for every pair, from what both hold and where they stand.

P[j, k] = truth[relation[j, k], a_j, b_k]: a relation of positions, a whole number of the query j and one of the key k.
Counting what is
selected needs no attention to contents: the keys of each kind are counted by a head with known weights, and the query adds up the
kinds that it selects. Finding the last or the first of them is one hard head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError
from provenformer.symbols.tokens.graph import TABLE_LIMIT, Ints, Lin, TokenGraph, grouped
from provenformer.symbols.tokens.lower import (
    ONE_DIGIT,
    add,
    constant,
    ends,
    gate,
    gate_part,
    grid,
    pick,
    position,
    product,
    table,
    table2,
    too_often,
    total,
    two_digits,
    units,
)

KINDS_LIMIT = 256  # of keys that are counted apart
Truth = NDArray[np.bool_]
RELATIONS: tuple[tuple[np.ufunc, str, str], ...] = (  # of the key's place to the query's: a token there, and such tokens
    (np.less, "an earlier place", "earlier tokens"), (np.less_equal, "no later place", "tokens so far"),
    (np.greater, "a later place", "later tokens"), (np.not_equal, "another place", "other tokens"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Selector:
    """truth[relation[j, k], index of a_j in its grid, index of b_k in its grid]."""

    graph: TokenGraph
    relation: Ints  # (n, n)
    query: Lin
    key: Lin
    truth: Truth  # (relations, query values, key values)
    words: str

    def negated(self) -> Selector:
        return Selector(self.graph, self.relation, self.query, self.key, ~self.truth, f"not {self.words}")

    def joined(self, other: Selector, how: Callable[[Truth, Truth], Truth], sign: str) -> Selector:
        """Both at once: relations, queries and keys become pairs, unless they are the same or trivial."""
        g = self.graph
        relation = self.relation * len(other.truth) + other.relation
        query, q1, q2 = _paired(g, self.query, other.query)
        key, k1, k2 = _paired(g, self.key, other.key)
        r1, r2 = np.divmod(np.arange(len(self.truth) * len(other.truth)), len(other.truth))
        if len(r1) * len(q1) * len(k1) > 64 * TABLE_LIMIT:
            raise ProvenformerError(f"{self.words} and {other.words} depend on too many values of both tokens at once.")
        truth = how(self.truth[np.ix_(r1, q1, k1)], other.truth[np.ix_(r2, q2, k2)])
        used, relation = np.unique(relation, return_inverse=True)
        return Selector(
            g, relation.reshape(self.relation.shape), query, key, truth[used], f"{self.words} {sign} {other.words}"
        )

    def counted(self, value: Lin | None = None) -> Lin:
        """How many tokens are selected; or the sum over them of a whole value of the key."""
        g = self.graph
        found = [(1, constant(g, 0))]
        if value is not None and (low := int(ends(g, value)[0])):  # then the rest is not negative
            found.append((low, self.counted()))
            value = add(g, (1, value), (-low, constant(g, 1)))
        layers = [(mask, truth) for mask, truth in self._layers() if truth.any() and mask.any()]
        for mask, truth in layers:
            part = "" if len(layers) == 1 else "at any place" if mask.all() else "there alone"
            found.append((1, self._counted(mask, truth, value, part)))
        result = add(g, *found)
        least, most = g.bounds(result)
        if value is None and (least.min() < 0 or most.max() > g.seq_len):  # it is a number of tokens all the same
            n, none = Fraction(g.seq_len), Fraction(0)
            return table(g, result, lambda v: min(max(v, none), n), f"number of tokens with {self.words}")
        return result

    def _layers(self) -> list[tuple[Ints, Truth]]:
        """What is selected in every relation, over all tokens; then what else in each."""
        common = np.logical_and.reduce(self.truth)
        every = [(np.ones_like(self.relation), common)]
        return every + [((self.relation == i).astype(np.int64), t & ~common) for i, t in enumerate(self.truth)]

    def _counted(self, mask: Ints, truth: Truth, value: Lin | None, part: str) -> Lin:
        """Over one relation: the keys of each kind are those which the same queries select. `part`: which tokens, in words."""
        g = self.graph
        columns, kind = np.unique(truth, axis=1, return_inverse=True)
        kind = kind.ravel()
        what = "number of" if value is None else f"sum of {g.words(value)} over"
        whose = related(mask)[1]
        if len(np.unique(truth, axis=0)) == 1:
            chosen = _among(g, self.key, truth[0], f"[{self.words}]")
            counted = chosen if value is None else product(g, chosen, value, f"{g.words(value)} if {self.words}")
            return total(g, mask, counted, lambda name: f"{what} {whose} with {name}")
        kinds = [i for i in range(columns.shape[1]) if columns[:, i].any()]
        if len(kinds) > KINDS_LIMIT:
            raise ProvenformerError(
                f"{self.words} tells {len(kinds):,} kinds of tokens apart (limit {KINDS_LIMIT}); use a smaller vocabulary or "
                "shorter sequences."
            )
        sums = mask.sum(axis=1)
        missing = int(sums.max()) - sums
        often = too_often(g, missing)
        mask = mask + np.diag(missing)
        mask = mask[:1] if (mask == mask[0]).all() else mask
        highest = int(sums.max()) * (1 if value is None else int(ends(g, value)[1]))
        parts, rest = [], [(1, constant(g, 0))]
        for i in kinds:
            name = _named(g, self.key, kind == i)
            chosen = _among(g, self.key, kind == i, name)
            source = chosen if value is None else product(g, chosen, value, f"{g.words(value)} if {name}")
            of_kind = total(g, mask, source, lambda name: f"{what} {whose} with {name}{often}")
            asked = _among(g, self.query, columns[:, i], _named(g, self.query, columns[:, i]))
            if of_kind.known or (asked.known and (asked.constant == asked.constant[0]).all()):
                rest.append((1, product(g, asked, of_kind, f"{what} {whose} with {name}{often}")))
            else:
                parts.append(gate_part(g, asked, of_kind, 0, highest))
        if parts:
            whose = f"({self.words}) {part}" if part else self.words
            words = f"{what} tokens with {whose}{often}"
            rest.append((1, units(g, parts, words, 0, highest)))
        if missing.any():  # the own token was counted `missing` times too often where it is selected
            own = self._own(truth)
            if value is not None:
                own = product(g, own, value, f"own {g.words(value)}")
            rest.append((-1, product(g, g.lin(missing), own, "what the own token counts too often")))
        return add(g, *rest)

    def _own(self, truth: Truth) -> Lin:
        """Whether the own token is selected, by contents alone."""
        g = self.graph
        return _matched(g, truth, self.query, self.key, self.key, f"[own token: {self.words}]")

    def found(self) -> Lin:
        """Whether any token is selected."""
        return table(self.graph, self.counted(), lambda v: v > 0, f"[some token with {self.words}]")

    def extreme(self, sign: int) -> tuple[Lin, Lin]:
        """(token, whether there is one): the last (sign 1) or first (-1) token that is selected, else any token and 0.

        Scores n S[j, k] + sign k, S a whole number, differ for all k, so the highest is one token's, by at least 1. S is highest
        where the key is selected, and `span` above its lowest; other relations are further below.
        """
        g, n = self.graph, self.graph.seq_len
        used = [i for i, t in enumerate(self.truth) if t.any()]
        if len({self.truth[i].tobytes() for i in used}) > 1:
            raise ProvenformerError(
                f"the {'last' if sign > 0 else 'first'} token with {self.words} depends on positions in more than one "
                f"way; split it."
            )
        zero = constant(g, 0)
        if not used:
            return zero, zero
        truth = self.truth[used[0]]
        mask = np.isin(self.relation, used)
        some = np.asarray(mask.any(axis=1))
        queries, keys, span = self._alike(truth) or self._kinds(truth)
        queries = [add(g, (n, query)) for query in queries]
        bias = sign * np.arange(n)[None] - np.where(mask | ~some[:, None], 0, (span + 3) * n)
        bias = bias[:1] if (bias == bias[0]).all() else bias
        found = f"the place of the {'last' if sign > 0 else 'first'} token with {self.words}, if any"
        at = pick(g, queries, keys, bias, position(g), "order", found)
        held = pick(g, queries, keys, bias, self.key, "order", f"{g.words(self.key)} at {found}")
        aside = "" if mask.all() else ", places aside"
        match = _matched(g, truth, self.query, held, self.key, f"[what was found has {self.words}{aside}]")
        return at, gate(g, g.lin(some.astype(np.int64)), match, f"[there is a token with {self.words}]")

    def _kinds(self, truth: Truth) -> tuple[list[Lin], list[Lin], int]:
        """S is 1 where the key is of a kind that the query selects, else 0: one product for each kind."""
        g = self.graph
        columns, kind = np.unique(truth, axis=1, return_inverse=True)
        kinds = [i for i in range(columns.shape[1]) if columns[:, i].any()]
        if len(kinds) > KINDS_LIMIT:
            raise ProvenformerError(f"{self.words} tells {len(kinds):,} kinds of tokens apart (limit {KINDS_LIMIT}).")
        queries, keys = [], []
        for i in kinds:
            name = _named(g, self.key, kind.ravel() == i)
            queries.append(_among(g, self.query, columns[:, i], _named(g, self.query, columns[:, i])))
            keys.append(_among(g, self.key, kind.ravel() == i, name))
        return queries, keys, 1

    def _alike(self, truth: Truth) -> tuple[list[Lin], list[Lin], int] | None:
        """Where many values are compared for being equal, S is how many of two digits are: far fewer products than values."""
        g = self.graph
        if truth.sum() <= ONE_DIGIT or self.query.den * self.key.den > 1:
            return None
        a, b = (low + step * np.arange(count) for low, step, count in (grid(g, self.query), grid(g, self.key)))
        if (truth != np.equal.outer(a, b)).any():
            return None
        base = int(np.ceil(np.sqrt(truth.sum())))
        queries: list[Lin] = []
        keys: list[Lin] = []
        for digit_a, digit_b in zip(*(two_digits(g, lin, base) for lin in (self.query, self.key)), strict=True):
            low, high = (int(f(ends(g, digit_a)[i], ends(g, digit_b)[i])) for i, f in ((0, max), (1, min)))
            for e in range(low, high + 1):
                for lin, found in ((digit_a, queries), (digit_b, keys)):
                    found.append(table(g, lin, lambda v, e=e: v == e, f"[{g.words(lin)} = {e}]", flat=True))  # type: ignore[misc]
        return queries, keys, 2


def compared(
    graph: TokenGraph, query: Lin, key: Lin, holds: Callable[[Fraction, Fraction], bool], words: str
) -> Selector:
    """holds(query_j, key_k) for every pair."""
    n = graph.seq_len
    a, b = _values(graph, query), _values(graph, key)
    if len(a) * len(b) > 64 * TABLE_LIMIT:
        raise ProvenformerError(f"{words} compares {len(a):,} with {len(b):,} values; use smaller numbers.")
    truth = np.array([[bool(holds(v, w)) for w in b] for v in a])
    if query.known and key.known:  # a relation of positions
        i, k = (_index_of(graph, lin) for lin in (query, key))
        zero = constant(graph, 0)
        return Selector(graph, truth[np.ix_(i, k)].astype(np.int64), zero, zero, np.array([[[False]], [[True]]]), words)
    return Selector(graph, np.zeros((n, n), np.int64), query, key, truth[None], words)


def related(mask: Ints | Truth) -> tuple[str, str]:
    """Where a token must stand to be looked at, in words; and what such tokens are called."""
    j, k = np.indices(mask.shape)
    if mask.all():
        return "any place", "tokens"
    found = ((place, tokens) for relation, place, tokens in RELATIONS if (mask == relation(k, j)).all())
    return next(found, ("a place of some", "some tokens"))


def _matched(graph: TokenGraph, truth: Truth, query: Lin, held: Lin, key: Lin, words: str) -> Lin:
    """Whether the query selects what is held, a value of the key: by the difference, where that decides it."""
    (low_a, step_a, count_a), (low_b, step_b, count_b) = grid(graph, query), grid(graph, key)
    step = Fraction(step_a, query.den)
    apart = np.subtract.outer(np.arange(count_a), np.arange(count_b)) + count_b - 1
    by_difference = np.array([truth[apart == i].any() for i in range(count_a + count_b - 1)])
    if step == Fraction(step_b, key.den) and (by_difference[apart] == truth).all() and query.key != held.key:
        start = Fraction(low_a, query.den) - Fraction(low_b, key.den) - (count_b - 1) * step
        last = len(by_difference) - 1

        def holds(difference: Fraction) -> bool:
            index = (difference - start) / step
            return bool(index.denominator == 1 and 0 <= index <= last and by_difference[int(index)])

        return table(graph, add(graph, (1, query), (-1, held)), holds, words)
    index_a, index_b = _indices(graph, query), _indices(graph, key)
    return table2(graph, query, held, lambda a, b: bool(truth[index_a(a), index_b(b)]), words)


def _values(graph: TokenGraph, lin: Lin) -> list[Fraction]:
    low, step, count = grid(graph, lin)
    return [Fraction(low + step * i, lin.den) for i in range(count)]


def _index_of(graph: TokenGraph, lin: Lin) -> Ints:
    low, step, _ = grid(graph, lin)
    return (lin.constant - low) // step


def _indices(graph: TokenGraph, lin: Lin) -> Callable[[Fraction], int]:
    low, step, count = grid(graph, lin)

    def index(value: Fraction) -> int:
        numerator = value.numerator * lin.den // value.denominator
        return min(max((numerator - low) // step, 0), count - 1)

    return index


def _among(graph: TokenGraph, lin: Lin, members: NDArray[np.bool_], words: str) -> Lin:
    """Whether the value is a member; `members` by index in its grid."""
    index = _indices(graph, lin)
    return table(graph, lin, lambda v: bool(members[index(v)]), words)


def _named(graph: TokenGraph, lin: Lin, members: NDArray[np.bool_]) -> str:
    (low, step, _), where = grid(graph, lin), np.flatnonzero(members)
    values = [str(Fraction(low + step * int(i), lin.den)) for i in where]
    name = grouped(graph.words(lin))
    if len(values) == 1:
        return f"[{name} = {values[0]}]"
    if len(where) and where[-1] - where[0] + 1 == len(where):
        return f"[{values[0]} <= {name} <= {values[-1]}]"
    return f"[{name} in {', '.join(values[:4])}{', ..' if len(values) > 4 else ''}]"


def _paired(graph: TokenGraph, a: Lin, b: Lin) -> tuple[Lin, Ints, Ints]:
    """One number for both, and the index of each in its own grid by the number's index."""
    (_, _, count_a), (low_b, step_b, count_b) = grid(graph, a), grid(graph, b)
    if a.key == b.key or count_b == 1:
        return a, np.arange(count_a), np.arange(count_a) if a.key == b.key else np.zeros(count_a, np.int64)
    if count_a == 1:
        return b, np.zeros(count_b, np.int64), np.arange(count_b)
    low_a, step_a, _ = grid(graph, a)
    if count_a * count_b > TABLE_LIMIT:
        raise ProvenformerError(
            f"a selector needs {count_a:,} x {count_b:,} values of one token (limit {TABLE_LIMIT:,}); use smaller numbers."
        )
    both = add(
        graph, (Fraction(a.den * count_b, step_a), a), (Fraction(b.den, step_b), b),
        (1, constant(graph, -Fraction(low_a * count_b, step_a) - Fraction(low_b, step_b))),
    )  # fmt: skip
    low, step, count = grid(graph, both)
    index = np.clip(low + step * np.arange(count), 0, count_a * count_b - 1)
    return both, index // count_b, index % count_b
