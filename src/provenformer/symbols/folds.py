"""Squares by folding: depth instead of width (docs/circuits.md, Lemma 13).

For all real w and r, w^2 = r |w| + ((r - 2 |w|)^2 - r^2) / 4. With |w| <= r the next number r - 2 |w| is no larger, and its
square counts a quarter: after k folds a table of the last square may be off 4^k times as far. Nothing is left out: it is the same
value, written with other atoms. Quadratics and products are combinations of squares.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from provenformer.symbols.formula import SQUARE, Formula
from provenformer.symbols.graph import Apply, Graph, Lin, Pieces
from provenformer.symbols.linear import add, constant, gamma, of_atom, off_by, scale, size
from provenformer.symbols.piecewise import PiecewiseLinear
from provenformer.symbols.ranges import hull

Quadratic = tuple[Fraction, Fraction, Fraction]  # a z^2 + b z + c
SMALLEST, LARGEST = 2.0**-100, 2.0**100  # radii that are folded: far from where squares lose digits


def folded_quadratic(graph: Graph, formula: Formula, z: Lin, uniform: bool) -> Lin | None:
    """A quadratic formula of z by folds; None where the graph asks for none, or it is no quadratic."""
    found = quadratic(formula) if graph.depth else None
    if found is None or not found[0]:
        return None
    a, b, c = found
    low, high = hull(graph, z)
    middle = (low + high) / 2
    square = _folded_square(graph, add(graph, z, constant(-middle)), uniform)
    if square is None:
        return None
    m = Fraction(middle)
    bend, slope, start = float(a), float(2 * a * m + b), float(c - a * m * m)
    total = add(graph, scale(graph, square, bend), scale(graph, z, slope))
    total = add(graph, total, constant(start))
    rounded = gamma(2) * (abs(bend) * size(graph, square) + abs(slope) * size(graph, z) + abs(start))
    return off_by(graph, total, rounded, "folded", formula, z.key)


def folded_product(graph: Graph, x: Lin, y: Lin, uniform: bool) -> Lin | None:
    """x y = (u^2 - v^2) / 4 + y0 x + x0 y - x0 y0 with u, v = s (x - x0) +- (y - y0) / s, by folds; None where there are none."""
    if not graph.depth:
        return None
    ranges = [hull(graph, lin) for lin in (x, y)]
    (x0, y0), (rx, ry) = ([f * (b + sign * a) / 2 for a, b in ranges] for f, sign in ((1, 1), (1, -1)))
    if not (SMALLEST < rx < LARGEST and SMALLEST < ry < LARGEST):
        return None
    s = 2.0 ** round(np.log2(ry / rx) / 2)  # a power of two: nothing is rounded
    first = scale(graph, add(graph, x, constant(-x0)), s)
    second = scale(graph, add(graph, y, constant(-y0)), 1 / s)
    squares = [_folded_square(graph, add(graph, first, second, sign), uniform) for sign in (1.0, -1.0)]
    if squares[0] is None or squares[1] is None:
        return None
    total = add(graph, scale(graph, squares[0], 0.25), scale(graph, squares[1], -0.25))
    total = add(graph, add(graph, total, x, y0), y, x0)
    return off_by(graph, add(graph, total, constant(-x0 * y0)), gamma(2) * abs(x0 * y0), "folded", x.key, y.key)


def _folded_square(graph: Graph, w: Lin, uniform: bool) -> Lin | None:
    """w^2 from |w|, |r - 2 |w||, .. and the square of the last."""
    whole, radius = w, max(map(abs, hull(graph, w)))
    if w.is_constant or not SMALLEST < radius < LARGEST:
        return None
    total, share = constant(0.0), 1.0
    for _ in range(graph.depth):
        top = max(map(abs, hull(graph, w)))
        # not by atoms.absolute, which would join it with the fold before
        size_of_w = of_atom(graph, graph.atom(Pieces(PiecewiseLinear((0.0,), (-1.0, 1.0), 0.0), w), uniform, 0.0, top))
        total = add(graph, total, scale(graph, size_of_w, share * radius))
        w = add(graph, constant(radius), scale(graph, size_of_w, -2.0))
        share /= 4
    top = max(map(abs, hull(graph, w)))
    last = graph.atom(Apply(SQUARE, w), uniform, 0.0, float(np.nextafter(top * top, np.inf)))
    total = add(graph, total, scale(graph, of_atom(graph, last), share))
    start = -radius * radius * (1 - share) / 3  # of all the quarters of r^2
    return off_by(graph, add(graph, total, constant(start)), gamma(4) * abs(start), "folded", whole.key)


def quadratic(formula: Formula) -> Quadratic | None:
    """Its coefficients, exactly; None if it is not written as a polynomial of degree two at most."""
    if formula.operation == "variable":
        return Fraction(0), Fraction(1), Fraction(0)
    if formula.operation == "constant":
        return Fraction(0), Fraction(0), Fraction(float(formula.value))
    parts = [quadratic(part) for part in formula.parts]
    if formula.operation == "square":
        parts = [parts[0], parts[0]]
    match formula.operation, parts:
        case "add", [(a, b, c), (d, e, f)]:
            return a + d, b + e, c + f
        case (("multiply" | "square"), [(a, b, c), (d, e, f)]) if not (a and (d or e)) and not (b and d):
            return a * f + b * e + c * d, b * f + c * e, c * f
        case "divide", [(a, b, c), (d, e, f)] if f and not (d or e):
            return a / f, b / f, c / f
    return None
