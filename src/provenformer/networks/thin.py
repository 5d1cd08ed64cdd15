"""Real Transformers of the paper's class: softmax attention with 2 heads of size 1, feed-forward layers with 4 ReLUs.

A `Network` is a tuple of runs, float64 arrays with one entry per layer, as the modified networks are:

    attention      X + sum_h W_O W_V X softmax((W_K X)^T (W_Q X + b_Q))
    feed-forward   X + W_2 ReLU(W_1 X + b_1) + b_2

`evaluate` is the reference: layer by layer, every sum in the order of its index, so that another engine can be compared
with it bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from provenformer.base.arrays import FloatArray, require_sequences
from provenformer.base.errors import ProvenformerError
from provenformer.networks.stack import LayerStack

if TYPE_CHECKING:
    from provenformer.networks.export.torch_module import TransformerBlocks


SMALL_JOB = 1 << 20  # layers times numbers: below this the reference is as fast as loading the compiled engine


@dataclass(frozen=True)
class ReluRun:
    """A run of feed-forward layers."""

    attends: ClassVar[bool] = False
    stage: str
    W_1: FloatArray  # (layers, r, d), r = 4 unless layers were merged
    b_1: FloatArray  # (layers, r)
    W_2: FloatArray  # (layers, d, r)
    b_2: FloatArray  # (layers, d)

    def __len__(self) -> int:
        return len(self.W_2)


@dataclass(frozen=True)
class SoftmaxRun:
    """A run of attention layers with two heads of size one."""

    attends: ClassVar[bool] = True
    stage: str
    W_O: FloatArray  # (layers, 2, d)
    W_V: FloatArray  # (layers, 2, d)
    W_K: FloatArray  # (layers, 2, d)
    W_Q: FloatArray  # (layers, 2, d)
    b_Q: FloatArray  # (layers, 2)

    def __len__(self) -> int:
        return len(self.W_O)


FloatRun = ReluRun | SoftmaxRun


@dataclass(frozen=True)
class Network(LayerStack):
    """g in T^(2,1,r), or in T_P^(2,1,r) when positions are given; r = 4 unless depth was traded for width."""

    token_dim: int
    seq_len: int
    runs: tuple[FloatRun, ...]
    positions: FloatArray | None = None  # E, (d, n)

    @property
    def hidden_dim(self) -> int:
        """r: the widest feed-forward layer; narrower ones are padded with units that are off."""
        return max(int(run.W_1.shape[1]) for run in self.runs if isinstance(run, ReluRun))

    @property
    def nbytes(self) -> int:
        """Memory held by the weights; a weight shared by all layers of a run counts once."""
        arrays = [v for run in self.runs for v in vars(run).values() if isinstance(v, np.ndarray)]
        return sum(a.base.nbytes if 0 in a.strides and a.base is not None else a.nbytes for a in arrays)

    def layer(self, index: int) -> dict[str, FloatArray]:
        """Any single layer as the paper's matrices, by name."""
        run, i = self._find(index)
        return {name: value[i] for name, value in vars(run).items() if isinstance(value, np.ndarray)}

    def to_torch(self) -> TransformerBlocks:
        """A torch module of genuine blocks, float64. Needs the extra `torch`."""
        try:
            from provenformer.networks.export.torch_module import TransformerBlocks
        except ImportError as error:
            raise ProvenformerError("to_torch() needs PyTorch; pip install 'provenformer[torch]'.") from error
        return TransformerBlocks(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model, float64. Needs the extra `onnx`."""
        try:
            from provenformer.networks.export.onnx_model import save_onnx
        except ImportError as error:
            raise ProvenformerError("to_onnx() needs onnx; pip install 'provenformer[onnx]'.") from error
        save_onnx(self, path)

    def __call__(self, x: FloatArray) -> FloatArray:
        """g(x) for x of shape (..., d, n), layer by layer in float64."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        batch = x.reshape(-1, *x.shape[-2:])
        if self.layers * batch.size < SMALL_JOB:
            return evaluate(self, batch).reshape(x.shape)
        from provenformer.networks import engine  # loading the compiler takes longer than a small job

        return engine.evaluate(self, batch).reshape(x.shape)


def evaluate(
    network: Network, x: FloatArray, feed: Callable[[ReluRun, FloatArray], FloatArray] | None = None
) -> FloatArray:
    """The reference evaluation of a batch (batch, d, n); `feed` replaces how a feed-forward run is applied."""
    feed = feed or feed_forward
    batch, d, n = x.shape
    if network.positions is not None:
        x = x + network.positions
    tokens = np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(d, batch * n)  # rows of all tokens side by side
    for run in network.runs:
        if isinstance(run, ReluRun):
            tokens = feed(run, tokens)
        else:
            tokens = attention(run, tokens.reshape(d, batch, n)).reshape(d, batch * n)
    return tokens.reshape(d, batch, n).transpose(1, 0, 2)


def feed_forward(run: ReluRun, tokens: FloatArray) -> FloatArray:
    """A run of feed-forward layers on tokens (d, count). A unit that is off everywhere adds exact zeros: it is skipped."""
    d = len(tokens)
    rows = tokens.copy()
    for i in range(len(run)):
        W_1, b_1, W_2, b_2 = run.W_1[i], run.b_1[i], run.W_2[i], run.b_2[i]
        change: list[FloatArray | None] = [None] * d
        for unit in range(W_1.shape[0]):
            hidden = W_1[unit, 0] * rows[0]
            for k in range(1, d):
                hidden += W_1[unit, k] * rows[k]
            hidden += b_1[unit]
            if hidden.max(initial=0.0) <= 0.0:
                continue
            np.maximum(hidden, 0.0, out=hidden)
            for k in range(d):
                if W_2[k, unit] != 0.0:
                    term, sofar = W_2[k, unit] * hidden, change[k]
                    change[k] = term if sofar is None else sofar + term
        for k in range(d):
            delta = change[k]
            if delta is not None:
                rows[k] += delta
            if b_2[k] != 0.0:
                rows[k] += b_2[k]
    return rows


def attention(run: SoftmaxRun, x: FloatArray) -> FloatArray:
    """A run of attention layers on x (d, batch, n)."""
    d = len(x)
    for i in range(len(run)):
        change = np.zeros_like(x)
        for head in range(run.W_O.shape[1]):
            if not run.W_O[i, head].any():
                continue
            keys, queries, values = (_project(w[i, head], x) for w in (run.W_K, run.W_Q, run.W_V))
            mixed = mix(keys, queries + run.b_Q[i, head], values)
            for k in range(d):
                change[k] += run.W_O[i, head, k] * mixed
        x = x + change
    return x


def mix(keys: FloatArray, queries: FloatArray, values: FloatArray) -> FloatArray:
    """values . softmax(keys^T queries), column by column, for one head of size one; all (batch, n)."""
    scores = keys[:, :, None] * queries[:, None, :]  # (batch, key, query)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray((values[:, :, None] * weights).sum(axis=1))


def _project(weights: FloatArray, x: FloatArray) -> FloatArray:
    out = weights[0] * x[0]
    for k in range(1, len(x)):
        out = out + weights[k] * x[k]
    return np.asarray(out)
