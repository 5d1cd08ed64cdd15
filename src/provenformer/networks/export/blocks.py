"""The weights of a network block by block, as other tools want them."""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.networks.thin import FloatRun, Network, ReluRun, SoftmaxRun


def block_weights(network: Network) -> dict[str, FloatArray]:
    """The weights of every block, (blocks, ...): an attention layer shares its block with a feed-forward layer after it."""
    d, r, blocks = network.token_dim, network.hidden_dim, network.blocks
    shapes = {
        "W_O": (2, d), "W_V": (2, d), "W_K": (2, d), "W_Q": (2, d), "b_Q": (2,),
        "W_1": (r, d), "b_1": (r,), "W_2": (d, r), "b_2": (d,),
    }  # fmt: skip
    weights = {name: np.zeros((blocks, *shape)) for name, shape in shapes.items()}
    at = 0
    previous: FloatRun | None = None
    for run in (run for run in network.runs if len(run)):
        if isinstance(run, ReluRun) and isinstance(previous, SoftmaxRun):
            at -= 1  # the first feed-forward layer joins the last attention layer
        for name, value in vars(run).items():
            if name in weights:  # narrower layers leave the other units at 0
                weights[name][(slice(at, at + len(run)), *(slice(size) for size in value.shape[1:]))] = value
        at += len(run)
        previous = run
    return weights
