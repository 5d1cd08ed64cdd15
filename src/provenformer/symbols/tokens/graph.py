"""Graphs of whole numbers: every atom is an integer at every token, so a function of it is known when it is known on integers.

A `Lin` is (constant_j + sum of coefficient * atom_j) / den at token j. Atoms are numbered in the order of tracing; equal
ones are one.
Three operations make atoms, each one thing that a Transformer does at once: `Units`, sums of functions of one Lin each (a
feed-forward layer); `Total`, whole-numbered sums over the tokens (a head with known weights); `Pick`, the value at the token of
the highest score (a hard head). Ranges hold for every sequence of the alphabet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import gcd

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError

Ints = NDArray[np.int64]
LARGEST = 1 << 40  # of a coefficient, a range or a score: all of it exact in int64, with room
TABLE_LIMIT = 1 << 14  # entries of one table


@dataclass(frozen=True, eq=False)
class Lin:
    """(constant + sum of coefficient * atom) / den at every token; den > 0 and without a common divisor."""

    constant: Ints  # (n,)
    terms: tuple[tuple[int, int], ...]  # (atom, coefficient), by atom, no coefficient 0
    den: int = 1

    @property
    def known(self) -> bool:
        """Whether it depends on the position alone."""
        return not self.terms

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal combinations."""
        return self.constant.tobytes(), self.terms, self.den


@dataclass(frozen=True, eq=False)
class Part:
    """values[i] where numerator of `of` = low + i * step. `snap`: flat around these points, so that errors of `of` end there."""

    of: Lin
    low: int
    step: int
    values: Ints
    snap: bool

    @property
    def key(self) -> tuple[object, ...]:
        return self.of.key, self.low, self.step, self.values.tobytes(), self.snap


@dataclass(frozen=True)
class Input:
    """The token itself."""

    size: int

    @property
    def key(self) -> tuple[object, ...]:
        return (self.size,)


@dataclass(frozen=True, eq=False)
class Units:
    """Sum of functions of one combination each."""

    parts: tuple[Part, ...]

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(part.key for part in self.parts)


@dataclass(frozen=True, eq=False)
class Total:
    """sum_k counts[j, k] of(k), counts >= 0 with the same sum in every row; one row means the same at every token."""

    counts: Ints  # (1, n) or (n, n)
    of: int  # an atom

    @property
    def key(self) -> tuple[object, ...]:
        return self.counts.shape, self.counts.tobytes(), self.of


@dataclass(frozen=True, eq=False)
class Pick:
    """value at the token k where sum_r queries_r(j) keys_r(k) + bias[j, k], a whole number, is highest.

    `because` says why that is one token, or all such tokens have one value: "position", "rank", "order" or "largest" (docs).
    """

    queries: tuple[Lin, ...]
    keys: tuple[Lin, ...]
    bias: Ints  # (1, n) or (n, n)
    value: Lin
    because: str

    @property
    def scores_key(self) -> tuple[object, ...]:
        return tuple(q.key for q in self.queries), tuple(k.key for k in self.keys), self.bias.shape, self.bias.tobytes()

    @property
    def key(self) -> tuple[object, ...]:
        return self.scores_key, self.value.key, self.because


Operation = Input | Units | Total | Pick


@dataclass(frozen=True, eq=False)
class Atom:
    """An operation, its range at every token, whether it is the same at all of them, and what it is in words."""

    operation: Operation
    low: Ints  # (n,)
    high: Ints
    uniform: bool
    fixed: bool  # whether it is known at every token, after all
    words: str
    rough: (
        int  # what its channel carries of rounding in heads: 2 that of a sum over tokens, 1 that of one token, 0 none
    )


@dataclass(frozen=True, eq=False)
class Fact:
    """A combination of atoms of which more is known than the ranges of the atoms tell."""

    terms: tuple[tuple[int, int], ...]
    low: Ints  # (n,)
    high: Ints
    words: str


@dataclass
class TokenGraph:
    """Atoms in order; atom 0 is the input."""

    vocab_size: int
    seq_len: int
    atoms: list[Atom] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    _numbers: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = self.seq_len
        self.add(Input(self.vocab_size), np.zeros(n, np.int64), np.full(n, self.vocab_size - 1), False, "x")

    def add(self, operation: Operation, low: Ints, high: Ints, uniform: bool, words: str) -> int:
        """The number of this atom, new or known."""
        key = (type(operation), operation.key)
        if key not in self._numbers:
            low, high = (np.broadcast_to(np.asarray(v, dtype=np.int64), (self.seq_len,)) for v in (low, high))
            if max(abs(int(low.min())), abs(int(high.max()))) > LARGEST:
                raise ProvenformerError(
                    f"{words} may reach {int(high.max()):,} (limit {LARGEST:,}); use smaller numbers."
                )
            self._numbers[key] = len(self.atoms)
            fixed = bool((low == high).all())
            self.atoms.append(Atom(operation, low, high, uniform, fixed, words, self._rough(operation)))
        return self._numbers[key]

    def rough(self, lin: Lin) -> int:
        """The most of what it reads."""
        return max((self.atoms[a].rough for a, _ in lin.terms), default=0)

    def _rough(self, operation: Operation) -> int:
        if isinstance(operation, Units):
            return max(0 if part.snap else self.rough(part.of) for part in operation.parts)
        return 2 if isinstance(operation, Total) else int(isinstance(operation, Pick))

    def lin(self, constant: object, terms: Iterable[tuple[int, int]] = (), den: int = 1) -> Lin:
        """The combination in lowest terms."""
        known = np.broadcast_to(np.asarray(constant, dtype=np.int64), (self.seq_len,)).copy()
        found: dict[int, int] = {}
        for atom, coefficient in terms:
            found[atom] = found.get(atom, 0) + int(coefficient)
        kept = {atom: c for atom, c in sorted(found.items()) if c}
        for atom in [a for a in kept if self.atoms[a].fixed]:
            known += kept.pop(atom) * self.atoms[atom].low
        common = gcd(den, *kept.values(), int(np.gcd.reduce(known)))
        if common > 1:
            known, den = known // common, den // common
            kept = {atom: c // common for atom, c in kept.items()}
        if max([den, int(np.abs(known).max()), *map(abs, kept.values())]) > LARGEST:
            raise ProvenformerError(f"a whole number of the program exceeds {LARGEST:,}; use smaller numbers.")
        return Lin(known, tuple(kept.items()), den)

    def atom(self, number: int) -> Lin:
        """One atom as a combination."""
        return self.lin(0, [(number, 1)])

    def bounds(self, lin: Lin) -> tuple[Ints, Ints]:
        """Lowest and highest numerator at every token."""
        low, high = lin.constant.copy(), lin.constant.copy()
        facts, rest = self._apart(lin)
        for factor, fact in facts:
            low += factor * (fact.low if factor > 0 else fact.high)
            high += factor * (fact.high if factor > 0 else fact.low)
        for atom, c in rest:
            a, b = self.atoms[atom].low, self.atoms[atom].high
            low += c * (a if c > 0 else b)
            high += c * (b if c > 0 else a)
        return low, high

    def state(self, lin: Lin, low: Ints, high: Ints, words: str) -> Lin:
        """The combination, of which this is known from now on; no offset and no denominator."""
        if len(lin.terms) > 1 and all(fact.terms != lin.terms for fact in self.facts):
            n = self.seq_len
            self.facts.append(
                Fact(
                    lin.terms,
                    np.broadcast_to(low, (n,)) - lin.constant,
                    np.broadcast_to(high, (n,)) - lin.constant,
                    words,
                )
            )
        return lin

    def _apart(self, lin: Lin) -> tuple[list[tuple[int, Fact]], list[tuple[int, int]]]:
        """The facts that a combination is made of, with their factors, and its other terms."""
        rest, found = dict(lin.terms), []
        for fact in reversed(self.facts) if len(rest) > 1 else ():
            first, c = fact.terms[0]
            factor = rest.get(first, 0) // c
            if factor and all(rest.get(atom, 0) == factor * k for atom, k in fact.terms):
                found.append((factor, fact))
                for atom, _ in fact.terms:
                    del rest[atom]
        return found, list(rest.items())

    def uniform(self, lin: Lin) -> bool:
        """Whether it is the same at every token."""
        return len(np.unique(lin.constant)) == 1 and all(self.atoms[a].uniform for a, _ in lin.terms)

    def words(self, lin: Lin, bracket: bool = True) -> str:
        """In words; what is added comes before what is taken off. A sum stands in brackets, if it may be part of something."""
        facts, rest = self._apart(lin)
        parts = [(c, fact.words) for c, fact in facts] + [(c, self.atoms[atom].words) for atom, c in rest]
        parts = sorted(parts + _places(lin.constant, alone=not parts), key=lambda part: part[0] < 0)
        number = int(lin.constant[0]) if _steps(lin.constant) is not None else 0
        if number or not parts:
            leads = number > 0 and bool(parts) and parts[0][0] < 0
            parts.insert(0 if leads else len(parts), (number, ""))
        text = ""
        for c, name in parts:
            sign = (" - " if c < 0 else " + ") if text else "-" * (c < 0)
            text += sign + (f"{abs(c)}" if not name else name if abs(c) == 1 else f"{abs(c)} {name}")
        text = f"({text})" if len(parts) > 1 and (bracket or lin.den > 1) else text
        return text if lin.den == 1 else f"{text} / {lin.den}"


def grouped(words: str) -> str:
    """As one operand: (number of tokens with [x = 0]) % 2."""
    return words if " " not in words or words[0] + words[-1] in ("()", "[]") else f"({words})"


def _steps(constant: Ints) -> int | None:
    """By how much a known number rises from token to token, 0, 1 or -1; None: otherwise."""
    places = np.arange(len(constant))
    return next((rise for rise in (0, 1, -1) if (constant == constant[0] + rise * places).all()), None)


def _places(constant: Ints, alone: bool) -> list[tuple[int, str]]:
    """What a known number has of the position, beside its first value. `alone`: nothing is added to it."""
    steps, n = _steps(constant), len(constant)
    if steps is not None:
        return [(steps, "position")] if steps else []
    where = np.flatnonzero(constant)
    if not alone or set(constant.tolist()) != {0, 1} or where[-1] - where[0] + 1 != len(where):
        return [(1, "(a number by position)")]
    first, last = int(where[0]), int(where[-1])
    if first == last:
        return [(1, f"[position = {first}]")]
    lower, upper = f"{first} <= " * (first > 0), f" <= {last}" * (last < n - 1)
    return [(1, f"[{lower}position{upper}]" if upper else f"[position >= {first}]")]


def evaluate(graph: TokenGraph, x: Ints) -> list[Ints]:
    """Every atom (batch, n) on sequences (batch, n), exactly; ranges and the promises of picks are tried on the way."""
    found: list[Ints] = []
    for atom in graph.atoms:
        value = np.broadcast_to(_value(graph, atom.operation, found, x), x.shape)
        if (value < atom.low).any() or (value > atom.high).any():
            raise ProvenformerError(
                f"{atom.words} leaves its range; this is a fault of provenformer: report the program."
            )
        found.append(value)
    return found


def numerator(lin: Lin, found: list[Ints]) -> Ints:
    """The numerator of a combination (batch, n), from the values of all atoms."""
    value = np.broadcast_to(lin.constant, found[0].shape).copy()
    for atom, c in lin.terms:
        value += c * found[atom]
    return value


def _value(graph: TokenGraph, operation: Operation, found: list[Ints], x: Ints) -> Ints:
    if isinstance(operation, Input):
        return x
    if isinstance(operation, Units):
        total = np.zeros(x.shape, np.int64)
        for part in operation.parts:
            total += part.values[(numerator(part.of, found) - part.low) // part.step]
        return total
    if isinstance(operation, Total):
        return found[operation.of] @ operation.counts.T
    scores = np.broadcast_to(operation.bias, (len(x), graph.seq_len, graph.seq_len)).copy()
    for query, key in zip(operation.queries, operation.keys, strict=True):
        scores += numerator(query, found)[:, :, None] * numerator(key, found)[:, None, :]
    values = np.broadcast_to(numerator(operation.value, found)[:, None, :], scores.shape)
    top = scores == scores.max(axis=-1, keepdims=True)
    least, most = np.where(top, values, LARGEST * 4).min(axis=-1), np.where(top, values, -LARGEST * 4).max(axis=-1)
    if (least != most).any():
        raise ProvenformerError(
            "a head has two tokens of one score; this is a fault of provenformer: report the program."
        )
    return np.asarray(least)
