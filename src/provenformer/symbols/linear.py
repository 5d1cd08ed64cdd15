"""Arithmetic of linear combinations. What rounding does to their coefficients is carried along as `slack`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.symbols.graph import Atom, Graph, Key, Lin, Term
from provenformer.symbols.piecewise import NOT_FINITE

UNIT = 2.0**-53
LEAST = 2.0**-1022  # below it numbers lose digits: no product of coefficients may get there
TINY = 2.0**-1074  # what rounding may take from a product that is not 0, however small


def gamma(k: float) -> float:
    """k roundings one after the other change a number by at most this share of it."""
    return k * UNIT / (1 - k * UNIT)


def constant(values: FloatArray | float) -> Lin:
    """A Lin without atoms: one number, or one per token."""
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return _lin(len(array), {}, array, 0.0)


def of_atom(graph: Graph, atom: Atom) -> Lin:
    """The value of an atom."""
    return Lin(1 if atom.uniform else graph.seq_len, {atom.number: Term(1.0)}, np.zeros(1))


def add(graph: Graph, x: Lin, y: Lin, factor: float = 1.0) -> Lin:
    """x + factor * y."""
    rows = max(x.rows, y.rows)
    if not {x.rows, y.rows} <= {1, rows}:
        raise ValueError(f"token axes of {x.rows} and {y.rows} entries")
    _require_digits(y, factor)
    terms = dict(x.terms)
    for i, term in y.terms.items():
        before = terms.get(i, Term(0.0))
        mix = _plus(before.mix, None if term.mix is None else factor * term.mix)
        terms[i] = _tidy(graph, graph.atoms[i], before.own + factor * term.own, mix, rows)
    result = _lin(rows, terms, x.constant + factor * y.constant, 0.0)
    shared = x.terms.keys() & y.terms.keys()
    slack = x.slack + _up(abs(factor), y.slack)
    if abs(factor) == 1 and not shared and not (x.constant.any() and y.constant.any()):  # nothing is computed
        return _computed(graph, result, slack, "add", (x, y), factor)
    plain = abs(factor) == 1 and all(t.mix is None for lin in (x, y) for i, t in lin.terms.items() if i in shared)
    # a sum of two numbers is off by a share of itself: what cancels leaves nothing
    moved = size(graph, result) + (0.0 if plain else _up(abs(factor), size(graph, y)))
    return _computed(graph, result, slack + _up(gamma(2), moved), "add", (x, y), factor)


def scale(graph: Graph, x: Lin, factors: FloatArray | float) -> Lin:
    """factors_j * x_j: one factor, or one per token."""
    array = np.atleast_1d(np.asarray(factors, dtype=np.float64))
    _require_digits(x, array)
    if (array == array[0]).all() and len(array) in (1, x.rows):
        factor = float(array[0])
        if factor == 0:
            return _lin(x.rows, {}, np.zeros(1), 0.0)
        terms = {i: Term(t.own * factor, None if t.mix is None else t.mix * factor) for i, t in x.terms.items()}
        result = _lin(x.rows, terms, x.constant * factor, 0.0)
        exact = factor == 0 or np.frexp(factor)[0] in (0.5, -0.5)  # a power of two
        slack = _up(abs(factor), x.slack) + (0.0 if exact else _up(gamma(1), size(graph, result)))
        return _computed(graph, result, slack, "scale", (x,), factor)
    rows = len(array)
    if x.rows not in (1, rows):
        raise ValueError(f"token axes of {x.rows} and {rows} entries")
    terms = {}
    for i, term in x.terms.items():
        mix = np.zeros((rows, graph.seq_len))
        if term.mix is not None:
            mix += array[:, None] * term.mix
        if term.own != 0:
            if graph.atoms[i].uniform:
                mix[:, 0] += array * term.own
            else:
                mix[np.arange(rows), np.arange(rows)] += array * term.own
        terms[i] = _tidy(graph, graph.atoms[i], 0.0, mix, rows)
    result = _lin(rows, terms, array * x.constant, 0.0)
    slack = _up(float(np.abs(array).max()), x.slack) + _up(gamma(2), size(graph, result))
    return _computed(graph, result, slack, "scale", (x,), array)


def divide(graph: Graph, x: Lin, divisors: FloatArray) -> Lin:
    """x_j / divisors_j: the reciprocal is rounded once more."""
    _require_digits(ONE, 1.0 / divisors)
    result = scale(graph, x, 1.0 / divisors)
    exact = (np.abs(np.frexp(divisors)[0]) == 0.5).all()
    more = 0.0 if exact else _up(gamma(2), size(graph, result))
    return _computed(graph, result, result.slack + more, "divide", (x,), divisors)


def mix(graph: Graph, x: Lin, rows: FloatArray) -> Lin:
    """rows @ x along the token axis, rows: (new length, x.rows)."""
    _require_digits(x, rows)
    sums, length = rows.sum(axis=1), rows.shape[0]
    even = bool((sums == sums[0]).all())
    terms = {}
    for i, term in x.terms.items():
        own, new = 0.0, None
        if term.own != 0:
            if not graph.atoms[i].uniform:
                new = term.own * rows
            elif even:
                own = term.own * float(sums[0])
            else:
                new = np.zeros((length, graph.seq_len))
                new[:, 0] = term.own * sums
        if term.mix is not None:
            same = term.mix.shape[0] == 1 and x.rows > 1
            new = _plus(new, (sums[:1] if even else sums)[:, None] * term.mix if same else rows @ term.mix)
        terms[i] = _tidy(graph, graph.atoms[i], own, new, length)
    result = _lin(length, terms, rows @ np.broadcast_to(x.constant, (x.rows,)), 0.0)
    weight = float(np.abs(rows).sum(axis=1).max())
    if ((rows == 0) | (rows == 1)).all() and (np.count_nonzero(rows, axis=1) <= 1).all():  # a choice of tokens
        slack = x.slack
    else:
        slack = _up(weight, x.slack + _up(gamma(x.rows + 2), size(graph, x)))
    return _computed(graph, result, slack, "mix", (x,), rows)


def off_by(graph: Graph, x: Lin, slack: float, *made: object) -> Lin:
    """The same combination of an exact value that may be `slack` further away; `made`: all that this value is computed from."""
    return replace(x, slack=x.slack + slack, origin=graph.origin(*made)) if slack else x


def without(graph: Graph, x: Lin, gone: Container[int]) -> Lin:
    """x less the terms of some atoms."""
    return replace(
        x, terms={i: t for i, t in x.terms.items() if i not in gone}, origin=graph.origin() if x.slack else 0
    )


def digest(numbers: FloatArray) -> Key:
    """A few bytes that stand for all of an array."""
    return numbers.shape, blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=16).digest()


def _computed(
    graph: Graph, result: Lin, slack: float, name: str, of: tuple[Lin, ...], factors: FloatArray | float
) -> Lin:
    """A combination with its slack; what is computed alike has one origin."""
    if not slack:
        return result
    # where there is an origin, rows and constant tell the rest (`replace`): keys hold whole matrices
    parts = [(x.origin, x.rows, x.constant.tobytes()) if x.origin else x.key for x in of]
    by = digest(factors) if isinstance(factors, np.ndarray) else factors
    return replace(result, slack=slack, origin=graph.origin(name, frozenset(parts) if by == 1 else tuple(parts), by))


def size(graph: Graph, x: Lin) -> float:
    """At least |value|, and at least the sum of the sizes of its parts."""
    total = float(np.abs(x.constant).max())
    for i, term in x.terms.items():
        weight = abs(term.own) + (0.0 if term.mix is None else float(np.abs(term.mix).sum(axis=1).max()))
        total += _up(weight, graph.atoms[i].size)
    return total


def positive_and_negative(graph: Graph, x: Lin, number: int) -> tuple[FloatArray, FloatArray]:
    """Per row: the sums of the positive and of the negative coefficients on one atom."""
    term, atom = x.terms[number], graph.atoms[number]
    if term.mix is None:
        return np.array([max(term.own, 0.0)]), np.array([min(term.own, 0.0)])
    if atom.uniform:
        total = term.own + term.mix.sum(axis=1)
        return np.maximum(total, 0.0), np.minimum(total, 0.0)
    positive, negative = np.maximum(term.mix, 0.0).sum(axis=1), np.minimum(term.mix, 0.0).sum(axis=1)
    if term.own == 0:
        return positive, negative
    diagonal = term.mix[0] if term.mix.shape[0] == 1 else np.diagonal(term.mix)
    both = diagonal + term.own
    return (
        positive - np.maximum(diagonal, 0.0) + np.maximum(both, 0.0),
        negative - np.minimum(diagonal, 0.0) + np.minimum(both, 0.0),
    )


def rounded_up(value: Fraction) -> float:
    """A float not below a number >= 0, and 0 for 0."""
    return float(np.nextafter(float(value), np.inf)) if value else 0.0


def _up(a: float, b: float) -> float:
    """a * b of numbers >= 0: never 0 unless one of them is."""
    return a * b + TINY if a and b else 0.0


def _require_digits(x: Lin, factors: FloatArray | float) -> None:
    """Raise if a product of coefficients may be so small that it loses digits: slack is a share of what is left."""
    by = _smallest(np.atleast_1d(factors))
    if by >= 1:
        return
    parts = [x.constant, *(np.array([t.own]) for t in x.terms.values())]
    parts += [np.ravel(t.mix) for t in x.terms.values() if t.mix is not None]
    least = min(_smallest(part) for part in parts)
    if by * least < LEAST:
        raise Untraceable(
            f"coefficients of {least:.1e} and {by:.1e} multiply to less than float64 has; rescale the function."
        )


def _smallest(values: FloatArray) -> float:
    """Of those that are not 0."""
    sizes = np.abs(values)
    return float(np.min(sizes, initial=np.inf, where=sizes > 0))


def _plus(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    return b if a is None else a if b is None else a + b


def _lin(rows: int, terms: dict[int, Term], values: FloatArray, slack: float) -> Lin:
    kept = {i: t for i, t in terms.items() if t.own != 0 or t.mix is not None}
    finite = all(np.isfinite(t.own) and (t.mix is None or np.isfinite(t.mix).all()) for t in kept.values())
    if not finite or np.isnan(values).any():  # a constant may be -inf: a mask
        raise Untraceable(NOT_FINITE)
    even = len(values) > 1 and bool((values == values[0]).all())
    return Lin(rows, kept, values[:1].copy() if even else values, slack)


def _tidy(graph: Graph, atom: Atom, own: float, mixing: FloatArray | None, rows: int) -> Term:
    """One way to write each term: as own where possible, one row where all are equal, uniform atoms in column 0."""
    if mixing is None or not mixing.any():
        return Term(own)
    if atom.uniform:
        sums = mixing.sum(axis=1)
        if (sums == sums[0]).all():
            return Term(own + float(sums[0]))
        mixing = np.zeros((rows, graph.seq_len))
        mixing[:, 0] = sums
        return Term(own, mixing)
    if mixing.shape[0] > 1:
        if (mixing == mixing[:1]).all():
            return Term(own, mixing[:1].copy())
        diagonal = np.diagonal(mixing)
        only_diagonal = rows == graph.seq_len and np.count_nonzero(mixing) == np.count_nonzero(diagonal)
        if only_diagonal and (diagonal == diagonal[0]).all():
            return Term(own + float(diagonal[0]))
    return Term(own, mixing)


ONE = constant(1.0)
