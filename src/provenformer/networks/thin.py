"""Real Transformers of the paper's class: softmax attention with 2 heads of size 1, feed-forward layers with 4 ReLUs.

A `Network` is a tuple of runs, float64 arrays with one entry per layer, as the modified networks are:

    attention      X + sum_h W_O W_V X softmax((W_K X)^T (W_Q X + b_Q))
    feed-forward   X + W_2 ReLU(W_1 X + b_1) + b_2

`evaluate` is the reference: layer by layer, every sum in the order of its index, so that another engine can be compared
with it bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Self

import numpy as np

from provenformer.base.arrays import FloatArray, HoldsArrays, require_sequences
from provenformer.base.errors import ProvenformerError
from provenformer.networks.base import FloatNetwork, State
from provenformer.networks.stack import LayerStack, first_where
from provenformer.networks.stages import INPUT, VALUES

SMALL_JOB = 1 << 20  # layers times numbers: below this the reference is as fast as loading the compiled engine
FEW_NUMBERS = 128  # numpy takes as long to be called as for these: fewer do not make a job smaller


@dataclass(frozen=True, eq=False, repr=False)
class ReluRun(HoldsArrays):
    """A run of feed-forward layers."""

    kind: ClassVar[str] = "feed-forward"
    attends: ClassVar[bool] = False
    stage: str
    W_1: FloatArray  # (layers, r, d), r = 4 unless layers were merged
    b_1: FloatArray  # (layers, r)
    W_2: FloatArray  # (layers, d, r)
    b_2: FloatArray  # (layers, d)

    def __len__(self) -> int:
        return len(self.W_2)

    @cached_property
    def reads_alike(self) -> bool:
        """Whether its layers share W_1; one that came from another process no longer has it once."""
        return self.W_1.strides[0] == 0 or bool((self.W_1[:1] == self.W_1).all())


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxRun(HoldsArrays):
    """A run of attention layers with two heads of size one."""

    kind: ClassVar[str] = "attention"
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
RUN_KINDS: dict[str, type[ReluRun] | type[SoftmaxRun]] = {run.kind: run for run in (ReluRun, SoftmaxRun)}


def weights(run: FloatRun) -> dict[str, FloatArray]:
    """The arrays of a run by name, (layers, ...) each."""
    return {name: value for name, value in vars(run).items() if isinstance(value, np.ndarray)}


def single(run: FloatRun, index: int) -> FloatRun:
    """A run of only one of its layers."""
    return replace(run, **{name: value[index : index + 1] for name, value in weights(run).items()})  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class Network(LayerStack, FloatNetwork):
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
    def hidden_units(self) -> dict[str, int]:
        """Hidden units per stage, over all its layers."""
        out = dict.fromkeys(self.stages, 0)
        for run in self.runs:
            out[run.stage] += run.W_1.shape[0] * run.W_1.shape[1] if isinstance(run, ReluRun) else 0
        return out

    @property
    def id_channel(self) -> int:
        """The first row: the id of a column is u.x with u_1 = 1."""
        return 0

    @property
    def nbytes(self) -> int:
        """Memory held by the weights; a weight shared by all layers of a run counts once."""
        arrays = [value for run in self.runs for value in weights(run).values()]
        return sum(a.base.nbytes if 0 in a.strides and a.base is not None else a.nbytes for a in arrays)

    def layer(self, index: int) -> dict[str, FloatArray]:
        """Any single layer as the paper's matrices, by name."""
        run, i = self._find(index)
        return {name: value[i] for name, value in weights(run).items()}

    def __call__(self, x: FloatArray) -> FloatArray:
        """g(x) for x of shape (..., d, n), layer by layer."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        batch = x.reshape(-1, *x.shape[-2:])
        if self.layers * max(batch.size, FEW_NUMBERS) < SMALL_JOB:
            return evaluate(self, batch).reshape(x.shape)
        from provenformer.networks import engine  # loading the compiler takes longer than a small job  # noqa: PLC0415

        return engine.evaluate(self, batch).reshape(x.shape)

    def states(self, x: FloatArray, every_attention_layer: bool = False) -> Iterator[State]:
        """Runs of a stage at once, or its attention layers one by one (see FloatNetwork)."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        values = x if self.positions is None else x + self.positions
        yield State(INPUT, 0, values)
        done = 0
        for stage, group in groupby(self.runs, key=lambda run: run.stage):
            runs = tuple(group)
            one_by_one = every_attention_layer and runs[0].attends
            parts = [(single(run, i),) for run in runs for i in range(len(run))] if one_by_one else [runs]
            for part in parts:
                values = Network(self.token_dim, self.seq_len, part)(values)
                done += sum(map(len, part))
                yield State(stage, done, values)

    def layer_states(self, x: FloatArray) -> Iterator[State]:
        """After every layer."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        values = x if self.positions is None else x + self.positions
        yield State(INPUT, 0, values)
        done = 0
        for run in self.runs:
            busy = -1
            for i in range(len(run)):
                if busy < i:
                    busy = next_busy(run, _side_by_side(values), i) if isinstance(run, ReluRun) else i
                if busy == i:
                    values = evaluate(Network(self.token_dim, self.seq_len, (single(run, i),)), values)
                done += 1
                yield State(run.stage, done, values)

    def value_layer(self, column: FloatArray) -> Network:
        """The first layer of the downward sweep that has a unit on."""
        sweep = max((run for run in self.runs if isinstance(run, ReluRun) and run.stage == VALUES), key=len)
        read = float(sweep.W_1[0, 0] @ column)
        answering = single(sweep, int(np.argmax(read + sweep.b_1.max(axis=1) > 0)))
        return Network(self.token_dim, self.seq_len, (answering,))

    def continued(self, stage: str, values: FloatArray) -> FloatArray:
        """The rest of the network from the first run of a stage on."""
        first = [run.stage for run in self.runs].index(stage)
        return Network(self.token_dim, self.seq_len, self.runs[first:])(values)

    def ids(self, values: FloatArray, direction: FloatArray) -> FloatArray:
        """u.x per column."""
        return np.asarray(np.einsum("d,bdn->bn", direction, values))

    def tensors(self) -> dict[str, FloatArray]:
        """One array per run and weight; a weight shared by all layers of a run is stored once."""
        return {
            f"runs.{i}.{name}": value[:1] if value.strides[0] == 0 else value
            for i, run in enumerate(self.runs)
            for name, value in weights(run).items()
        }

    def layout(self) -> dict[str, Any]:
        """Kind, stage and sizes of every run."""
        entries = []
        for run in self.runs:
            width = {"hidden_dim": run.W_1.shape[1]} if isinstance(run, ReluRun) else {}
            entries.append({"kind": run.kind, "stage": run.stage, "layers": len(run), **width})
        return {"runs": entries}

    @classmethod
    def of_tensors(cls, layout: dict[str, Any], tensors: dict[str, FloatArray], positions: FloatArray | None) -> Self:
        """Shapes and names are those that the layout states, or one clear line."""
        d, n = layout["token_dim"], layout["seq_len"]
        counts = [(d, 1), (n, 1), *((entry["layers"], 0) for entry in layout["runs"])]
        if not layout["runs"] or any(isinstance(v, bool) or not isinstance(v, int) or v < low for v, low in counts):
            raise ProvenformerError(
                "token_dim, seq_len or the layers of a run are not whole numbers; save the network again."
            )
        runs: list[FloatRun] = []
        expected: set[str] = set()
        for i, entry in enumerate(layout["runs"]):
            shapes = _shapes(entry["kind"], d, entry.get("hidden_dim", 4))
            names = {name: f"runs.{i}.{name}" for name in shapes}
            expected.update(names.values())
            arrays = {}
            for name, (first, *rest) in ((name, (entry["layers"], *shape)) for name, shape in shapes.items()):
                value = tensors[names[name]]
                if value.shape not in ((first, *rest), (1, *rest)):
                    raise ProvenformerError(
                        f"{names[name]} has shape {value.shape}, not {(first, *rest)}; save the network again."
                    )
                arrays[name] = np.broadcast_to(value, (first, *rest))
            runs.append(RUN_KINDS[entry["kind"]](entry["stage"], **arrays))
        if unknown := sorted(tensors.keys() - expected):
            raise ProvenformerError(f"the file has tensors that the manifest does not name ({unknown}); save again.")
        return cls(d, n, tuple(runs), positions)


def _shapes(kind: str, d: int, r: int) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of one layer."""
    if RUN_KINDS[kind].attends:
        return {"W_O": (2, d), "W_V": (2, d), "W_K": (2, d), "W_Q": (2, d), "b_Q": (2,)}
    return {"W_1": (r, d), "b_1": (r,), "W_2": (d, r), "b_2": (d,)}


def evaluate(
    network: Network, x: FloatArray, feed: Callable[[ReluRun, FloatArray], FloatArray] | None = None
) -> FloatArray:
    """The reference evaluation of a batch (batch, d, n); `feed` replaces how a feed-forward run is applied."""
    feed = feed or feed_forward
    batch, d, n = x.shape
    if network.positions is not None:
        x = x + network.positions
    tokens = _side_by_side(x)
    for run in network.runs:
        if isinstance(run, ReluRun):
            tokens = feed(run, tokens)
        else:
            tokens = attention(run, tokens.reshape(d, batch, n)).reshape(d, batch * n)
    return tokens.reshape(d, batch, n).transpose(1, 0, 2)


def _side_by_side(x: FloatArray) -> FloatArray:
    """The rows of all tokens of a batch, (d, batch * n)."""
    return np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(x.shape[1], -1)


def next_busy(run: ReluRun, rows: FloatArray, start: int) -> int:
    """The first layer from `start` on that can change one of these tokens, or the number of layers.

    Layers that share W_1 see the same numbers until one of them changes a token. Rounding is monotone, so a unit that is off
    at the largest of them is off everywhere.
    """
    if len(run) <= 1 or not run.reads_alike:
        return start
    seen = run.W_1[0, :, :1] * rows[0]
    for k in range(1, len(rows)):
        seen += run.W_1[0, :, k : k + 1] * rows[k]
    top = seen.max(axis=1, initial=-np.inf)
    return first_where(
        lambda at: ~((top + run.b_1[at] <= 0.0).all(axis=1) & (run.b_2[at] == 0.0).all(axis=1)), start, len(run)
    )


def feed_forward(run: ReluRun, tokens: FloatArray) -> FloatArray:
    """A run of feed-forward layers on tokens (d, count). A unit that is off everywhere adds exact zeros: it is skipped."""
    d = len(tokens)
    rows = tokens.copy()
    i = -1
    while (i := next_busy(run, rows, i + 1)) < len(run):
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
