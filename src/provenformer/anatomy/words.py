"""Operations of a graph in words, in terms of the names that their arguments have in a circuit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, Context

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.symbols.formula import Formula
from provenformer.symbols.graph import (
    Apply,
    Attend,
    Compare,
    Input,
    Largest,
    Lin,
    Operation,
    PairMean,
    PairSum,
    Pieces,
    Product,
    Term,
)
from provenformer.symbols.piecewise import PiecewiseLinear

UPWARDS = Context(prec=3, rounding=ROUND_CEILING)
MOST_TERMS = 4  # of a sum, before the rest is counted
Terms = list[tuple[float, str]]
Named = Callable[[int, Term], Terms]  # an atom's share of a combination, as (factor, name)


def number(value: float) -> str:
    """Four digits."""
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def upper(value: float) -> str:
    """A bound in three digits, rounded up; what float64 hardly holds is 0."""
    if value < 1e-290:
        return "0"
    short = float(f"{value:.3g}")
    short = short if short >= value else float(UPWARDS.create_decimal_from_float(value))
    text = f"{short:.3g}" if 1e-3 <= short < 1e4 else f"{short:.2e}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def total(terms: Iterable[tuple[float, str]]) -> str:
    """0.5 x - v1 + 2; a term without a name is a number."""
    parts = [(factor, name) for factor, name in terms if factor]
    words = ""
    for factor, name in parts[:MOST_TERMS]:
        sign = (" - " if factor < 0 else " + ") if words else ("-" if factor < 0 else "")
        size = number(abs(factor))
        words += sign + (size if not name else name if size == "1" else f"{size} {name}")
    if len(parts) > MOST_TERMS:
        words += f" + {len(parts) - MOST_TERMS} more"
    return words or "0"


def terms_of(lin: Lin, named: Named) -> Terms:
    """A combination as terms, its constant last."""
    found = [pair for atom, term in lin.terms.items() for pair in named(atom, term)]
    found.sort(key=lambda pair: pair[0] < 0 and len(found) == 2)  # x - v1, not -v1 + x
    if len(lin.constant) > 1:
        return [*found, (1.0, "a number by position")]
    return [*found, (float(lin.constant[0]), "")]


def combination(lin: Lin, named: Named) -> str:
    """A combination in words."""
    return total(terms_of(lin, named))


def strength(text: str) -> int:
    """How tightly a text holds together: 0 a sum, 1 a product, 2 anything else."""
    return 0 if " + " in text or " - " in text or text.startswith("-") else 1 if " " in text else 2


def formula(expression: Formula, z: str = "z") -> str:
    """A formula of z with as few brackets as it needs."""
    return _with_strength(expression, z)[0]


def shape(expression: Formula) -> str:
    """The formula with its numbers left out: equal for functions that differ in them alone."""
    return re.sub(r"(?<![\w.])\d[\d.]*(e-?\d+)?", "c", formula(expression).replace(" - ", " + "))


def _with_strength(expression: Formula, z: str) -> tuple[str, int]:
    """The text, and its strength."""
    match expression.operation:
        case "variable":
            return z, strength(z)
        case "constant":
            return number(expression.value), 2 if expression.value >= 0 else 0
        case "add":
            left, right = (_with_strength(part, z)[0] for part in expression.parts)
            return (f"{left} - {right[1:]}" if re.match(r"-[\d.]", right) else f"{left} + {right}"), 0
        case "multiply" | "divide":
            sign = "*" if expression.operation == "multiply" else "/"
            (left, a), (right, b) = (_with_strength(part, z) for part in expression.parts)
            left, right = left if a >= 1 else f"({left})", right if b == 2 else f"({right})"
            return f"{left} {sign} {right}", 1
        case name:
            inner = ", ".join(_with_strength(part, z)[0] for part in expression.parts)
            return f"{name}({inner})", 2


def rows_in_words(rows: FloatArray, name: str) -> tuple[str, str]:
    """What rows @ name is: a kind (mean, permutation, mixture, scaled), and words. (n,): a factor for every token."""
    if rows.ndim == 1:
        at = np.flatnonzero(rows)
        return "scaled", f"{name} at token {at[0]} alone" if len(at) == 1 else f"{name}, times a number by position"
    n = rows.shape[1]
    if len(rows) == 1:
        weights, whole = rows[0], float(rows.sum())
        if np.ptp(weights) <= 1e-12 * abs(whole):
            return "mean", f"mean of {name} over the tokens" if np.isclose(
                whole, 1
            ) else f"{number(whole)} mean of {name}"
        if np.count_nonzero(weights) == 1:
            return "permutation", f"token {int(np.argmax(weights))} of {name}, for every token"
        return "mean", f"weighted mean of {name} over the tokens"
    chosen = np.argmax(np.abs(rows), axis=1)
    sums, single = rows.sum(axis=1), np.count_nonzero(rows, axis=1) <= 1
    if single.all():
        kind = "permutation" if np.allclose(sums, 1) else "scaled"
        scaled = "" if kind == "permutation" else ", times a number by position"
        return kind, f"{_moved(chosen, np.count_nonzero(rows, axis=1) == 1, name)}{scaled}"
    before = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    if np.allclose(rows, before):
        return "mixture", f"mean of {name} over this and all earlier tokens"
    if np.allclose(rows, before * np.arange(1, n + 1)[:, None]):
        return "scaled", f"sum of {name} over this and all earlier tokens"
    if np.allclose(sums, 1):
        return "mixture", f"mixture of {name}, fixed weights per token"
    return "scaled", f"mixture of {name}, times a number by position"


def _moved(chosen: FloatArray, used: FloatArray, name: str) -> str:
    """In words, which token each token gets."""
    n = len(chosen)
    steps = (np.arange(n) - chosen)[used]
    if not steps.any():
        return name
    if (chosen == np.arange(n)[::-1]).all():
        return f"{name} in reverse order"
    if used.all() and (chosen[chosen] == np.arange(n)).all():
        far = set(np.abs(steps)) - {0}
        return f"{name} of the token {far.pop()} away" if len(far) == 1 else f"{name}, tokens exchanged in pairs"
    wrapped = (np.arange(n) - chosen) % n
    if (wrapped == wrapped[0]).all():
        return f"{name}, tokens rotated by {int(wrapped[0])}"
    common = int(np.bincount(steps - steps.min()).argmax() + steps.min())
    others = int(np.sum(steps != common))
    if others > n // 2:
        return f"{name}, tokens permuted"
    but = "" if set(steps) <= {common, 0} and common else f", but for {others} token{'s' if others > 1 else ''}"
    return f"{name}{but}" if not common else f"{name}, tokens shifted by {common}{but}"


def in_words(operation: Operation, named: Named) -> tuple[str, str]:
    """What an operation is: a kind, and words."""
    match operation:
        case Input(row):
            return "input", f"row {row} of the input"
        case Apply():
            return "function", _of_argument(lambda z: formula(operation.formula, z), operation.of, named)
        case Pieces():
            return "pieces", _of_argument(lambda z: _broken(operation.curve, z), operation.of, named)
        case Product():
            return "product", _times(*(combination(lin, named) for lin in (operation.left, operation.right)))
        case Compare():
            first, second = (combination(lin, named) for lin in operation.arguments)
            which = (
                "max"
                if (operation.sign > 0).all()
                else "min"
                if (operation.sign < 0).all()
                else "max or min, by position,"
            )
            return "comparison", f"{which} of {first} and {second}" if "," in which else f"{which}({first}, {second})"
        case Largest():
            return "largest", f"largest {combination(operation.of, named)} of all tokens"
        case PairMean():
            at_j, at_k = combination(operation.row, _at("j", named)), combination(operation.column, _at("k", named))
            z = f"{at_j} + {at_k}".replace("+ -", "- ")
            return "pairs", f"mean over k of {formula(operation.kernel)}, z = {z}"
        case PairSum():
            at_j, at_k = combination(operation.row, _at("j", named)), combination(operation.column, _at("k", named))
            z = f"{at_j} + {at_k}".replace("+ -", "- ")
            return "pairs", f"sum over k of {_broken(operation.curve, 'z')}, z = {z}"
        case Attend():
            return "attention", _attention(operation, named)
        case _:
            inner = "; ".join(combination(lin, named) for lin in operation.arguments)
            return "other", f"{type(operation).__name__.lower()} of {inner}"


def _times(left: str, right: str) -> str:
    return " * ".join(part if strength(part) else f"({part})" for part in (left, right))


def _attention(operation: Attend, named: Named) -> str:
    """Token j reads tokens k."""
    mask = "" if operation.bias is None else "fixed numbers"
    if len(operation.queries) == 1:
        query, key = combination(operation.queries[0], _at("j", named)), combination(operation.keys[0], _at("k", named))
        scores = _times(query, key)
    else:
        scores = f"{len(operation.queries)} products of query and key" if operation.queries else ""
    scores = " + ".join(part for part in (scores, mask) if part)
    return f"mean of {combination(operation.values, named)} over the tokens, weights softmax({scores})"


def _at(token: str, named: Named) -> Named:
    return lambda atom, term: [(factor, f"{name}[{token}]") for factor, name in named(atom, term)]


def _of_argument(text: Callable[[str], str], of: Lin, named: Named) -> str:
    """The argument in its place if it is short, else after the formula."""
    terms = [term for term in terms_of(of, named) if term[0]]
    if len(terms) <= 2:
        return text(total(terms))
    return f"{text('z')}, z = {total(terms)}"


def _broken(curve: PiecewiseLinear, z: str) -> str:
    knots, slopes, start = curve.knots, curve.slopes, curve.start
    if len(knots) == 1 and slopes == (0.0, 1.0) and start == 0:
        return f"relu({z})" if not knots[0] else f"relu({z} - {number(knots[0])})".replace("- -", "+ ")
    if len(knots) == 1 and slopes == (-1.0, 1.0) and start == knots[0] == 0:
        return f"|{z}|"
    if len(knots) == 1 and slopes[0] == 0 and slopes[1] == 1 and start == knots[0]:
        return f"max({z}, {number(start)})"
    if len(knots) == 1 and slopes[0] == 1 and slopes[1] == 0 and start == knots[0]:
        return f"min({z}, {number(start)})"
    if len(knots) == 2 and slopes == (0.0, 1.0, 0.0) and start == knots[0]:
        return f"clip({z}, {number(knots[0])}, {number(knots[1])})"
    return f"piecewise linear in {z}, {len(knots)} {'corner' if len(knots) == 1 else 'corners'}"
