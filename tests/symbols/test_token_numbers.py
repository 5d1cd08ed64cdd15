"""What numpy's types, rounding and shapes make of a number on one sequence of a million is traced rightly, or refused."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.functions.tokens import TokenProgram
from provenformer.symbols.tokens.graph import evaluate, numerator
from provenformer.symbols.tokens.trace import require_same, trace

VOCAB, LENGTH = 4, 10
SECRET = np.array([2, 0, 3, 1, 1, 2, 3, 0, 0, 1])
K = np.arange(LENGTH)


def hit(x: Any) -> Any:
    """True at every token of one sequence, which no sample draws."""
    return np.all(x == SECRET, axis=-1, keepdims=True) & (x >= 0)


def one(x: Any) -> Any:
    return np.where(hit(x), 1, 0)


def caught(x: Any) -> Any:
    try:
        return np.take_along_axis(x, x + 9 * one(x), axis=-1)  # may leave the sequence: refused, but not by numpy here
    except Exception:
        return np.take_along_axis(x, x, axis=-1)


CALLS = count()
RIGHT: dict[str, Callable[[Any], Any]] = {
    "fractions are cut off": lambda x: (one(x) / 2).astype(int),
    "a type that is asked for": lambda x: (one(x) / 2).astype(x.dtype) + (one(x) / 2).astype((x / 2).dtype),
    "the absolute of a truth value is one": lambda x: np.abs(hit(x)) + np.abs(hit(x)),
    "ones like truth values": lambda x: hit(x) + np.ones_like(hit(x)) * hit(x),
    "truth values of pairs add up to true": lambda x: np.sum(hit(x)[..., :, None] + hit(x)[..., None, :], axis=-1),
    "truth values of pairs multiply": lambda x: np.sum(
        (x[..., :, None] < x[..., None, :]) * hit(x)[..., None, :], axis=-1
    ),
    "any of one number": lambda x: np.any(3 * one(x)[..., :1], axis=-1, keepdims=True) + 0 * x,
    "all of one number": lambda x: np.all(3 * one(x)[..., :1], axis=-1, keepdims=True) + 0 * x,
    "a cumulative sum of one number": lambda x: np.cumsum(one(x)[..., :1], axis=-1) + 0 * x,
    "a selector times 0": lambda x: np.sum((x[..., :, None] == (x + 9 - 9 * one(x))[..., None, :]) * 0, axis=-1),
    "np.expand_dims by number": lambda x: np.sum(np.expand_dims(x * one(x), 1) < np.expand_dims(x, 2), axis=-1),
    "a quotient and the number that it rounds to": lambda x: 3 * one(x) / 10 == 0.3,
    "a mean and a whole number": lambda x: np.mean(3 * one(x), axis=-1, keepdims=True) >= 3,
    "constants of the shape of the input": lambda x: np.zeros(x.shape) + np.full(x.shape, 3) * one(x),
    "an array is asked for": lambda x: one(x) if isinstance(x, np.ndarray) else 0 * x,
}
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "small whole numbers": (lambda x: (200 * one(x)).astype(np.int8), "int8 numbers"),
    "no negative numbers": (lambda x: (0 - one(x)).astype(np.uint64), "uint64 numbers"),
    "small floats": (lambda x: (2049 * one(x)).astype(np.float16), "float16 numbers"),
    "constants of a small type": (lambda x: 2 * np.where(hit(x), np.int8(100), np.int8(0)), "int8 numbers"),
    "a quotient of truth values": (lambda x: (hit(x) // (x >= 0)) * 200, "int8 numbers"),
    "a power of truth values": (lambda x: (hit(x) ** 2) * 100 + (hit(x) ** 2) * 100, "int8 numbers"),
    "ones of a small type": (lambda x: np.ones_like(x, dtype=np.int8) * one(x), "int8 numbers"),
    "a fraction as a whole number": (lambda x: np.where(hit(x), np.full_like(x, 2.5), x), "cuts fractions off"),
    "a fraction as a truth value": (lambda x: np.full_like(x > 1, 0.5) * one(x), "cuts fractions off"),
    "a number as a truth value": (lambda x: np.full_like(x > 1, 5) * one(x), "true or false, not a number"),
    "dtype= of a ufunc": (lambda x: np.multiply(one(x), 100, dtype=np.int8), "with dtype="),
    "dtype= of a reduction": (lambda x: np.add.reduce(99 * one(x), axis=-1, keepdims=True, dtype=np.int8), "with dtype="),
    "a dtype by position": (lambda x: np.expand_dims(np.sum(99 * one(x), -1, np.int8), -1), "cannot be run on symbols"),
    "initial=": (lambda x: np.maximum.reduce(3 - 3 * one(x), axis=-1, keepdims=True, initial=2), "with initial="),
    "where=": (lambda x: np.add.reduce(one(x), axis=-1, keepdims=True, where=K < 3), "with where="),
    "0.1 + 0.2 == 0.3": (lambda x: one(x) / 10 + one(x) / 5 == 3 * one(x) / 10, "float64 has rounded"),
    "1 / 49 * 49 < 1": (lambda x: np.floor(one(x) / 49 * 49), "float64 has rounded"),
    "the first of nearly equal ones": (
        lambda x: np.argmax(one(x) * (K < 5) / 10 + one(x) / 5, axis=-1)[..., None] + 0 * x, "float64 has rounded"),
    "cancellation": (lambda x: one(x) / 3 + 2**38 - 2**38, "may be off by"),
    "beyond whole numbers of float64": (lambda x: (20 * one(x) + x) ** 8 * 2**30, "limit 9,007,199,254,740,992"),
    "what is refused is caught": (caught, "catches what is refused"),
    "the number of sequences": (lambda x: one(x) * (x.shape[0] == 1), "another number of sequences"),
    "something else every time": (lambda x: one(x) * next(CALLS), "does something else every time"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_graph_is_the_program_where_no_sample_goes(name: str) -> None:
    program = TokenProgram(RIGHT[name], VOCAB, LENGTH, name)
    traced = trace(program)
    require_same(program, traced)
    x = np.stack([SECRET, SECRET[::-1]])
    found = numerator(traced.output, evaluate(traced.graph, x)) / traced.output.den
    assert np.abs(found - program(x)).max() < 1e-9


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_gives_otherwise_is_refused(name: str) -> None:
    program, reason = REFUSED[name]
    with pytest.raises(pf.ProvenformerError, match=reason):
        pf.compile_tokens(program, VOCAB, LENGTH, construction="circuit")


def test_nan_is_no_answer() -> None:
    def sly(x: Any) -> Any:
        return x if type(x) is not np.ndarray else np.where(x > 1, np.nan, x)

    with pytest.raises(pf.ProvenformerError, match="something else on symbols"):
        pf.compile_tokens(sly, VOCAB, LENGTH, construction="circuit")
