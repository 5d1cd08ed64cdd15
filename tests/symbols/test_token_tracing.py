"""Every operation of numpy that is traced: graph and circuit against numpy, on all sequences; and what is refused."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.networks.circuit import CircuitNetwork

N = 4
K = np.arange(N)
R = pf.rasp


def circuit(c: pf.CompiledTokens) -> CircuitNetwork:
    assert isinstance(c.network, CircuitNetwork)
    return c.network


def pairs(x: Any) -> tuple[Any, Any]:
    return x[..., :, None], x[..., None, :]


TRACED: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: 3 * x - 2 + x // 2 - x % 3 + (-x) ** 2,
    "quotients by position": lambda x: x / (K + 1) + (x - 1) / (K - 5),
    "products": lambda x: x * x[..., ::-1] + x * K,
    "a product with an index": lambda x: np.cumsum(x, axis=-1) * x,
    "comparisons": lambda x: (x < 2) * 1 + (x >= K) * 2 + (x == x[..., ::-1]) * 4 + (x != 1) * 8 + (x <= 0) * 16,
    "logic": lambda x: ((x > 0) & (x < 2)) * 1 + ((x == 0) | (K > 1)) * 2 + ((x == 1) ^ (x == x[..., ::-1])) * 4 + ~(x > 1) * 8,
    "logic of a maximum": lambda x: (np.maximum(x > 1, x < 2) ^ (x < 2)) * 1 + (np.minimum(x > 0, x[..., ::-1] > 0) & (x < 2)),
    "where": lambda x: np.where(x > 1, x[..., ::-1], np.where(x == 0, 5, K)),
    "maximum": lambda x: np.maximum(x, x[..., ::-1]) - np.minimum(x, 1) + np.abs(x - 1) + np.sign(x - 1) + np.clip(x, 0, 1),
    "sum and mean": lambda x: np.sum(x, axis=-1, keepdims=True) + np.mean(x, axis=-1, keepdims=True) + x,
    "a mean that is compared": lambda x: (np.mean(x, axis=-1, keepdims=True) > 0.7) * x,
    "max and min": lambda x: np.max(x, axis=-1, keepdims=True) - x.min(axis=-1, keepdims=True) + 0 * x,
    "argmax": lambda x: np.argmax(x, axis=-1)[..., None] + 2 * np.argmin(x, axis=-1)[..., None] + 0 * x,
    "any and all": lambda x: np.any(x == 2, axis=-1)[..., None] * 1 + np.all(x < 2, axis=-1)[..., None] * 2 + 0 * x,
    "cumulative sum": lambda x: np.cumsum(x, axis=-1) + np.cumsum(x == 1, axis=-1),
    "sort": lambda x: np.sort(x, axis=-1) * 2 + np.sort(3 - x, axis=-1),
    "argsort": lambda x: np.argsort(x, axis=-1, kind="stable") + 5 * np.argsort(0 * x - K, axis=-1, kind="stable"),
    "flip, roll, slices": lambda x: np.flip(x, axis=-1) + 3 * np.roll(x, 1, axis=-1) + 9 * x[..., [0, 0, 2, 1]],
    "one token": lambda x: x[..., -1:] + x[..., 1][..., None] * 3 + 0 * x,
    "concatenate": lambda x: np.concatenate([x[..., 2:], np.ones_like(x[..., :1]), x[..., :1]], axis=-1),
    "a short sum": lambda x: np.sum(x[..., 1:3], axis=-1, keepdims=True) + np.max(x[..., :2], axis=-1, keepdims=True) + 0 * x,
    "an index that is computed": lambda x: np.take_along_axis(x, np.minimum(x, N - 1), axis=-1),
    "an index that is a count": lambda x: np.take_along_axis(x, np.minimum(np.cumsum(x == 1, axis=-1), N - 1), axis=-1),
    "counts of pairs": lambda x: np.sum(pairs(x)[0] < pairs(x)[1], axis=-1)
    + 5 * np.sum((pairs(x)[0] == pairs(x)[1]) & (K[:, None] > K), axis=-1),
    "sums over selected": lambda x: np.sum(np.where(pairs(x)[0] == pairs(x)[1], (x * K)[..., None, :], 0), axis=-1),
    "sums with a mask": lambda x: np.sum(
        np.where((pairs(x)[0] <= pairs(x)[1]) & (K[:, None] >= K), (x - 1)[..., None, :], 0), axis=-1),
    "last and first": lambda x: np.max(np.where((pairs(x)[0] == pairs(x)[1]) & (K[:, None] > K), K, -1), axis=-1)
    + 5 * np.min(np.where(pairs(x)[0] != pairs(x)[1], K, 9), axis=-1),
    "argmax of a selector": lambda x: np.argmax(pairs(x)[0] > pairs(x)[1], axis=-1),
    "two conditions": lambda x: np.sum((pairs(x)[0] == pairs(x)[1]) | (pairs((x + K) % 3)[0] == pairs(x)[1]), axis=-1),
    "not": lambda x: np.sum(~((pairs(x)[0] == pairs(x)[1]) & (K[:, None] < K)), axis=-1),
    "rasp": lambda x: R.selector_width(R.select(x, x)) + 9 * R.aggregate(R.select(R.indices(x), N - 1 - R.indices(x)), x),
    "constant": lambda x: np.zeros_like(x) + K,
    "copies": lambda x: copy(x) + 2 * deepcopy(x) + x.copy(),
    "a loop": lambda x: sum((x[..., i : i + 1] > x) * 1 for i in range(N)),
}  # fmt: skip


@pytest.mark.parametrize("name", TRACED)
def test_graph_and_circuit_are_the_program(name: str) -> None:
    c = pf.compile_tokens(
        TRACED[name], 3, N, construction="circuit"
    )  # compares the graph with numpy on all 81 sequences
    x = np.indices((3,) * N).reshape(N, -1).T
    wanted = np.broadcast_to(TRACED[name](x), x.shape)
    for dtype, bound in c.certificate.bounds.items():
        error = np.abs(circuit(c).run(x[:, None, :].astype(float), dtype)[:, 0] - wanted).max()
        assert error <= bound < c.certificate.details["step"] / 2


def last_before(a: Any, b: Any) -> Any:
    k = np.arange(a.shape[-1])
    return np.max(np.where((a[..., :, None] == b[..., None, :]) & (k[:, None] > k), k, -1), axis=-1)


MANY: dict[str, Callable[[Any], Any]] = {
    "the last that is equal": lambda x: last_before(x, x),
    "the first that is equal": lambda x: np.min(np.where(pairs(x)[0] == pairs(x)[1], np.arange(3), 9), axis=-1),
    "numbers of different ranges": lambda x: last_before(x - 3, np.where(x % 2 == 0, 2 * x, -40)),
    "below 0": lambda x: last_before(x - 28, x[..., ::-1] - 27),
    "positions": lambda x: last_before(0 * x + 10 * np.arange(3), x),
}


@pytest.mark.parametrize("name", MANY)
def test_many_values_are_compared_by_their_digits(name: str) -> None:
    c = pf.compile_tokens(MANY[name], 28, 3, construction="circuit")
    x = np.indices((28,) * 3).reshape(3, -1).T
    for dtype, bound in c.certificate.bounds.items():
        assert np.abs(circuit(c).run(x[:, None, :].astype(float), dtype)[:, 0] - MANY[name](x)).max() <= bound < 0.5
    assert max(circuit(c).shape[1], 0) < 28  # fewer products than values


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a Python if": (lambda x: x if x[0, 0] > 1 else -x, "axis of sequences was indexed"),
    "a truth value": (lambda x: x if np.any(x > 1, axis=-1) else -x, "use np.where, & and"),
    "the axis of sequences": (lambda x: x - np.mean(x, axis=0), "use axis=-1"),
    "all axes": (lambda x: x - np.sum(x), "name the axis of tokens"),
    "an index that leaves the tokens": (lambda x: np.take_along_axis(x, x + 2, axis=-1), "ranges from 2 to 4, not within 0 to 3"),
    "a mean with too small a margin": (lambda x: x[..., ::-1] / 9973 > 0.5, "a margin of .* compare whole numbers"),
    "a sum of fractions that is compared": (lambda x: np.mean(x, axis=-1, keepdims=True) / 3 + x / 3 > 0.5, "use whole numbers"),
    "a narrow type": (lambda x: x.astype(np.int8), "overflow or round"),
    "a quotient": (lambda x: x / (np.cumsum(x, axis=-1) + 1), "compare products instead"),
    "division by what may be 0": (lambda x: 5 // x, "may be 0: it ranges from 0 to 2"),
    "an unstable order": (lambda x: np.argsort(x, axis=-1), "kind='stable'"),
    "assignment": (lambda x: x.__setitem__(0, 1), "np.where or np.concatenate"),
    "another function": (lambda x: np.exp(x), "np.exp is not traced"),
    "a shape": (lambda x: x[..., :2], "not 4 numbers"),
    "plain numbers": (lambda x: np.asarray(x), "turns the tokens into plain numbers"),
    "something else": (lambda x: "abc", "not a number for every token"),  # noqa: ARG005
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(pf.ProvenformerError, match=words) as error:
        pf.compile_tokens(function, 3, N, construction="circuit")
    assert "\n" not in str(error.value)


def test_what_is_different_on_symbols_is_found() -> None:
    """A function that knows whether it is traced."""

    def sly(x: Any) -> Any:
        return x if type(x) is np.ndarray else x[..., ::-1]

    with pytest.raises(pf.ProvenformerError, match="something else on symbols than on numbers"):
        pf.compile_tokens(sly, 3, N, construction="circuit")


def test_a_program_that_catches_a_refusal_is_refused() -> None:
    """It would go another way on symbols, where samples need not see it."""

    def caught(x: Any) -> Any:
        try:
            return np.exp(x) * 0 + np.where(np.sum(x, axis=-1, keepdims=True) == 8, 1, x)
        except Exception:
            return x

    def asked(x: Any) -> Any:
        return x + 0 if hasattr(x, "tobytes") else x

    for fn in (caught, asked):
        with pytest.raises(pf.ProvenformerError, match="catches what is refused"):
            pf.compile_tokens(fn, 5, 8, construction="circuit")
