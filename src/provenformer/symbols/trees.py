"""Expressions of two tokens, j and k: trees over what depends on j (rows), on k (columns), and constant matrices.

A tree is evaluated by *gathering*: with k fixed its columns are one number for all tokens, and what is left is an expression of
one token. A tree that is a function of row(j) + column(k) alone is a *kernel*: its sum over k may also be a PairMean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.symbols import atoms
from provenformer.symbols import formula as formulas
from provenformer.symbols.formula import RECIPROCAL, VARIABLE, Formula
from provenformer.symbols.graph import Graph, Input, Lin, Pieces
from provenformer.symbols.jets import distance
from provenformer.symbols.linear import TINY as LEAST_SLACK
from provenformer.symbols.linear import add, constant, digest, divide, gamma, mix, of_atom, off_by, scale
from provenformer.symbols.ranges import hull

Leaf = Callable[[], Lin]  # evaluated only when it is needed: a maximum that completes a softmax costs nothing
FEWEST_GATHERED = 5  # tokens from which it pays to make all columns known to all
MATRICES = 2**25  # numbers in the matrices that masks of pairs may take together


@dataclass(frozen=True, eq=False)
class Tree:
    """operation: "row", "column" (a leaf), "matrix", "masked", "formula" (of one part), or a binary function of numpy."""

    operation: str
    parts: tuple[Tree, ...] = ()
    leaf: Leaf | None = None
    matrix: FloatArray | None = None  # of "matrix"; of "masked" what stands where the mask is False
    mask: Any = None
    formula: Formula = VARIABLE
    slack: float = 0.0  # of "masked": how far its numbers may be from what they stand for

    @property
    def turned(self) -> Tree:
        """j and k exchanged."""
        swap = {"row": "column", "column": "row"}
        matrix, mask = (None if v is None else np.ascontiguousarray(v.T) for v in (self.matrix, self.mask))
        parts = tuple(part.turned for part in self.parts)
        return Tree(swap.get(self.operation, self.operation), parts, self.leaf, matrix, mask, self.formula, self.slack)


def of_row(x: Lin) -> Tree:
    return Tree("row", leaf=lambda: x)


def of_column(x: Lin) -> Tree:
    return Tree("column", leaf=lambda: x)


def of_matrix(values: FloatArray) -> Tree:
    return Tree("matrix", matrix=values)


def function(formula: Formula, of: Tree) -> Tree:
    """A function of one variable; of a masked tree it is one, too, and so exp(-inf) is 0."""
    if of.operation == "masked" and of.matrix is not None:
        with np.errstate(all="ignore"):
            filled = np.asarray(formula(of.matrix), dtype=np.float64)
        numbers = of.matrix[~of.mask & np.isfinite(of.matrix)]
        slack = distance(formula, numbers, of.slack) if numbers.size else 0.0
        return Tree("masked", (function(formula, of.parts[0]),), matrix=filled, mask=of.mask, slack=slack)
    if of.operation == "formula":
        return Tree("formula", of.parts, formula=formula.of(of.formula))
    return Tree("formula", (of,), formula=formula)


def binary(name: str, a: Tree, b: Tree) -> Tree:
    return Tree(name, (a, b))


def masked(tree: Tree, mask: Any, values: FloatArray) -> Tree:
    """np.where(mask, tree, values)."""
    return Tree("masked", (tree,), matrix=values, mask=mask)


def at(graph: Graph, tree: Tree, k: int | None, length: int) -> Lin:
    """The tree with its column token fixed, as a combination of the row token; k = None: the column token is the row's own."""

    def column(x: Lin) -> Lin:
        if k is None or x.rows == 1:
            return x
        choice = np.zeros((1, x.rows))
        choice[0, k] = 1.0
        return mix(graph, x, choice)

    def numbers(values: FloatArray) -> FloatArray:
        return np.diagonal(values).copy() if k is None else values[:, k].copy()

    def value(one: Tree) -> Lin:
        if one.operation in ("row", "column") and one.leaf is not None:
            return one.leaf() if one.operation == "row" else column(one.leaf())
        if one.operation == "matrix" and one.matrix is not None:
            return constant(numbers(one.matrix))
        if one.operation == "masked" and one.matrix is not None:
            kept, filled = numbers(one.mask.astype(np.float64)), np.where(numbers(one.mask), 0.0, numbers(one.matrix))
            if not np.isfinite(filled).all():
                raise Untraceable("a mask of -np.inf is left after np.exp only; give a finite number in np.where.")
            found = add(graph, scale(graph, value(one.parts[0]), kept), constant(filled))
            return off_by(graph, found, one.slack)
        if one.operation == "formula":
            return of_formula(graph, one.formula, value(one.parts[0]))
        return combined(graph, one.operation, *(value(part) for part in one.parts))

    _require_small(graph, tree, length)
    return value(tree)


def of_formula(graph: Graph, formula: Formula, x: Lin) -> Lin:
    """A formula of one token, kinks included: step by step, so that what is linear stays so and kinks become pieces."""
    if formula.operation == "variable":
        return x
    if formula.operation == "constant":
        return constant(formula.value)
    parts = [of_formula(graph, part, x) for part in formula.parts]
    if formula.operation == "absolute":
        return atoms.absolute(graph, parts[0])
    if len(parts) == 1:
        return atoms.apply(graph, formulas.apply(formula.operation, VARIABLE), parts[0])
    return combined(graph, formula.operation, *parts)


def combined(graph: Graph, name: str, x: Lin, y: Lin) -> Lin:
    """A binary function of two values of one token."""
    if name in ("add", "subtract"):
        return add(graph, x, y, 1.0 if name == "add" else -1.0)
    if name == "multiply":
        return atoms.product(graph, x, y)
    if name == "divide":
        if y.is_constant and not y.slack:  # the reciprocal of a constant that is off is one, too
            if not y.constant.all():
                raise Untraceable("division by a constant that is 0; give another.")
            return divide(graph, x, y.constant)
        return atoms.product(graph, x, atoms.apply(graph, RECIPROCAL, y))
    return atoms.maximum(graph, x, y, 1.0 if name == "maximum" else -1.0)


def summed(graph: Graph, tree: Tree, length: int) -> Lin:
    """The sum over k: by linearity where it can be, of kernels as the graph's choice says, else by gathering."""
    if tree.operation == "row" and tree.leaf is not None:
        return scale(graph, tree.leaf(), float(length))
    if tree.operation == "column" and tree.leaf is not None:
        x = tree.leaf()
        return scale(graph, x, float(length)) if x.rows == 1 else mix(graph, x, np.ones((1, length)))
    if tree.operation == "matrix" and tree.matrix is not None:
        found = constant(tree.matrix.sum(axis=1))
        slack = gamma(length) * float(np.abs(tree.matrix).sum(axis=1).max())
        return off_by(graph, found, slack + LEAST_SLACK, "sum", digest(tree.matrix))
    simple = _kernel_sum(graph, tree, length) or _split(graph, tree, length)
    if simple is not None:
        return simple
    return _in_pairs([at(graph, tree, k, length) for k in range(length)], lambda a, b: add(graph, a, b))


def largest(graph: Graph, tree: Tree, length: int) -> Lin:
    """The maximum over k: of what is gathered."""
    return _in_pairs([at(graph, tree, k, length) for k in range(length)], lambda a, b: atoms.maximum(graph, a, b))


def _in_pairs(entries: list[Lin], joined: Callable[[Lin, Lin], Lin]) -> Lin:
    """A tournament: depth and copies grow with the logarithm of the number of entries."""
    while len(entries) > 1:
        pairs = [joined(a, b) for a, b in zip(entries[::2], entries[1::2], strict=False)]
        entries = pairs + entries[2 * len(pairs) :]
    return entries[0]


def _split(graph: Graph, tree: Tree, length: int) -> Lin | None:
    """Sums of sums, and factors that depend on j alone."""
    if tree.operation in ("add", "subtract"):
        a, b = (summed(graph, part, length) for part in tree.parts)
        return add(graph, a, b, 1.0 if tree.operation == "add" else -1.0)
    if tree.operation in ("multiply", "divide"):
        left, right = tree.parts
        for one, other in ((left, right), (right, left)) if tree.operation == "multiply" else ((right, left),):
            if _has_no(one, "column"):
                factor = at(graph, one, 0, length)
                return combined(graph, tree.operation, summed(graph, other, length), factor)
            if one.operation == "matrix" and one.matrix is not None and tree.operation == "multiply":
                rest = _but_diagonal(graph, one.matrix, other, length)
                if rest is not None:
                    return rest
    if tree.operation == "masked" and tree.matrix is not None and not np.where(tree.mask, 0.0, tree.matrix).any():
        found = _but_diagonal(graph, tree.mask.astype(np.float64), tree.parts[0], length)
        if found is not None:
            return off_by(graph, found, length * tree.slack)
    return None


def _but_diagonal(graph: Graph, matrix: FloatArray, tree: Tree, length: int) -> Lin | None:
    """A matrix with one number off its diagonal: that many times the whole sum, and what the own token adds."""
    if matrix.shape != (length, length) or length < 2:
        return None
    off = matrix[~np.eye(length, dtype=bool)]
    if np.ptp(off) != 0:
        return None
    own = scale(graph, at(graph, tree, None, length), np.diagonal(matrix) - off[0])
    # the difference of two numbers was rounded
    own = off_by(graph, own, own.slack, "own token", own.key, digest(matrix))
    return add(graph, scale(graph, summed(graph, tree, length), float(off[0])), own)


def _has_no(tree: Tree, kind: str) -> bool:
    return tree.operation not in (kind, "matrix", "masked") and all(_has_no(part, kind) for part in tree.parts)


def _kernel_sum(graph: Graph, tree: Tree, length: int) -> Lin | None:
    kernel = _kernel(graph, tree)
    if kernel is None or length != graph.seq_len:
        return None
    formula, row, column = kernel
    if {row.rows, column.rows} != {length} or formula == VARIABLE:
        return None
    return atoms.kernel_sum(graph, formula, row, column, lambda: _gathered(graph, formula, row, column))


def _gathered(graph: Graph, formula: Formula, row: Lin, column: Lin) -> Lin:
    """Every column is made known to all tokens; one atom for the sum if the kernel is a piecewise linear function."""
    whole = _sum_of_pieces(graph, formula, row, column)
    if whole is not None:
        return whole
    tokens = (mix(graph, column, choice[None]) for choice in np.eye(column.rows))
    entries = [of_formula(graph, formula, add(graph, row, token)) for token in tokens]
    return _in_pairs(entries, lambda a, b: add(graph, a, b))


def _sum_of_pieces(graph: Graph, formula: Formula, row: Lin, column: Lin) -> Lin | None:
    """own * sum of curve(weight * (row_j + column_k) + shift) + constant, if the kernel is such a function, else None."""
    n = graph.seq_len
    # what is read of another token in the row is not to be taken for a column
    both = [t for i in column.terms for t in (column.terms[i], row.terms.get(i)) if t is not None]
    alone = all(t.mix is None for t in both) and not any(graph.atoms[i].uniform for i in column.terms)
    if n < FEWEST_GATHERED or not alone or not len(row.constant) == len(column.constant) == 1:
        return None
    (a, b), (c, d) = hull(graph, row), hull(graph, column)
    line = Graph(1, 2)  # the kernel alone, on what may be given to it
    z = line.atom(Input(0), False, float(np.nextafter(a + c, -np.inf)), float(np.nextafter(b + d, np.inf)))
    found = of_formula(line, formula, of_atom(line, z))
    if len(found.terms) != 1 or found.rows != line.seq_len or len(found.constant) != 1:
        return None
    ((number, term),) = found.terms.items()
    operation = line.atoms[number].operation
    if not isinstance(operation, Pieces) or operation.of.terms.keys() != {0} or len(operation.of.constant) != 1:
        return None
    weight, shift = operation.of.terms[0].own, operation.of.constant
    inner = add(graph, scale(graph, row, weight), constant(shift))
    inner = off_by(graph, inner, operation.of.slack, "kernel", formula, row.key)
    total = atoms.pair_sum(graph, operation.curve, inner, scale(graph, column, weight))
    whole = scale(graph, constant(found.constant), float(n))
    total = add(graph, scale(graph, total, term.own), whole)
    return off_by(graph, total, n * found.slack, "kernel sum", formula, row.key, column.key)


def _kernel(graph: Graph, tree: Tree) -> tuple[Formula, Lin, Lin] | None:
    """(phi, u, v) with the tree = phi(u_j + v_k), or None."""
    if tree.operation in ("row", "column") and tree.leaf is not None:
        x, nothing = tree.leaf(), constant(0.0)
        if x.is_constant and len(x.constant) == 1 and not x.slack:
            return formulas.constant(x.constant[0]), nothing, nothing
        return VARIABLE, x if tree.operation == "row" else nothing, x if tree.operation == "column" else nothing
    if tree.operation == "formula":
        inner = _kernel(graph, tree.parts[0])
        return None if inner is None else (tree.formula.of(inner[0]), *inner[1:])
    if len(tree.parts) != 2:
        return None
    left, right = (_kernel(graph, part) for part in tree.parts)
    if left is None or right is None:
        return None
    for one, other in ((left, right), (right, left)):
        if one[0].operation == "constant":
            return _joined(tree.operation, left[0], right[0]), *other[1:]
    if left[1].key == right[1].key and left[2].key == right[2].key:
        return _joined(tree.operation, left[0], right[0]), *left[1:]
    if tree.operation in ("add", "subtract") and left[0] == right[0] == VARIABLE:
        sign = 1.0 if tree.operation == "add" else -1.0
        return VARIABLE, add(graph, left[1], right[1], sign), add(graph, left[2], right[2], sign)
    return None


def _joined(name: str, a: Formula, b: Formula) -> Formula:
    if name == "subtract":
        return formulas.apply("add", a, formulas.apply("multiply", formulas.constant(-1.0), b))
    return formulas.apply(name, a, b)


def _require_small(graph: Graph, tree: Tree, length: int) -> None:
    """Every column of a mask is a diagonal matrix of the graph."""
    masks = any(m is not None and (m != m[:1]).any() for m in _matrices(tree))
    if masks and length * graph.seq_len**2 > MATRICES:
        raise Untraceable(
            f"a constant matrix times a function of two of {graph.seq_len} tokens takes {length} matrices of "
            f"{graph.seq_len} x {graph.seq_len} (limit {MATRICES:,} numbers); use fewer tokens, or weights that depend on one."
        )


def _matrices(tree: Tree) -> list[Any]:
    own = [tree.matrix if tree.operation == "matrix" else tree.mask]
    return [m for m in own if m is not None] + [m for part in tree.parts for m in _matrices(part)]
