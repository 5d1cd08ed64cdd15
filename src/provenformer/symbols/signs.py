"""sign(z) times a function of |z| that is 0 at 0: continuous, though the sign is not (docs/circuits.md, "Signs").

sign(z) g(|z|) = g(max(z, 0)) - g(max(-z, 0)) whenever g(0) = 0; piecewise linear functions of z itself change the sign of what
lies left of 0. Every other use of a sign that may change is refused.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.base.errors import Untraceable
from provenformer.symbols import atoms, trees
from provenformer.symbols.formula import VARIABLE, Formula
from provenformer.symbols.formula import apply as join
from provenformer.symbols.formula import constant as number
from provenformer.symbols.graph import Apply, Graph, Key, Lin, Pieces
from provenformer.symbols.jets import distance, slope_bound
from provenformer.symbols.linear import add, constant, off_by, rounded_up, scale
from provenformer.symbols.piecewise import PiecewiseLinear
from provenformer.symbols.ranges import hull

AT_ZERO = 2.0**-40  # a function this small at 0 is 0 there, but for rounding: what it jumps by is slack


@dataclass(frozen=True, eq=False)
class Sign:
    """factor * sign(of), not yet multiplied."""

    of: Lin
    factor: float = 1.0

    @property
    def key(self) -> Key:
        """Equal for equal signs."""
        return ("sign", self.of.key, self.factor)

    def value(self, graph: Graph) -> Lin:
        """Where it cannot change it is a number."""
        low, high = hull(graph, self.of)
        if low > 0 or high < 0 or not self.factor:
            return constant(self.factor if low > 0 else -self.factor)
        raise Untraceable(
            f"numpy.sign of a value in [{low:.4g}, {high:.4g}] jumps at 0; multiply it with a function of np.abs of that value "
            "which is 0 at 0, or use a steep np.tanh."
        )


def combined(graph: Graph, name: str, x: Any, y: Any) -> Any:
    """Arithmetic in which a sign takes part."""
    if name == "multiply" and isinstance(y, Sign):
        x, y = y, x
    if isinstance(x, Sign) and isinstance(y, Lin) and name in ("multiply", "divide"):
        if y.is_constant and len(y.constant) == 1 and not y.slack:
            return Sign(
                x.of, x.factor * float(y.constant[0]) if name == "multiply" else x.factor / float(y.constant[0])
            )
        found = _odd(graph, x.of, y) if name == "multiply" else None
        if found is not None:
            return scale(graph, found, x.factor)
    x, y = (v.value(graph) if isinstance(v, Sign) else v for v in (x, y))
    return trees.combined(graph, name, x, y)


def _odd(graph: Graph, z: Lin, even: Lin) -> Lin | None:
    """sign(z) times a function of |z| that is 0 at 0; None where it is none."""
    atom = next(iter(even.terms)) if len(even.terms) == 1 and even.terms[next(iter(even.terms))].mix is None else None
    operation = None if atom is None else graph.atoms[atom].operation
    if atom is not None and isinstance(operation, Pieces) and operation.of.key == z.key and not even.constant.any():
        found = _odd_pieces(graph, operation.curve, operation.of)
        if found is None:
            return None
        return off_by(graph, scale(graph, found, even.terms[atom].own), even.slack, "odd", z.key, even.key)
    formula = _of_size(graph, even, atoms.absolute(graph, z))
    if formula is None:  # squares do not see the sign
        formula = atoms.as_formula(graph, even, z)
        formula = formula if formula is not None and _is_even(formula[0]) else None
    if formula is None:
        return None
    g, slack = formula
    jump = abs(float(g(np.float64(0.0))))
    if not jump <= AT_ZERO:
        return None
    jump += distance(g, np.zeros(1), 0.0)
    right, left = (
        atoms.apply(graph, g, atoms.pieces(graph, [0.0], [0.0, 1.0], 0.0, w)) for w in (z, scale(graph, z, -1.0))
    )
    return off_by(graph, add(graph, right, left, -1.0), slack + jump, "odd", z.key, even.key)


def _of_size(graph: Graph, even: Lin, size: Lin) -> tuple[Formula, float] | None:
    """A combination as a formula of |z|, which is one atom, and how far that may be off; None when it is none."""
    if len(even.constant) != 1 or len(size.terms) != 1 or size.slack:
        return None
    ((atom, whole),) = size.terms.items()
    if whole.mix is not None or whole.own != 1.0 or size.constant.any():
        return None
    total, slack = number(float(even.constant[0])), even.slack
    for i, term in even.terms.items():
        operation, part = graph.atoms[i].operation, VARIABLE
        if term.mix is not None:
            return None
        if i != atom:
            if (
                not isinstance(operation, Apply)
                or operation.of.terms.keys() != {atom}
                or len(operation.of.constant) != 1
            ):
                return None
            inner = operation.of.terms[atom]
            if inner.mix is not None:
                return None
            line = join("multiply", number(inner.own), VARIABLE)
            part = operation.formula.of(join("add", line, number(float(operation.of.constant[0]))))
            low, high = hull(graph, operation.of)
            steep = slope_bound(operation.formula, low, high) if operation.of.slack else 0.0
            slack += abs(term.own) * (operation.slack + steep * operation.of.slack)
        total = join("add", total, join("multiply", number(term.own), part))
    return total, slack


def _odd_pieces(graph: Graph, curve: PiecewiseLinear, of: Lin) -> Lin | None:
    """The same right of 0, the negative left of it; it must be 0 at 0, but for rounding."""
    jump, reach = curve.exactly(Fraction(0)), max(map(abs, curve.knots)) * max(map(abs, curve.slopes))
    if abs(jump) > AT_ZERO * max(1.0, reach, abs(curve.start)):
        return None
    knots = sorted({*curve.knots, 0.0})
    starts = [-np.inf, *knots]  # of the pieces, which change at no other place
    slopes = [curve.slopes[bisect(curve.knots, start)] * (1.0 if start >= 0 else -1.0) for start in starts]
    turns = [k for k in range(len(knots)) if slopes[k] != slopes[k + 1]]
    if not turns:  # as in sign(z) |z| = z
        return off_by(graph, scale(graph, of, slopes[0]), rounded_up(abs(jump)), "odd", Pieces(curve, of).key)
    first = knots[turns[0]]
    height = curve.exactly(Fraction(first)) * int(np.sign(first))
    kept, steps = [knots[k] for k in turns], [slopes[0], *(slopes[k + 1] for k in turns)]
    found = atoms.pieces(graph, kept, steps, float(height), of)
    lost = abs(height - Fraction(float(height))) + 2 * abs(jump)
    return off_by(graph, found, rounded_up(lost), "odd", Pieces(curve, of).key)


def _is_even(formula: Formula) -> bool:
    """Whether the variable stands in squares alone."""
    if formula.operation in ("variable", "constant"):
        return formula.operation == "constant"
    return (formula.parts == (VARIABLE,) and formula.operation == "square") or all(map(_is_even, formula.parts))
