"""Between which numbers a linear combination lies, for all inputs of the box."""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.symbols.formula import SQUARE, Formula
from provenformer.symbols.graph import Apply, Graph, Largest, Lin, Term
from provenformer.symbols.linear import add, gamma, positive_and_negative, size, without


def enclosure(graph: Graph, x: Lin) -> tuple[FloatArray, FloatArray]:
    """[low, high] per row, rounded outwards: every atom anywhere in its range."""
    low, high, roundings, signs = x.constant.copy(), x.constant.copy(), 4, bool((x.constant >= 0).all())
    for i, term in x.terms.items():
        atom = graph.atoms[i]
        positive, negative = positive_and_negative(graph, x, i)
        top = min(atom.high, _variance_cap(graph, term, i))
        low, high = low + positive * atom.low + negative * top, high + positive * top + negative * atom.low
        roundings += 4 + (0 if term.mix is None else 2 * graph.seq_len)
        signs &= atom.low >= 0 and not negative.any()
    widen = gamma(roundings) * size(graph, x) + x.slack
    low, high = low - widen, high + widen
    for sign in (1.0, -1.0):  # a maximum is not below what it is the maximum of: np.max(x) - x >= 0
        closer = _without_maxima(graph, x, sign)
        if closer is not None:
            least, most = hull(graph, closer)
            low, high = (np.maximum(low, least), high) if sign > 0 else (low, np.minimum(high, most))
    return np.maximum(low, 0.0) if signs and not x.slack else low, high


def _without_maxima(graph: Graph, x: Lin, sign: float) -> Lin | None:
    """x with every maximum over tokens of this sign replaced by what it is a maximum of, at the own token; None if there is none.

    Not above x for sign 1, not below it for -1, whichever token that is.
    """
    found = {
        i: operation.of for i, term in x.terms.items() if term.mix is None and sign * term.own > 0
        and isinstance(operation := graph.atoms[i].operation, Largest)
    }  # fmt: skip
    if not found:
        return None
    total = without(graph, x, found)
    for i, of in found.items():
        if total.rows not in (1, of.rows):
            return None
        total = add(graph, total, of, x.terms[i].own)
    return total


def argument_range(graph: Graph, formula: Formula, x: Lin) -> tuple[float, float]:
    """The range of what a formula is applied to. A root of it starts at 0 if all that adds up to it is >= 0, as in a variance:
    what lies below, where rounding of coefficients leaves it in `slack`, is nowhere that the function is defined. Any other
    formula has values there, and slack may be large: (x + 2^40) - 2^40."""
    low, high = hull(graph, x)
    if low < 0 and x.slack and formula.starts_at_zero:
        low = max(low, hull(graph, Lin(x.rows, x.terms, x.constant))[0])
    return low, high


def hull(graph: Graph, x: Lin) -> tuple[float, float]:
    """One range for all rows."""
    low, high = enclosure(graph, x)
    return float(low.min()), float(high.max())


def uncentred(graph: Graph, x: Lin) -> Lin | None:
    """v with x = v - mean over tokens of v, or None."""
    if x.rows != graph.seq_len or x.constant.any():
        return None
    for i, term in x.terms.items():
        if graph.atoms[i].uniform or term.mix is None or term.mix.shape[0] != 1 or np.ptp(term.mix) != 0:
            return None
        if abs(term.mix.sum() + term.own) > 1e-13 * abs(term.own):
            return None
    return Lin(x.rows, {i: Term(t.own) for i, t in x.terms.items()}, np.zeros(1), x.slack)


def _variance_cap(graph: Graph, term: Term, number: int) -> float:
    """Popoviciu: the mean over tokens of (v - mean v)^2 is at most (high - low)^2 / 4."""
    operation = graph.atoms[number].operation
    if not isinstance(operation, Apply) or operation.formula != SQUARE or operation.slack:
        return np.inf
    if term.own != 0 or term.mix is None or term.mix.shape[0] != 1 or np.ptp(term.mix) != 0:
        return np.inf
    v = uncentred(graph, operation.of)
    if v is None:
        return np.inf
    low, high = hull(graph, v)
    # x is only almost v - mean v: its coefficients were rounded, which moves each deviation by a hair
    return ((high - low) / 2 * (1 + 1e-9) + 1e-9 * size(graph, operation.of)) ** 2
