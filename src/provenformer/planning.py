"""Sizes before building: layers per stage, blocks, parameters, id bits, lost cubes, as exact integers (Section 5.4)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from provenformer.codes import bn_codes, greedy_is_cheap, next_prime
from provenformer.context import Sweep
from provenformer.errors import ProvenformerError
from provenformer.grid import ContextKind, Grid
from provenformer.modified import block_parameters

Construction = Literal["sum", "paper"]
CONSTRUCTIONS: tuple[Construction, ...] = ("sum", "paper")
LAYER_LIMIT = 10_000_000
ATTENTION_LIMIT = 100_000


@dataclass(frozen=True)
class Plan:
    """What a network would cost; nothing is built. Counts are those of the softmax/ReLU network in T^(2,1,4)."""

    grid: Grid
    construction: Construction
    positional: bool
    stages: dict[str, int]  # layers per stage, in order
    attention_layers: int
    contexts: int
    id_bits: int  # of the largest id; for "sum" beyond the greedy codes an upper bound
    lost_share: Fraction  # of the cubes in the box: there the network is 0

    @property
    def layers(self) -> int:
        """All layers, attention and feed-forward."""
        return sum(self.stages.values())

    @property
    def blocks(self) -> int:
        """Blocks t^(2,1,4); the last attention layer and the feed-forward layer after it share one."""
        return self.layers - 1

    @property
    def parameters(self) -> int:
        """Parameters of those blocks, and of the positions."""
        positions = self.grid.token_dim * self.grid.seq_len if self.positional else 0
        return self.blocks * block_parameters(self.grid.token_dim, 2, 1, 4) + positions

    @property
    def residual_layers(self) -> int:
        """Lin & Jegelka (2018) on the flattened input: one residual layer per cube, O(K^n)."""
        return int(self.grid.column_count**self.grid.seq_len)

    @property
    def residual_parameters(self) -> int:
        """Each such layer has one hidden unit on d n inputs: 2 d n + 1 parameters."""
        return self.residual_layers * (2 * self.grid.token_dim * self.grid.seq_len + 1)

    def require_buildable(self, layer_limit: int = LAYER_LIMIT) -> None:
        """Raise when the network is over the size limit."""
        g = self.grid
        what = f"cells_per_axis={g.cells_per_axis} with token_dim={g.token_dim}, seq_len={g.seq_len}"
        if self.attention_layers > ATTENTION_LIMIT:
            raise ProvenformerError(
                f"{what} needs {self.attention_layers:,} attention layers (limit {ATTENTION_LIMIT:,}); "
                "use fewer cells or construction='sum'."
            )
        if self.layers > layer_limit:
            remedy = "use fewer cells" if self.construction == "sum" else "use fewer cells or construction='sum'"
            raise ProvenformerError(
                f"{what} needs {self.layers:,} layers (limit {layer_limit:,}, construction='{self.construction}'); "
                f"{remedy}, or raise max_layers."
            )

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines; big integers stay integers."""
        return {
            **asdict(self.grid),
            "construction": self.construction,
            "positional": self.positional,
            "stages": self.stages,
            "layers": self.layers,
            "blocks": self.blocks,
            "parameters": self.parameters,
            "contexts": self.contexts,
            "id_bits": self.id_bits,
            "lost_share": float(self.lost_share),
            "lost_share_exact": str(self.lost_share),
            "residual_layers": self.residual_layers,
            "residual_parameters": self.residual_parameters,
        }


def require_construction(construction: str) -> None:
    """One clear line for a misspelt construction."""
    if construction not in CONSTRUCTIONS:
        raise ProvenformerError(f"unknown construction '{construction}'; choose one of: {', '.join(CONSTRUCTIONS)}.")


def context_kind(construction: Construction, positional: bool) -> ContextKind:
    """What a construction tells apart."""
    if positional:
        return "sequences"
    return "multisets" if construction == "sum" else "sets"


def plan(
    token_dim: int,
    seq_len: int,
    cells_per_axis: int,
    construction: Construction = "sum",
    positional: bool = False,
) -> Plan:
    """Sizes of a network, instantly, for any size."""
    require_construction(construction)
    grid = Grid(token_dim, seq_len, cells_per_axis)
    d, n, cells, k = grid.token_dim, grid.seq_len, grid.cells_per_axis, grid.column_count
    kind = context_kind(construction, positional)
    columns = n if positional else 1  # windows per cell
    values = grid.column_layers(kind)
    if construction == "sum":
        stages = {
            "rescale": d,
            "quantise": d * (columns * cells + 1),
            "recode": columns * k,
            "contextual map": 1,
            "values": 1 + d + values,
        }
        bits = _sum_id_bits(grid, positional)
    else:
        stages = {"rescale": d}
        stages["quantise"] = d * columns * cells + (0 if positional else d)
        stages["contextual map"] = columns * k + 1
        stages["values"] = values + (0 if positional else 1 + d)
        bits = Sweep(grid, positional).id_bits
    stages["clip"] = d
    lost = Fraction(0) if kind != "sets" else grid.lost_share
    return Plan(grid, construction, positional, stages, stages["contextual map"], grid.count(kind), bits, lost)


def _sum_id_bits(grid: Grid, positional: bool) -> int:
    k, n = grid.column_count, grid.seq_len
    if positional:
        top = n + n * (k - 1) * k ** (n - 1)
        return int((top // n + 1) * (n * (n + 1) // 2 + n * (k**n - 1))).bit_length()
    largest = bn_codes(k, n)[-1] if greedy_is_cheap(k, n) else next_prime(k) ** n
    return (max(2, largest) * n * largest).bit_length()
