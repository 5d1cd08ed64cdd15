"""Between what every atom of the graph lies on the box, by intervals and by lines (affine.py): the checker's own.

Three rules know more than intervals (docs/circuits-verify.md): a maximum is not below what it is one of, the mean of the squares
of centred values is at most a quarter of their range squared (Popoviciu), and a value times the reciprocal root of a sum of
squares that contains its own is bounded.
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.affine import affine_range, keep_line
from provenformer.checker.circuit.jets import jet_of
from provenformer.checker.circuit.linear import Ball, Combination, Line, Part, Ranges, combine, of_lin, span
from provenformer.symbols.formula import VARIABLE, Formula
from provenformer.symbols.graph import (
    Apply,
    Atom,
    Attend,
    Compare,
    Graph,
    Input,
    Largest,
    Lin,
    PairMean,
    PairSum,
    Pieces,
    Product,
)
from provenformer.symbols.piecewise import PiecewiseLinear

CELLS = 1024


def ranges_of(graph: Graph, low: FloatArray, high: FloatArray) -> Ranges:
    """Ranges of all atoms for inputs between low and high, per row."""
    found = Ranges({}, {}, {}, graph=graph)
    for number, atom in enumerate(graph.atoms):
        if atom.number != number or not _arguments_before(atom):
            raise Rejected(f"atom {number} of the graph is out of order")
        found.uniform[number] = _is_uniform(atom, found)
        if atom.uniform and not found.uniform[number]:
            raise Rejected(f"atom {number} of the graph is not the same at every token, as it should be")
        try:
            bottom, top = _range(graph, atom, found, low, high)
        except TypeError as error:
            raise Rejected(f"atom {number} of the graph has no range on the box: {error}") from None
        if not (np.isfinite(bottom) and np.isfinite(top)):
            raise Rejected(f"atom {number} of the graph has no finite range on the box")
        found.low[number], found.high[number] = bottom, top
        _learn(graph, atom, found)
    return found


def _learn(graph: Graph, atom: Atom, ranges: Ranges) -> None:
    """What else is known of an atom whose range is found."""
    operation, n = atom.operation, graph.seq_len
    if isinstance(operation, Apply):
        low, high = argument_range(graph, operation, ranges)
        formula = operation.formula
        slope = float(formula(np.float64(high)) - formula(np.float64(low))) / (high - low) if low < high else 0.0
        if not np.isfinite(slope):
            return
        tilted = Formula("add", (formula, Formula("multiply", (Formula("constant", value=-slope), VARIABLE))))
        bottom, top = formula_range(tilted, low, high)
        along = combine([(slope, of_lin(operation.of, ranges, n))], ranges)
        keep_line(ranges, atom.number, Line(along, bottom - operation.slack, top + operation.slack))
    elif isinstance(operation, Product):
        (a, b), (c, d) = (lin_range(graph, x, ranges) for x in (operation.left, operation.right))
        x, y = (a + b) / 2, (c + d) / 2
        pieces = [(y, of_lin(operation.left, ranges, n)), (x, of_lin(operation.right, ranges, n))]
        noise = (b - x) * (d - y) * (1 + 1e-12) + 2.0**-50 * (abs(x) + b - a) * (abs(y) + d - c)
        along = combine([*pieces, (1.0, Combination({}, np.array([-x * y])))], ranges)
        keep_line(ranges, atom.number, Line(along, -noise, noise))
        for one, other in ((operation.left, operation.right), (operation.right, operation.left)):
            if (ball := _ball(graph, one, other, ranges)) is not None:
                ranges.balls[atom.number] = ball


def lin_range(graph: Graph, lin: Lin, ranges: Ranges) -> tuple[float, float]:
    """The range of a combination over all tokens."""
    return range_of(graph, of_lin(lin, ranges, graph.seq_len), ranges)


def argument_range(graph: Graph, operation: Apply | Pieces, ranges: Ranges) -> tuple[float, float]:
    """Of what an operation is applied to. A root of it has no value below 0: where the combination that is stored is >= 0, the
    one that it is within `slack` of is so too, or the function is not defined there."""
    one = of_lin(operation.of, ranges, graph.seq_len)
    low, high = range_of(graph, one, ranges)
    if low < 0 and isinstance(operation, Apply) and operation.formula.starts_at_zero:
        low = max(low, range_of(graph, Combination(one.parts, one.constant), ranges)[0])
    return low, high


def range_of(graph: Graph, one: Combination, ranges: Ranges) -> tuple[float, float]:
    """The same for a combination as the checker writes it: intervals, with mean squares of centred values capped."""
    low, high = span(one, ranges)
    bottom, top = float(low.min()), float(high.max())
    means = [atom for atom, part in one.parts.items() if _is_mean(part)]
    caps = {atom: cap for atom in means if (cap := _mean_square_cap(graph, atom, ranges)) is not None}
    if caps:
        low, high = span(one, Ranges(ranges.low, {**ranges.high, **caps}, ranges.uniform))
        bottom, top = max(bottom, float(low.min())), min(top, float(high.max()))
    low_line, high_line = affine_range(one, ranges)
    bottom, top = max(bottom, low_line), min(top, high_line)
    if (
        not one.slack
        and (one.constant >= 0).all()
        and all(ranges.low[a] >= 0 and _nonnegative(p) for a, p in one.parts.items())
    ):
        bottom = max(bottom, 0.0)
    for sign in (1.0, -1.0):
        closer = _below_maxima(graph, one, ranges, sign)
        if closer is not None:
            low, high = span(closer, ranges)
            bottom, top = (max(bottom, float(low.min())), top) if sign > 0 else (bottom, min(top, float(high.max())))
    return bottom, top


def _below_maxima(graph: Graph, one: Combination, ranges: Ranges, sign: float) -> Combination | None:
    """The combination with v_j in place of max v, for every maximum with a factor of this sign: not above it, or not below."""
    pieces = [(1.0, Combination({}, one.constant, one.slack))]
    replaced = False
    for atom, part in one.parts.items():
        operation = graph.atoms[atom].operation
        if isinstance(operation, Largest) and part.mix is None and np.ndim(part.own) == 0 and sign * part.own > 0:
            pieces.append((float(part.own), of_lin(operation.of, ranges, graph.seq_len)))
            replaced = True
        else:
            pieces.append((1.0, Combination({atom: part}, np.zeros(1))))
    return combine(pieces, ranges) if replaced else None


def _arguments_before(atom: Atom) -> bool:
    return all(0 <= i < atom.number for lin in atom.operation.arguments for i in lin.terms)


def _is_uniform(atom: Atom, ranges: Ranges) -> bool:
    operation = atom.operation
    if isinstance(operation, Largest):
        return True
    if isinstance(operation, Attend):
        same = operation.bias is None or len(operation.bias) == 1
        return same and all(_is_same(q, ranges) for q in operation.queries)
    if isinstance(operation, Compare) and len(operation.sign) != 1:
        return False
    if isinstance(operation, PairMean | PairSum):
        return _is_same(operation.row, ranges)
    return not isinstance(operation, Input) and all(_is_same(lin, ranges) for lin in operation.arguments)


def _is_same(lin: Lin, ranges: Ranges) -> bool:
    """Whether a combination is the same at every token; one with slack may only look so."""
    own = all(ranges.uniform[i] and term.mix is None for i, term in lin.terms.items())
    return lin.rows == 1 or (own and len(lin.constant) == 1 and not lin.slack)


def _nonnegative(part: Part) -> bool:
    return bool(np.all(part.own >= 0)) and (part.mix is None or bool((part.mix >= 0).all()))


def _range(graph: Graph, atom: Atom, ranges: Ranges, low: FloatArray, high: FloatArray) -> tuple[float, float]:
    operation = atom.operation
    if isinstance(operation, Input):
        if operation.row != atom.number or operation.row >= graph.token_dim:
            raise Rejected(f"atom {atom.number} of the graph is not input row {atom.number}")
        return float(low[operation.row]), float(high[operation.row])
    if isinstance(operation, Apply):
        bottom, top = formula_range(operation.formula, *argument_range(graph, operation, ranges))
        return bottom - operation.slack, top + operation.slack
    if isinstance(operation, Pieces):
        return _pieces_range(operation.curve, *lin_range(graph, operation.of, ranges))
    if isinstance(operation, Product):
        return _product_range(graph, operation, ranges)
    if isinstance(operation, Compare):
        (a, b), (c, d) = lin_range(graph, operation.first, ranges), lin_range(graph, operation.second, ranges)
        lows = {1.0: max(a, c), -1.0: min(a, c), 0.0: a}
        highs = {1.0: max(b, d), -1.0: min(b, d), 0.0: b}
        signs = set(np.unique(operation.sign).tolist())
        if not signs <= lows.keys():
            raise Rejected(f"atom {atom.number} of the graph compares with a sign other than -1, 0, 1")
        return min(lows[s] for s in signs), max(highs[s] for s in signs)
    if isinstance(operation, PairMean):
        (a, b), (c, d) = lin_range(graph, operation.row, ranges), lin_range(graph, operation.column, ranges)
        return formula_range(operation.kernel, float(np.nextafter(a + c, -np.inf)), float(np.nextafter(b + d, np.inf)))
    if isinstance(operation, PairSum):
        (a, b), (c, d) = lin_range(graph, operation.row, ranges), lin_range(graph, operation.column, ranges)
        bottom, top = _pieces_range(
            operation.curve, float(np.nextafter(a + c, -np.inf)), float(np.nextafter(b + d, np.inf))
        )
        n = graph.seq_len
        return float(np.nextafter(n * bottom, -np.inf)), float(np.nextafter(n * top, np.inf))
    return lin_range(graph, operation.of if isinstance(operation, Largest) else operation.values, ranges)


def formula_range(formula: Formula, low: float, high: float) -> tuple[float, float]:
    """Of a formula on [low, high]: on each of many cells, from its ends where it is monotone, else enclosed."""
    width = high - low
    ends = np.geomspace(1e-12, 0.25, CELLS // 8) * width  # finer near both ends, where derivatives may be large
    inside = np.concatenate([np.linspace(low, high, CELLS), low + ends, high - ends])
    edges = np.unique(np.clip(inside, low, high))
    if len(edges) == 1:
        edges = np.array([low, np.nextafter(low, np.inf)])
    jet = jet_of(formula, edges[:-1], edges[1:])
    at = jet_of(formula, edges, edges).value
    monotone = (jet.first.lo >= 0) | (jet.first.hi <= 0)
    bottom = np.where(monotone, np.minimum(at.lo[:-1], at.lo[1:]), jet.value.lo)
    top = np.where(monotone, np.maximum(at.hi[:-1], at.hi[1:]), jet.value.hi)
    return float(bottom.min()), float(top.max())


def _pieces_range(curve: PiecewiseLinear, low: float, high: float) -> tuple[float, float]:
    """Ends and knots between them; a sum of as many products as there are knots."""
    knots = np.array(curve.knots)
    points = np.concatenate([[low, high], knots[(knots > low) & (knots < high)]])
    values = curve(points)
    reach = np.abs(points).max() + np.abs(knots).max()
    off = (len(knots) + 4) * 2.0**-52 * (abs(curve.start) + float(np.abs(curve.slopes).sum() * reach))
    bottom = float(values.min() - off)
    if curve.slopes[0] <= 0 <= min(curve.slopes[1:]):  # it falls up to its first knot and rises from there
        bottom = max(bottom, curve.start)
    return bottom, float(values.max() + off)


def _product_range(graph: Graph, operation: Product, ranges: Ranges) -> tuple[float, float]:
    (a, b), (c, d) = lin_range(graph, operation.left, ranges), lin_range(graph, operation.right, ranges)
    products = (a * c, a * d, b * c, b * d)
    low, high = np.nextafter(min(products), -np.inf), np.nextafter(max(products), np.inf)
    for one, other in ((operation.left, operation.right), (operation.right, operation.left)):
        ball = _ball(graph, one, other, ranges)
        if ball is not None:
            cap = ball.scale / np.sqrt(ball.weight) * (1 + 1e-12) + ball.off
            low, high = max(low, -cap), min(high, cap)
    return float(low), float(high)


def _is_mean(part: Part) -> bool:
    """The same nonnegative weight on every token."""
    mix = part.mix
    return part.own == 0 and mix is not None and len(mix) == 1 and bool((mix == mix[0, 0]).all() and mix[0, 0] >= 0)


def _centred(graph: Graph, lin: Lin, ranges: Ranges) -> tuple[Combination, float] | None:
    """(v, eta) with |lin - (v - mean v)| <= eta, if the combination is of that form."""
    n = graph.seq_len
    one = of_lin(lin, ranges, n)
    if one.constant.any() or lin.rows != n:
        return None
    eta, parts = one.slack, {}
    for atom, part in one.parts.items():
        mix = part.mix
        if ranges.uniform[atom] or mix is None or len(mix) != 1:
            return None
        away = float(np.abs(mix * n + part.own).max())
        if away > 1e-9 * abs(part.own):
            return None
        eta += (away + 4 * 2.0**-53 * abs(part.own)) * ranges.size(atom)
        parts[atom] = Part(part.own, None)
    return Combination(parts, np.zeros(1)), eta


def _mean_square_cap(graph: Graph, atom: int, ranges: Ranges) -> float | None:
    """A bound on the mean over tokens of an atom that is the square of something centred.

    mean (v - mean v)^2 <= (sup v - inf v)^2 / 4; eta off it adds at most eta^2 + eta (sup v - inf v).
    """
    operation = graph.atoms[atom].operation
    if not isinstance(operation, Apply) or operation.formula != Formula("square", (VARIABLE,)) or operation.slack:
        return None
    found = _centred(graph, operation.of, ranges)
    if found is None:
        return None
    low, high = span(found[0], ranges)
    width, eta = float(high.max() - low.min()), found[1]
    return (width * width / 4 + eta * width + eta * eta) * (1 + 1e-12)


def _ball(graph: Graph, value: Lin, factor: Lin, ranges: Ranges) -> Ball | None:
    """value = x, factor = c / sqrt(sum of w z^2 + eps), x one of the z, w its weight at its own token: if they have that form."""
    n = graph.seq_len
    if len(factor.terms) != 1 or factor.constant.any() or factor.slack:
        return None
    ((number, term),) = factor.terms.items()
    operation = graph.atoms[number].operation
    if term.mix is not None or not isinstance(operation, Apply) or operation.slack:
        return None
    root = _reciprocal_root(operation.formula)
    if root is None:
        return None
    scale, offset = root
    total = of_lin(operation.of, ranges, n)
    if not offset >= total.slack or (total.constant < 0).any():  # rounding of the sum is made up for by the offset
        return None
    weight = 0.0
    for atom, part in total.parts.items():
        square = graph.atoms[atom].operation
        if not isinstance(square, Apply) or square.formula != Formula("square", (VARIABLE,)) or square.slack:
            return None
        mix = part.mix
        if np.min(part.own) < 0 or (mix is not None and (mix < 0).any()):
            return None
        if square.of.key == value.key:
            at_own = 0.0 if mix is None else float((mix[0] if len(mix) == 1 else np.diagonal(mix)).min())
            weight = float(np.min(part.own)) + (0.0 if ranges.uniform[atom] else at_own)
    if weight <= 0:
        return None
    size = float(abs(term.own * scale)) * (1 + 1e-12)
    # x here and x in the sum may be rounded differently
    off = 2 * value.slack * float(abs(term.own)) * ranges.size(number)
    return Ball(number, value.key, size, weight, off)


def _reciprocal_root(formula: Formula) -> tuple[float, float] | None:
    """(c, e) if the formula is c / sqrt(z + e)."""
    if formula.operation != "divide" or formula.parts[0].operation != "constant":
        return None
    root = formula.parts[1]
    if root.operation != "sqrt":
        return None
    inner = root.parts[0]
    if inner == VARIABLE:
        return formula.parts[0].value, 0.0
    if inner.operation == "add" and {p.operation for p in inner.parts} == {"variable", "constant"}:
        return formula.parts[0].value, sum(p.value for p in inner.parts if p.operation == "constant")
    return None
