"""Values that only look alike, of equal coefficients with equal slack: what is made of them is not one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.checker.circuit.derive import derive_circuit
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.trace import samples, trace


def _apart(x: Any) -> tuple[Any, Any]:
    """Both are stored as x, with the same slack."""
    return ((x + 2.0**-34) + 2.0**20) - 2.0**20, ((x - 2.0**-34) + 2.0**20) - 2.0**20


def _softmax_mean(scores: Any, values: Any) -> Any:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) * values[..., None, :]).sum(-1)


LOOK_ALIKE: dict[str, Callable[[Any], Any]] = {
    "formulas": np.exp,
    "squares": np.square,
    "fused formulas": lambda z: np.exp(0.5 * np.tanh(z)),
    "pieces": lambda z: np.abs(z - 0.5),
    "products": lambda z: z * z[..., ::-1],
    "comparisons": lambda z: np.maximum(z, z[..., ::-1]),
    "maxima": lambda z: z.max(-1, keepdims=True),
    "attention": lambda z: _softmax_mean(z[..., :, None] * z[..., None, :], z),
    "means over pairs": lambda z: np.tanh(z[..., :, None] - 2.0 * z[..., None, :]).mean(-1),
}


def _copies(n: int) -> CircuitNetwork:
    """g(X) = X."""
    return CircuitNetwork(1, n, (), np.zeros((1, n)), np.eye(1), np.zeros(1), ("x",))


@pytest.mark.parametrize("name", LOOK_ALIKE)
def test_functions_of_values_that_only_look_alike_do_not_cancel(name: str) -> None:
    def fn(x: Any) -> Any:
        one, other = map(LOOK_ALIKE[name], _apart(x))
        return x + (one - other)

    target = pf.Target(fn, 1, 3)
    x = samples(target)
    assert derive_circuit(_copies(3), target).float64 >= np.abs(fn(x) - x).max() > 1e-12


def test_what_no_sample_sees_does_not_cancel() -> None:
    """1.4e-15 was claimed of a function that is 0.01 away."""

    def fn(x: Any) -> Any:
        one, other = map(np.exp, _apart(x))
        return x + 1e8 * (one - other) * np.maximum(0, 1 - 1e6 * np.abs(x - 0.123456))

    x = 0.123456 + np.linspace(-1e-7, 1e-7, 50)[:, None, None] * np.ones(2)
    assert derive_circuit(_copies(2), pf.Target(fn, 1, 2)).float64 >= np.abs(fn(x) - x).max() > 0.01


def test_a_value_is_not_the_same_at_every_token_because_it_looks_so() -> None:
    def fn(x: Any) -> Any:
        z = np.exp((((x - x) + x.max(-1, keepdims=True) + 2.0**-34 * np.arange(3)) + 2.0**20) - 2.0**20)
        return x + (z - z[..., ::-1])

    target = pf.Target(fn, 1, 3, equivariant=False)
    x = samples(target)
    assert derive_circuit(_copies(3), target).float64 >= np.abs(fn(x) - x).max() > 1e-12


def test_keys_that_look_equal_move_scores_by_what_their_slack_hides() -> None:
    def fn(x: Any) -> Any:
        key = (((x + 2.0**-34 * np.arange(3)) + 2.0**20) - 2.0**20) - x
        return _softmax_mean(x[..., :, None] * x[..., None, :] + 8 * x[..., :, None] * key[..., None, :], x)

    compiled = pf.compile(pf.Target(fn, 1, 3, equivariant=False), tolerance=1e-3, construction="circuit")
    x = samples(compiled.target)
    assert compiled.certificate.details["sup"] >= np.abs(fn(x) - compiled.network(x)).max() > 1e-12


def test_the_product_of_two_values_that_look_like_0_is_not_0() -> None:
    def fn(x: Any) -> Any:
        nothing = _apart(x)[0] - x
        return x + nothing * (1e9 * nothing)

    target = pf.Target(fn, 1, 2)
    x = samples(target)
    assert derive_circuit(_copies(2), target).float64 >= np.abs(fn(x) - x).max() > 1e-12


def test_what_is_computed_twice_is_one_value() -> None:
    """Rounded or not: a mean that a function takes twice is computed once."""

    def fn(x: Any) -> Any:
        return np.exp(x.mean(-1, keepdims=True) / 3) * 0.7 - np.exp(x.mean(-1, keepdims=True) / 3) * 0.7 + x

    assert len(trace(pf.Target(fn, 1, 3)).graph.atoms) == 2
