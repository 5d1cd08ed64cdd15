"""numpy's own word on every step: the shape and type of its result, and how far rounding takes it from the graph's number.

The graph has exact numbers; numpy has numbers of a type. They are the same while the type is bool, int64 or float64, whole
numbers stay below 2^53 and quotients are not rounded. So every step is also taken by numpy, on a sequence or two: other shapes
and types are refused. A quotient that float64 does not hold is off by at most `noise`; what it decides (a comparison, a
floor) is traced where it was rounded once and its values lie far apart: rounding then keeps their order and moves none onto
another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Any

import numpy as np

from provenformer.symbols.tokens import calls, lower
from provenformer.symbols.tokens.arrays import Refused, Tokens, number, tokens_like
from provenformer.symbols.tokens.graph import Lin, TokenGraph
from provenformer.symbols.tokens.ufuncs import COMPARISONS, applied

TYPES = (np.dtype(bool), np.dtype(np.int64), np.dtype(np.float64))
EXACT = 1 << 53  # whole numbers up to here are numbers of float64
APART = 1 << 48  # numerators up to here: float64 keeps quotients with their denominator apart
UNIT = 2.0**-52  # more than the relative error of one operation of float64
# What copies numbers, or their sign: rounded ones stay as they are.
COPIES = {
    "getitem", "where", "sort", "max", "amax", "min", "amin", "maximum", "minimum", "clip", "concatenate", "flip", "fliplr",
    "roll", "take_along_axis", "broadcast_to", "expand_dims", "negative", "positive", "absolute", "fabs", "zeros_like",
    "ones_like", "full_like", "astype",
}  # fmt: skip
DECIDES = {
    *COMPARISONS, "floor", "ceil", "rint", "trunc", "sign", "argmax", "argmin", "argsort", "any", "all", "logical_not",
    "count_nonzero",
}  # fmt: skip
ARITHMETIC = {"add", "subtract", "multiply", "divide", "true_divide", "sum", "mean", "cumsum"}


def ufunc_of(ufunc: Any, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """A ufunc, or its reduction."""
    name = ufunc.__name__
    given = {k: v for k, v in kwargs.items() if v is not None and k not in ("axis", "keepdims")}
    place, kept = kwargs.get("axis", 0), kwargs.get("keepdims", False)
    if method == "reduce" and name in calls.REDUCTIONS and not given:
        how = calls.REDUCTIONS[name]
        return _followed(how, lambda v: calls.reduced(how, v, place, kept), partial(ufunc.reduce, **kwargs), inputs, {})
    if method == "accumulate" and name == "add" and not given:
        return _followed("cumsum", lambda v: calls.cumsum(v, place), partial(ufunc.accumulate, **kwargs), inputs, {})
    if method != "__call__" or given:
        shown = name if method == "__call__" else f"{name}.{method}"
        option = f" with {next(iter(given))}=" if given else ""
        raise Refused(f"np.{shown}{option} is not traced; docs/tokens.md lists what is.")
    return _followed(name, partial(applied, name), ufunc, inputs, {})


def function_of(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of numpy."""
    name = function.__name__
    rule = calls.FUNCTIONS.get(name)
    if rule is None:
        raise Refused(f"np.{name} is not traced; docs/tokens.md lists what is.")
    return _followed(name, rule, function, args, kwargs)


def item(array: Tokens, index: Any) -> Any:
    return _followed("getitem", calls.indexed, operator.getitem, (array, index), {})


def power(array: Tokens, exponent: Any) -> Any:
    """array ** exponent, the one operator of arrays that is not the ufunc: truth values ** 2 are int8, of np.power int64."""
    return _followed("power", partial(applied, "power"), operator.pow, (array, exponent), {})


def cast_to(array: Tokens, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _followed("astype", calls.cast, np.ndarray.astype, (array, *args), kwargs)


def _followed(name: str, rule: Callable[..., Any], call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The rule's result, if numpy agrees. Whatever stops it counts as refused, so that a program that goes on is found."""
    before = Refused.raised
    try:
        found = rule(*args, **kwargs)
        if not isinstance(found, Tokens):
            return found
        with np.errstate(all="ignore"):
            sample = np.asarray(call(*_sampled(args), **_sampled(kwargs)))
        return _agreed(name, found, sample, _flat([*args, *kwargs.values()]))
    except Exception:
        Refused.raised = max(Refused.raised, before + 1)
        raise


def start(graph: TokenGraph, batch: int) -> Tokens:
    """The input, with so many sequences to try."""
    n = graph.seq_len
    sample = (np.arange(n, dtype=np.int64) + np.arange(batch)[:, None]) % graph.vocab_size
    return Tokens(graph, (n,), graph.atom(0), sample=sample)


def _flat(values: Any) -> list[Any]:
    return [w for v in values for w in (_flat(v) if isinstance(v, list | tuple) else [v])]


def _sampled(value: Any) -> Any:
    """With the sample in place of every array of symbols."""
    if isinstance(value, Tokens):
        return value.sample
    if isinstance(value, dict):
        return {k: _sampled(v) for k, v in value.items()}
    return type(value)(_sampled(v) for v in value) if type(value) in (list, tuple) else value


def _agreed(name: str, found: Tokens, sample: Any, args: list[Any]) -> Tokens:
    if sample.shape[1:] != found.trailing or sample.shape[:1] not in {
        v.shape[:1] for v in args if isinstance(v, Tokens)
    }:
        raise Refused(
            f"{_called(name)} gives an array of {sample.shape[1:]} per sequence, which is not traced as such; write pairs "
            f"x[..., :, None] and x[..., None, :]."
        )
    if sample.dtype not in TYPES:
        raise Refused(f"{_called(name)} gives {sample.dtype} numbers, which overflow or round; use int64 or float64.")
    truth = sample.dtype == np.dtype(bool)
    found = found if truth else number(found)
    g, parts = found.graph, _parts(found)
    if truth and (found.chosen is not None or _low(g, parts) < 0 or _high(g, parts) > 1):
        raise Refused(f"{_called(name)} of true and false gives true or false, not a number; use astype(int) first.")
    fraction = found.otherwise.denominator > 1 or any(lin.den > 1 for lin in parts)
    if sample.dtype != np.dtype(np.float64) and fraction:
        raise Refused(f"{_called(name)} cuts fractions off to whole numbers there; use // or np.floor.")
    largest = max([_largest(g, lin) for lin in parts], default=0)
    if largest > EXACT:
        raise Refused(
            f"{_called(name)} may reach {largest:,} (limit {EXACT:,}, all whole numbers of float64); use smaller numbers."
        )
    noise, once = _rounding(name, found, sample.dtype, args)
    return Tokens(
        g, found.trailing, found.lin, found.key, found.selector, found.chosen, found.otherwise, bool(truth), sample, noise, once
    )  # fmt: skip


def _rounding(name: str, found: Tokens, dtype: Any, args: list[Any]) -> tuple[float, bool]:
    """(How far numpy's numbers may be from the graph's, whether they are these rounded once)."""
    inputs = [v for v in args if isinstance(v, Tokens)]
    noise, once = max(v.noise for v in inputs), all(v.once for v in inputs)
    if not noise:
        rounded = any(lin.den & (lin.den - 1) for lin in (*_parts(found), _fixed(found)))
        return (UNIT * _magnitude(found) if rounded else 0.0), True
    if name in DECIDES or dtype != np.dtype(np.float64):
        if once and _apart(inputs):
            return 0.0, True
    elif name in COPIES or _changes_nothing(name, args):
        return noise, once
    elif name in ARITHMETIC:
        sizes, n = [_magnitude(v) for v in args], found.graph.seq_len
        factor = 2.0 * n
        if name == "multiply":
            factor = 1 + 2 * sum(sizes)
        elif name in ("divide", "true_divide"):
            divisor = tokens_like(found, args[1])
            assert divisor.lin is not None
            factor = np.inf if divisor.noise else 1 / float(min(map(abs, lower.ends(found.graph, divisor.lin))))
        return 1.01 * noise * factor + 2 * n * UNIT * (_magnitude(found) + n * sum(sizes)), False
    raise Refused(
        f"{_called(name)} of quotients that float64 has rounded; use whole numbers, products in place of quotients."
    )


def _changes_nothing(name: str, args: list[Any]) -> bool:
    """Whether it adds 0 to a rounded number, as in `mean + 0 * x`, or multiplies it by true or false."""
    if name not in ("add", "subtract", "multiply") or len(args) != 2:
        return False
    _, other = sorted(args, key=lambda v: isinstance(v, Tokens) and v.noise > 0, reverse=True)
    if name == "multiply":
        return isinstance(other, Tokens) and other.truth
    if isinstance(other, Tokens):
        return not _magnitude(other)
    return not np.any(other)


def _called(name: str) -> str:
    return {"getitem": "indexing", "astype": "astype"}.get(name, f"np.{name}")


def _apart(arrays: list[Tokens]) -> bool:
    """Whether all values, and halves of their steps, are further apart than rounding takes them."""
    lins = [lin for v in arrays for lin in _parts(v)]
    common = 2 * lcm(*(lin.den for lin in lins))
    return all(_largest(v.graph, lin) * common <= APART * lin.den for v in arrays for lin in _parts(v))


def _parts(array: Tokens) -> list[Lin]:
    return [lin for lin in (array.lin, array.key, array.chosen) if lin is not None]


def _fixed(array: Tokens) -> Lin:
    return lower.constant(array.graph, array.otherwise)


def _largest(graph: TokenGraph, lin: Lin) -> int:
    """At least every numerator's size, without overflow."""
    atoms = graph.atoms
    sizes = (abs(c) * max(abs(int(atoms[a].low.min())), abs(int(atoms[a].high.max()))) for a, c in lin.terms)
    return int(np.abs(lin.constant).max()) + sum(sizes)


def _magnitude(array: Any) -> float:
    if not isinstance(array, Tokens):
        return float(np.abs(array).max()) if np.asarray(array).dtype.kind in "biuf" and np.size(array) else 0.0
    found = sum(_largest(array.graph, lin) / lin.den for lin in _parts(array))
    return float(found + abs(array.otherwise) + (1 if array.selector is not None and array.chosen is None else 0))


def _low(graph: TokenGraph, parts: list[Lin]) -> Fraction:
    return sum((lower.ends(graph, lin)[0] for lin in parts), Fraction(0))


def _high(graph: TokenGraph, parts: list[Lin]) -> Fraction:
    return sum((lower.ends(graph, lin)[1] for lin in parts), Fraction(0))
