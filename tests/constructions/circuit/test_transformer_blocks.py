"""Transformer blocks as a formula (softmax attention, layer norm, tanh MLP): their sizes, and that two of them are certified."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.symbols.trace import samples

Function = Callable[[Any], Any]


def block(seed: int, d: int = 4, hidden: int = 8) -> Function:
    rng = np.random.default_rng(seed)
    query, key, value = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(3))
    inner, bias = rng.normal(size=(hidden, d)) / np.sqrt(d), rng.normal(size=(hidden, 1))
    outer = rng.normal(size=(d, hidden)) / np.sqrt(hidden)

    def f(x: Any) -> Any:
        scores = np.matmul(np.swapaxes(np.matmul(query, x), -1, -2), np.matmul(key, x)) / np.sqrt(d)
        powers = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        weights = powers / np.sum(powers, axis=-1, keepdims=True)
        h = x + np.matmul(np.matmul(value, x), np.swapaxes(weights, -1, -2))
        z = h - np.mean(h, axis=-2, keepdims=True)
        z = z / np.sqrt(np.mean(np.square(z), axis=-2, keepdims=True) + 0.1)
        return h + np.matmul(outer, np.tanh(np.matmul(inner, z) + bias))

    return f


def compiled(fn: Function, n: int, tolerance: float, max_units: int) -> None:
    f = pf.Target(fn, 4, n, name="blocks")
    c = pf.compile(f, tolerance=tolerance, norm_order=np.inf, construction="circuit", max_units=max_units)
    x = samples(f, 10)
    assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound <= tolerance


@pytest.mark.parametrize("n", [16, pytest.param(512, marks=pytest.mark.slow)])
def test_a_block_within_a_thousandth(n: int) -> None:
    compiled(block(1), n, 1e-3, 2_200)


@pytest.mark.slow
def test_two_blocks_within_a_hundredth() -> None:
    first, second = block(1), block(2)
    compiled(lambda x: second(first(x)), 16, 1e-2, 32_000)
