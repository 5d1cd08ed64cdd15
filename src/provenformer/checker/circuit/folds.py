"""Quadratics and products that are written by folds: units carry a combination of folds, and algebra says how far off that is.

The graph says which combination; nothing rests on its word. (c + s |w|)^2 = c^2 + 2 c s |w| + s^2 w^2 for all real numbers, so
squares of folds are taken apart until squares of the arguments are left; what then remains of the combination beside the value is
a polynomial whose coefficients are bounded one by one (docs/circuits-verify.md, "Folds").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from provenformer.base.errors import Rejected
from provenformer.checker.circuit.linear import (
    Combination,
    Ranges,
    atom_combination,
    combine,
    difference,
    inner,
    largest,
    of_lin,
)
from provenformer.checker.circuit.state import Channel
from provenformer.checker.circuit.units import Written, write_table
from provenformer.symbols.formula import VARIABLE, Formula
from provenformer.symbols.graph import Apply, Graph, Lin, Pieces, Product
from provenformer.symbols.piecewise import PiecewiseLinear

MOST_FOLDS = 64
DUST = 2.0**-48  # of sums of a few products in float64


def write_folded(written: Written, operation: Apply | Product, claim: Combination, before: Channel) -> Channel:
    """Units that carry the combination of folds, which is within `gap` of the value."""
    if operation.folded is None:
        raise Rejected(f"{written.where}: it is not written by folds")
    stored = Lin(operation.folded.rows, operation.folded.terms, operation.folded.constant)
    carried = write_table(written, Pieces(PiecewiseLinear((0.0,), (1.0, 1.0), 0.0), stored), claim, before).error
    gap = fold_gap(written.graph, operation, stored, written.state.ranges)
    slack = operation.slack if isinstance(operation, Apply) else 0.0
    return Channel(claim, carried.beside(gap).plus(gap + slack))


@dataclass(eq=False)
class _Unfolded:
    """linear + sum of factor * argument^2, all of it within `off` of what was unfolded."""

    linear: list[tuple[float, Combination]] = field(default_factory=list)
    squares: list[tuple[float, Combination]] = field(default_factory=list)
    off: float = 0.0


def fold_gap(graph: Graph, operation: Apply | Product, stored: Lin, ranges: Ranges) -> float:
    """A bound on |combination of folds - value of the operation|."""
    n = graph.seq_len
    arguments = [of_lin(lin, ranges, n) for lin in operation.arguments[:-1]]
    unfolded = _unfolded(graph, of_lin(stored, ranges, n), arguments, ranges)
    sizes = [largest(x, ranges) for x in arguments]
    wanted, slopes, start = _polynomial(operation)
    # sum of factor (alpha . x + gamma)^2 - wanted, by powers of the arguments
    bend = -wanted
    pieces = [*unfolded.linear, (1.0, Combination({}, np.array([-start])))]
    pieces += [(-slope, x) for slope, x in zip(slopes, arguments, strict=True)]
    off, reach = unfolded.off, float(np.abs(wanted) @ np.ones(len(sizes)) @ np.square(sizes))
    for factor, square in unfolded.squares:
        alpha, gamma = _fit(square, arguments, n)
        fitted = combine([*zip(alpha, arguments, strict=True), (1.0, Combination({}, np.array([gamma])))], ranges)
        gap, size = largest(difference(square, fitted, ranges), ranges), largest(square, ranges)
        off += abs(factor) * gap * (2 * size + gap)
        bend = bend + factor * np.outer(alpha, alpha)
        pieces += [(2 * factor * a * gamma, x) for a, x in zip(alpha, arguments, strict=True)]
        pieces.append((1.0, Combination({}, np.array([factor * gamma * gamma]))))
        reach += abs(factor) * float(np.abs(alpha) @ sizes + abs(gamma)) ** 2
    left = largest(combine(pieces, ranges), ranges)
    quadratic = float(np.array(sizes) @ np.abs(bend) @ np.array(sizes))
    terms = sum(abs(f) * largest(x, ranges) for f, x in pieces)
    return (left + quadratic + off) * (1 + 1e-9) + DUST * (reach + terms)


def _polynomial(operation: Apply | Product) -> tuple[np.ndarray, list[float], float]:
    """x . A x + b . x + c that the operation is."""
    if isinstance(operation, Product):
        return np.array([[0.0, 0.5], [0.5, 0.0]]), [0.0, 0.0], 0.0
    found = _coefficients(operation.formula)
    if len(found) > 3:
        raise Rejected("a formula that is no quadratic is written by folds")
    c, b, a = (float(v) for v in (*found, *[Fraction(0)] * (3 - len(found))))
    return np.array([[a]]), [b], c


def _coefficients(formula: Formula) -> list[Fraction]:
    """Of a polynomial, from the constant up, exactly."""
    if formula == VARIABLE:
        return [Fraction(0), Fraction(1)]
    if formula.operation == "constant" and np.isfinite(formula.value):
        return [Fraction(float(formula.value))]
    parts = [_coefficients(part) for part in formula.parts]
    if formula.operation == "add":
        length = max(map(len, parts))
        return [sum((p[i] for p in parts if i < len(p)), Fraction(0)) for i in range(length)]
    if formula.operation == "divide" and len(parts[1]) == 1 and parts[1][0]:
        return [value / parts[1][0] for value in parts[0]]
    if formula.operation not in ("multiply", "square"):
        raise Rejected("a formula that is no quadratic is written by folds")
    first, second = parts[0], parts[-1]
    product = [Fraction(0)] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            product[i + j] += a * b
    while len(product) > 1 and not product[-1]:
        product.pop()
    return product


def _unfolded(graph: Graph, whole: Combination, arguments: list[Combination], ranges: Ranges) -> _Unfolded:
    """The combination, with squares of folds taken apart; squares that the arguments themselves have stay as they are."""
    found, kept = _Unfolded(), dict(whole.parts)
    present = {atom for one in arguments for atom in one.parts}
    for atom, part in whole.parts.items():
        square = graph.atoms[atom].operation
        plain = isinstance(square, Apply) and square.formula == Formula("square", (VARIABLE,)) and not square.slack
        if plain and atom not in present and part.mix is None and np.ndim(part.own) == 0:
            del kept[atom]
            _take_apart(graph, float(part.own), square.arguments[0], ranges, found)
    found.linear.append((1.0, Combination(kept, whole.constant, whole.slack)))
    return found


def _take_apart(graph: Graph, factor: float, of: Lin, ranges: Ranges, found: _Unfolded) -> None:
    """factor * of^2, of = c + s |w| again and again; what rounding takes from a factor is a share of it."""
    exact = Fraction(factor)
    for _ in range(MOST_FOLDS):
        one = of_lin(of, ranges, graph.seq_len)
        folds = [(atom, part.own) for atom, part in one.parts.items() if part.mix is None and np.ndim(part.own) == 0]
        fold = graph.atoms[folds[0][0]].operation if len(folds) == len(one.parts) == len(one.constant) == 1 else None
        if not isinstance(fold, Pieces) or not _is_absolute(fold):
            found.squares.append((float(exact), one))
            found.off += 2.0**-52 * abs(float(exact)) * largest(one, ranges) ** 2
            return
        atom, c, s = folds[0][0], Fraction(float(one.constant[0])), Fraction(float(folds[0][1]))
        size = abs(float(c)) + abs(float(s)) * ranges.size(atom)
        found.linear.append((float(2 * exact * c * s), atom_combination(atom, ranges)))
        found.linear.append((1.0, Combination({}, np.array([float(exact * c * c)]))))
        found.off += abs(float(exact)) * (one.slack * (2 * size + one.slack) + 2.0**-50 * size * size)
        exact, of = exact * s * s * Fraction(fold.curve.slopes[1]) ** 2, fold.of
    raise Rejected(f"a square is folded more than {MOST_FOLDS} times")


def _is_absolute(fold: Pieces) -> bool:
    """A multiple of |w|."""
    return fold.curve.knots == (0.0,) and fold.curve.start == 0.0 and fold.curve.slopes[0] == -fold.curve.slopes[1]


def _fit(square: Combination, arguments: list[Combination], n: int) -> tuple[np.ndarray, float]:
    """alpha, gamma with square close to alpha . arguments + gamma: no bound rests on it."""
    gram = np.array([[inner(a, b, n) for a in arguments] for b in arguments])
    alpha = np.linalg.lstsq(gram, np.array([inner(square, a, n) for a in arguments]), rcond=None)[0]
    known = square.constant - sum(a * x.constant for a, x in zip(alpha, arguments, strict=True))
    return alpha, float(np.mean(known))
