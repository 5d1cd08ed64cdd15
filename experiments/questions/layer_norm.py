"""Question 2: why can layer normalisation go?

It is not needed: the theorem's networks have none. It is not always harmless: on tokens of one or two numbers it destroys them.
And with spare channels it does no harm: the pair (C, -C) makes every token's scale nearly the same, so that normalising is
multiplying by a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from experiments.questions.learned import measured

import provenformer as pf
from provenformer.networks.thin import Network, SoftmaxRun, attention, feed_forward


def layer_norm(x: Any) -> Any:
    """Every column to mean 0 and variance 1; x (d, count)."""
    centred = x - x.mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)


def between_layers(network: Network, after: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The network with something applied to all tokens (d, count) after every layer."""

    def run(x: Any) -> Any:
        batch, d, n = x.shape
        tokens = x.transpose(1, 0, 2).reshape(d, -1)
        for each in network.runs:
            for i in range(len(each)):
                arrays = {name: v[i : i + 1] for name, v in vars(each).items() if isinstance(v, np.ndarray)}
                layer = type(each)(each.stage, **arrays)
                if isinstance(layer, SoftmaxRun):
                    tokens = attention(layer, tokens.reshape(d, batch, n)).reshape(d, -1)
                else:
                    tokens = feed_forward(layer, tokens)
                tokens = after(tokens)
        return tokens.reshape(d, batch, n).transpose(1, 0, 2)

    return run


def padded(constant: float) -> Callable[[Any], Any]:
    """Layer norm of the token (x, -x, C, -C), then its learnt scale C / sqrt(d + 1): nearly the token itself.

    The mean is exactly 0 and the variance (|x|^2 + C^2) / (d + 1), so x comes out as x / sqrt(1 + |x|^2 / C^2).
    """

    def after(x: Any) -> Any:
        d = len(x)
        full = np.concatenate([x, -x, np.full((1, x.shape[1]), constant), np.full((1, x.shape[1]), -constant)])
        scale = constant / np.sqrt(d + 1)
        return layer_norm(full)[:d] * scale

    return after


def run(quick: bool) -> dict[str, Any]:
    """The compiled network without layer norm, with it, and with it beside a pair of constant channels."""
    f = pf.targets.get("softmax-mean", token_dim=1, seq_len=3)
    cells = 3 if quick else 6
    c = pf.compile(f, cells_per_axis=cells)
    network = c.network
    assert isinstance(network, Network)

    def error(g: Callable[[Any], Any]) -> float:
        return pf.distance(f, g, token_dim=1, seq_len=3, samples=1 << 12, cells_per_axis=cells).value

    powers = range(0, 49, 24) if quick else range(0, 49, 3)
    x = f.sample(4096)
    pairs = np.random.default_rng(0).random((2, 4096))
    return {
        "target": f.name,
        "blocks": c.network.blocks,
        "certified": c.certificate.bound,
        "id_bits": c.certificate.details["id_bits"],
        "without": error(c.network),
        "with_layer_norm": error(between_layers(network, layer_norm)),
        "best_constant": measured(f, lambda x: np.full(np.shape(x), f(x).mean())),
        "values_after_layer_norm": {
            "token_dim_1": len(np.unique(layer_norm(x.reshape(1, -1)))),
            "token_dim_2": len(np.unique(layer_norm(pairs).round(9), axis=1).T),
        },
        "padded": [{"log2_constant": k, "error": error(between_layers(network, padded(2.0**k)))} for k in powers],
    }
