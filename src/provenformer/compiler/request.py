"""What compile() is asked for beside the function, and the limits of each of these numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.bounds.integrals import KINDS, NORM_LIMIT, Kind
from provenformer.constructions.plan import LAYER_LIMIT
from provenformer.constructions.relax import TINY_WIDTH
from provenformer.networks.circuit import DEEPEST

MAX_UNITS = 20_000
WIDTH_LIMIT = 1 << 22  # hidden units of a layer


@dataclass(frozen=True)
class Request:
    """As the user wrote it; every construction checks what it uses."""

    tolerance: float | None = None
    norm_order: float = 2
    cells_per_axis: int | None = None
    kind: Kind | None = None
    hidden_dim: int = TINY_WIDTH
    max_layers: int = LAYER_LIMIT
    max_units: int = MAX_UNITS
    depth: int = 0
    progress: Callable[[str], object] = lambda _: None


def require_tolerance(tolerance: float | None) -> float:
    """A positive, finite tolerance."""
    if tolerance is None or not _is_number(tolerance) or not 0 < tolerance < np.inf:
        raise ProvenformerError(
            f"tolerance={str(tolerance)[:40]} is not a positive number; give the distance you can accept."
        )
    return float(tolerance)


def require_norm_order(norm_order: float, *, up_to_sup: bool = False) -> float:
    """p in [1, inf), the paper's distance is an integral, or [1, inf]; float64 must hold the powers."""
    if up_to_sup and isinstance(norm_order, float | np.floating) and norm_order == np.inf:
        return float(np.inf)
    end, way_out = ("inf]", "p >= 1 or np.inf") if up_to_sup else ("inf)", "a finite p >= 1")
    if not _is_number(norm_order) or not 1 <= norm_order < np.inf:
        raise ProvenformerError(f"norm_order={str(norm_order)[:40]} is outside [1, {end}; use {way_out}.")
    if norm_order > NORM_LIMIT:
        other = " or np.inf" if up_to_sup else ""
        raise ProvenformerError(f"norm_order={norm_order} is above the limit {NORM_LIMIT}; use a smaller p{other}.")
    return norm_order.item() if isinstance(norm_order, np.generic) else norm_order


def require_hidden_dim(hidden_dim: int) -> int:
    """4 W."""
    if require_whole("hidden_dim", hidden_dim) < TINY_WIDTH or hidden_dim % TINY_WIDTH:
        raise ProvenformerError(f"hidden_dim={hidden_dim} is not a multiple of 4; give 4 W for W times wider layers.")
    if hidden_dim > WIDTH_LIMIT:
        raise ProvenformerError(
            f"hidden_dim={hidden_dim:,} is above the limit {WIDTH_LIMIT:,}; give fewer hidden units."
        )
    return int(hidden_dim)


def require_whole(name: str, value: int) -> int:
    """A whole number, numpy's included, as Python's."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ProvenformerError(f"{name}={str(value)[:40]} is not a whole number; give an integer.")
    return int(value)


def require_depth(depth: int) -> int:
    """How often squares are folded."""
    if not 0 <= require_whole("depth", depth) <= DEEPEST:
        raise ProvenformerError(f"depth={depth} is outside 0 .. {DEEPEST}; give how often squares are folded.")
    return int(depth)


def _is_number(value: object) -> bool:
    """A real number that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:  # a whole number beyond it
        return False


def require_kind(kind: Kind | None) -> Kind | None:
    """A kind of certificate that there is, or none asked for."""
    if kind is not None and kind not in KINDS:
        raise ProvenformerError(f"unknown kind '{kind}' of certificate; choose one of: {', '.join(KINDS)}.")
    return kind
