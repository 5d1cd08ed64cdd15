"""A network as a plain torch module of genuine blocks: two heads of size one, four hidden units, softmax, ReLU.

Every block is attention then feed-forward with a skip each; a half that a block does not use has W_O = 0, or W_2 = 0 and
b_2 = 0, and so adds nothing. Weights are float64 parameters, stacked over blocks, so `state_dict` is a few tensors.

Rounding: sums may be taken in another order than in the numpy reference. Where the certificate calls sums exact (whole
numbers in cells) the results are equal bit for bit; elsewhere they agree within twice the certified rounding term.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from provenformer.base.arrays import FloatArray
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Head
from provenformer.networks.disguise import Disguised
from provenformer.networks.export.blocks import block_weights
from provenformer.networks.export.pretrained import read_pretrained, save_pretrained
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideBlock, WideNetwork


@singledispatch
def torch_module(network: FloatNetwork) -> nn.Module:
    """The module for a network of its kind."""
    raise TypeError(f"no torch module for {type(network).__name__}")


class TransformerBlocks(nn.Module):
    """g(X) for X of shape (..., d, n), float64."""

    W_O: Tensor  # (blocks, 2, d)
    W_V: Tensor
    W_K: Tensor
    W_Q: Tensor
    b_Q: Tensor  # (blocks, 2)
    W_1: Tensor  # (blocks, r, d), r = 4 unless depth was traded for width
    b_1: Tensor  # (blocks, r)
    W_2: Tensor  # (blocks, d, r)
    b_2: Tensor  # (blocks, d)

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.token_dim, self.seq_len = network.token_dim, network.seq_len
        for name, value in block_weights(network).items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(value)))
        positions = network.positions if network.positions is not None else np.zeros((self.token_dim, self.seq_len))
        self.positions = nn.Parameter(torch.from_numpy(np.array(positions)))

    def forward(self, x: Tensor) -> Tensor:
        """All blocks in order; where no gradient of a weight is asked for, halves that add exact zeros are skipped."""
        if x.shape[-2:] != (self.token_dim, self.seq_len):
            raise ValueError(f"X has shape {tuple(x.shape)}, not (..., {self.token_dim}, {self.seq_len})")
        x = x.to(torch.float64) + self.positions
        trained = torch.is_grad_enabled() and any(weight.requires_grad for weight in self.parameters())
        if trained or torch.compiler.is_compiling():  # b_2 of a layer without an effect has a gradient
            for block in range(self.W_O.shape[0]):
                x = self._feed_forward(block, self._attention(block, x))
            return x
        tokens = x.transpose(-1, -2)  # (..., n, d)
        for first, last in self._pieces():
            if self.W_O[first].any():
                tokens = self._attention(first, tokens.transpose(-1, -2)).transpose(-1, -2)
            tokens = self._sweep(tokens.reshape(-1, self.token_dim), first, last).reshape(tokens.shape)
        return tokens.transpose(-1, -2)

    def _pieces(self) -> list[tuple[int, int]]:
        """The blocks cut into pieces, (first, last + 1): only the first block of a piece attends, all units of a piece read one
        direction, and the blocks that switch a unit on for a token are, from some block on, all that follow.
        """
        W_1, tops = self.W_1, self._tops()
        one_direction = (W_1[:, :1] == W_1).all(dim=-1).all(dim=-1)
        goes_on = (W_1[1:] == W_1[:-1]).all(dim=-1).all(dim=-1) & one_direction[1:] & (tops[1:] >= tops[:-1])
        goes_on &= ~self.W_O[1:].any(dim=-1).any(dim=-1)
        starts = [0, *((~goes_on).nonzero()[:, 0] + 1).tolist()]
        return list(pairwise([*starts, len(W_1)]))

    def _tops(self) -> Tensor:
        """Of every block: a read above minus this switches a unit on; infinite where b_2 always adds something."""
        return self.b_1.amax(dim=-1).masked_fill(self.b_2.any(dim=-1), torch.inf)

    def _sweep(self, tokens: Tensor, first: int, last: int) -> Tensor:
        """The feed-forward layers of a piece: every token (count, d) goes from one layer that changes it straight to the next.

        The layers between have their units off for this token and b_2 = 0: they add exact zeros.
        """
        if last - first == 1:
            return self._feed_forward(first, tokens.T).T
        tops, direction = self._tops()[first:last], self.W_1[first, 0]
        to_come = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
        while True:
            found = torch.searchsorted(tops, -(tokens @ direction), right=True).maximum(to_come)
            meets = (found < last - first).nonzero()[:, 0]
            if not len(meets):
                return tokens
            tokens = tokens.index_copy(0, meets, self._one_layer_each(tokens[meets], first + found[meets]))
            to_come = found + 1

    def _one_layer_each(self, tokens: Tensor, layer: Tensor) -> Tensor:
        """Tokens (count, d), each after a feed-forward layer (count,) of its own."""
        hidden = torch.relu((self.W_1[layer] @ tokens[..., None])[..., 0] + self.b_1[layer])
        return tokens + (self.W_2[layer] @ hidden[..., None])[..., 0] + self.b_2[layer]

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


class WideBlocks(nn.Module):
    """A wide network (networks/wide.py) as ordinary linear layers, float64; `torch.compile` and autograd accept it."""

    def __init__(self, network: WideNetwork) -> None:
        super().__init__()
        self.token_dim, self.seq_len, self.model_dim = network.token_dim, network.seq_len, network.model_dim
        self.blocks = nn.ModuleList(WideTorchBlock(block) for block in network.wide_blocks)
        positions = network.positions if network.positions is not None else np.zeros((self.token_dim, self.seq_len))
        self.positions = nn.Parameter(torch.from_numpy(np.array(positions)))

    def forward(self, x: Tensor) -> Tensor:
        """g(X) for X of shape (..., d, n)."""
        if x.shape[-2:] != (self.token_dim, self.seq_len):
            raise ValueError(f"X has shape {tuple(x.shape)}, not (..., {self.token_dim}, {self.seq_len})")
        tokens = (x.to(torch.float64) + self.positions).transpose(-1, -2)  # tokens in rows, as nn.Linear has them
        state = nn.functional.pad(tokens, (0, self.model_dim - self.token_dim))
        for block in self.blocks:
            state = block(state)
        return state[..., -self.token_dim :].transpose(-1, -2)


class WideTorchBlock(nn.Module):
    """Attention with one head of size one, then a feed-forward layer, each with its skip."""

    def __init__(self, block: WideBlock) -> None:
        super().__init__()
        self.query = _linear(block.W_Q, block.b_Q)
        self.key = _linear(block.W_K)
        self.value = _linear(block.W_V)
        self.output = _linear(block.W_O)
        self.up = _linear(block.W_1, block.b_1)
        self.down = _linear(block.W_2, block.b_2)

    def forward(self, state: Tensor) -> Tensor:
        scores = self.query(state) @ self.key(state).transpose(-1, -2)  # (..., query, key)
        state = state + self.output(torch.softmax(scores, dim=-1) @ self.value(state))
        result: Tensor = state + self.down(torch.relu(self.up(state)))
        return result


class CircuitBlocks(nn.Module):
    """A circuit (networks/circuit.py), float64; `.float()` makes it float32, for which it has a bound of its own."""

    encode: Tensor | None  # (D', D) of a disguised circuit: how its state is made from the circuit's

    def __init__(self, network: CircuitNetwork | Disguised) -> None:
        super().__init__()
        self.token_dim, self.seq_len, self.model_dim = network.token_dim, network.seq_len, network.model_dim
        self.channel_names = network.channel_names
        disguised = network if isinstance(network, Disguised) else None
        self.register_buffer("encode", None if disguised is None else torch.from_numpy(disguised.encode.copy()))
        self.facts: dict[str, Any] = {} if disguised is None else disguised.facts  # what else its folder says
        self.embedding = _linear(network.embedding)  # a plain layer: what verifiers and others read
        self.blocks = nn.ModuleList(CircuitTorchBlock(block) for block in network.circuit_blocks)
        self.positions = nn.Parameter(torch.from_numpy(network.positions.T.copy()))  # (n, D): tokens in rows
        self.readout = _linear(network.W_out, network.b_out)

    def forward(self, x: Tensor) -> Tensor:
        """g(X) for X of shape (..., d, n), in the type of the weights."""
        if x.shape[-2:] != (self.token_dim, self.seq_len):
            raise ValueError(f"X has shape {tuple(x.shape)}, not (..., {self.token_dim}, {self.seq_len})")
        state = self.embedding(x.to(self.positions.dtype).transpose(-1, -2)) + self.positions
        for block in self.blocks:
            state = block(state)
        result: Tensor = self.readout(state).transpose(-1, -2)
        return result

    def save_pretrained(self, path: str | Path) -> None:
        """Write config.json and model.safetensors, as models of transformers are kept; `pf.from_pretrained(path)` reads them."""
        save_pretrained(self, path)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> CircuitBlocks:
        """The module that save_pretrained wrote, in the type that it had."""
        network, dtype = read_pretrained(path)
        return cls(network).to(dtype)


class CircuitTorchBlock(nn.Module):
    """Heads, all of which read the same state, then a feed-forward layer, each with its skip."""

    def __init__(self, block: CircuitBlock) -> None:
        super().__init__()
        self.heads = nn.ModuleList(CircuitHead(head) for head in block.heads)
        self.up = _linear(block.W_1, block.b_1) if len(block.b_1) else None
        self.down = _linear(block.W_2) if len(block.b_1) else None
        self.bias = nn.Parameter(torch.from_numpy(block.b_2.copy()))

    def forward(self, state: Tensor) -> Tensor:
        after = state
        for head in self.heads:
            after = after + head(state)
        if self.up is not None and self.down is not None:
            after = after + self.down(torch.relu(self.up(after)))
        return after + self.bias


class CircuitHead(nn.Module):
    """One head; without queries and keys it averages."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.query = _linear(head.W_Q, head.b_Q) if len(head.b_Q) else None
        self.key = _linear(head.W_K) if len(head.b_Q) else None
        self.value, self.output = _linear(head.W_V), _linear(head.W_O)

    def forward(self, state: Tensor) -> Tensor:
        values: Tensor = self.value(state)
        if self.query is None or self.key is None:
            mixed = values.mean(dim=-2, keepdim=True).expand_as(values)
        else:
            scores = self.query(state) @ self.key(state).transpose(-1, -2)  # (..., query, key)
            mixed = torch.softmax(scores, dim=-1) @ values
        result: Tensor = self.output(mixed)
        return result


def _linear(weight: FloatArray, bias: FloatArray | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.array(weight)))
        if bias is not None:
            layer.bias.copy_(torch.from_numpy(np.array(bias)))
    return layer


torch_module.register(Network, TransformerBlocks)
torch_module.register(WideNetwork, WideBlocks)
torch_module.register(CircuitNetwork, CircuitBlocks)
