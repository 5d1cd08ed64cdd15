"""A network as a plain torch module of genuine blocks: two heads of size one, four hidden units, softmax, ReLU.

Every block is attention then feed-forward with a skip each; a half that a block does not use has W_O = 0, or W_2 = 0 and
b_2 = 0, and so adds nothing. Weights are float64 parameters, stacked over blocks, so `state_dict` is a few tensors.

Rounding: sums may be taken in another order than in the numpy reference. Where the certificate calls sums exact (whole
numbers in cells) the results are equal bit for bit; elsewhere they agree within twice the certified rounding term.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from provenformer.network import FloatRun, Network, ReluRun, SoftmaxRun
from provenformer.targets import FloatArray


class TransformerBlocks(nn.Module):
    """g(X) for X of shape (..., d, n), float64."""

    W_O: Tensor  # (blocks, 2, d)
    W_V: Tensor
    W_K: Tensor
    W_Q: Tensor
    b_Q: Tensor  # (blocks, 2)
    W_1: Tensor  # (blocks, 4, d)
    b_1: Tensor  # (blocks, 4)
    W_2: Tensor  # (blocks, d, 4)
    b_2: Tensor  # (blocks, d)

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.token_dim, self.seq_len = network.token_dim, network.seq_len
        for name, value in block_weights(network).items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(value)))
        positions = network.positions if network.positions is not None else np.zeros((self.token_dim, self.seq_len))
        self.positions = nn.Parameter(torch.from_numpy(np.array(positions)))

    def forward(self, x: Tensor) -> Tensor:
        """All blocks in order."""
        if x.shape[-2:] != (self.token_dim, self.seq_len):
            raise ValueError(f"X has shape {tuple(x.shape)}, not (..., {self.token_dim}, {self.seq_len})")
        x = x.to(torch.float64) + self.positions
        for block in range(self.W_O.shape[0]):
            x = self._feed_forward(block, self._attention(block, x))
        return x

    def _attention(self, block: int, x: Tensor) -> Tensor:
        keys = self.W_K[block] @ x  # (..., heads, n)
        queries = self.W_Q[block] @ x + self.b_Q[block, :, None]
        values = self.W_V[block] @ x
        scores = keys[..., :, None] * queries[..., None, :]  # (..., heads, key, query)
        weights = torch.softmax(scores, dim=-2)
        mixed = (values[..., None, :] @ weights)[..., 0, :]  # (..., heads, n)
        return x + self.W_O[block].transpose(0, 1) @ mixed

    def _feed_forward(self, block: int, x: Tensor) -> Tensor:
        hidden = torch.relu(self.W_1[block] @ x + self.b_1[block, :, None])
        return x + self.W_2[block] @ hidden + self.b_2[block, :, None]


def block_weights(network: Network) -> dict[str, FloatArray]:
    """The weights of every block, (blocks, ...): an attention layer shares its block with a feed-forward layer after it."""
    d, blocks = network.token_dim, network.blocks
    shapes = {
        "W_O": (2, d), "W_V": (2, d), "W_K": (2, d), "W_Q": (2, d), "b_Q": (2,),
        "W_1": (4, d), "b_1": (4,), "W_2": (d, 4), "b_2": (d,),
    }  # fmt: skip
    weights = {name: np.zeros((blocks, *shape)) for name, shape in shapes.items()}
    at = 0
    previous: FloatRun | None = None
    for run in (run for run in network.runs if len(run)):
        if isinstance(run, ReluRun) and isinstance(previous, SoftmaxRun):
            at -= 1  # the first feed-forward layer joins the last attention layer
        for name, value in vars(run).items():
            if name in weights:
                weights[name][at : at + len(run)] = value
        at += len(run)
        previous = run
    return weights
