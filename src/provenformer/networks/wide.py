"""Wide networks: a few blocks with channels of their own for input, names and output, and many hidden units.

Attention has one head of size one. How such a network is built: constructions/wide.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from provenformer.base.arrays import FloatArray, HoldsArrays, require_sequences
from provenformer.base.errors import ProvenformerError
from provenformer.networks.base import CODE, CODE_SUM, ID, OUTPUT, FloatNetwork, State
from provenformer.networks.stages import CONTEXT, INPUT, QUANTISE, RECODE, VALUES


@dataclass(frozen=True, eq=False, repr=False)
class WideBlock(HoldsArrays):
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

    @property
    def attends(self) -> bool:
        """Whether the attention layer does anything."""
        return bool(self.W_O.any())

    def weights(self) -> dict[str, FloatArray]:
        """The arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True, eq=False, repr=False)
class WideNetwork(FloatNetwork):
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
        return sum(self.stages.values())

    @property
    def hidden_dim(self) -> int:
        return max(len(b.b_1) for b in self.wide_blocks)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(h, m, r)."""
        return (1, 1, self.hidden_dim)

    @property
    def stages(self) -> dict[str, int]:
        """Layers per stage: every stage is one block."""
        return {b.stage: 1 + b.attends for b in self.wide_blocks}

    @property
    def hidden_units(self) -> dict[str, int]:
        """Hidden units per stage."""
        return {b.stage: len(b.b_1) for b in self.wide_blocks}

    @property
    def id_channel(self) -> int:
        """The first channel after the input's."""
        return self.token_dim

    @property
    def parameters(self) -> int:
        """All weights of all blocks, and the positions."""
        count = sum(value.size for b in self.wide_blocks for value in b.weights().values())
        return count + (0 if self.positions is None else self.positions.size)

    def __call__(self, x: FloatArray) -> FloatArray:
        """g(x) for x of shape (..., d, n), float64."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        batch = x.reshape(-1, *x.shape[-2:])
        parts = [self._output(self.start(batch[i : i + CHUNK])) for i in range(0, len(batch), CHUNK)]
        return (np.concatenate(parts) if parts else batch).reshape(x.shape)

    def start(self, x: FloatArray) -> FloatArray:
        """The state (batch, D, n) before the first block, for a batch (batch, d, n)."""
        state = np.zeros((len(x), self.model_dim, self.seq_len))
        state[:, : self.token_dim] = x if self.positions is None else x + self.positions
        return state

    def states(self, x: FloatArray, every_attention_layer: bool = False) -> Iterator[State]:  # noqa: ARG002
        """After every block, all channels; its one attention layer is not shown on its own (see FloatNetwork)."""
        start = self.start(require_sequences(x, self.token_dim, self.seq_len))
        yield State(INPUT, 0, start)
        yield from self._steps(start)

    def continued(self, stage: str, values: FloatArray) -> FloatArray:
        """The rest of the blocks from that of a stage on."""
        first = [block.stage for block in self.wide_blocks].index(stage)
        return replace(self, wide_blocks=self.wide_blocks[first:])._output(values)

    def ids(self, values: FloatArray, direction: FloatArray) -> FloatArray:  # noqa: ARG002
        """The channel that holds them."""
        return values[:, self.id_channel]

    def channels(self, stage: str) -> dict[str, slice]:
        """Ids, codes, their sum and the output; of one row each, but for the output."""
        d = self.token_dim
        rows = {ID: slice(d, d + 1), CODE: slice(d + 1, d + 2), CODE_SUM: slice(d + 2, d + 3), OUTPUT: slice(-d, None)}
        codes_at_once = RECODE not in self.stages
        written = {
            QUANTISE: [ID, CODE] if codes_at_once else [ID], RECODE: [CODE], CONTEXT: [CODE_SUM, ID], VALUES: [OUTPUT],
        }  # fmt: skip
        return {name: rows[name] for name in written.get(stage, [])}

    def tensors(self) -> dict[str, FloatArray]:
        """Every weight of every block."""
        return {f"blocks.{i}.{name}": v for i, b in enumerate(self.wide_blocks) for name, v in b.weights().items()}

    def layout(self) -> dict[str, Any]:
        """The channels, and stage and width of every block."""
        entries = [{"stage": b.stage, "hidden_dim": len(b.b_1)} for b in self.wide_blocks]
        return {"model_dim": self.model_dim, "wide_blocks": entries}

    @classmethod
    def of_tensors(cls, layout: dict[str, Any], tensors: dict[str, FloatArray], positions: FloatArray | None) -> Self:
        """Shapes and names are those that the layout states, or one clear line."""
        size, blocks = layout["model_dim"], []
        expected: set[str] = set()
        for i, entry in enumerate(layout["wide_blocks"]):
            r = entry["hidden_dim"]
            shapes = {
                "W_O": (size, 1), "W_V": (1, size), "W_K": (1, size), "W_Q": (1, size), "b_Q": (1,),
                "W_1": (r, size), "b_1": (r,), "W_2": (size, r), "b_2": (size,),
            }  # fmt: skip
            arrays = {name: tensors[f"blocks.{i}.{name}"] for name in shapes}
            expected.update(f"blocks.{i}.{name}" for name in shapes)
            for name, shape in shapes.items():
                if arrays[name].shape != shape:
                    raise ProvenformerError(f"blocks.{i}.{name} does not have shape {shape}; save the network again.")
            blocks.append(WideBlock(entry["stage"], **arrays))
        if unknown := sorted(tensors.keys() - expected):
            raise ProvenformerError(f"the file has tensors that the manifest does not name ({unknown}); save again.")
        return cls(layout["token_dim"], layout["seq_len"], tuple(blocks), positions)

    def _steps(self, state: FloatArray) -> Iterator[State]:
        """The state (batch, D, n) after every block, from a given one."""
        layers = 0
        for block in self.wide_blocks:
            if block.attends:
                keys, queries, values = (w @ state for w in (block.W_K, block.W_Q, block.W_V))  # (batch, 1, n)
                scores = np.swapaxes(keys, 1, 2) * (queries + block.b_Q[:, None])
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                state = state + block.W_O @ (values @ weights)
            hidden = np.maximum(block.W_1 @ state + block.b_1[:, None], 0.0)
            state = state + block.W_2 @ hidden + block.b_2[:, None]
            layers += 1 + block.attends
            yield State(block.stage, layers, state)

    def _output(self, state: FloatArray) -> FloatArray:
        *_, last = self._steps(state)
        return last.values[:, -self.token_dim :]

    def __repr__(self) -> str:
        sizes = f"d={self.token_dim}, n={self.seq_len}, {self.blocks} blocks, d_model={self.model_dim}"
        return f"WideNetwork({sizes}, r={self.hidden_dim:,})"


CHUNK = 256  # sequences at once: bounds the memory of the hidden layers
