"""The constructions by name. A new one is a folder and a line here."""

from __future__ import annotations

from provenformer.base.errors import ProvenformerError
from provenformer.constructions.base import Construction
from provenformer.constructions.paper.construction import Paper
from provenformer.constructions.plan import Plan
from provenformer.constructions.sum.construction import Sum
from provenformer.constructions.wide.construction import Wide
from provenformer.functions.grid import Grid

CONSTRUCTIONS: dict[str, Construction] = {each.name: each for each in (Sum(), Paper(), Wide())}
NAMES = tuple(CONSTRUCTIONS)


def get(name: str) -> Construction:
    """The construction of that name; a misspelt one is a ProvenformerError."""
    if not isinstance(name, str) or name not in CONSTRUCTIONS:
        raise ProvenformerError(f"unknown construction '{name}'; choose one of: {', '.join(NAMES)}.")
    return CONSTRUCTIONS[name]


def plan(
    token_dim: int, seq_len: int, cells_per_axis: int, construction: str = "sum", positional: bool = False
) -> Plan:
    """Sizes of a network, instantly, for any size; nothing is built. A ProvenformerError names a size out of range."""
    return get(construction).plan(Grid(token_dim, seq_len, cells_per_axis), positional)
