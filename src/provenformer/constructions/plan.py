"""Sizes before building, as exact integers: of tables (Section 5.4: stages, id bits, lost cubes), and of circuits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from provenformer.base.errors import TooLarge
from provenformer.base.exact import size_of
from provenformer.functions.grid import Grid
from provenformer.networks.stack import block_parameters

LAYER_LIMIT = 10_000_000
ATTENTION_LIMIT = 100_000
LONGEST_BITS = 14_000  # of an integer that is written digit by digit: Python reads 4,300 digits back


@dataclass(frozen=True, repr=False)
class Plan:
    """What a network would cost; nothing is built. Counts are those of the softmax/ReLU network."""

    grid: Grid
    construction: str
    positional: bool
    stages: dict[str, int]  # layers per stage, in order
    attention_layers: int
    contexts: int
    id_bits: int  # of the largest id; for "sum" beyond the greedy codes an upper bound
    lost_share: Fraction  # of the cubes in the box: there the network is 0
    hidden_units: tuple[int, ...] = ()  # of the blocks of a wide network

    @property
    def layers(self) -> int:
        """All layers, attention and feed-forward."""
        return sum(self.stages.values())

    @property
    def size(self) -> tuple[int, str]:
        """What size limits count, and its name: layers, or the hidden units of a wide network, which has few layers."""
        return (sum(self.hidden_units), "hidden units") if self.hidden_units else (self.layers, "layers")

    @property
    def hidden_dim(self) -> int:
        """r: 4, or the widest layer of a wide network."""
        return max(self.hidden_units, default=4)

    @property
    def blocks(self) -> int:
        """Blocks; the last attention layer and the feed-forward layer after it share one."""
        return self.layers - 1

    @property
    def parameters(self) -> int:
        """Parameters of those blocks, and of the positions."""
        d = self.grid.token_dim
        positions = d * self.grid.seq_len if self.positional else 0
        if self.hidden_units:
            return sum(block_parameters(2 * d + 3, 1, 1, units) for units in self.hidden_units) + positions
        return self.blocks * block_parameters(d, 2, 1, 4) + positions

    @property
    def residual_layers(self) -> int:
        """Lin & Jegelka (2018) on the flattened input: one residual layer per cube, O(K^n)."""
        return int(self.grid.column_count**self.grid.seq_len)

    @property
    def residual_parameters(self) -> int:
        """Each such layer has one hidden unit on d n inputs: 2 d n + 1 parameters."""
        return self.residual_layers * (2 * self.grid.token_dim * self.grid.seq_len + 1)

    @property
    def way_out(self) -> str:
        """What else a refusal may recommend: a sweep of attention layers can be replaced by a single one."""
        return " or construction='sum'" if self.attention_layers > 1 else ""

    def __repr__(self) -> str:
        g = self.grid
        sizes = f"d={g.token_dim}, n={g.seq_len}, N={g.cells_per_axis}"
        counted = f"{size_of(self.blocks)} blocks, {size_of(self.parameters)} parameters"
        return f"Plan({self.construction}, {sizes}: {counted})"

    def require_buildable(self, layer_limit: int = LAYER_LIMIT) -> None:
        """Raise TooLarge when the network is over the size limit."""
        g = self.grid
        what = f"cells_per_axis={g.cells_per_axis} with token_dim={g.token_dim}, seq_len={g.seq_len}"
        if self.attention_layers > ATTENTION_LIMIT:
            raise TooLarge(
                f"{what} needs {size_of(self.attention_layers)} attention layers (limit {ATTENTION_LIMIT:,}); "
                f"use fewer cells{self.way_out}."
            )
        needed, of = self.size
        if needed > layer_limit:
            raise TooLarge(
                f"{what} needs {size_of(needed)} {of} (limit {layer_limit:,}, construction='{self.construction}'); "
                f"use fewer cells{self.way_out}, or raise max_layers."
            )

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines; big integers stay integers up to 4,300 digits, beyond they are words ("about 10^946,869")."""
        share, short = self.lost_share, self.lost_share.denominator.bit_length() <= LONGEST_BITS
        exact = {
            **asdict(self.grid),
            "construction": self.construction,
            "positional": self.positional,
            "stages": self.stages,
            "layers": self.layers,
            "blocks": self.blocks,
            "parameters": self.parameters,
            "hidden_dim": self.hidden_dim,
            "contexts": self.contexts,
            "id_bits": self.id_bits,
            "lost_share": float(self.lost_share),
            "lost_share_exact": str(share) if short else f"{size_of(share.numerator)} / {size_of(share.denominator)}",
            "residual_layers": self.residual_layers,
            "residual_parameters": self.residual_parameters,
        }
        stages = {name: _in_json(layers) for name, layers in self.stages.items()}
        return {name: _in_json(value) if type(value) is int else value for name, value in exact.items()} | {
            "stages": stages
        }


def _in_json(value: int) -> int | str:
    """As it is, if Python and others can read it back."""
    return value if value.bit_length() <= LONGEST_BITS else size_of(value)


@dataclass(frozen=True, repr=False)
class CircuitPlan:
    """What a circuit would cost; no weight is written. Units and heads are block by block."""

    token_dim: int
    seq_len: int
    channels: int  # d_model
    position_channels: int  # those that do not start at 0
    hidden_units: tuple[int, ...]
    head_sizes: tuple[tuple[tuple[int, int], ...], ...]  # (numbers of a query, numbers of a value) of every head
    choice: str = ""  # one sentence: why a circuit

    @property
    def blocks(self) -> int:
        return len(self.hidden_units)

    @property
    def heads(self) -> int:
        """Of all blocks together."""
        return sum(len(sizes) for sizes in self.head_sizes)

    @property
    def units(self) -> int:
        """ReLUs of all blocks together."""
        return sum(self.hidden_units)

    @property
    def weights(self) -> int:
        """Of all blocks and of the readout."""
        d, size = self.token_dim, self.channels
        units = sum(2 * size * r + r + size for r in self.hidden_units)
        heads = sum(2 * size * (m + v) + m for sizes in self.head_sizes for m, v in sizes)
        return units + heads + d * size + d

    @property
    def parameters(self) -> int:
        """All weights, and the positions of those channels that have some."""
        return self.weights + self.position_channels * self.seq_len

    @property
    def bytes(self) -> int:
        """Of the network in float64, positions of all channels included."""
        return 8 * (self.weights + self.channels * self.seq_len)

    def __repr__(self) -> str:
        sizes = f"{self.blocks:,} blocks, {self.heads:,} heads, {self.units:,} units, {self.parameters:,} parameters"
        return f"CircuitPlan(d={self.token_dim}, n={self.seq_len}: {sizes}; {self.choice})"

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        counted = ("blocks", "heads", "units", "parameters", "bytes")
        return {"construction": "circuit", **asdict(self)} | {name: getattr(self, name) for name in counted}
