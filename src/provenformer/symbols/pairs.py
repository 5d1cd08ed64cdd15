"""Values of two tokens, j and k: what a softmax over tokens is made of. Anything else that needs pairs is refused.

Scores   sum_i row_i(j) col_i(k) + bias[j, k], possibly less something that depends on j (or on k) alone: a maximum
Powers   exp(scores)
Total    sum over k (or over j) of such powers: good for one thing, to divide them by it
Weights  powers / total: a softmax over k (or over j), times factors of j and of k
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.symbols.atoms import attend, product
from provenformer.symbols.graph import Graph, Lin
from provenformer.symbols.linear import ONE, add, constant, mix, scale

ROW, COLUMN = 0, 1
REMEDY = "only scores of a softmax over tokens may depend on two tokens; write it with np.exp(scores) / np.sum(np.exp(scores))"


@dataclass(frozen=True, eq=False)
class Scores:
    """Terms (row, column), and a constant matrix. `shifted`: less the maximum along that axis."""

    terms: tuple[tuple[Lin, Lin], ...]
    bias: FloatArray | None = None  # (n, n)
    shifted: int | None = None

    @property
    def turned(self) -> Scores:
        """j and k exchanged."""
        bias = None if self.bias is None else np.ascontiguousarray(self.bias.T)
        shifted = None if self.shifted is None else 1 - self.shifted
        return Scores(tuple((column, row) for row, column in self.terms), bias, shifted)


@dataclass(frozen=True, eq=False)
class Powers:
    scores: Scores

    @property
    def turned(self) -> Powers:
        return Powers(self.scores.turned)


@dataclass(frozen=True, eq=False)
class Peak:
    """The maximum of scores along an axis."""

    scores: Scores
    axis: int


@dataclass(frozen=True, eq=False)
class Total:
    """The sum of powers along an axis."""

    powers: Powers
    axis: int


@dataclass(frozen=True, eq=False)
class Weights:
    """softmax of the scores over `axis`, times row(j) column(k) for one pair of factors."""

    scores: Scores
    axis: int
    row: Lin = ONE
    column: Lin = ONE

    @property
    def turned(self) -> Weights:
        return Weights(self.scores.turned, 1 - self.axis, self.column, self.row)


Pair: TypeAlias = Scores | Powers | Weights


def lifted(x: Lin, axis: int) -> Scores:
    """A combination of one token as a value of two."""
    return Scores(((x, ONE),) if axis == ROW else ((ONE, x),))


def in_place(waiting: Peak | Total, axis: int) -> Peak | Total:
    """What was reduced over one axis of the pairs and waits to complete a softmax depends on the token of the other."""
    if axis == waiting.axis:
        raise Untraceable(
            f"a maximum or a sum over pairs of tokens meets them along the axis that it was taken over; {REMEDY}."
        )
    return waiting


def plus(graph: Graph, a: Pair, b: Pair, factor: float) -> Scores:
    """a + factor * b."""
    if not isinstance(a, Scores) or not isinstance(b, Scores) or a.shifted is not None or b.shifted is not None:
        raise Untraceable(f"a sum of softmax weights or of exponentials of pairs is not available; {REMEDY}.")
    terms = a.terms + tuple((scale(graph, row, factor), column) for row, column in b.terms)
    bias = a.bias if b.bias is None else factor * b.bias if a.bias is None else a.bias + factor * b.bias
    return Scores(_merged(graph, terms), bias)


def times(graph: Graph, a: Pair, b: Pair) -> Pair:
    """a * b: of scores as a sum of products, of weights with what depends on one token."""
    if isinstance(a, Weights) or isinstance(b, Weights):
        weights, other = (a, b) if isinstance(a, Weights) else (b, a)
        if (
            not isinstance(weights, Weights)
            or not isinstance(other, Scores)
            or other.bias is not None
            or other.shifted is not None
            or len(other.terms) != 1
        ):
            raise Untraceable(f"softmax weights times a value of two tokens are not available; {REMEDY}.")
        row, column = other.terms[0]
        return replace(weights, row=product(graph, weights.row, row), column=product(graph, weights.column, column))
    if not isinstance(a, Scores) or not isinstance(b, Scores) or a.shifted is not None or b.shifted is not None:
        raise Untraceable(f"a product with exponentials of pairs is not available; {REMEDY}.")
    for one, other in ((a, b), (b, a)):
        if one.bias is not None and not one.terms:  # a constant matrix
            return _times_matrix(other, one.bias)
    if a.bias is not None or b.bias is not None:
        raise Untraceable(f"a product of pairs with a constant matrix inside is not available; {REMEDY}.")
    terms = tuple((product(graph, r, s), product(graph, c, d)) for r, c in a.terms for s, d in b.terms)
    return Scores(_merged(graph, terms))


def _times_matrix(scores: Scores, matrix: FloatArray) -> Scores:
    total = np.zeros_like(matrix)
    for row, column in scores.terms:
        if not (row.is_constant and column.is_constant):
            raise Untraceable(f"scores times a constant matrix are not available; add the mask instead ({REMEDY}).")
        total = total + matrix * np.broadcast_to(row.constant, len(matrix))[:, None] * column.constant
    return Scores((), total if scores.bias is None else total + matrix * scores.bias)


def exponential(a: Pair) -> Powers:
    if not isinstance(a, Scores):
        raise Untraceable(f"np.exp of exponentials or weights of pairs is not available; {REMEDY}.")
    return Powers(a)


def without_peak(a: Pair, peak: Peak) -> Scores:
    """scores - max over an axis of the same scores."""
    if not isinstance(a, Scores) or a is not peak.scores or a.shifted not in (None, peak.axis):
        raise Untraceable(
            f"the maximum over pairs may only be taken off the scores that it is the maximum of; {REMEDY}."
        )
    return replace(a, shifted=peak.axis)


def over_total(a: Pair, total: Total) -> Weights:
    """powers / their sum: whatever depends only on the other axis cancels."""
    if not isinstance(a, Powers) or a is not total.powers or a.scores.shifted not in (None, total.axis):
        raise Untraceable(f"a sum of exponentials over pairs may only divide the exponentials that it sums; {REMEDY}.")
    return Weights(a.scores, total.axis)


def summed(graph: Graph, a: Pair, axis: int, length: int) -> Lin | Total:
    """The sum over an axis: a combination of the other token."""
    if axis == ROW:
        return summed(graph, a.turned, COLUMN, length)
    if isinstance(a, Powers):
        return Total(a, axis)
    if isinstance(a, Weights):
        if a.axis != axis:
            raise Untraceable(f"softmax weights may be summed only along the axis of the softmax; {REMEDY}.")
        return product(graph, a.row, _attended(graph, a.scores, a.column))
    if a.shifted is not None:
        raise Untraceable(f"scores less their maximum may only be exponentiated; {REMEDY}.")
    total = constant(0.0) if a.bias is None else constant(a.bias.sum(axis=1))
    for row, column in a.terms:
        whole = mix(graph, expanded(column, length), np.ones((1, length)))
        total = add(graph, total, product(graph, row, whole))
    return total


def _attended(graph: Graph, scores: Scores, values: Lin) -> Lin:
    """What depends on the query alone cancels; a key with a constant query is one score."""
    queries, keys, bias = [], [], scores.bias
    for row, column in scores.terms:
        if column.is_constant and len(column.constant) == 1:
            continue
        if row.is_constant and column.is_constant and not row.slack and not column.slack:
            table = np.multiply.outer(
                np.broadcast_to(row.constant, graph.seq_len), np.broadcast_to(column.constant, graph.seq_len)
            )
            bias = table if bias is None else bias + table
            continue
        queries.append(row)
        keys.append(column)
    if bias is not None and (bias == bias[:1]).all():
        bias = bias[:1].copy()
    return attend(graph, queries, keys, bias, values)


def _merged(graph: Graph, terms: tuple[tuple[Lin, Lin], ...]) -> tuple[tuple[Lin, Lin], ...]:
    """Terms that depend on j alone are one term, likewise those of k alone."""
    rows: Lin | None = None
    columns: Lin | None = None
    rest = []
    for row, column in terms:
        if column.is_constant and len(column.constant) == 1 and not column.slack:
            part = scale(graph, row, column.constant)
            rows = part if rows is None else add(graph, rows, part)
        elif row.is_constant and len(row.constant) == 1 and not row.slack:
            part = scale(graph, column, row.constant)
            columns = part if columns is None else add(graph, columns, part)
        else:
            rest.append((row, column))
    found = [*rest, *([(rows, ONE)] if rows is not None else []), *([(ONE, columns)] if columns is not None else [])]
    return tuple(found)


def expanded(x: Lin, rows: int) -> Lin:
    """The same at every token, written with `rows` rows."""
    return x if x.rows != 1 or rows == 1 else Lin(rows, x.terms, x.constant, x.slack)
