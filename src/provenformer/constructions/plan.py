"""Sizes before building: layers per stage, blocks, parameters, id bits, lost cubes, as exact integers (Section 5.4)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from provenformer.base.errors import ProvenformerError
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.sum.codes import bn_codes, greedy_is_cheap, next_prime
from provenformer.functions.grid import ContextKind, Grid
from provenformer.networks.stack import block_parameters

Construction = Literal["sum", "paper", "wide"]
CONSTRUCTIONS: tuple[Construction, ...] = ("sum", "paper", "wide")
LAYER_LIMIT = 10_000_000
ATTENTION_LIMIT = 100_000


@dataclass(frozen=True)
class Plan:
    """What a network would cost; nothing is built. Counts are those of the softmax/ReLU network."""

    grid: Grid
    construction: Construction
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

    def require_buildable(self, layer_limit: int = LAYER_LIMIT) -> None:
        """Raise when the network is over the size limit."""
        g = self.grid
        what = f"cells_per_axis={g.cells_per_axis} with token_dim={g.token_dim}, seq_len={g.seq_len}"
        if self.attention_layers > ATTENTION_LIMIT:
            raise ProvenformerError(
                f"{what} needs {self.attention_layers:,} attention layers (limit {ATTENTION_LIMIT:,}); "
                "use fewer cells or construction='sum'."
            )
        needed, of = (sum(self.hidden_units), "hidden units") if self.hidden_units else (self.layers, "layers")
        if needed > layer_limit:
            remedy = "use fewer cells or construction='sum'" if self.construction == "paper" else "use fewer cells"
            raise ProvenformerError(
                f"{what} needs {needed:,} {of} (limit {layer_limit:,}, construction='{self.construction}'); "
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
            "hidden_dim": self.hidden_dim,
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
    return "sets" if construction == "paper" else "multisets"


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
    if construction == "wide":
        return _wide_plan(grid, positional, kind)
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


def _wide_plan(grid: Grid, positional: bool, kind: ContextKind) -> Plan:
    """Two units per step: at inner cell edges, between tokens (d > 1), between sums, between (context, token) pairs."""
    d, columns = grid.token_dim, grid.seq_len if positional else 1
    contexts = grid.count(kind)
    steps = {"quantise": d * (columns * grid.cells_per_axis - 1)}
    if d > 1:
        steps["recode"] = columns * grid.column_count - 1
    steps |= {"contextual map": contexts - 1, "values": grid.column_layers(kind) - 1}
    stages = dict.fromkeys(steps, 1) | {"contextual map": 2}  # attention and feed-forward
    largest_id = (columns - 1) * grid.cells_per_axis * sum(grid.id_vector) + grid.column_count
    units = tuple(2 * count for count in steps.values())
    return Plan(grid, "wide", positional, stages, 1, contexts, (contexts * largest_id).bit_length(), Fraction(0), units)


def _sum_id_bits(grid: Grid, positional: bool) -> int:
    k, n = grid.column_count, grid.seq_len
    if positional:
        top = n + n * (k - 1) * k ** (n - 1)
        return int((top // n + 1) * (n * (n + 1) // 2 + n * (k**n - 1))).bit_length()
    largest = bn_codes(k, n)[-1] if greedy_is_cheap(k, n) else next_prime(k) ** n
    return (max(2, largest) * n * largest).bit_length()
