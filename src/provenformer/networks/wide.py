"""Wide networks: a few blocks with channels of their own for input, names and output, and many hidden units.

Attention has one head of size one. How such a network is built: constructions/wide.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from provenformer.base.arrays import FloatArray, require_sequences
from provenformer.base.errors import ProvenformerError

if TYPE_CHECKING:
    from provenformer.networks.export.torch_module import WideBlocks


@dataclass(frozen=True)
class WideBlock:
    """An attention layer with one head of size one, then a feed-forward layer, both with skips."""

    stage: str
    W_O: FloatArray  # (D, 1)
    W_V: FloatArray  # (1, D)
    W_K: FloatArray  # (1, D)
    W_Q: FloatArray  # (1, D)
    b_Q: FloatArray  # (1,)
    W_1: FloatArray  # (r, D)
    b_1: FloatArray  # (r,)
    W_2: FloatArray  # (D, r)
    b_2: FloatArray  # (D,)


@dataclass(frozen=True)
class WideNetwork:
    """g(X): rows 0..d-1 of the state start as X (plus positions), the others as 0; the last d rows are the output."""

    token_dim: int
    seq_len: int
    wide_blocks: tuple[WideBlock, ...]
    positions: FloatArray | None = None

    @property
    def model_dim(self) -> int:
        """D, the number of channels."""
        return len(self.wide_blocks[0].b_2)

    @property
    def blocks(self) -> int:
        return len(self.wide_blocks)

    @property
    def layers(self) -> int:
        """Layers that do something: one feed-forward layer per block, and the attention layers that are on."""
        return self.blocks + sum(bool(b.W_O.any()) for b in self.wide_blocks)

    @property
    def hidden_dim(self) -> int:
        return max(len(b.b_1) for b in self.wide_blocks)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(h, m, r)."""
        return (1, 1, self.hidden_dim)

    @property
    def stages(self) -> dict[str, int]:
        """Hidden units per block."""
        return {b.stage: len(b.b_1) for b in self.wide_blocks}

    @property
    def parameters(self) -> int:
        """All weights of all blocks, and the positions."""
        count = sum(v.size for b in self.wide_blocks for v in vars(b).values() if isinstance(v, np.ndarray))
        return count + (0 if self.positions is None else self.positions.size)

    def __call__(self, x: FloatArray) -> FloatArray:
        """g(x) for x of shape (..., d, n), float64."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        batch = x.reshape(-1, *x.shape[-2:])
        parts = [self._run(batch[i : i + CHUNK]) for i in range(0, len(batch), CHUNK)]
        return (np.concatenate(parts) if parts else batch).reshape(x.shape)

    def start(self, x: FloatArray) -> FloatArray:
        """The state (batch, D, n) before the first block, for a batch (batch, d, n)."""
        state = np.zeros((len(x), self.model_dim, self.seq_len))
        state[:, : self.token_dim] = x if self.positions is None else x + self.positions
        return state

    def steps(self, state: FloatArray) -> Iterator[tuple[str, int, FloatArray]]:
        """Stage, layers done and state (batch, D, n) after every block, from a given state."""
        layers = 0
        for block in self.wide_blocks:
            if block.W_O.any():
                keys, queries, values = (w @ state for w in (block.W_K, block.W_Q, block.W_V))  # (batch, 1, n)
                scores = np.swapaxes(keys, 1, 2) * (queries + block.b_Q[:, None])
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                state = state + block.W_O @ (values @ weights)
                layers += 1
            hidden = np.maximum(block.W_1 @ state + block.b_1[:, None], 0.0)
            state = state + block.W_2 @ hidden + block.b_2[:, None]
            layers += 1
            yield block.stage, layers, state

    def _run(self, x: FloatArray) -> FloatArray:
        *_, (_, _, state) = self.steps(self.start(x))
        return state[:, -self.token_dim :]

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model, float64. Needs the extra `onnx`."""
        try:
            from provenformer.networks.export.onnx_model import save_onnx
        except ImportError as error:
            raise ProvenformerError("to_onnx() needs onnx; pip install 'provenformer[onnx]'.") from error
        save_onnx(self, path)

    def to_torch(self) -> WideBlocks:
        """A torch module of ordinary linear layers. Needs the extra `torch`."""
        try:
            from provenformer.networks.export.torch_module import WideBlocks
        except ImportError as error:
            raise ProvenformerError("to_torch() needs PyTorch; pip install 'provenformer[torch]'.") from error
        return WideBlocks(self)


CHUNK = 256  # sequences at once: bounds the memory of the hidden layers
