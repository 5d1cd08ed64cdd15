"""Circuits in disguise: the same computation with weights as trained models have them (docs/drift.md has the proofs).

The residual stream may be rotated (no channel has a meaning of its own), compressed to the directions that are both written and
read, and every weight may carry noise. encode @ (state of the circuit) is the state here, up to an error, and `decode` leads back
for the channels that are `recovered`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from provenformer.base.arrays import FloatArray, HoldsArrays
from provenformer.base.extras import extra
from provenformer.functions.tokens import stored_tokens
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Head
from provenformer.networks.inside import distinct_names

if TYPE_CHECKING:
    from torch import nn
    from transformer_lens.model_bridge import TransformerBridge

SAME_DIRECTION = 1e-10  # singular values below this share of the largest are rounding
SAME_NUMBER = 1e-8  # of an entry of a projection: a channel that is missed differs by far more
Kind = TypeVar("Kind", bound="Disguised")


@dataclass(frozen=True, eq=False, repr=False)
class Disguised(HoldsArrays):
    """An ordinary Transformer: embedding and positions, blocks, readout. `bounds` are those on the distance from the target.

    state = encode @ (state of the circuit), and decode @ state is what the channels of the circuit hold, which
    `channel_names` names. Compression keeps of some channels only combinations that something reads: their rows of `decode`
    are nan, and `recovered` names the others.
    """

    token_dim: int
    seq_len: int
    embedding: FloatArray  # (D', d)
    positions: FloatArray  # (D', n)
    circuit_blocks: tuple[CircuitBlock, ...]
    W_out: FloatArray  # (d, D')
    b_out: FloatArray
    encode: FloatArray  # (D', D)
    channel_names: tuple[str, ...]  # of the circuit, each once
    recovered: tuple[str, ...]
    noise: float = 0.0  # of every weight, relative to the largest of its matrix
    bounds: dict[str, float] = field(default_factory=dict)

    @property
    def model_dim(self) -> int:
        """D', the width of the residual stream."""
        return len(self.positions)

    @property
    def blocks(self) -> int:
        return len(self.circuit_blocks)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(h, m, r) of the widest block."""
        heads = max((len(b.heads) for b in self.circuit_blocks), default=0)
        size = max((len(h.b_Q) for b in self.circuit_blocks for h in b.heads), default=0)
        return heads, size, max((len(b.b_1) for b in self.circuit_blocks), default=0)

    @property
    def decode(self) -> FloatArray:
        """(D, D'): row c gives channel c of the circuit, or nan where what is kept does not tell it."""
        known = np.array([name in self.recovered for name in self.channel_names], dtype=bool)
        return np.where(known[:, None], self.encode.T, np.nan)

    @property
    def facts(self) -> dict[str, Any]:
        """What a file says of it beside weights, `encode` and names of channels."""
        return {"recovered": list(self.recovered)}

    def to_torch(self) -> nn.Module:
        """A torch module, float64; `.float()` for float32. Needs the extra `torch`."""
        with extra("torch", "to_torch()"):
            from provenformer.networks.export.torch_module import CircuitBlocks  # noqa: PLC0415
        return CircuitBlocks(self)

    def save(self, path: str | Path) -> None:
        """Write what `to_torch().save_pretrained(path)` does, and noise and bounds; `pf.load_disguised(path)` reads it."""
        with extra("torch", "save()"):
            from provenformer.networks.export.pretrained import save_pretrained  # noqa: PLC0415
            from provenformer.networks.export.torch_module import CircuitBlocks  # noqa: PLC0415
        bounds = {name: bound for name, bound in self.bounds.items() if np.isfinite(bound)}
        save_pretrained(CircuitBlocks(self), path, {"noise": self.noise, "bounds": bounds})

    def in_precision(self, dtype: DTypeLike) -> Self:
        """All weights rounded to `dtype`, as float64."""
        return self.mapped(lambda weight: weight.astype(dtype).astype(np.float64))

    def mapped(self, change: Callable[[FloatArray], FloatArray]) -> Self:
        """Every weight changed by a function, in one fixed order."""
        blocks = []
        for block in self.circuit_blocks:
            heads = tuple(
                Head(**{name: change(value) for name, value in head.weights().items()}) for head in block.heads
            )
            blocks.append(CircuitBlock(heads, **{name: change(value) for name, value in block.weights().items()}))
        embedding, positions, W_out = change(self.embedding), change(self.positions), change(self.W_out)
        return replace(
            self,
            embedding=embedding,
            positions=positions,
            circuit_blocks=tuple(blocks),
            W_out=W_out,
            b_out=change(self.b_out),
        )


@dataclass(frozen=True, eq=False, repr=False)
class DisguisedCircuit(Disguised):
    """Of a circuit on numbers."""

    def to_transformer_lens(
        self, values: ArrayLike, dtype: DTypeLike = np.float64, *, answers: ArrayLike | None = None
    ) -> TransformerBridge:
        """A model of TransformerLens: token id i is the number, or the d numbers, values[i]. Needs the extra `lens`."""
        with extra("lens", "to_transformer_lens()"):
            from provenformer.networks.export.lens_model import lens_model  # noqa: PLC0415
        return lens_model(self, values, dtype, answers)


@dataclass(frozen=True, eq=False, repr=False)
class DisguisedProgram(Disguised):
    """Of a program on tokens."""

    vocab: tuple[Any, ...] = ()  # as of the program
    pad: Any = None
    numeric: bool = True

    @property
    def facts(self) -> dict[str, Any]:
        output = "numbers" if self.numeric else "tokens"
        return super().facts | {"vocab": stored_tokens(self.vocab), "padded": self.pad is not None, "output": output}

    def to_transformer_lens(self, dtype: DTypeLike = np.float64) -> TransformerBridge:
        """A model of TransformerLens; ids are indices in the vocabulary, logits as of the program. Needs the extra `lens`."""
        with extra("lens", "to_transformer_lens()"):
            from provenformer.networks.export.lens_model import lens_model  # noqa: PLC0415
        tokens = np.arange(len(self.vocab), dtype=np.float64)
        return lens_model(self, tokens, dtype, None if self.numeric else tokens)


def disguise(network: CircuitNetwork, seed: int, rotate: bool, compress: bool) -> Disguised:
    """The network in other coordinates of its residual stream."""
    encode = _directions(network) if compress else np.eye(network.model_dim)
    if rotate:
        gaussian = np.random.default_rng(seed).normal(size=(len(encode), len(encode)))
        encode = np.linalg.qr(gaussian)[0] @ encode
    decode = encode.T.copy()
    blocks = []
    for block in network.circuit_blocks:
        heads = tuple(Head(h.W_Q @ decode, h.b_Q, h.W_K @ decode, h.W_V @ decode, encode @ h.W_O) for h in block.heads)
        blocks.append(CircuitBlock(heads, block.W_1 @ decode, block.b_1, encode @ block.W_2, encode @ block.b_2))
    return Disguised(
        network.token_dim, network.seq_len, encode[:, : network.token_dim].copy(), encode @ network.positions, tuple(blocks),
        network.W_out @ decode, network.b_out, encode, distinct_names(network), _recovered(network, encode),
    )  # fmt: skip


def with_noise(disguised: Kind, noise: float, seed: int) -> Kind:
    """Every weight moved by up to `noise` times the largest weight of its matrix, also those that are 0."""
    rng = np.random.default_rng(seed)

    def moved(weight: FloatArray) -> FloatArray:
        return np.asarray(weight + noise * np.abs(weight).max(initial=0.0) * rng.uniform(-1.0, 1.0, size=weight.shape))

    return replace(disguised.mapped(moved), noise=noise)


def _recovered(network: CircuitNetwork, encode: FloatArray) -> tuple[str, ...]:
    """Channels that encode.T @ encode leaves as they are in every state."""
    missed = np.abs(_written(network) @ (encode.T @ encode - np.eye(network.model_dim))).max(axis=0)
    return tuple(name for name, off in zip(distinct_names(network), missed, strict=True) if off < SAME_NUMBER)


def _written(network: CircuitNetwork) -> FloatArray:
    """Orthonormal rows that span all states: sums of what is embedded and what heads and units write."""
    written = [np.eye(network.model_dim, network.token_dim), network.positions]
    for block in network.circuit_blocks:
        written += [*(h.W_O for h in block.heads), block.W_2, block.b_2[:, None]]
    return _row_basis(np.concatenate(written, axis=1).T)


def _directions(network: CircuitNetwork) -> FloatArray:
    """(r, D), orthonormal rows: what of the states' span is read by anything."""
    read = [network.W_out]
    for block in network.circuit_blocks:
        read += [*(w for h in block.heads for w in (h.W_Q, h.W_K, h.W_V)), block.W_1]
    span = _written(network)
    return np.asarray(_row_basis(np.concatenate(read) @ span.T) @ span)


def _row_basis(rows: FloatArray) -> FloatArray:
    """Orthonormal rows with the same span; rows count by their directions, not by their sizes."""
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    _, values, basis = np.linalg.svd(rows[sizes[:, 0] > 0] / sizes[sizes[:, 0] > 0], full_matrices=False)
    return np.asarray(basis[values > SAME_DIRECTION * values.max(initial=0.0)])
