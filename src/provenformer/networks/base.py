"""What every float64 network offers, whatever its shape: sizes, states along its layers, its tensors, exports.

A new kind of network is one more subclass; report, explorer, storage and command line then know it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike

from provenformer.base.arrays import FloatArray, HoldsArrays
from provenformer.base.extras import extra

if TYPE_CHECKING:
    from torch import nn


ID, CODE, CODE_SUM, OUTPUT = "id", "code", "sum of codes", "output"  # names of channels (`FloatNetwork.channels`)


@dataclass(frozen=True, eq=False, repr=False)
class State(HoldsArrays):
    """A batch after a number of layers of a network."""

    stage: str
    layers: int  # how many have been applied
    values: FloatArray  # (batch, rows, n); a network with channels of its own shows all of them


class FloatNetwork(ABC):
    """g: (..., d, n) -> same shape, float64, attention with softmax and feed-forward layers with ReLU."""

    token_dim: int
    seq_len: int
    positions: FloatArray | None  # E, (d, n), added to the input

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """(h, m, r): heads, head size, hidden units of the widest layer."""

    @property
    @abstractmethod
    def hidden_dim(self) -> int:
        """r: the widest feed-forward layer."""

    @property
    @abstractmethod
    def layers(self) -> int:
        """How many layers there are, attention and feed-forward."""

    @property
    @abstractmethod
    def blocks(self) -> int:
        """How many blocks t^(h,m,r) they make up."""

    @property
    @abstractmethod
    def parameters(self) -> int:
        """All weights of all blocks, and the positions."""

    @property
    @abstractmethod
    def stages(self) -> dict[str, int]:
        """Layers per stage, in order."""

    @property
    @abstractmethod
    def hidden_units(self) -> dict[str, int]:
        """Hidden units per stage, over all its layers."""

    @property
    @abstractmethod
    def id_channel(self) -> int:
        """A row of the state to which adding 1 adds 1 to the id of a column."""

    @abstractmethod
    def __call__(self, x: FloatArray) -> FloatArray:
        """g(x) for x of shape (..., d, n)."""

    @abstractmethod
    def states(self, x: FloatArray, every_attention_layer: bool = False) -> Iterator[State]:
        """The state of sequences (batch, d, n) at the start and after every stage, optionally every attention layer.

        These are the weights as they are executed: the output in the last state is bit for bit what calling gives.
        """

    @abstractmethod
    def continued(self, stage: str, values: FloatArray) -> FloatArray:
        """The output of the layers from the first of `stage` on, for states (batch, rows, n) before it."""

    @abstractmethod
    def ids(self, values: FloatArray, direction: FloatArray) -> FloatArray:
        """The ids (batch, n) of the columns of states (batch, rows, n); `direction` is u, the id of a column x is u.x."""

    def layer_states(self, x: FloatArray) -> Iterator[State]:
        """As `states`, but as often as the network can say: a network of many small layers after every one of them."""
        return self.states(x, every_attention_layer=True)

    def channels(self, stage: str) -> dict[str, slice]:  # noqa: ARG002
        """The rows of the state that a stage writes, by name; empty where all rows are one column."""
        return {}

    def value_layer(self, column: FloatArray) -> FloatNetwork:  # noqa: ARG002
        """A network whose value stage is only the layer that answers to a column (rows,) of the state before that stage."""
        return self

    @abstractmethod
    def tensors(self) -> dict[str, FloatArray]:
        """The weights by name, as they are saved; positions are saved beside them."""

    @abstractmethod
    def layout(self) -> dict[str, Any]:
        """What one has to know to read those tensors again, as JSON."""

    @classmethod
    def positions_shape(cls, layout: dict[str, Any]) -> tuple[int, int]:
        """What `positions` are, for a layout with token_dim and seq_len: one per entry of the input."""
        return layout["token_dim"], layout["seq_len"]

    @classmethod
    @abstractmethod
    def of_tensors(cls, layout: dict[str, Any], tensors: dict[str, FloatArray], positions: FloatArray | None) -> Self:
        """The inverse of `tensors` and `layout` (with token_dim and seq_len); a tensor too many or too few is refused."""

    def to_torch(self) -> nn.Module:
        """A torch module of genuine blocks, float64. Needs the extra `torch`, else raises MissingExtra."""
        with extra("torch", "to_torch()"):
            from provenformer.networks.export.torch_module import torch_module  # noqa: PLC0415
        return torch_module(self)

    def to_onnx(self, path: str | Path, dtype: DTypeLike = np.float64, batch: int | None = None) -> None:
        """Write an ONNX model, for any number of sequences or for `batch`; float32 for circuits, which have a bound for it.

        Needs the extra `onnx`, else raises MissingExtra.
        """
        with extra("onnx", "to_onnx()"):
            from provenformer.networks.export.onnx_model import save_onnx  # noqa: PLC0415
        save_onnx(self, path, dtype, batch)
