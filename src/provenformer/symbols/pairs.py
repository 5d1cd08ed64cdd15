"""Values of two tokens, j and k: an expression (trees.py) and, where it is one, its part in a softmax over tokens.

Scores   sum_i row_i(j) col_i(k) + bias[j, k], possibly less something that depends on j (or on k) alone: a maximum
Powers   exp(scores) times factors of j and of k
Total    their sum over k (or over j): divided by the sum of the exponentials alone it is a softmax
Weights  powers / total: a softmax over k (or over j), times factors of j and of k

What is no part of a softmax is evaluated by its expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.symbols import trees
from provenformer.symbols.atoms import attend, product
from provenformer.symbols.formula import SQUARE, VARIABLE, Formula
from provenformer.symbols.formula import apply as formula_of
from provenformer.symbols.graph import Graph, Lin
from provenformer.symbols.linear import ONE, add, constant, divide, gamma, mix, off_by, scale, size
from provenformer.symbols.linear import TINY as LEAST
from provenformer.symbols.trees import Tree

ROW, COLUMN = 0, 1
EXP = formula_of("exp", VARIABLE)


@dataclass(frozen=True, eq=False)
class Scores:
    """Terms (row, column), and a constant matrix, off by `slack` at most. `shifted`: less the maximum along that axis."""

    terms: tuple[tuple[Lin, Lin], ...]
    bias: FloatArray | None = None  # (n, n)
    shifted: int | None = None
    slack: float = 0.0

    @property
    def turned(self) -> Scores:
        """j and k exchanged."""
        bias = None if self.bias is None else np.ascontiguousarray(self.bias.T)
        shifted = None if self.shifted is None else 1 - self.shifted
        return Scores(tuple((column, row) for row, column in self.terms), bias, shifted, self.slack)


@dataclass(frozen=True, eq=False)
class Powers:
    scores: Scores
    row: Lin = ONE
    column: Lin = ONE

    @property
    def turned(self) -> Powers:
        return Powers(self.scores.turned, self.column, self.row)


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


Form: TypeAlias = Scores | Powers | Weights


@dataclass(frozen=True, eq=False)
class Pair:
    """A value of two tokens; `form` is its part in a softmax, if it has one."""

    tree: Tree
    form: Form | None = None

    @property
    def turned(self) -> Pair:
        return Pair(self.tree.turned, None if self.form is None else self.form.turned)


@dataclass(frozen=True, eq=False)
class Waiting:
    """A maximum ("max") or a sum over an axis of pairs, times a number: part of a softmax, or computed when it is not."""

    kind: str
    pair: Pair
    axis: int
    length: int
    factor: float = 1.0
    _found: list[Lin] = field(default_factory=list)

    def value(self, graph: Graph) -> Lin:
        """The combination that it is."""
        if not self._found:
            tree = self.pair.tree if self.axis == COLUMN else self.pair.tree.turned
            rule = trees.largest if self.kind == "max" else trees.summed
            self._found.append(scale(graph, rule(graph, tree, self.length), self.factor))
        return self._found[0]


def lifted(x: Lin, axis: int) -> Pair:
    """A combination of one token as a value of two."""
    if axis == ROW:
        return Pair(trees.of_row(x), Scores(((x, ONE),)))
    return Pair(trees.of_column(x), Scores(((ONE, x),)))


def of_matrix(values: FloatArray) -> Pair:
    return Pair(trees.of_matrix(values), Scores((), values))


def in_place(graph: Graph, waiting: Waiting, axis: int) -> Pair:
    """What was reduced over one axis, beside pairs: evaluated only if no softmax takes it up."""
    tree = Tree("row" if axis == ROW else "column", leaf=lambda: waiting.value(graph))
    return Pair(tree)


def function(graph: Graph, formula: Formula, x: Pair) -> Pair:
    """A function of one variable."""
    form: Form | None = None
    if formula == EXP and isinstance(x.form, Scores):
        form = Powers(x.form)
    if formula == SQUARE:
        form = _times(graph, x.form, x.form)
    return Pair(trees.function(formula, x.tree), form)


def combined(graph: Graph, name: str, x: Pair, y: Pair, waiting: Waiting | None) -> Pair:
    """A binary function; `waiting` is what y stands for, if it waits for a softmax."""
    return Pair(trees.binary(name, x.tree, y.tree), _form(graph, name, x.form, y.form, waiting))


def _form(graph: Graph, name: str, a: Form | None, b: Form | None, waiting: Waiting | None) -> Form | None:
    if waiting is not None:
        return _completed(name, a, waiting)
    if name in ("add", "subtract"):
        return _plus(graph, a, b, 1.0 if name == "add" else -1.0)
    if name == "multiply":
        return _times(graph, a, b)
    return _over(graph, a, b) if name == "divide" else None


def _completed(name: str, a: Form | None, waiting: Waiting) -> Form | None:
    """scores - their maximum, powers / their sum: whatever depends on the other axis alone cancels."""
    other = waiting.pair.form
    if waiting.factor != 1 or a is None:
        return None
    if name == "subtract" and waiting.kind == "max" and isinstance(a, Scores) and a is other:
        return replace(a, shifted=waiting.axis) if a.shifted in (None, waiting.axis) else None
    if name == "divide" and waiting.kind == "sum" and isinstance(a, Powers) and isinstance(other, Powers):
        alone = other.row is ONE and other.column is ONE
        if alone and a.scores is other.scores and a.scores.shifted in (None, waiting.axis):
            return Weights(a.scores, waiting.axis, a.row, a.column)
    return None


def softmax_mean(graph: Graph, above: Waiting, below: Waiting) -> Lin | None:
    """sum_k exp(scores) values_k / sum_k exp(scores), if it is that: a softmax written as a quotient of sums."""
    a, b = above.pair.form, below.pair.form
    if above.kind != "sum" or below.kind != "sum" or above.axis != below.axis or below.factor == 0:
        return None
    if not isinstance(a, Powers) or not isinstance(b, Powers) or a.scores is not b.scores:
        return None
    if b.row is not ONE or b.column is not ONE or a.scores.shifted not in (None, above.axis):
        return None
    if above.axis == ROW:
        a = a.turned
    found = product(graph, a.row, _attended(graph, a.scores, a.column))
    return divide(graph, scale(graph, found, above.factor), np.array([below.factor]))


def _plus(graph: Graph, a: Form | None, b: Form | None, factor: float) -> Scores | None:
    """a + factor * b, of scores; factor 1 or -1."""
    if not isinstance(a, Scores) or not isinstance(b, Scores) or a.shifted is not None or b.shifted is not None:
        return None
    terms = a.terms + tuple((scale(graph, row, factor), column) for row, column in b.terms)
    bias, slack = a.bias, a.slack + b.slack
    if b.bias is not None:
        bias, rounded = (factor * b.bias, 0.0) if a.bias is None else _sum(a.bias, factor * b.bias)
        slack += rounded
    return Scores(_merged(graph, terms), bias, slack=slack)


def _times(graph: Graph, a: Form | None, b: Form | None) -> Form | None:
    """a * b: of scores as a sum of products; of powers and weights with what depends on one token."""
    if isinstance(b, Powers | Weights):
        a, b = b, a
    if isinstance(a, Powers | Weights):
        plain = isinstance(b, Scores) and b.bias is None and b.shifted is None and len(b.terms) == 1
        if not plain or not isinstance(b, Scores):
            return None
        row, column = b.terms[0]
        return replace(a, row=_factor(graph, a.row, row), column=_factor(graph, a.column, column))
    if not isinstance(a, Scores) or not isinstance(b, Scores) or a.shifted is not None or b.shifted is not None:
        return None
    for one, other in ((a, b), (b, a)):
        if one.bias is not None and not one.terms:  # a constant matrix
            return None if one.slack else _times_matrix(other, one.bias)
    if a.bias is not None or b.bias is not None:
        return None
    terms = tuple((product(graph, r, s), product(graph, c, d)) for r, c in a.terms for s, d in b.terms)
    return Scores(_merged(graph, terms))


def _factor(graph: Graph, a: Lin, b: Lin) -> Lin:
    return b if a is ONE else a if b is ONE else product(graph, a, b)


def _times_matrix(scores: Scores, matrix: FloatArray) -> Scores | None:
    parts = [] if scores.bias is None else [matrix * scores.bias]
    for row, column in scores.terms:
        if not (row.is_constant and column.is_constant) or row.slack or column.slack:
            return None
        parts.append(matrix * np.broadcast_to(row.constant, len(matrix))[:, None] * column.constant)
    rounded = gamma(len(parts) + 2) * sum(map(_size, parts)) + LEAST
    return Scores((), np.sum(parts, axis=0), slack=rounded + _size(matrix) * scores.slack)


def _sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """a + b of matrices, and what that rounds."""
    return a + b, gamma(1) * _size(a + b)


def _size(matrix: FloatArray) -> float:
    """The largest |number|, -inf of masks apart."""
    return float(np.abs(matrix).max(initial=0.0, where=np.isfinite(matrix)))


def _over(graph: Graph, a: Form | None, b: Form | None) -> Form | None:
    """Divided by what depends on one token at most."""
    if not isinstance(b, Scores) or b.bias is not None or b.shifted is not None or len(b.terms) != 1:
        return None

    def over(terms: tuple[Lin, Lin]) -> tuple[Lin, Lin]:
        row, column = (
            x if y is ONE else trees.combined(graph, "divide", x, y) for x, y in zip(terms, b.terms[0], strict=True)
        )
        return row, column

    if isinstance(a, Scores) and a.bias is None and a.shifted is None:
        return Scores(_merged(graph, tuple(map(over, a.terms))))
    if isinstance(a, Powers | Weights):
        row, column = over((a.row, a.column))
        return replace(a, row=row, column=column)
    return None


def summed(graph: Graph, a: Pair, axis: int, length: int) -> Lin | Waiting:
    """The sum over an axis: a combination of the other token, or what may complete a softmax."""
    if isinstance(a.form, Powers):
        return Waiting("sum", a, axis, length)
    if isinstance(a.form, Weights) and a.form.axis == axis:
        form = a.form if axis == COLUMN else a.form.turned
        return product(graph, form.row, _attended(graph, form.scores, form.column))
    if (
        isinstance(a.form, Scores)
        and a.form.shifted is None
        and (a.form.bias is None or np.isfinite(a.form.bias).all())
    ):
        return _summed_scores(graph, a.form if axis == COLUMN else a.form.turned, length)
    return trees.summed(graph, a.tree if axis == COLUMN else a.tree.turned, length)


def _summed_scores(graph: Graph, scores: Scores, length: int) -> Lin:
    """By linearity: products of what depends on j with sums over k."""
    total = constant(0.0) if scores.bias is None else trees.summed(graph, trees.of_matrix(scores.bias), length)
    total = off_by(graph, total, length * scores.slack)
    for row, column in scores.terms:
        whole = mix(graph, expanded(column, length), np.ones((1, length)))
        total = add(graph, total, product(graph, row, whole))
    return total


def _attended(graph: Graph, scores: Scores, values: Lin) -> Lin:
    """What depends on the query alone cancels; a key with a constant query is one score."""
    queries, keys, bias, slack = [], [], scores.bias, scores.slack
    for row, column in scores.terms:
        if column.is_constant and len(column.constant) == 1:  # the same for all keys, but for what its slack hides
            slack += column.slack * (size(graph, row) + row.slack)
            continue
        if row.is_constant and column.is_constant and not row.slack and not column.slack:
            table = np.multiply.outer(
                np.broadcast_to(row.constant, graph.seq_len), np.broadcast_to(column.constant, graph.seq_len)
            )
            bias, rounded = (table, 0.0) if bias is None else _sum(bias, table)
            slack += rounded + gamma(1) * _size(table) + LEAST
            continue
        queries.append(row)
        keys.append(column)
    if bias is not None and (bias == bias[:1]).all():
        bias = bias[:1].copy()
    return attend(graph, queries, keys, bias, values, slack)


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
    return x if x.rows != 1 or rows == 1 else replace(x, rows=rows)
