"""The sheet on which gadgets write: channels, positions, units and heads, block by block; at the end it becomes a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.parts import Local, Lowered, Part
from provenformer.constructions.plan import CircuitPlan
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head


@dataclass(frozen=True)
class Row:
    """Weights on channels, and a bias."""

    weights: dict[int, float] = field(default_factory=dict)
    bias: float = 0.0

    def plus(self, other: Row) -> Row:
        weights = dict(self.weights)
        for channel, weight in other.weights.items():
            weights[channel] = weights.get(channel, 0.0) + weight
        return Row(weights, self.bias + other.bias)

    def times(self, factor: float) -> Row:
        return Row({channel: factor * weight for channel, weight in self.weights.items()}, factor * self.bias)


@dataclass(eq=False)
class HeadSheet:
    """A head in the making: queries with biases, keys, and (value, channel that it is added to, factor)."""

    queries: Sequence[Row]
    keys: Sequence[Row]
    values: list[tuple[Row, int, float]] = field(default_factory=list)


@dataclass(eq=False)
class _BlockSheet:
    heads: dict[object, HeadSheet] = field(default_factory=dict)
    units: list[tuple[Row, int, float]] = field(default_factory=list)
    bias: dict[int, float] = field(default_factory=dict)


@dataclass(eq=False)
class Sheet:
    """Channels 0 .. d-1 are the inputs. A part made in place has the channel of what it replaces."""

    lowered: Lowered
    in_place: dict[int, int]  # part -> the part whose channel it takes over
    names: list[str] = field(default_factory=list)
    _channels: dict[int, int] = field(default_factory=dict)
    _positions: dict[bytes, int] = field(default_factory=dict)
    _vectors: dict[int, FloatArray] = field(default_factory=dict)
    _blocks: list[_BlockSheet] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._blocks = [_BlockSheet() for _ in range((self.lowered.layers + 1) // 2)]
        for row in range(self.lowered.graph.token_dim):
            self._channels[self.lowered.value(row).index] = self._new(f"input {row}")

    def _new(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def channel_of(self, part: Part) -> int:
        """Where a part is."""
        if part.index not in self._channels:
            before = self.in_place.get(part.index)
            new = self._new(part.name) if before is None else self.channel_of(self.lowered.parts[before])
            self._channels[part.index] = new
        return self._channels[part.index]

    def position(self, values: FloatArray) -> Row:
        """A channel that holds these numbers, one per token, from the start."""
        key = values.tobytes()
        if key not in self._positions:
            self._positions[key] = self._new(f"position {len(self._positions)}")
            self._vectors[self._positions[key]] = values
        return Row({self._positions[key]: 1.0})

    def row(self, x: Local, factor: float = 1.0, bias: float = 0.0) -> Row:
        """factor * x + bias, as read from the channels."""
        weights = {self.channel_of(self.lowered.parts[i]): factor * c for i, c in x.coefficients.items()}
        if len(x.constant) == 1:
            return Row(weights, factor * float(x.constant[0]) + bias)
        return Row(weights, bias).plus(self.position(x.constant).times(factor))

    def unit(self, part: Part, row: Row, factor: float) -> None:
        """factor * relu(row), added to the channel of a part."""
        self._blocks[part.layer // 2 - 1].units.append((row, self.channel_of(part), factor))

    def bias(self, part: Part, value: float) -> None:
        """A number added to the channel of a part, after the units of its block."""
        block = self._blocks[(part.layer + 1) // 2 - 1]
        channel = self.channel_of(part)
        block.bias[channel] = block.bias.get(channel, 0.0) + value

    def head(self, part: Part, key: object, queries: Sequence[Row], keys: Sequence[Row]) -> HeadSheet:
        """The head of that key in the block of a part: one head serves all values that it carries."""
        return self._blocks[(part.layer - 1) // 2].heads.setdefault(key, HeadSheet(queries, keys))

    def _readout(self) -> list[Row]:
        """The outputs, as read from the channels; may still add positions."""
        return [self.row(x) for x in self.lowered.outputs]

    def plan(self) -> CircuitPlan:
        """The sizes of `network`, without an array of weights."""
        graph = self.lowered.graph
        self._readout()
        return CircuitPlan(
            graph.token_dim, graph.seq_len, len(self.names), sum(bool(v.any()) for v in self._vectors.values()),
            tuple(len(block.units) for block in self._blocks),
            tuple(tuple((len(head.queries), len(head.values)) for head in block.heads.values()) for block in self._blocks),
        )  # fmt: skip

    def network(self, gadget_parts: Sequence[Part]) -> CircuitNetwork:
        """All that was written, as a network; gadget_parts are the parts that were made, in order."""
        graph = self.lowered.graph
        readout = self._readout()
        size = len(self.names)
        positions = np.zeros((size, graph.seq_len))
        for channel, values in self._vectors.items():
            positions[channel] = values
        claims = [
            Claim(self.channel_of(p), p.layer, p.atom.number, p.rows) for p in sorted(gadget_parts, key=lambda p: p.layer)
            if p.layer
        ]  # fmt: skip
        return CircuitNetwork(
            graph.token_dim, graph.seq_len, tuple(_block(block, size) for block in self._blocks), positions,
            _matrix(readout, size), _biases(readout), tuple(self.names), tuple(claims), graph.steps, graph.depth,
        )  # fmt: skip


def _matrix(rows: Sequence[Row], size: int) -> FloatArray:
    found = np.zeros((len(rows), size))
    for i, row in enumerate(rows):
        for channel, weight in row.weights.items():
            found[i, channel] = weight
    return found


def _biases(rows: Sequence[Row]) -> FloatArray:
    return np.array([row.bias for row in rows], dtype=np.float64)


def _block(sheet: _BlockSheet, size: int) -> CircuitBlock:
    heads = []
    for head in sheet.heads.values():
        W_O = np.zeros((size, len(head.values)))
        for i, (_, channel, factor) in enumerate(head.values):
            W_O[channel, i] = factor
        values = [row for row, _, _ in head.values]
        heads.append(
            Head(
                _matrix(head.queries, size), _biases(head.queries), _matrix(head.keys, size), _matrix(values, size), W_O
            )
        )
    rows = [row for row, _, _ in sheet.units]
    W_2, b_2 = np.zeros((size, len(rows))), np.zeros(size)
    for i, (_, channel, factor) in enumerate(sheet.units):
        W_2[channel, i] = factor
    for channel, value in sheet.bias.items():
        b_2[channel] = value
    return CircuitBlock(tuple(heads), _matrix(rows, size), _biases(rows), W_2, b_2)
