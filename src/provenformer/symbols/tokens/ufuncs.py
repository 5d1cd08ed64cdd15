"""ufuncs on tokens, by name: arithmetic, comparisons and logic of numbers, and of pairs of tokens."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.symbols.tokens import lower
from provenformer.symbols.tokens.arrays import Refused, Tokens, spread, tokens_like
from provenformer.symbols.tokens.graph import Lin, TokenGraph, grouped
from provenformer.symbols.tokens.selectors import Selector, compared

COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "equal": (operator.eq, "="), "not_equal": (operator.ne, "!="), "less": (operator.lt, "<"),
    "less_equal": (operator.le, "<="), "greater": (operator.gt, ">"), "greater_equal": (operator.ge, ">="),
}  # fmt: skip
LOGIC: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "logical_and": (lambda a, b: a & b, "and"), "logical_or": (lambda a, b: a | b, "or"),
    "logical_xor": (lambda a, b: a ^ b, "xor"), "bitwise_and": (lambda a, b: a & b, "and"),
    "bitwise_or": (lambda a, b: a | b, "or"), "bitwise_xor": (lambda a, b: a ^ b, "xor"),
}  # fmt: skip
TRUE_OR_FALSE = {"add": "logical_or", "multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}


def applied(name: str, *inputs: Any) -> Tokens:
    """A ufunc on tokens."""
    like = next(v for v in inputs if isinstance(v, Tokens))
    if name in COMPARISONS and (like.lin is not None and like.key is None):
        plain = [v for v in inputs if not isinstance(v, Tokens)]
        if (
            plain and np.ndim(plain[0]) == 0 and np.isfinite(float(plain[0]))
        ):  # any number at all: only which values pass matters
            return _against(name, like, Fraction(plain[0]), inputs[0] is like)
    arrays = [tokens_like(like, v) for v in inputs]
    if len(arrays) == 1:
        return _unary(name, arrays[0])
    if len(arrays) != 2:
        raise Refused(f"np.{name} is not traced; docs/tokens.md lists what is.")
    shape, first, second = spread(*arrays)
    if len(shape) == 2:
        return _pairwise(name, shape, first, second)
    g = like.graph
    a, b = first.lin, second.lin
    assert a is not None
    assert b is not None
    lin, truth = _binary(name, g, a, b, first.truth and second.truth)
    return Tokens(g, shape, lin, truth=truth)


def _against(name: str, array: Tokens, number: Fraction, first: bool) -> Tokens:
    """A comparison with a plain number, `first`: the array stands before it."""
    g, (holds, sign) = array.graph, COMPARISONS[name]
    lin = array.lin
    assert lin is not None
    held, shown = grouped(g.words(lin)), f"{number}" if number.denominator < 1000 else f"{float(number):g}"
    words = f"[{held} {sign} {shown}]" if first else f"[{shown} {sign} {held}]"

    def passes(v: Fraction) -> bool:
        held = Fraction(float(v))  # what numpy compares: 3 / 10 == 0.3
        return holds(held, number) if first else holds(number, held)

    passed = lower.table(g, lin, passes, words)
    return Tokens(g, array.trailing, passed, truth=True)


def _binary(name: str, g: TokenGraph, a: Lin, b: Lin, both_true: bool) -> tuple[Lin, bool]:
    """A function of two numbers of one token, and whether it is true or false rather than a number."""
    name = TRUE_OR_FALSE.get(name, name) if both_true else name
    if name in COMPARISONS:
        holds, sign = COMPARISONS[name]
        moving, fixed = lower.add(g, (1, a), (-1, b)), Fraction(0)
        if (
            len(np.unique(moving.constant)) == 1 and moving.terms
        ):  # a constant may be any number: the rest is what matters
            fixed = Fraction(int(moving.constant[0]), moving.den)
            moving = lower.add(g, (1, moving), (-fixed, lower.constant(g, 1)))
        words = f"[{grouped(g.words(a))} {sign} {grouped(g.words(b))}]"
        return lower.table(g, moving, lambda v: holds(v + fixed, 0), words), True
    if name in LOGIC:
        if not both_true:
            raise Refused(f"np.{name} of numbers; compare them first.")
        how, sign = LOGIC[name]
        words = f"[{grouped(g.words(a))} {sign} {grouped(g.words(b))}]"
        outcome = [int(bool(how(p, q))) for p, q in ((False, False), (False, True), (True, True))]
        # how many of both are true; a range may be wider where that is not seen to be 0 to 2
        return lower.table(g, lower.add(g, (1, a), (1, b)), lambda v: outcome[min(max(int(v), 0), 2)], words), True
    if name in ("add", "subtract"):
        return lower.add(g, (1, a), (1 if name == "add" else -1, b)), False
    if name == "multiply":
        return lower.product(g, a, b, f"{grouped(g.words(a))} * {grouped(g.words(b))}"), both_true
    if name in ("maximum", "minimum"):
        upper = 1 if name == "maximum" else -1
        apart = lower.add(g, (upper, a), (-upper, b))
        rest = lower.table(g, apart, lambda v: max(v, Fraction(0)), f"max({g.words(apart, bracket=False)}, 0)")
        return lower.add(g, (1, b), (upper, rest)), both_true
    if name in ("floor_divide", "remainder", "true_divide", "divide", "power"):
        if not (b.known and (b.constant == b.constant[0]).all()):
            if name in ("true_divide", "divide") and b.known and b.constant.all():
                shares = [Fraction(b.den, int(c)) for c in b.constant]
                return lower.product(g, a, lower.known(g, shares), f"{g.words(a)} / {g.words(b)}"), False
            if name in ("true_divide", "divide"):
                raise Refused(
                    f"{g.words(a)[:60]} / {g.words(b)[:60]} has values that lie as little as {_apart(g, b)} apart and no common "
                    "denominator; compare products instead: a > c * b in place of a / b > c."
                )
            if name == "power":
                raise Refused("a power with an exponent that depends on the tokens is not traced.")
            divide: Any = operator.floordiv if name == "floor_divide" else operator.mod
            low, high = lower.ends(g, b)
            if low <= 0 <= high:
                raise Refused(
                    f"the divisor {g.words(b)[:60]} may be 0: it ranges from {low} to {high}; bound it by np.maximum."
                )
            sign = "//" if name == "floor_divide" else "%"
            return lower.table2(g, a, b, divide, f"{grouped(g.words(a))} {sign} {grouped(g.words(b))}"), False
        c = Fraction(int(b.constant[0]), b.den)
        if name == "power":
            if c.denominator != 1 or not 0 <= c <= 8:
                raise Refused(f"a power with exponent {c} is not traced; use whole exponents from 0 to 8.")
            return lower.table(g, a, lambda v: v ** int(c), f"{grouped(g.words(a))}^{c}"), False
        if c == 0:
            raise Refused("a division by 0.")
        if name in ("true_divide", "divide"):
            return lower.add(g, (1 / c, a)), False
        if name == "floor_divide":
            return lower.table(g, a, lambda v: v // c, f"{grouped(g.words(a))} // {c}"), False
        return lower.table(g, a, lambda v: v % c, f"{grouped(g.words(a))} % {c}"), False
    raise Refused(f"np.{name} is not traced; docs/tokens.md lists what is.")


def _apart(g: TokenGraph, divisor: Lin) -> str:
    high = max(2, int(max(map(abs, lower.ends(g, divisor)))))
    return f"1/{high * (high - 1):,}"


UNARY: dict[str, tuple[Callable[[Fraction], Any], str]] = {
    "absolute": (abs, "|{}|"), "fabs": (abs, "|{}|"), "square": (lambda v: v * v, "{}^2"),
    "sign": (lambda v: (v > 0) - (v < 0), "sign of {}"), "floor": (lambda v: v // 1, "floor of {}"),
    "ceil": (lambda v: -(-v // 1), "ceil of {}"), "rint": (round, "{} rounded"), "trunc": (int, "{} cut off"),
}  # fmt: skip


def _unary(name: str, array: Tokens) -> Tokens:
    g = array.graph
    if array.selector is not None:
        if name in ("logical_not", "invert") and array.truth:
            return Tokens(g, array.trailing, selector=array.selector.negated(), truth=True)
        raise Refused(f"np.{name} of pairs of tokens is not traced.")
    if array.key is not None and array.lin is None:  # of a key alone
        of_key = _unary(name, Tokens(g, (g.seq_len,), array.key, truth=array.truth))
        return Tokens(g, array.trailing, key=of_key.lin, truth=of_key.truth)
    if array.key is not None:
        raise Refused(f"np.{name} of pairs of tokens is not traced; compare them, or use it before they become pairs.")
    lin = array.lin
    assert lin is not None
    if name in ("logical_not", "invert"):
        if not array.truth:
            if name == "logical_not":
                return _unary("logical_not", applied("not_equal", array, 0))
            raise Refused("~ of numbers; compare them first.")
        return Tokens(g, array.trailing, lower.add(g, (-1, lin), (1, lower.constant(g, 1))), truth=True)
    if name in ("negative", "positive"):
        return Tokens(g, array.trailing, lower.add(g, (-1 if name == "negative" else 1, lin)))
    if name not in UNARY:
        raise Refused(f"np.{name} is not traced; docs/tokens.md lists what is.")
    function, words = UNARY[name]
    return Tokens(g, array.trailing, lower.table(g, lin, function, words.format(g.words(lin))))


def _pairwise(name: str, shape: tuple[int, ...], first: Tokens, second: Tokens) -> Tokens:
    """On pairs: sums of a query's and a key's number, comparisons of them, and logic of selectors."""
    g, n = first.graph, first.graph.seq_len
    name = TRUE_OR_FALSE.get(name, name) if first.truth and second.truth else name
    sides = {(a.trailing[0] > 1, a.trailing[1] > 1) for a in (first, second)}
    if shape != (n, n) and not any(a.selector for a in (first, second)):  # one side of pairs: as at single tokens
        key_side = (False, True) in sides
        a, b = ((x.key if x.key is not None else x.lin) for x in (first, second))
        assert a is not None
        assert b is not None
        lin, truth = _binary(name, g, a, b, first.truth and second.truth)
        return Tokens(g, shape, key=lin, truth=truth) if key_side else Tokens(g, shape, lin, truth=truth)
    if name in LOGIC:
        how, sign = LOGIC[name]
        left, right = selector_of(first), selector_of(second)
        return Tokens(g, shape, selector=left.joined(right, how, sign), truth=True)
    zero = lower.constant(g, 0)
    if first.selector is not None or second.selector is not None:
        return _scaled(name, shape, first, second)
    if name in ("add", "subtract") or name in COMPARISONS:
        turned = 1 if name == "add" else -1
        queries = [(s, a.lin) for s, a in ((1, first), (turned, second)) if a.lin is not None]
        keys = [(s, a.key) for s, a in ((1, first), (turned, second)) if a.key is not None]
        query = lower.add(g, (1, zero), *queries)
        key = lower.add(g, (1, zero), *keys)
        if name not in COMPARISONS:
            return Tokens(g, shape, query, key)
        holds, shown = COMPARISONS[name]
        words = f"{_side_words(first)} {shown} {_side_words(second)}"
        turn = -1 if query.terms and query.terms[0][1] < 0 else 1
        query, key = lower.add(g, (turn, query)), lower.add(g, (-turn, key))
        return Tokens(
            g, shape, selector=compared(g, query, key, lambda a, b: holds(turn * (a - b), 0), words), truth=True
        )
    raise Refused(f"np.{name} of pairs of tokens is not traced; compare them, or use it before they become pairs.")


def _side_words(array: Tokens) -> str:
    g = array.graph
    shown = [f"own {grouped(g.words(array.lin))}"] if array.lin is not None and array.lin.terms else []
    if array.lin is not None and not array.lin.terms:
        shown = [("own " if len(np.unique(array.lin.constant)) > 1 else "") + g.words(array.lin)]
    if array.key is not None:
        shown.append(f"its {grouped(g.words(array.key))}")
    return " + ".join(shown)


def selector_of(array: Tokens) -> Selector:
    """What is true or false at pairs, as a selector."""
    if not array.truth:
        raise Refused("& and | of numbers at pairs of tokens; compare them first.")
    if array.selector is not None and array.chosen is None:
        return array.selector
    g = array.graph
    zero = lower.constant(g, 0)
    query = zero if array.lin is None else array.lin
    key = zero if array.key is None else array.key
    return compared(g, query, key, lambda a, b: a + b > 0, _side_words(array))


def _scaled(name: str, shape: tuple[int, ...], first: Tokens, second: Tokens) -> Tokens:
    """A selector times a number of the key."""
    g = first.graph
    for chosen, other in ((first, second), (second, first)):
        if name == "multiply" and chosen.selector is not None and chosen.chosen is None and other.selector is None:
            if other.lin is None or (other.lin.known and not other.lin.constant.any()):
                key = lower.constant(g, 0) if other.key is None else other.key
                return Tokens(g, shape, selector=chosen.selector, chosen=key)
            if other.key is None and other.lin.known and len(np.unique(other.lin.constant)) == 1:
                return Tokens(g, shape, selector=chosen.selector, chosen=other.lin)
    raise Refused(
        f"np.{name} of selected pairs is not traced; use np.where(selected, number of the key, constant) and np.sum."
    )
