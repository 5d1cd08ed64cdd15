"""Operations on linear combinations that are not linear: each makes an atom, with its range, or fuses with what is there.

A chain of token-wise functions of one variable becomes one formula, so that it will be one table: `0.5 x (1 + tanh(x))` is a
formula of x alone. Slices (1 < rows < n) are padded to n tokens and cut again.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.symbols import formula as formulas
from provenformer.symbols.folds import folded_product, folded_quadratic
from provenformer.symbols.formula import SQUARE, VARIABLE, Formula
from provenformer.symbols.graph import (
    Apply,
    Attend,
    Compare,
    Graph,
    Key,
    Largest,
    Lin,
    Operation,
    PairMean,
    PairSum,
    Pieces,
    Product,
    Term,
)
from provenformer.symbols.jets import distance, formula_range, slope_bound
from provenformer.symbols.linear import add, constant, gamma, mix, of_atom, off_by, rounded_up, scale, size
from provenformer.symbols.piecewise import NOT_FINITE, PiecewiseLinear, composed, nearest, values_between
from provenformer.symbols.ranges import argument_range, enclosure, hull

MASKED = 64.0
MOST_STATISTICS = 20_000


def apply(graph: Graph, outer: Formula, x: Lin) -> Lin:
    """outer(x_j) at every token."""
    if x.is_constant:
        moved = distance(outer, x.constant, x.slack)
        return off_by(graph, constant(outer(x.constant)), moved, "apply", outer, x.key)
    x, rows = _padded(graph, x)
    low, high = argument_range(graph, outer, x)
    inner, z, slack = _as_formula_of_one(graph, x)
    change = slope_bound(outer, low, high) * slack if slack else 0.0
    fused = outer.of(inner)
    return _applied(graph, fused, z, change, rows, ("apply", outer, x.key))


def _applied(graph: Graph, formula: Formula, z: Lin, change: float, rows: int | None, made: Key) -> Lin:
    """The atom of a formula of z, within `change` of what was meant: of what is `made`."""
    low, high = formula_range(formula, *argument_range(graph, formula, z))
    uniform = _is_uniform(graph, z)
    folded = folded_quadratic(graph, formula, z, uniform)
    operation = Apply(formula, z, change, folded, graph.origin(*made) if change else 0)
    return _made(graph, operation, uniform, low - change, high + change, rows)


def pieces(graph: Graph, knots: Sequence[float], slopes: Sequence[float], start: float, x: Lin) -> Lin:
    """A piecewise linear function; where x stays on one piece it is linear."""
    curve = PiecewiseLinear(tuple(map(float, knots)), tuple(map(float, slopes)), float(start))
    if not np.isfinite([*curve.knots, *curve.slopes, curve.start]).all():
        raise Untraceable(NOT_FINITE)
    if x.is_constant:
        values, steep = curve(x.constant), max(map(abs, curve.slopes))
        reach = float(np.abs(x.constant).max()) + max(map(abs, curve.knots))
        rounded = gamma(8 * len(slopes)) * (2 * steep * reach + abs(curve.start))
        return off_by(graph, constant(values), rounded + steep * x.slack, *Pieces(curve, x).key)
    joined = _joined(graph, curve, x)
    if joined is not None:
        return joined
    x, rows = _padded(graph, x)
    low, high = hull(graph, x)
    at = bisect(curve.knots, low)
    if at == bisect_left(curve.knots, high):  # one piece
        slope, knot = Fraction(curve.slopes[at]), Fraction(curve.knots[max(at - 1, 0)])
        rest = curve.exactly(knot) - slope * knot
        line = add(graph, scale(graph, x, float(slope)), constant(nearest(rest)))
        line = off_by(graph, line, rounded_up(abs(rest - Fraction(nearest(rest)))), *Pieces(curve, x).key)
        return _cut(graph, line, rows)
    return _made(graph, Pieces(curve, x), _is_uniform(graph, x), *values_between(curve, low, high), rows)


def _joined(graph: Graph, outer: PiecewiseLinear, x: Lin) -> Lin | None:
    """Pieces of a multiple of other pieces are pieces: np.clip is one atom. None where it is not that."""
    if len(x.terms) != 1 or len(x.constant) != 1:
        return None
    ((number, term),) = x.terms.items()
    inner = graph.atoms[number].operation
    if not isinstance(inner, Pieces) or term.mix is not None or x.rows not in (1, graph.seq_len):
        return None
    made = composed(outer, term.own, float(x.constant[0]), inner.curve, *hull(graph, inner.of))
    if made is None:
        return None
    curve, lost = made
    found = pieces(graph, curve.knots, curve.slopes, curve.start, inner.of)
    return off_by(graph, found, x.slack * max(map(abs, outer.slopes)) + rounded_up(lost), *Pieces(outer, x).key)


def absolute(graph: Graph, x: Lin) -> Lin:
    return pieces(graph, [0.0], [-1.0, 1.0], 0.0, x)


def maximum(graph: Graph, x: Lin, y: Lin, sign: float = 1.0) -> Lin:
    """max(x_j, y_j); with sign -1 min."""
    if x.is_constant and not y.is_constant:
        return maximum(graph, y, x, sign)
    if x.is_constant and y.is_constant:
        found = constant(np.maximum(x.constant, y.constant) if sign > 0 else np.minimum(x.constant, y.constant))
        return off_by(graph, found, max(x.slack, y.slack), "maximum", x.key, y.key, sign)
    if y.is_constant and (y.constant == -sign * np.inf).all():  # np.clip(x, 0, np.inf)
        return x
    if y.is_constant and len(y.constant) == 1:
        knot = float(y.constant[0])
        found = pieces(graph, [knot], [0.0, 1.0] if sign > 0 else [1.0, 0.0], knot, x)
        return off_by(graph, found, y.slack, "maximum", x.key, y.key, sign)
    if y.is_constant or _parallel(x, y):  # max(x, y) = x + relu(y - x): of one variable, where a comparison needs two
        x, y = (y, x) if y.is_constant else (x, y)
        rise = add(graph, y, x, -1.0) if sign > 0 else add(graph, x, y, -1.0)
        return add(graph, x, pieces(graph, [0.0], [0.0, 1.0], 0.0, rise), sign)
    x, y, rows = _both_padded(graph, x, y)
    return compare(graph, x, y, np.array([sign]), rows)


def _parallel(x: Lin, y: Lin) -> bool:
    """Whether one is a multiple of the other but for a constant, and about: no bound rests on it."""
    if x.terms.keys() != y.terms.keys():
        return False
    a, b = (
        np.concatenate([np.append(t.own, [] if t.mix is None else t.mix) for _, t in sorted(z.terms.items())])
        for z in (x, y)
    )
    if a.shape != b.shape:
        return False
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return bool((a @ a) * (b @ b) - (a @ b) ** 2 <= 1e-9 * (a @ a) * (b @ b))


def compare(graph: Graph, x: Lin, y: Lin, sign: FloatArray, rows: int | None = None) -> Lin:
    """max where sign is 1, min where it is -1, x where it is 0."""
    (a, b), (c, d) = hull(graph, x), hull(graph, y)
    low, high = min(a, c), max(b, d)
    if (sign == 1).all():
        low = max(a, c)
    if (sign == -1).all():
        high = min(b, d)
    uniform = _is_uniform(graph, x) and _is_uniform(graph, y) and len(sign) == 1
    return _made(graph, Compare(x, y, sign), uniform, low, high, rows)


def product(graph: Graph, x: Lin, y: Lin) -> Lin:
    """x_j y_j: a formula of one variable where both are, else a product."""
    for one, other in ((x, y), (y, x)):
        if one.is_constant:
            moved = one.slack * (size(graph, other) + other.slack)
            return off_by(graph, scale(graph, other, one.constant), moved, "product", one.key, other.key)
    if x.key == y.key:
        return apply(graph, SQUARE, x)
    x, y, rows = _both_padded(graph, x, y)
    (a, b), (c, d) = hull(graph, x), hull(graph, y)
    for z in (*_variables(graph, x), *_variables(graph, y)):
        left, right = as_formula(graph, x, z), as_formula(graph, y, z)
        if left is not None and right is not None and z.rows == max(x.rows, y.rows):
            largest = (max(abs(a), abs(b)), max(abs(c), abs(d)))
            change = left[1] * largest[1] + right[1] * largest[0] + left[1] * right[1]
            both = formulas.apply("multiply", left[0], right[0])
            return _applied(graph, both, z, change, rows, ("product", x.key, y.key))
    corners = np.array([a * c, a * d, b * c, b * d])
    widen = gamma(2) * float(np.abs(corners).max())
    low, high = float(corners.min()) - widen, float(corners.max()) + widen
    if a >= 0 and c >= 0:
        low = max(low, 0.0)
    uniform = _is_uniform(graph, x) and _is_uniform(graph, y)
    return _made(graph, Product(x, y, folded_product(graph, x, y, uniform)), uniform, low, high, rows)


def largest(graph: Graph, x: Lin) -> Lin:
    """max over the token axis of x."""
    if x.rows == 1:
        return x
    x, _ = _padded(graph, x)
    if x.is_constant:
        return off_by(graph, constant(float(x.constant.max())), x.slack, "largest", x.key)
    low, high = enclosure(graph, x)
    return _made(graph, Largest(x), True, float(low.max()), float(high.max()), None)


def kernel_sum(graph: Graph, kernel: Formula, row: Lin, column: Lin, gathered: Callable[[], Lin]) -> Lin:
    """sum_k kernel(row_j + column_k), n rows each: gathered, or as a PairMean with the statistics that the graph asks for."""
    step = graph.kernel_step(("pair mean", kernel, row.key, column.key))
    if step == 0:
        return gathered()
    n, (a, b), (c, d) = graph.seq_len, hull(graph, row), hull(graph, column)
    low, high = formula_range(kernel, a + c, b + d)
    count = 0 if step == np.inf else max(1, int(np.ceil((d - c) / step * (1 - 1e-9))))
    if not (step > 0 and count <= MOST_STATISTICS):
        raise Untraceable(
            f"a kernel by {count:,} nodes is beyond the limit {MOST_STATISTICS:,}; use a larger tolerance."
        )
    knots = tuple(c + m * step for m in range(count))
    over = [pieces(graph, [knot], [0.0, 1.0], 0.0, column) for knot in knots]
    statistics = tuple(mix(graph, one, np.full((1, n), 1.0 / n)) for one in over)
    operation = PairMean(kernel, row, column, knots, statistics)
    return scale(graph, _made(graph, operation, _is_uniform(graph, row), low, high, None), float(n))


def pair_sum(graph: Graph, curve: PiecewiseLinear, row: Lin, column: Lin) -> Lin:
    """sum_k curve(row_j + column_k), n rows each."""
    (a, b), (c, d) = hull(graph, row), hull(graph, column)
    low, high = values_between(curve, float(np.nextafter(a + c, -np.inf)), float(np.nextafter(b + d, np.inf)))
    low, high = (float(np.nextafter(graph.seq_len * end, to)) for end, to in ((low, -np.inf), (high, np.inf)))
    return _made(graph, PairSum(curve, row, column), _is_uniform(graph, row), low, high, None)


def running_max(graph: Graph, x: Lin) -> Lin:
    """max(x_1, .., x_j), by doubling: after step s every token knows the largest of the last 2^(s+1)."""
    rows, step = x.rows, 1
    while step < rows:
        back = np.maximum(np.arange(rows) - step, 0)  # the first token is one of the last for all before it
        x = _compared(graph, x, back, np.ones(rows))
        step *= 2
    return x


def sort(graph: Graph, x: Lin) -> Lin:
    """Batcher's merge exchange (Knuth, vol. 3, 5.2.2 M): comparators on disjoint pairs, for any length."""
    for pairs in merge_exchange(x.rows):
        partner, sign = np.arange(x.rows), np.zeros(x.rows)
        for i, j in pairs:
            partner[i], partner[j], sign[i], sign[j] = j, i, -1.0, 1.0
        x = _compared(graph, x, partner, sign)
    return x


def merge_exchange(length: int) -> list[list[tuple[int, int]]]:
    """Stages of comparators (i, j), i < j: afterwards entry i is the smaller."""
    if length < 2:
        return []
    top = 1 << ((length - 1).bit_length() - 1)
    stages, p = [], top
    while p > 0:
        q, r, d = top, 0, p
        while d > 0:
            stages.append([(i, i + d) for i in range(length - d) if i & p == r])
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return [stage for stage in stages if stage]


def attend(
    graph: Graph, queries: Sequence[Lin], keys: Sequence[Lin], bias: FloatArray | None, values: Lin, slack: float = 0.0
) -> Lin:
    """sum_k softmax_k(sum_i queries_i(j) keys_i(k) + bias_jk) values_k; the bias may be off by `slack`, which moves weights by
    tanh(slack / 2) at most."""
    if values.is_constant and len(values.constant) == 1 and not values.slack:
        return values
    if any(lin.rows not in (1, graph.seq_len) for lin in (*queries, *keys, values)):
        raise Untraceable(
            "softmax over a slice of the tokens is not available; attend to all of them, with a mask added."
        )
    low, high = hull(graph, values)
    bias, lost = _finite(graph, queries, keys, bias)
    uniform = all(_is_uniform(graph, q) for q in queries) and (bias is None or len(bias) == 1)
    found = _made(graph, Attend(tuple(queries), tuple(keys), bias, values), uniform, low, high, None)
    return off_by(graph, found, (lost + slack) * (high - low))


def _finite(
    graph: Graph, queries: Sequence[Lin], keys: Sequence[Lin], bias: FloatArray | None
) -> tuple[FloatArray | None, float]:
    """Rows start from 0 and end where a score cannot matter: masks of -1e9 or -inf become moderate. The share that moves.

    With |sum of products| <= S an entry MASKED + 2 S + 2 log n below the best of its row weighs at most e^-MASKED / n^2,
    before and after.
    """
    if bias is None:
        return None, 0.0
    best = bias.max(axis=1, keepdims=True)
    if not np.isfinite(best).all():
        raise Untraceable("a mask leaves a token nothing to attend to; allow at least one token in every row.")
    largest = sum(
        max(map(abs, hull(graph, q))) * max(map(abs, hull(graph, k))) for q, k in zip(queries, keys, strict=True)
    )
    n = graph.seq_len
    moderate = np.maximum(bias - best, -np.ceil(2 * largest + MASKED + 2 * np.log(n)))
    if np.array_equal(moderate, bias):
        return bias, 0.0
    rounded = 0.0 if (best == 0).all() else gamma(2) * float((np.abs(best) + np.abs(moderate)).max())
    return moderate, 2 * float(np.exp(-MASKED)) / n + float(np.tanh(rounded))


def _compared(graph: Graph, x: Lin, partner: NDArray[np.int64], sign: FloatArray) -> Lin:
    rows = x.rows
    choice = np.zeros((rows, rows))
    choice[np.arange(rows), partner] = 1.0
    other = mix(graph, x, choice)
    made = ("compared", x.key, partner.tobytes(), sign.tobytes())
    if other.stored == x.stored:  # they differ by what their slack hides
        return off_by(graph, x, other.slack, *made)
    if x.is_constant:
        a, b = (np.broadcast_to(lin.constant, (rows,)) for lin in (x, other))
        found = constant(np.where(sign > 0, np.maximum(a, b), np.where(sign < 0, np.minimum(a, b), a)))
        return off_by(graph, found, x.slack, *made)
    sign = sign[:1] if (sign == sign[0]).all() else sign
    if rows not in (1, graph.seq_len):
        x, other, _ = _both_padded(graph, x, other)
        sign = sign if len(sign) == 1 else np.concatenate([sign, np.zeros(graph.seq_len - rows)])
        return compare(graph, x, other, sign, rows)
    return compare(graph, x, other, sign)


def _made(graph: Graph, operation: Operation, uniform: bool, low: float, high: float, rows: int | None) -> Lin:
    if not (np.isfinite(low) and np.isfinite(high)):
        name = type(operation).__name__.lower()
        raise Untraceable(
            f"a value ({name}) has no finite range on the support; shrink the support or bound it with np.clip."
        )
    return _cut(graph, of_atom(graph, graph.atom(operation, uniform, low, high)), rows)


def _is_uniform(graph: Graph, x: Lin) -> bool:
    """Whether it is the same at every token, though it may be written with n rows; what has slack may only look so."""
    own = all(graph.atoms[i].uniform and t.mix is None for i, t in x.terms.items())
    return x.rows == 1 or (own and len(x.constant) == 1 and not x.slack)


def _padded(graph: Graph, x: Lin) -> tuple[Lin, int | None]:
    """A slice as a Lin of n rows (the last row repeated), and how many rows it had."""
    n = graph.seq_len
    if x.rows in (1, n):
        return x, None
    if x.rows > n:
        raise Untraceable(
            f"an axis of {x.rows} entries holds features and tokens of a sequence of {n}; keep them apart, and reduce over both "
            "with axis=(-2, -1)."
        )
    choice = np.zeros((n, x.rows))
    choice[np.arange(n), np.minimum(np.arange(n), x.rows - 1)] = 1.0
    return mix(graph, x, choice), x.rows


def _both_padded(graph: Graph, x: Lin, y: Lin) -> tuple[Lin, Lin, int | None]:
    (x, rows_x), (y, rows_y) = _padded(graph, x), _padded(graph, y)
    return x, y, rows_x or rows_y


def _cut(graph: Graph, x: Lin, rows: int | None) -> Lin:
    return x if rows is None or x.rows == 1 else mix(graph, x, np.eye(rows, graph.seq_len))


def _variables(graph: Graph, x: Lin) -> list[Lin]:
    """What x might be a formula of: the arguments of its atoms, and its own linear part."""
    found = []
    for i, term in x.terms.items():
        operation = graph.atoms[i].operation
        if term.mix is None and isinstance(operation, Apply):
            found.append(operation.of)
    return [*found, replace(x, constant=np.zeros(1))]


def _as_formula_of_one(graph: Graph, x: Lin) -> tuple[Formula, Lin, float]:
    """x as a formula of some z, and how far that may be from x; in the last resort z = x without its constant."""
    for z in _variables(graph, x)[:-1]:
        found = as_formula(graph, x, z)
        if found is not None:
            return found[0], z, found[1]
    if len(x.constant) == 1 and x.constant[0] != 0:
        shift = formulas.apply("add", VARIABLE, formulas.constant(x.constant[0]))
        return shift, replace(x, constant=np.zeros(1)), 0.0
    return VARIABLE, x, 0.0


def as_formula(graph: Graph, x: Lin, z: Lin) -> tuple[Formula, float] | None:
    """x_j as a formula of z_j, and a bound on the difference; None when it is none."""
    if len(x.constant) > 1 or x.rows not in (1, z.rows):
        return None
    total: Formula | None = None
    rest: dict[int, Term] = {}
    slack = x.slack
    for i, term in x.terms.items():
        operation = graph.atoms[i].operation
        if term.mix is None and isinstance(operation, Apply) and operation.of.key == z.key:
            total = _plus(total, _times(term.own, operation.formula))
            slack += abs(term.own) * operation.slack
        else:
            rest[i] = term
    if rest:
        factor = _ratio(rest, z.terms)
        if factor is None or z.constant.any():
            return None
        total = _plus(total, _times(factor, VARIABLE))
        slack += abs(factor) * z.slack + gamma(1) * size(graph, Lin(x.rows, rest, np.zeros(1)))
    if total is None:
        return None
    return _plus(total, formulas.constant(x.constant[0])) if x.constant[0] != 0 else total, slack


def _ratio(terms: dict[int, Term], of: dict[int, Term]) -> float | None:
    """factor with terms = factor * of, coefficient by coefficient as float64 computes it."""
    if terms.keys() != of.keys():
        return None
    first, base = (each[next(iter(terms))] for each in (terms, of))
    if base.own != 0:
        factor = first.own / base.own
    elif base.mix is not None and first.mix is not None and base.mix.shape == first.mix.shape:
        at = int(np.argmax(np.abs(base.mix)))
        factor = float(first.mix.flat[at] / base.mix.flat[at])
    else:
        return None
    for i, term in terms.items():
        other = of[i]
        if term.own != factor * other.own or (term.mix is None) != (other.mix is None):
            return None
        if term.mix is not None and other.mix is not None and not np.array_equal(term.mix, factor * other.mix):
            return None
    return factor


def _plus(a: Formula | None, b: Formula) -> Formula:
    return b if a is None else formulas.apply("add", a, b)


def _times(factor: float, a: Formula) -> Formula:
    return a if factor == 1 else formulas.apply("multiply", formulas.constant(factor), a)
