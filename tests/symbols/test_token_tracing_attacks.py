"""Programs that are easy to misread. Each is 0 but on sequences which no sample meets: the trace alone decides."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.symbols.tokens.graph import evaluate, numerator
from provenformer.symbols.tokens.trace import require_same, samples, trace

SIZE, N = 5, 8
PLACE = np.array([3, 0, 2, 4, 1, 3, 3, 2])
Program = Callable[[Any], Any]


def hidden(fn: Program) -> pf.TokenProgram:
    """fn on one sequence, 0 elsewhere."""

    def rare(x: Any) -> Any:
        return np.where(np.all(x == PLACE, axis=-1, keepdims=True), fn(x), 0)

    return pf.TokenProgram(rare, SIZE, N)


NARROW: dict[str, Program] = {  # numbers wrap or round in the type that numpy takes
    "astype int8": lambda x: x.astype(np.int8) * 50,
    "astype uint8": lambda x: x.astype(np.uint8) - 4,
    "astype float16": lambda x: x.astype(np.float16) * 3001,
    "astype int8 of true and false": lambda x: (x == 3).astype(np.int8) * 100 + (x > 1).astype(np.int8) * 100,
    "constants": lambda x: (x == 3) * np.int8(100) + (x > 1) * np.int8(100),
    "constants that are chosen": lambda x: 2 * np.where(x == 3, np.int8(100), np.int8(0)),
    "an array of constants": lambda x: (x > 1) * np.full(N, 100, dtype=np.uint8) * 3,
    "squares of true and false": lambda x: np.square(x == 3) * 100 + np.square(x > 1) * 100,
    "quotients of true and false": lambda x: ((x == 3) // (x >= 0)) * 100 + ((x > 1) // (x >= 0)) * 100,
    "remainders of true and false": lambda x: (np.True_ % (x == 3)) * 100 + 100 * (np.True_ % (x == 3)),
    "powers of true and false": lambda x: ((x == 3) ** np.True_) * 100 + ((x > 1) ** np.True_) * 100,
    "type of a call": lambda x: np.add(x == 3, x > 1, dtype=np.int8) * 100,
    "type of a sum": lambda x: np.add.reduce(x, axis=-1, keepdims=True, dtype=np.int8) * 10,
    "type of a filled array": lambda x: np.full_like(x, 100, dtype=np.int8) * 2,
}
OTHER: dict[str, Program] = {  # an argument, or a type, that changes what a call means
    "fractions cut off": lambda x: (x / 2).astype(int),
    "fractions of the key cut off": lambda x: np.sum(x[..., :, None] < (x[..., None, :] / 2).astype(int), axis=-1),
    "absolute values of true and false": lambda x: np.abs(x == 3) + np.abs(x > 1),
    "start of a sum": lambda x: np.add.reduce(x, axis=-1, keepdims=True, initial=5),
    "part of a sum": lambda x: np.add.reduce(x, axis=-1, keepdims=True, where=np.arange(N) > 2),
    "start of a maximum": lambda x: np.maximum.reduce(x, axis=-1, keepdims=True, initial=7),
    "filled with a fraction": lambda x: np.full_like(x, 0.5) + x,
    "filled with a fraction, as told": lambda x: np.full_like(x, 0.5, dtype=float) + x,
    "filled truth values": lambda x: np.full_like(x == 3, 5) + x,
    "filled with a truth value": lambda x: np.full_like(x, True) + np.full_like(x, True) + x,
    "ones that are true": lambda x: np.ones_like(x == 3) + (x == 3),
    "ones that are told to be true": lambda x: np.ones_like(x, dtype=bool) + (x == 3),
    "whether any of a single number": lambda x: (
        np.any(np.sum(x, axis=-1, keepdims=True), axis=-1, keepdims=True) + 0 * x
    ),
    "whether all of a single number": lambda x: x[..., 2:3].all(axis=-1, keepdims=True) + x,
    "sums so far of a single number": lambda x: np.cumsum(np.max(x, axis=-1, keepdims=True), axis=-1) + x,
    "a single number put together": lambda x: np.concatenate([x[..., 2:3]], axis=-1) + x,
    "numbers without an axis": lambda x: np.sum(x[..., 2] * x[..., :1], axis=-1)[..., None] + 0 * x,
    "numbers without an axis that are chosen": lambda x: (
        np.sum(np.where(x[..., 1], x[..., :1], 1), axis=-1, keepdims=True) + x
    ),
    "a new axis before": lambda x: np.sum(np.expand_dims(x, 1) < x[..., :, None], axis=-1),
    "a new axis behind": lambda x: np.sum(np.expand_dims(x, 2) < x[..., None, :], axis=-1),
    "a new axis counted from behind": lambda x: np.sum(np.expand_dims(x, -2) < x[..., :, None], axis=-1),
}
ROUNDED: dict[str, Program] = {  # float64 has no tenths or thirds
    "sums of fractions": lambda x: (x / 10 + x / 5 == 3 * x / 10) * 1,
    "floors of sums of fractions": lambda x: np.floor((x / 10 + 7 * x / 10) * 10),
    "quotients of sums of fractions": lambda x: (x / 10 + 7 * x / 10) * 10 // 1,
    "sums that are moved": lambda x: (np.roll(x / 10 + x / 5, 1, axis=-1) == 3 * np.roll(x, 1, axis=-1) / 10) * 1,
    "sums that are chosen": lambda x: (np.where(x > 0, x / 10 + x / 5, 0) == 3 * x / 10) * 1,
    "sums over tokens": lambda x: (
        (np.sum(x / 10, axis=-1, keepdims=True) == np.sum(x, axis=-1, keepdims=True) / 10) * 1
    ),
    "running sums": lambda x: (np.cumsum(x / 10, axis=-1) == np.cumsum(x, axis=-1) / 10) * 1,
    "multiples": lambda x: (3 * (x / 10) == 3 * x / 10) * 1,
    "sums as whole numbers": lambda x: ((x / 10 + 7 * x / 10) * 10).astype(int),
    "places of the largest": lambda x: (
        np.argmax(np.where(x == 3, x / 10 + x / 5, 0.9 * (x > 2)), axis=-1, keepdims=True) + 0 * x
    ),
    "the largest of pairs": lambda x: np.sum((x / 10 + x / 5)[..., :, None] > (3 * x / 10)[..., None, :], axis=-1),
    "a fraction that is rounded as the constant is": lambda x: (
        (x / 3 == 1 / 3) * 1 + (x / 3 > 2 / 3) * 2 + np.less(1 / 3, x / 3) * 4
    ),
    "a mean": lambda x: (np.mean(x[..., :3], axis=-1, keepdims=True) == 5 / 3) * 1 + 0 * x,
}


@pytest.mark.parametrize("name", [*NARROW, *OTHER, *ROUNDED])
def test_rare_sequences_are_read_as_numpy_reads_them(name: str) -> None:
    program = hidden((NARROW | OTHER | ROUNDED)[name])
    assert not (samples(program) == PLACE).all(axis=1).any()
    try:
        traced = trace(program)
    except pf.ProvenformerError:
        return
    assert name not in NARROW
    require_same(program, traced)  # says nothing of the one sequence that matters
    x = np.stack([PLACE, np.ones_like(PLACE)])  # other sequences do not matter
    assert (numerator(traced.output, evaluate(traced.graph, x)) == traced.output.den * program(x)).all()


METHODS: dict[str, Callable[[Any], Any]] = {
    "a sum of a type": lambda x: x.sum(axis=-1, dtype=np.int64),
    "a largest above": lambda x: x.max(axis=-1, initial=0),
    "a mean, by place": lambda x: x.mean(-1, np.float64),
    "an order": lambda x: x.argsort(axis=-1, kind="stable"),
    "a type, by place": lambda x: x.astype(np.int64, "K"),
    "a copy": lambda x: x.copy(order="F"),
}


@pytest.mark.parametrize("name", METHODS)
def test_arguments_of_methods_cannot_be_caught(name: str) -> None:
    """A TypeError on symbols alone sent the program another way; now the method is as on numbers, or refused for good."""

    def program(x: Any) -> Any:
        try:
            METHODS[name](x)
        except TypeError:
            return x
        return x + 7

    with contextlib.suppress(pf.ProvenformerError):
        traced = trace(pf.TokenProgram(program, 4, 3))
        assert (numerator(traced.output, evaluate(traced.graph, np.zeros((1, 3), np.int64))) == 7).all()


def test_fractions_that_are_rounded_once_are_decided_upon() -> None:
    def program(x: Any) -> Any:
        mean = np.mean(x, axis=-1, keepdims=True)
        return np.where((mean + 0 * x > 1) & (x / 3 < 0.5) | (mean * (x > 0) >= 5 / 3), np.trunc(x / 3), mean - x)

    token_program = pf.TokenProgram(program, 4, 3)
    require_same(token_program, trace(token_program))


def test_large_outputs_are_compared_exactly() -> None:
    """A program that is off by 1 in ten thousand million on numbers: a step between outputs."""
    program = pf.TokenProgram(lambda x: 10**10 * (x + 1) + (type(x) is np.ndarray) * 1, 3, 2)
    with pytest.raises(pf.ProvenformerError, match="something else on symbols"):
        require_same(program, trace(program))
