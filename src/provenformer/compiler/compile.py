"""compile(): the whole pipeline, in the order of the proof.

target -> grid -> piecewise constant (Lemma 8) -> modified network (Lemmas 5, 6, 7) -> certificate -> network (Lemma 9)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.bounds.integrals import KINDS, NORM_LIMIT, Kind, best_kind
from provenformer.certificates.certificate import Certificate
from provenformer.certificates.certify import certify, require_float64
from provenformer.compiler.executed import executed
from provenformer.compiler.search import Draft, coarsest_that_certifies
from provenformer.constructions import registry
from provenformer.constructions.base import Construction
from provenformer.constructions.plan import LAYER_LIMIT, Plan
from provenformer.constructions.relax import TINY_WIDTH
from provenformer.functions.grid import Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import ModifiedNetwork
from provenformer.storage import save, target_spec

if TYPE_CHECKING:
    from torch import nn

    from provenformer.compiler.circuit import CompiledCircuit

CIRCUIT = "circuit"
MAX_UNITS = 20_000

WIDTH_LIMIT = 1 << 22  # hidden units of a layer


@dataclass(frozen=True, eq=False, repr=False)
class Compiled:
    """A target, the networks built for it, and the certificate of the last one."""

    target: Target
    construction: str
    norm_order: float
    plan: Plan
    piecewise: PiecewiseConstant  # f_bar
    modified: ModifiedNetwork  # g_bar: hardmax, three-piece activations, exact
    network: FloatNetwork  # g: softmax, ReLU, float64
    certificate: Certificate

    @property
    def grid(self) -> Grid:
        """The grid that was given, or the coarsest that certifies."""
        return self.plan.grid

    def to_torch(self) -> nn.Module:
        """The network as a torch module. Needs the extra `torch`, else raises MissingExtra."""
        return self.network.to_torch()

    def save(self, path: str | Path) -> None:
        """Write network, certificate and manifest to a folder (see storage.py)."""
        facts = {
            "construction": self.construction,
            "cells_per_axis": self.grid.cells_per_axis,
            "target": target_spec(self.target),
        }
        save(path, self.network, self.certificate, facts)

    def __repr__(self) -> str:
        claim = f"d_{self.norm_order:g} <= {self.certificate.bound:.3g} ({self.certificate.kind})"
        return f"Compiled({self.target.name!r}, {self.construction}, {self.network.blocks:,} blocks, {claim})"


@overload
def compile(  # type: ignore[overload-overlap]  # a name in a variable is that of a table construction
    target: Target, *, construction: Literal["circuit"], tolerance: float, norm_order: float = ..., max_units: int = ...,
    progress: Callable[[str], object] = ...,
) -> CompiledCircuit: ...  # fmt: skip
@overload
def compile(
    target: Target, *, tolerance: float | None = ..., norm_order: float = ..., cells_per_axis: int | None = ...,
    construction: str = ..., kind: Kind | None = ..., hidden_dim: int = ..., max_layers: int = ...,
    progress: Callable[[str], object] = ...,
) -> Compiled: ...  # fmt: skip
def compile(
    target: Target,
    *,
    tolerance: float | None = None,
    norm_order: float = 2,
    cells_per_axis: int | None = None,
    construction: str = "sum",
    kind: Kind | None = None,
    hidden_dim: int = TINY_WIDTH,
    max_layers: int = LAYER_LIMIT,
    max_units: int = MAX_UNITS,
    progress: Callable[[str], object] = lambda _: None,
) -> Any:
    """A network g with a certificate that d_p(target, g) <= tolerance, as small as certifies; or on a given grid.

    Give `tolerance` or `cells_per_axis`. `kind` asks for a kind of certificate; by default the strongest possible.
    `hidden_dim` = 4 W trades depth for width: 2 W value layers become one. `progress` is told in a few words what is being done.
    construction="circuit" compiles the formula instead of a table (docs/circuits.md): any n, norm_order up to np.inf, at most
    `max_units` ReLUs; it takes a tolerance, and neither a grid, a kind nor a width.
    Raises ProvenformerError, one line with quantity, limit and remedy, where that cannot be had.
    """
    if construction == CIRCUIT:
        if (
            tolerance is None
            or cells_per_axis is not None
            or hidden_dim != TINY_WIDTH
            or kind not in (None, "rigorous")
        ):
            raise ProvenformerError(
                "construction='circuit' takes a tolerance, and no cells_per_axis, hidden_dim or other kind than 'rigorous'; "
                "leave them out."
            )
        from provenformer.compiler.circuit import compile_circuit  # noqa: PLC0415  (as large as the rest of the library)

        return compile_circuit(
            target, require_tolerance(tolerance), norm_order, require_whole("max_units", max_units), progress
        )
    how = registry.get(construction)
    norm_order = require_norm_order(norm_order)
    hidden_dim = require_hidden_dim(hidden_dim)
    max_layers = require_whole("max_layers", max_layers)
    kind = require_kind(kind) or best_kind(target)
    target.require_pointwise()
    target.require_equivariance()
    target.require_vanishing()

    def attempt(cells: int) -> Draft:
        """Everything up to the certificate, on one grid."""
        sizes = plan_for(target, cells, construction)
        sizes.require_buildable(max_layers)
        progress(f"{cells} cells per axis, {sizes.layers:,} layers")
        require_float64(sizes.id_bits, sizes.way_out)
        piecewise = PiecewiseConstant.of(target, sizes.grid, how.contexts(sizes.positional))  # Lemma 8
        blueprint = how.build(piecewise)  # Lemmas 5, 6, 7
        certificate = certify(piecewise, norm_order, kind, blueprint.budget, tolerance)
        return Draft(sizes, piecewise, blueprint.modified, certificate)

    if tolerance is not None and cells_per_axis is None:
        fewest = how.fewest_cells(target, norm_order, require_tolerance(tolerance))
        draft = coarsest_that_certifies(attempt, tolerance, fewest)
    elif cells_per_axis is not None and tolerance is None:
        draft = attempt(cells_per_axis)
    else:
        raise ProvenformerError("give either tolerance or cells_per_axis, and not both.")
    network, certificate = softmax_relu_network(how, draft.piecewise, draft.certificate, hidden_dim)  # Lemma 9
    if tolerance is not None and certificate.bound > tolerance:
        raise ProvenformerError(
            f"with hidden_dim={network.hidden_dim} float64 rounding brings the bound to {certificate.bound:.3g} (tolerance "
            f"{tolerance}); use a smaller hidden_dim, construction='sum' or a larger tolerance."
        )
    return Compiled(target, construction, norm_order, draft.plan, draft.piecewise, draft.modified, network, certificate)


def softmax_relu_network(
    how: Construction, piecewise: PiecewiseConstant, certificate: Certificate, hidden_dim: int
) -> tuple[FloatNetwork, Certificate]:
    """The network that runs, and its certificate, checked against the finished weights."""
    clip = (np.array(certificate.clip_low), np.array(certificate.clip_high))
    network = how.relaxed(piecewise, certificate.ramp, clip, hidden_dim)
    return network, executed(how, network, piecewise, certificate, hidden_dim)


def plan_for(target: Target, cells_per_axis: int, construction: str) -> Plan:
    """The plan for a target: positions iff it is not equivariant."""
    sizes = (target.token_dim, target.seq_len, cells_per_axis)
    return registry.plan(*sizes, construction, positional=not target.equivariant)


def require_tolerance(tolerance: float) -> float:
    """A positive, finite tolerance."""
    if not _is_number(tolerance) or not 0 < tolerance < np.inf:
        raise ProvenformerError(
            f"tolerance={str(tolerance)[:40]} is not a positive number; give the distance you can accept."
        )
    return float(tolerance)


def require_norm_order(norm_order: float) -> float:
    """p in [1, inf): the paper's distance is an integral; and float64 must hold the powers."""
    if not _is_number(norm_order) or not 1 <= norm_order < np.inf:
        raise ProvenformerError(f"norm_order={str(norm_order)[:40]} is outside [1, inf); use a finite p >= 1.")
    if norm_order > NORM_LIMIT:
        raise ProvenformerError(f"norm_order={norm_order} is above the limit {NORM_LIMIT}; use a smaller p.")
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
