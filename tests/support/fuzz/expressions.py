"""Random numpy functions (..., d, n) -> same shape, as text, so that a finding can be kept and run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

Function = Callable[[Any], Any]

UNARY = (
    "np.absolute({})", "np.square({})", "np.tanh({})", "np.arctan({})", "(-{})", "np.exp(-np.square({}))", "np.exp({})",
    "np.exp(0.5 * np.tanh({}))", "np.log(POS + np.absolute({}))", "np.sqrt(POS + np.square({}))", "(CONST * {})",
    "({} + CONST)", "np.clip({}, -POS, POS)", "np.maximum({}, CONST)", "np.minimum({}, CONST)", "({}) ** 2", "({}) ** 3",
    "(1.0 / (POS + np.square({})))", "({} / POS)", "np.sin({})", "np.cos({})", "np.sinh(np.tanh({}))", "np.cosh(np.tanh({}))",
    "np.expm1(np.tanh({}))", "np.log1p(np.square({}))", "np.log2(POS + np.absolute({}))", "np.exp2(np.tanh({}))",
    "scipy.special.expit({})", "scipy.special.erf({})", "np.sqrt(np.absolute({}))",
)  # fmt: skip
BINARY = (
    "({} + {})", "({} - {})", "({} * {})", "np.maximum({}, {})", "np.minimum({}, {})", "({} / (POS + np.absolute({})))",
    "({} * np.tanh({}))", "np.hypot({}, {})", "np.stack([{}, {}], axis=-1)[..., 0]",
    "np.sum(np.stack([{}, {}], axis=-1), axis=-1)",
)  # fmt: skip
OVER_TOKENS = (
    "np.mean({}, axis=-1, keepdims=True) + 0 * u", "np.sum({}, axis=-1, keepdims=True) * u",
    "(u - np.max({}, axis=-1, keepdims=True))", "np.min({}, axis=-1, keepdims=True) * u",
    "np.mean({}, axis=-2, keepdims=True) + 0.0 * u", "np.max({}, axis=-2, keepdims=True) * u", "np.sort({}, axis=-2)",
    "({}).max(axis=-1, keepdims=True) - u", "np.add.reduce({}, axis=-1, keepdims=True) * u",
    "np.var({}, axis=-1, keepdims=True) + u", "u / np.sqrt(POS + np.var({}, axis=-1, keepdims=True))",
    "np.median({}, axis=-1, keepdims=True) * u", "np.std(POS + np.square({}), axis=-1, keepdims=True) - u",
)  # fmt: skip
POSITIONAL = (
    "np.cumsum({}, axis=-1)", "np.sort({}, axis=-1)", "np.flip({}, axis=-1)", "np.roll({}, 1, axis=-1)",
    "np.maximum.accumulate({}, axis=-1)", "np.minimum.accumulate({}, axis=-1)", "({})[..., ::-1]",
    "np.concatenate([({} + 0 * u)[..., 1:], ({} + 0 * u)[..., :1]], axis=-1)", "({} + 0 * u)[..., :1] * u",
)  # fmt: skip


def random_expression(rng: np.random.Generator, equivariant: bool, depth: int) -> str:
    """An expression in u, the input moved to [-1, 1]."""
    if depth <= 0 or rng.random() < 0.08:
        return str(rng.choice(["u", "u", _filled(rng, "(CONST * u + CONST)")]))
    pools = [UNARY, UNARY, BINARY, OVER_TOKENS] + ([] if equivariant else [POSITIONAL])
    template = _filled(rng, str(rng.choice(pools[rng.integers(len(pools))])))
    parts = [random_expression(rng, equivariant, depth - 1 - int(rng.integers(2))) for _ in range(template.count("{}"))]
    return template.format(*parts)


def function_of(expression: str, scale: float, support: tuple[Any, Any]) -> Function:
    """The function of an expression; `scale` makes its values tiny or huge."""
    low, high = (np.asarray(end, dtype=np.float64).reshape(-1, 1) for end in support)
    middle, half = (low + high) / 2, (high - low) / 2
    body = eval(f"lambda u: {expression}", {"np": np, "scipy": scipy})

    def function(x: Any) -> Any:
        y = body((x - middle) / half)
        return y if scale == 1 else scale * y

    return function


def _filled(rng: np.random.Generator, template: str) -> str:
    while "CONST" in template:
        template = template.replace("CONST", repr(round(float(2 * rng.standard_normal()), int(rng.integers(4)))), 1)
    while "POS" in template:
        template = template.replace("POS", repr(round(abs(float(rng.standard_normal())) + 0.05, 3)), 1)
    return template
