"""Every numpy function and helper that circuits know, compiled: the network stays within its bound of the function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from flint import arb, ctx

import provenformer as pf
from provenformer.bounds.intervals import Interval
from provenformer.checker.circuit.jets import jet_of
from provenformer.symbols.formula import VARIABLE, apply
from provenformer.symbols.jets import jet
from provenformer.symbols.trace import samples

Function = Callable[[Any], Any]
LAST: Any = {"axis": -1, "keepdims": True}
WEIGHTS = np.random.default_rng(4).normal(size=(3, 3))
FUNCTIONS: dict[str, Function] = {
    "sin": lambda x: np.sin(5 * x),
    "cos": lambda x: np.cos(5 * x),
    "sinh": lambda x: np.sinh(x),
    "cosh": lambda x: np.cosh(2 * x),
    "expm1": lambda x: np.expm1(x),
    "log1p": lambda x: np.log1p(3 * x),
    "log2": lambda x: np.log2(x + 0.25),
    "exp2": lambda x: np.exp2(3 * x - 1),
    "expit": lambda x: scipy.special.expit(6 * x - 2),
    "erf": lambda x: scipy.special.erf(3 * x - 1),
    "gelu": lambda x: x * (1 + scipy.special.erf(x / np.sqrt(2))) / 2,
    "hypot": lambda x: np.hypot(x, 0.2 + x[..., ::-1]),
    "matmul": lambda x: np.matmul(WEIGHTS, x),
    "@": lambda x: WEIGHTS @ x,
    "einsum": lambda x: np.einsum("ef,...fn->...en", WEIGHTS, x),
    "dot": lambda x: np.swapaxes(np.dot(np.swapaxes(x, -1, -2), WEIGHTS), -1, -2),
    "var": lambda x: x * np.var(x, **LAST),
    "std": lambda x: x * np.std(x, **LAST),
    "std of features": lambda x: x + np.std(x, axis=-2, keepdims=True),
    "prod": lambda x: x + np.prod(x, axis=-2, keepdims=True),
    "norm": lambda x: x + np.linalg.norm(x, axis=-2, keepdims=True),
    "where": lambda x: np.where(np.arange(x.shape[-1]) > 1, x, np.tanh(x)),
    "take": lambda x: np.take(x, [2, 1, 0, 0], axis=-1),
    "median": lambda x: x - np.median(x, **LAST),
    "softmax over tokens": lambda x: pf.softmax(2 * x, axis=-1),
    "softmax over features": lambda x: pf.softmax(9 * x, axis=-2),
    "logsumexp over features": lambda x: x - pf.logsumexp(5 * x, axis=-2, keepdims=True) / 5,
    "logsumexp over tokens": lambda x: x - pf.logsumexp(2 * x, axis=-1, keepdims=True),
    "attend": lambda x: pf.attend(WEIGHTS @ x, x, x),
    "attend with a mask": lambda x: pf.attend(x, x, x, np.where(np.tri(x.shape[-1]) > 0, 0.0, -np.inf), scale=1.0),
    "normalize": lambda x: pf.normalize(x, axis=-1, eps=0.1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    f = pf.Target(FUNCTIONS[name], 3, 4, equivariant=False, name="function")
    c = pf.compile(f, tolerance=2e-2, norm_order=np.inf, construction="circuit")
    x = samples(f, 32, seed=3)
    assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound <= 2e-2


def _exact(name: str, z: float) -> tuple[Any, Any, Any]:
    """Value and derivatives at 300 bits."""
    v, log2, root_pi = arb(z), arb(2).log(), arb.pi().sqrt()
    if name == "exp2":
        y = (v * log2).exp()
        return y, y * log2, y * log2 * log2
    if name == "log2":
        return v.log() / log2, 1 / (v * log2), -1 / (v * v * log2)
    if name == "expit":
        y = 1 / (1 + (-v).exp())
        return y, y * (1 - y), y * (1 - y) * (1 - 2 * y)
    slope = 2 / root_pi * (-v * v).exp()
    return v.erf(), slope, -2 * v * slope


@pytest.mark.parametrize("name", ["exp2", "log2", "expit", "erf"])
@pytest.mark.parametrize("which", ["builder", "checker"])
def test_jets_against_high_precision(name: str, which: str) -> None:
    rng = np.random.default_rng(1)
    start = rng.uniform(-6, 6, 300) if name != "log2" else 10.0 ** rng.uniform(-6, 2, 300)
    end = start + np.abs(start) * 10.0 ** rng.uniform(-12, 0, 300)
    formula = apply(name, VARIABLE)
    found = jet(formula, start, end) if which == "builder" else jet_of(formula, start, end)
    before, ctx.prec = ctx.prec, 300
    try:
        for i, share in enumerate(rng.choice([0.0, 0.5, 1.0], 300)):
            z = float(np.clip(start[i] + share * (end[i] - start[i]), start[i], end[i]))
            for part, exact in zip((found.value, found.first, found.second), _exact(name, z), strict=True):
                assert arb(float(part.lo[i])) <= exact <= arb(float(part.hi[i]))
    finally:
        ctx.prec = before


@pytest.mark.parametrize("name", ["attend", "attend with a mask", "normalize"])
def test_helpers_on_boxes(name: str) -> None:
    """Values at points of a box lie in what the helper says of the box."""
    rng = np.random.default_rng(0)
    low = rng.random((3, 4))
    high = low + 0.05 * rng.random((3, 4))
    found = FUNCTIONS[name](Interval(low, high))
    for _ in range(50):
        value = FUNCTIONS[name](low + rng.random((3, 4)) * (high - low))
        assert ((found.lo <= value) & (value <= found.hi)).all()


def test_attend_is_attention() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(5, 2, 6)), rng.normal(size=(5, 2, 6)), rng.normal(size=(5, 3, 6))
    weights = scipy.special.softmax(np.swapaxes(q, -1, -2) @ k / np.sqrt(2), axis=-1)
    assert np.allclose(pf.attend(q, k, v), np.einsum("bjk,bvk->bvj", weights, v))
    x = rng.normal(size=(5, 7, 6))
    assert np.allclose(pf.normalize(x).mean(axis=-2), 0)
    assert np.allclose(pf.normalize(x, eps=0.0).std(axis=-2), 1)
