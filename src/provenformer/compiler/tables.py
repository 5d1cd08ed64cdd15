"""The table constructions: the whole pipeline, in the order of the proof.

target -> grid -> piecewise constant (Lemma 8) -> modified network (Lemmas 5, 6, 7) -> certificate -> network (Lemma 9)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.bounds.integrals import best_kind
from provenformer.certificates.certificate import Certificate, in_full, rounded_up
from provenformer.certificates.certify import certify, require_float64
from provenformer.compiler.executed import executed
from provenformer.compiler.request import (
    Request,
    require_hidden_dim,
    require_kind,
    require_norm_order,
    require_tolerance,
    require_whole,
)
from provenformer.compiler.search import Draft, coarsest_that_certifies
from provenformer.constructions import registry
from provenformer.constructions.base import Construction
from provenformer.constructions.plan import Plan
from provenformer.functions.grid import Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import ModifiedNetwork
from provenformer.storage import save, target_spec

if TYPE_CHECKING:
    from torch import nn


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
    choice: str  # one sentence: which construction, and why

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
        claim = f"d_{in_full(self.norm_order)} <= {rounded_up(self.certificate.bound, 3)} ({self.certificate.kind})"
        return f"Compiled({self.target.name!r}, {self.network.blocks:,} blocks, {claim}; {self.choice})"


def compile_table(how: Construction, target: Target, request: Request, choice: str) -> Compiled:
    """The coarsest grid that certifies, or the one that is asked for. See compile()."""
    norm_order = require_norm_order(request.norm_order)
    hidden_dim = require_hidden_dim(request.hidden_dim)
    max_layers = require_whole("max_layers", request.max_layers)
    kind = require_kind(request.kind) or best_kind(target)
    tolerance, cells_per_axis = request.tolerance, request.cells_per_axis
    target.require_vanishing()

    def attempt(cells: int) -> Draft:
        """Everything up to the certificate, on one grid."""
        sizes = plan_for(target, cells, how.name)
        sizes.require_buildable(max_layers)
        request.progress(f"{cells} cells per axis, {sizes.layers:,} layers")
        require_float64(sizes.id_bits, sizes.way_out)
        piecewise = PiecewiseConstant.of(target, sizes.grid, how.contexts(sizes.positional))  # Lemma 8
        blueprint = how.build(piecewise)  # Lemmas 5, 6, 7
        certificate = certify(piecewise, norm_order, kind, blueprint.budget, tolerance)
        return Draft(sizes, piecewise, blueprint.modified, certificate)

    def feasible(cells: int) -> Plan | None:
        try:
            sizes = plan_for(target, cells, how.name)
            sizes.require_buildable(max_layers)
            require_float64(sizes.id_bits)
        except ProvenformerError:
            return None
        return sizes

    if tolerance is not None and cells_per_axis is None:
        fewest = how.fewest_cells(target, norm_order, require_tolerance(tolerance))
        draft = coarsest_that_certifies(attempt, feasible, tolerance, fewest)
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
    certificate = replace(certificate, details={**certificate.details, "choice": choice})
    return Compiled(
        target, how.name, norm_order, draft.plan, draft.piecewise, draft.modified, network, certificate, choice
    )


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
