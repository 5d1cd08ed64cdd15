"""Functions as users write them, for circuits: those that compile, and those that are refused, with a word of the refusal."""

from collections.abc import Callable
from typing import Any

import numpy as np

import provenformer as pf

TOKENS = 8
LAST: Any = {"axis": -1, "keepdims": True}
MIXING = np.random.default_rng(0).random((TOKENS, TOKENS))
Function = Callable[[Any], Any]


def layer_norm(x: Any) -> Any:
    """Over the tokens."""
    z = x - np.mean(x, **LAST)
    return z / np.sqrt(np.mean(np.square(z), **LAST) + 1e-2)


def scan(x: Any) -> Any:
    """A recurrent network, token by token."""
    h, out = x[..., :1] * 0.0, []
    for j in range(x.shape[-1]):
        h = np.tanh(0.5 * h + x[..., j : j + 1])
        out.append(h)
    return np.concatenate(out, axis=-1)


def kernel_regression(x: Any) -> Any:
    """Nadaraya and Watson."""
    kernel = np.exp(-((x[..., :, None] - x[..., None, :]) ** 2) / 0.1)
    return np.sum(kernel / np.sum(kernel, **LAST) * x[..., None, :], axis=-1)


def causal_attention(x: Any) -> Any:
    """With the mask of a decoder, and the maximum taken off."""
    scores = np.where(np.tri(x.shape[-1], dtype=bool), x[..., :, None] * x[..., None, :], -1e9)
    powers = np.exp(scores - scores.max(**LAST))
    return np.sum(powers / powers.sum(**LAST) * x[..., None, :], axis=-1)


def transformer_block(d: int, hidden: int = 4, seed: int = 1) -> Function:
    """Softmax attention, layer norm over features, a tanh layer."""
    rng = np.random.default_rng(seed)
    W_Q, W_K, W_V = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(3))
    W_1, b_1, W_2 = (
        rng.normal(size=(hidden, d)) / np.sqrt(d),
        rng.normal(size=(hidden, 1)),
        rng.normal(size=(d, hidden)),
    )

    def block(x: Any) -> Any:
        scores = np.swapaxes(W_Q @ x, -1, -2) @ (W_K @ x) / np.sqrt(d)
        powers = np.exp(scores - np.max(scores, **LAST))
        h = x + (W_V @ x) @ np.swapaxes(powers / np.sum(powers, **LAST), -1, -2)
        z = h - np.mean(h, axis=-2, keepdims=True)
        z = z / np.sqrt(np.mean(np.square(z), axis=-2, keepdims=True) + 0.1)
        return h + W_2 @ np.tanh(W_1 @ z + b_1) / hidden

    return block


COMPILES: dict[str, Function] = {
    "tanh": lambda x: np.tanh(3 * x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-4 * x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.79788 * (x + 0.044715 * x**3))),
    "share of the sum": lambda x: x / (1 + np.sum(np.abs(x), **LAST)),
    "root mean square": lambda x: x / np.sqrt(np.mean(x**2, **LAST) + 0.1),
    "deviation": lambda x: x * 0 + np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-2),
    "layer norm": layer_norm,
    "log mean exp": lambda x: x * 0 + np.log(np.mean(np.exp(3 * x), **LAST)),
    "softmax pooling": lambda x: x * 0 + np.sum(np.exp(2 * x) * x, **LAST) / np.sum(np.exp(2 * x), **LAST),
    "kernel regression": kernel_regression,
    "causal attention": causal_attention,
    "constant mixing": lambda x: x @ MIXING,
    "filter": lambda x: 0.5 * (x + np.roll(x, 1, axis=-1)),
    "positions": lambda x: x * np.sin(np.arange(TOKENS)) + np.arange(TOKENS) / TOKENS,
    "every other": lambda x: np.where(np.arange(TOKENS) % 2 == 0, x, 1 - x),
    "differences": lambda x: np.concatenate([x[..., :1] * 0.0, np.abs(x[..., 1:] - x[..., :-1])], axis=-1),
    "less the first": lambda x: x - x[..., :1],
    "median": lambda x: x - np.median(x, axis=-1, keepdims=True),
    "mean of the top three": lambda x: x * 0 + np.mean(np.sort(x, axis=-1)[..., -3:], **LAST),
    "larger than the mean": lambda x: np.maximum(x, np.mean(x, **LAST)),
    "leaky": lambda x: np.maximum(x - 0.5, 0.1 * (x - 0.5)),
    "lower of two lines": lambda x: (
        np.minimum(x, 0.3 * x + 0.2) - np.maximum(np.mean(x, **LAST), 3 * np.mean(x, **LAST) - 1)
    ),
    "larger of the same": lambda x: np.maximum(x, x) + np.minimum(x + np.arange(TOKENS), x),
    "smallest": lambda x: x - np.min(x, **LAST),
    "running minimum": lambda x: np.minimum.accumulate(x, axis=-1),
    "hinge": lambda x: 2 * np.maximum(x - 0.3, 0),
    "clipped": lambda x: np.clip(2 * x - 0.5, 0, 1),
    "products": lambda x: x * np.mean(x, **LAST) * np.max(x, **LAST),
    "waves": lambda x: np.sin(3 * x) * np.cos(np.mean(x, **LAST)),
    "recurrent": scan,
    "the mean, broadcast": lambda x: np.broadcast_to(np.mean(x, **LAST), x.shape),
    "a constant": lambda x: np.full(x.shape, 0.25),
}


def assigns(x: Any) -> Any:
    y = x * 1.0
    y[..., 0] = 0.0
    return y


REFUSED: dict[str, tuple[Function, str]] = {
    "comparison": (lambda x: x * (x > 0.5), "numpy.greater.*it jumps"),
    "where": (lambda x: np.where(x > 0.5, x, 0), "numpy.greater.*it jumps"),
    "rounding": (lambda x: np.round(4 * x), "numpy.round.*it jumps"),
    "ranks": (lambda x: np.argsort(x, axis=-1) * 1.0, "numpy.argsort.*it jumps"),
    "division": (lambda x: x / (0.5 + np.sort(x, axis=-1)[..., -1:] - x), "division by a value in .* contains 0"),
    "logarithm": (lambda x: np.log(0.5 + np.sort(x, axis=-1)[..., -1:] - x), "np.log of a value in"),
    "root": (
        lambda x: np.sqrt(np.mean(x**2, **LAST) - np.mean(x, **LAST) ** 2 + 1e-2) + 0 * x,
        "np.sqrt of a value in.*write a variance as np.var",
    ),
    "assignment": (assigns, "item assignment"),
    "three tokens": (
        lambda x: np.mean(x[..., :, None, None] * x[..., None, :, None] * x[..., None, None, :], axis=(-1, -2)), "three tokens",
    ),
    "float()": (lambda x: x * 1.0 if type(x) is np.ndarray else x * float(x[..., 0, 0]), "float"),
}  # fmt: skip


def target(fn: Function, d: int = 1, n: int = TOKENS, name: str = "user function") -> pf.Target:
    """A positional target: whether it is equivariant does not matter to circuits."""
    return pf.Target(fn, d, n, equivariant=False, name=name)
