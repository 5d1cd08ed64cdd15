"""Random numpy functions (..., d, n) -> same shape, as text, so that a finding can be kept and run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

import provenformer as pf

Function = Callable[[Any], Any]

UNARY = (
    "np.absolute({})", "np.square({})", "np.tanh({})", "np.arctan({})", "(-{})", "np.exp(-np.square({}))", "np.exp({})",
    "np.exp(0.5 * np.tanh({}))", "np.log(POS + np.absolute({}))", "np.sqrt(POS + np.square({}))", "(CONST * {})",
    "({} + CONST)", "np.clip({}, -POS, POS)", "np.maximum({}, CONST)", "np.minimum({}, CONST)", "({}) ** 2", "({}) ** 3",
    "(1.0 / (POS + np.square({})))", "({} / POS)", "np.sin({})", "np.cos({})", "np.sinh(np.tanh({}))", "np.cosh(np.tanh({}))",
    "np.expm1(np.tanh({}))", "np.log1p(np.square({}))", "np.log2(POS + np.absolute({}))", "np.exp2(np.tanh({}))",
    "scipy.special.expit({})", "scipy.special.erf({})", "np.sqrt(np.absolute({}))", "np.log10(POS + np.absolute({}))",
    "np.degrees({}) / 50", "scipy.special.ndtr({})", "np.arctan2({}, POS)", "np.interp({}, [-1.0, 0.0, 0.7], [0.3, -1.0, 1.0])",
)  # fmt: skip
BINARY = (
    "({} + {})", "({} - {})", "({} * {})", "np.maximum({}, {})", "np.minimum({}, {})", "({} / (POS + np.absolute({})))",
    "({} * np.tanh({}))", "np.hypot({}, {})", "np.stack([{}, {}], axis=-1)[..., 0]",
    "np.sum(np.stack([{}, {}], axis=-1), axis=-1)", "np.logaddexp({}, {})", "np.arctan2({}, POS + np.absolute({}))",
)  # fmt: skip
OVER_TOKENS = (
    "np.mean({}, axis=-1, keepdims=True) + 0 * u", "np.sum({}, axis=-1, keepdims=True) * u",
    "(u - np.max({}, axis=-1, keepdims=True))", "np.min({}, axis=-1, keepdims=True) * u",
    "np.mean({}, axis=-2, keepdims=True) + 0.0 * u", "np.max({}, axis=-2, keepdims=True) * u", "np.sort({}, axis=-2)",
    "({}).max(axis=-1, keepdims=True) - u", "np.add.reduce({}, axis=-1, keepdims=True) * u",
    "np.var({}, axis=-1, keepdims=True) + u", "u / np.sqrt(POS + np.var({}, axis=-1, keepdims=True))",
    "np.median({}, axis=-1, keepdims=True) * u", "np.std(POS + np.square({}), axis=-1, keepdims=True) - u",
    "np.quantile({}, 0.3, axis=-1, keepdims=True) + u", "np.average({}, axis=-1, keepdims=True) * u",
)  # fmt: skip
POSITIONAL = (
    "np.cumsum({}, axis=-1)", "np.sort({}, axis=-1)", "np.flip({}, axis=-1)", "np.roll({}, 1, axis=-1)",
    "np.maximum.accumulate({}, axis=-1)", "np.minimum.accumulate({}, axis=-1)", "({})[..., ::-1]",
    "np.concatenate([({} + 0 * u)[..., 1:], ({} + 0 * u)[..., :1]], axis=-1)", "({} + 0 * u)[..., :1] * u",
)  # fmt: skip

CIRCUIT = (
    "softmax({}) * u", "np.sum(softmax({}) * {}, axis=-1, keepdims=True) + 0 * u", "attention({}, {}, {})",
    "causal({}, {}, {})", "kernel({}, {}, POS)", "u * np.log(np.mean(np.exp({}), axis=-1, keepdims=True))",
    "normed({}, POS, -1)", "normed({}, POS, -2)", "mixed({}, SEED)", "across({}, SEED)", "scan({})",
    "np.where(np.arange(u.shape[-1]) % 2 == 0, {}, {})", "({}) * np.cos(np.arange(u.shape[-1])) + u",
    "np.maximum({}, np.mean({}, axis=-1, keepdims=True))", "({} + 0 * u) @ np.tri(u.shape[-1])", "np.einsum('...dn->...dn', {})",
    "np.broadcast_to(np.max({}, axis=-1, keepdims=True), u.shape)", "np.sort({} + 0 * u, axis=-1)[..., -1:] * u",
    "np.cumsum({}, axis=-1) / (1 + np.arange(u.shape[-1]))", "np.full(u.shape, CONST) + {}", "np.max(np.stack([{}, {}]), axis=0)",
    "pairwise({}, {}, KIND)", "pairwise({}, u, KIND)", "pairwise(u, u, KIND)", "u - pairwise({}, {}, KIND)",
    "weighted({}, {}, KIND)", "pf.attend({}, {}, {})", "pf.attend({}, {}, {}, scale=POS)", "pf.normalize({}, eps=POS)",
    "pf.normalize({}, axis=-1, eps=POS)", "np.std({}, axis=-1, keepdims=True) * u",
    "np.max(np.tanh(({} + 0 * u)[..., :, None] - ({} + 0 * u)[..., None, :]), axis=-1)", "({}) ** 4", "({}) ** 5",
    "signed({}, KIND)", "soft_threshold({}, POS)", "padded({})", "windows({})", "experts({}, SEED)", "np.sign({}) * np.abs({})",
    "np.power(POS + np.square({}), 0.5)", "np.reciprocal(POS + np.square({}))", "np.abs({}) * u",
)  # fmt: skip
DEPTHS = (1, 1, 2, 2, 3, 3, 4, 5)  # most are shallow: a deep formula takes as long as twenty and meets the same rules
TOKENS: Any = {"axis": -1, "keepdims": True}


def softmax(scores: Any) -> Any:
    """Along the last axis, as everybody writes it."""
    powers = np.exp(scores - np.max(scores, **TOKENS))
    return powers / np.sum(powers, **TOKENS)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = np.swapaxes(q, -1, -2) @ k / np.sqrt(q.shape[-2])
    return v @ np.swapaxes(softmax(scores), -1, -2)


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = np.swapaxes(q, -1, -2) @ k
    masked = np.where(np.tri(q.shape[-1], dtype=bool), scores, -1e9)
    return v @ np.swapaxes(softmax(masked), -1, -2)


def kernel(a: Any, v: Any, width: float) -> Any:
    """Nadaraya and Watson, on the first row."""
    near = np.exp(-((a[..., 0, :, None] - a[..., 0, None, :]) ** 2) / width)
    weights = near / np.sum(near, **TOKENS)
    return v @ np.swapaxes(weights, -1, -2)


KERNELS: tuple[Callable[[Any], Any], ...] = (
    np.tanh, np.absolute, lambda t: np.exp(-np.square(t)), lambda t: np.maximum(t, 0.0), lambda t: 1.0 / (1.0 + np.square(t)),
    lambda t: np.clip(3 * t + 0.5, 0.0, 1.0), lambda t: np.sqrt(0.1 + np.square(t)), lambda t: np.sin(2 * t),
)  # fmt: skip


def pairwise(a: Any, b: Any, kind: int) -> Any:
    """The mean over k of a function of a_j - b_k."""
    return np.mean(KERNELS[kind](a[..., :, None] - b[..., None, :]), axis=-1)


def weighted(a: Any, v: Any, kind: int) -> Any:
    """The same of a alone, times v_k."""
    return np.sum(KERNELS[kind](a[..., :, None] - a[..., None, :]) * v[..., None, :], axis=-1)


def normed(x: Any, eps: float, axis: int) -> Any:
    z = x - np.mean(x, axis=axis, keepdims=True)
    return z / np.sqrt(np.mean(np.square(z), axis=axis, keepdims=True) + eps)


def mixed(x: Any, seed: int) -> Any:
    d = x.shape[-2]
    return np.random.default_rng(seed).normal(size=(d, d)) @ x


def across(x: Any, seed: int) -> Any:
    n = x.shape[-1]
    return x @ np.random.default_rng(seed).normal(size=(n, n))


def scan(x: Any) -> Any:
    """A recurrent network."""
    h, out = x[..., :1] * 0.0, []
    for j in range(x.shape[-1]):
        h = np.tanh(0.5 * h + x[..., j : j + 1])
        out.append(h)
    return np.concatenate(out, axis=-1)


def signed(x: Any, kind: int) -> Any:
    """sign(x) times a function of |x|: of one that is 0 at 0, or not, and then it jumps."""
    functions: tuple[Callable[[Any], Any], ...] = (
        np.sqrt,
        np.log1p,
        np.square,
        np.tanh,
        np.cos,
        np.expm1,
        np.arctan,
        np.sin,
    )
    return np.sign(x) * functions[kind](np.abs(x))


def soft_threshold(x: Any, at: float) -> Any:
    return np.sign(x) * np.maximum(np.abs(x) - at, 0.0)


def padded(x: Any) -> Any:
    """The token before, a constant before the first."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)], constant_values=0.25)[..., :-1]


def windows(x: Any) -> Any:
    """The mean of tanh over windows of two, the ends repeated."""
    wide = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)], mode="edge")
    return np.mean(np.tanh(np.lib.stride_tricks.sliding_window_view(wide, 2, axis=-1)), axis=-1)


def experts(x: Any, seed: int) -> Any:
    """Softmax over features by hand, of a mixture; as many features as x has."""
    d = x.shape[-2]
    scores = np.exp(np.random.default_rng(seed).normal(size=(d, d)) @ x)
    return scores / np.sum(scores, axis=-2, keepdims=True) * x


HELPERS = (
    signed, soft_threshold, padded, windows, experts, softmax, attention, causal, kernel, pairwise, weighted, normed, mixed,
    across, scan,
)  # fmt: skip
NAMES: dict[str, Any] = {"pf": pf, "np": np, "scipy": scipy, **{helper.__name__: helper for helper in HELPERS}}


def random_expression(
    rng: np.random.Generator, equivariant: bool, depth: int | None = None, circuit: bool = False
) -> str:
    """An expression in u, the input moved to [-1, 1]; `circuit`: also with what only a formula needs, attention and the like."""
    if depth is None:
        depth = int(rng.choice(DEPTHS))
    if depth <= 0 or rng.random() < 0.08:
        return str(rng.choice(["u", "u", _filled(rng, "(CONST * u + CONST)")]))
    pools = [UNARY, UNARY, BINARY, OVER_TOKENS] + ([] if equivariant else [POSITIONAL]) + [CIRCUIT, CIRCUIT] * circuit
    template = _filled(rng, str(rng.choice(pools[rng.integers(len(pools))])))
    wanted = template.count("{}")
    parts = [random_expression(rng, equivariant, depth - 1 - int(rng.integers(2)), circuit) for _ in range(wanted)]
    return template.format(*parts)


def function_of(expression: str, scale: float, support: tuple[Any, Any]) -> Function:
    """The function of an expression; `scale` makes its values tiny or huge."""
    low, high = (np.asarray(end, dtype=np.float64).reshape(-1, 1) for end in support)
    middle, half = (low + high) / 2, (high - low) / 2
    body = eval(f"lambda u: {expression}", NAMES)

    def function(x: Any) -> Any:
        y = body((x - middle) / half)
        return y if scale == 1 else scale * y

    return function


def _filled(rng: np.random.Generator, template: str) -> str:
    while "CONST" in template:
        template = template.replace("CONST", repr(round(float(2 * rng.standard_normal()), int(rng.integers(4)))), 1)
    template = template.replace("SEED", str(int(rng.integers(1000)))).replace(
        "KIND", str(int(rng.integers(len(KERNELS))))
    )
    while "POS" in template:
        template = template.replace("POS", repr(round(abs(float(rng.standard_normal())) + 0.05, 3)), 1)
    return template
