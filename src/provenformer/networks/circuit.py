"""Circuits: a few ordinary blocks on named channels, built from a formula rather than from a table.

A state is (D, n): rows 0..d-1 start as X plus their positions, every other channel as its positions. A block adds the sum of
its heads, then a ReLU feed-forward layer; there is no layer norm. The output is W_out state + b_out. Formats: docs/circuits.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from provenformer.base.arrays import FloatArray, require_sequences
from provenformer.base.errors import ProvenformerError
from provenformer.base.extras import extra
from provenformer.networks.base import FloatNetwork, State
from provenformer.networks.program import Program
from provenformer.networks.stages import INPUT

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

HEAD_SHAPES = {"W_Q": "mD", "b_Q": "m", "W_K": "mD", "W_V": "vD", "W_O": "Dv"}
BLOCK_SHAPES = {"W_1": "rD", "b_1": "r", "W_2": "Dr", "b_2": "D"}
LARGEST_INPUT = {"float64": 2.0**200, "float32": 2.0**60}  # no box of a certificate reaches further
DEEPEST = 24  # folds of a square: 4^-24 is less than float64 sees


@dataclass(frozen=True, eq=False)
class Head:
    """state -> W_O (W_V state) softmax((W_K state)^T (W_Q state + b_Q)); softmax over the keys, for each query."""

    W_Q: FloatArray  # (m, D)
    b_Q: FloatArray  # (m,)
    W_K: FloatArray  # (m, D)
    W_V: FloatArray  # (v, D)
    W_O: FloatArray  # (D, v)

    def weights(self) -> dict[str, FloatArray]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in HEAD_SHAPES}


@dataclass(frozen=True, eq=False)
class CircuitBlock:
    """All heads read the same state and their outputs are added; then state + W_2 relu(W_1 state + b_1) + b_2."""

    heads: tuple[Head, ...]
    W_1: FloatArray  # (r, D)
    b_1: FloatArray  # (r,)
    W_2: FloatArray  # (D, r)
    b_2: FloatArray  # (D,)

    def weights(self) -> dict[str, FloatArray]:
        """The arrays of the feed-forward layer by name."""
        return {name: getattr(self, name) for name in BLOCK_SHAPES}

    @property
    def layers(self) -> int:
        """Layers that do something."""
        return bool(self.heads) + bool(len(self.b_1) or self.b_2.any())


@dataclass(frozen=True, eq=False)
class Claim:
    """The witness: channel `channel` holds, after `layers` layers (two per block), rows @ (value of atom `atom`).

    `rows` is None for the value itself; else (1, n), the same combination of all tokens at every token, or (n, n), or (n,), a
    factor for every token.
    """

    channel: int
    layers: int
    atom: int
    rows: FloatArray | None = None


@dataclass(frozen=True, eq=False, repr=False)
class CircuitNetwork(FloatNetwork):
    """g(X) = W_out state + b_out after all blocks."""

    token_dim: int
    seq_len: int
    circuit_blocks: tuple[CircuitBlock, ...]
    positions: FloatArray  # (D, n), added at the start; never None
    W_out: FloatArray  # (d, D)
    b_out: FloatArray  # (d,)
    channel_names: tuple[str, ...]
    witness: tuple[Claim, ...] = ()
    kernel_steps: tuple[float, ...] = ()  # how the graph of the witness writes sums of kernels over pairs of tokens
    square_depth: int = 0  # how often that graph folds squares

    @property
    def model_dim(self) -> int:
        """D, the number of channels."""
        return len(self.positions)

    @property
    def embedding(self) -> FloatArray:
        """(D, d): the input goes to the first channels."""
        return np.eye(self.model_dim, self.token_dim)

    @property
    def blocks(self) -> int:
        return len(self.circuit_blocks)

    @property
    def layers(self) -> int:
        """Layers that do something."""
        return sum(self.stages.values())

    @property
    def hidden_dim(self) -> int:
        return max((len(b.b_1) for b in self.circuit_blocks), default=0)

    @property
    def heads(self) -> int:
        """Heads of all blocks together."""
        return sum(len(b.heads) for b in self.circuit_blocks)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(h, m, r) of the widest block."""
        heads = max((len(b.heads) for b in self.circuit_blocks), default=0)
        size = max((len(h.b_Q) for b in self.circuit_blocks for h in b.heads), default=0)
        return heads, size, self.hidden_dim

    @property
    def stages(self) -> dict[str, int]:
        """Layers per block: every block is a stage."""
        return {_stage(i): b.layers for i, b in enumerate(self.circuit_blocks)}

    @property
    def hidden_units(self) -> dict[str, int]:
        """Hidden units per block."""
        return {_stage(i): len(b.b_1) for i, b in enumerate(self.circuit_blocks)}

    @property
    def id_channel(self) -> int:
        raise ProvenformerError("a circuit has no ids: its channels hold the values of a formula; see channel_names.")

    @property
    def parameters(self) -> int:
        """All weights of all blocks, the readout, and the positions of those channels that have some."""
        arrays = [self.W_out, self.b_out, self.positions[self.positions.any(axis=1)]]
        for block in self.circuit_blocks:
            arrays += block.weights().values()
            arrays += [v for head in block.heads for v in head.weights().values()]
        return sum(array.size for array in arrays)

    @property
    def constant_channels(self) -> NDArray[np.bool_]:
        """(D,): channels that hold their positions throughout: no input, and never written."""
        constant = np.arange(self.model_dim) >= self.token_dim
        for block in self.circuit_blocks:
            constant &= (block.b_2 == 0) & ~block.W_2.any(axis=1)
            for head in block.heads:
                constant &= ~head.W_O.any(axis=1)
        return constant

    def __call__(self, x: FloatArray) -> FloatArray:
        """g(x) for x of shape (..., d, n), float64."""
        return self.run(x)

    def run(self, x: FloatArray, dtype: DTypeLike = np.float64) -> FloatArray:
        """g(x), every operation in `dtype` (float64 or float32), weights rounded to it; the result as float64."""
        x = require_sequences(x, self.token_dim, self.seq_len)
        largest, limit = float(np.abs(x).max(initial=0.0)), LARGEST_INPUT[np.dtype(dtype).name]
        if largest > limit:
            raise ProvenformerError(
                f"X has an entry of size {largest:.3g}, far beyond any box; above {limit:.3g} numbers may overflow: give smaller."
            )
        return self._program(dtype).run(x.reshape(-1, *x.shape[-2:])).reshape(x.shape)

    def states(self, x: FloatArray, every_attention_layer: bool = False) -> Iterator[State]:
        """After every block (optionally also after its heads), all channels (see FloatNetwork)."""
        program = self._program(np.float64)
        state = program.start(require_sequences(x, self.token_dim, self.seq_len))
        yield State(INPUT, 0, state.swapaxes(0, 1).copy())
        layers = 0
        for i, (block, steps) in enumerate(zip(self.circuit_blocks, program.blocks, strict=True)):
            for half, step in enumerate(steps):
                step(state)
                layers += bool(block.heads) if half == 0 else block.layers - bool(block.heads)
                if half == 1 or (every_attention_layer and block.heads):
                    yield State(_stage(i), layers, state.swapaxes(0, 1).copy())

    def continued(self, stage: str, values: FloatArray) -> FloatArray:
        """The output of the blocks from that of a stage on."""
        first = [_stage(i) for i in range(self.blocks)].index(stage)
        return np.asarray(self._program(np.float64).output(values.swapaxes(0, 1).copy(), first))

    def ids(self, values: FloatArray, direction: FloatArray) -> FloatArray:  # noqa: ARG002
        raise ProvenformerError("a circuit has no ids: its channels hold the values of a formula; see channel_names.")

    def tensors(self) -> dict[str, FloatArray]:
        """Every weight, and the matrices that claims of the witness name."""
        found = {"W_out": self.W_out, "b_out": self.b_out}
        for i, block in enumerate(self.circuit_blocks):
            found |= {f"blocks.{i}.{name}": v for name, v in block.weights().items()}
            for k, head in enumerate(block.heads):
                found |= {f"blocks.{i}.heads.{k}.{name}": v for name, v in head.weights().items()}
        return found | {f"witness.{i}": c.rows for i, c in enumerate(self.witness) if c.rows is not None}

    def layout(self) -> dict[str, Any]:
        """Channels, sizes of every block, and the witness."""
        entries = [
            {"hidden_dim": len(b.b_1), "heads": [[len(h.b_Q), len(h.W_V)] for h in b.heads]}
            for b in self.circuit_blocks
        ]
        claims = [[c.channel, c.layers, c.atom, *_rows_shape(c.rows)] for c in self.witness]
        found = {"channels": list(self.channel_names), "circuit_blocks": entries, "witness": claims}
        steps = {"kernel_steps": list(self.kernel_steps)} if self.kernel_steps else {}
        return found | steps | ({"square_depth": self.square_depth} if self.square_depth else {})

    @classmethod
    def positions_shape(cls, layout: dict[str, Any]) -> tuple[int, int]:
        """Every channel has positions."""
        return len(layout["channels"]), layout["seq_len"]

    @classmethod
    def of_tensors(cls, layout: dict[str, Any], tensors: dict[str, FloatArray], positions: FloatArray | None) -> Self:
        """Shapes and names are those that the layout states, or one clear line."""
        d, n, size = layout["token_dim"], layout["seq_len"], len(layout["channels"])
        rest = dict(tensors)

        def take(prefix: str, shapes: dict[str, str], sizes: dict[str, int]) -> dict[str, FloatArray]:
            found = {}
            for name, letters in shapes.items():
                shape = tuple(sizes[letter] for letter in letters)
                found[name] = rest.pop(prefix + name)
                if found[name].shape != shape:
                    raise ProvenformerError(f"{prefix}{name} does not have shape {shape}; save the network again.")
            return found

        blocks = []
        for i, entry in enumerate(layout["circuit_blocks"]):
            heads = [
                Head(**take(f"blocks.{i}.heads.{k}.", HEAD_SHAPES, {"m": m, "v": v, "D": size}))
                for k, (m, v) in enumerate(entry["heads"])
            ]
            arrays = take(f"blocks.{i}.", BLOCK_SHAPES, {"r": entry["hidden_dim"], "D": size})
            blocks.append(CircuitBlock(tuple(heads), **arrays))
        out = take("", {"W_out": "dD", "b_out": "d"}, {"d": d, "D": size})
        claims = []
        for i, (channel, layers, atom, *rows) in enumerate(layout["witness"]):
            if len(rows) == 1:
                matrix = take("witness.", {str(i): "kn"}, {"k": rows[0], "n": n})[str(i)] if rows[0] else None
            elif rows == [1, 1]:
                matrix = take("witness.", {str(i): "n"}, {"n": n})[str(i)]
            else:
                raise ProvenformerError(
                    f"claim {i} of the witness has {len(rows) + 3} entries; save the network again."
                )
            claims.append(Claim(channel, layers, atom, matrix))
        if rest:
            raise ProvenformerError(
                f"the file has tensors that the manifest does not name ({sorted(rest)}); save again."
            )
        if positions is None or size < d:
            raise ProvenformerError("a circuit needs positions, and a channel for every input row; save it again.")
        names = tuple(map(str, layout["channels"]))
        steps = tuple(map(float, layout.get("kernel_steps", ())))
        depth = int(layout.get("square_depth", 0))
        return cls(d, n, tuple(blocks), positions, out["W_out"], out["b_out"], names, tuple(claims), steps, depth)

    def to_transformer_lens(
        self, values: ArrayLike | None = None, dtype: DTypeLike = np.float64, *, answers: ArrayLike | None = None
    ) -> TransformerBridge:
        """A model of TransformerLens in `dtype`, float64 or float32: token id i is the number, or the d numbers, values[i].

        Logits (batch, n, d) are g(X), transposed; with `answers`, numbers, they are scores (batch, n, answers), the largest
        that of the answer nearest to g(X). Needs the extra `lens`, else raises MissingExtra.
        """
        if values is None:
            raise ProvenformerError(
                "a network does not know what its token ids stand for; give values, or ask the program that it belongs to: "
                "pf.load(folder).to_transformer_lens()."
            )
        with extra("lens", "to_transformer_lens()"):
            from provenformer.networks.export.lens_model import lens_model  # noqa: PLC0415
        return lens_model(self, values, dtype, answers)

    def _program(self, dtype: DTypeLike) -> Program:
        """The network ready to run in one precision, made once."""
        key = np.dtype(dtype).name
        if key not in self._programs:
            self._programs[key] = Program.of(self, np.dtype(dtype))
        return self._programs[key]

    @cached_property
    def _programs(self) -> dict[str, Program]:
        return {}

    def __repr__(self) -> str:
        sizes = f"d={self.token_dim}, n={self.seq_len}, {self.blocks} blocks, {self.heads} heads"
        return f"CircuitNetwork({sizes}, {sum(self.hidden_units.values()):,} units, d_model={self.model_dim})"


def _rows_shape(rows: FloatArray | None) -> list[int]:
    """How the layout tells the shape of a claim's tensor: no rows, so many rows, or a factor for every token."""
    return [0] if rows is None else [len(rows)] if rows.ndim > 1 else [1, 1]


def _stage(block: int) -> str:
    return f"block {block + 1}"
