"""compile(): the whole pipeline, in the order of the proof.

target -> grid -> piecewise constant (Lemma 8) -> modified network (Lemmas 5, 6, 7) -> certificate -> network (Lemma 9)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.base.exact import ExactArray
from provenformer.bounds.integrals import KINDS, NORM_LIMIT, Kind, best_kind
from provenformer.certificates.certificate import Certificate
from provenformer.certificates.certify import ROUND, Budget, certify, require_float64, softmax_error, with_rounding
from provenformer.checker.verify import executed_rounding
from provenformer.checker.wide import follow
from provenformer.constructions.paper import context, quantize, values
from provenformer.constructions.plan import LAYER_LIMIT, Construction, Plan, context_kind, plan, require_construction
from provenformer.constructions.relax import merge_bumps, relax
from provenformer.constructions.sum import layers as sums
from provenformer.constructions.wide import wide_network
from provenformer.functions.grid import Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.modified import ModifiedNetwork, Run
from provenformer.networks.thin import Network, ReluRun
from provenformer.networks.wide import WideNetwork
from provenformer.storage import save, target_spec

if TYPE_CHECKING:
    from provenformer.networks.export.torch_module import TransformerBlocks, WideBlocks


@dataclass(frozen=True)
class Compiled:
    """A target, the networks built for it, and the certificate of the last one."""

    target: Target
    construction: Construction
    norm_order: float
    plan: Plan
    piecewise: PiecewiseConstant  # f_bar
    modified: ModifiedNetwork  # g_bar: hardmax, three-piece activations, exact
    network: Network | WideNetwork  # g: softmax, ReLU, float64
    certificate: Certificate

    @property
    def grid(self) -> Grid:
        return self.plan.grid

    def to_torch(self) -> TransformerBlocks | WideBlocks:
        """The network as a torch module (see export/torch_module.py)."""
        return self.network.to_torch()

    def save(self, path: str | Path) -> None:
        """Write network, certificate and manifest to a folder (see storage.py)."""
        facts = {
            "construction": self.construction,
            "cells_per_axis": self.grid.cells_per_axis,
            "target": target_spec(self.target),
        }
        save(path, self.network, self.certificate, facts)


def compile(
    target: Target,
    *,
    tolerance: float | None = None,
    norm_order: float = 2,
    cells_per_axis: int | None = None,
    construction: Construction = "sum",
    kind: Kind | None = None,
    hidden_dim: int = 4,
    max_layers: int = LAYER_LIMIT,
    progress: Callable[[str], object] = lambda _: None,
) -> Compiled:
    """A network g with a certificate that d_p(target, g) <= tolerance, as small as certifies; or on a given grid.

    Give `tolerance` or `cells_per_axis`. `kind` asks for a kind of certificate; by default the strongest possible.
    `hidden_dim` = 4 W trades depth for width: 2 W value layers become one. `progress` is told in a few words what is being done.
    """
    require_construction(construction)
    require_norm_order(norm_order)
    if (tolerance is None) == (cells_per_axis is None):
        raise ProvenformerError("give either tolerance or cells_per_axis, and not both.")
    if kind is not None and kind not in KINDS:
        raise ProvenformerError(f"unknown kind '{kind}' of certificate; choose one of: {', '.join(KINDS)}.")
    if not isinstance(hidden_dim, int) or hidden_dim < 4 or hidden_dim % 4:
        raise ProvenformerError(f"hidden_dim={hidden_dim} is not a multiple of 4; give 4 W for W times wider layers.")
    kind = kind or best_kind(target)

    def attempt(cells: int) -> Draft:
        sizes = plan_for(target, cells, construction)
        sizes.require_buildable(max_layers)
        progress(f"{cells} cells per axis, {sizes.layers:,} layers")
        require_float64(sizes.id_bits, construction)
        piecewise = PiecewiseConstant.of(target, sizes.grid, context_kind(construction, sizes.positional))
        modified, budget = BUILDERS[construction](piecewise)
        return Draft(sizes, piecewise, modified, certify(piecewise, norm_order, kind, budget, tolerance))

    target.require_pointwise()
    target.require_equivariance()
    if cells_per_axis is not None:
        draft = attempt(cells_per_axis)
    else:
        draft = smallest_that_certifies(attempt, require_tolerance(tolerance), target, construction, norm_order)
    certificate = draft.certificate
    network: Network | WideNetwork
    if construction == "wide":
        network, certificate = wide_blocks(draft.piecewise, certificate)
    else:
        in_cells = draft.modified if construction == "sum" else paper_network(draft.piecewise, in_cells=True)[0]
        clip_low, clip_high = np.array(certificate.clip_low), np.array(certificate.clip_high)
        network = relax(in_cells, {quantize.STAGE: Fraction(certificate.ramp)}, clip_low, clip_high)
        if hidden_dim > 4:
            network, certificate = merge_values(network, certificate, hidden_dim, target, draft.plan.grid)
    if tolerance is not None and certificate.bound > tolerance:
        raise ProvenformerError(
            f"with hidden_dim={network.hidden_dim} float64 rounding brings the bound to {certificate.bound:.3g} (tolerance "
            f"{tolerance}); use a smaller hidden_dim, construction='sum' or a larger tolerance."
        )
    return Compiled(target, construction, norm_order, draft.plan, draft.piecewise, draft.modified, network, certificate)


def merge_values(
    network: Network, certificate: Certificate, hidden_dim: int, target: Target, grid: Grid
) -> tuple[Network, Certificate]:
    """Value layers with `hidden_dim` units; the rounding term is then read off the new weights.

    Three times: the executed output against the checker's table, that table and the weights each against A.
    """
    runs = tuple(
        merge_bumps(run, hidden_dim) if isinstance(run, ReluRun) and run.stage == values.STAGE and len(run) > 1 else run
        for run in network.runs
    )
    merged = replace(network, runs=runs)
    return merged, with_rounding(certificate, 3 * executed_rounding(merged, target, grid, certificate.ramp), target)


def wide_blocks(piecewise: PiecewiseConstant, certificate: Certificate) -> tuple[WideNetwork, Certificate]:
    """The wide network; its rounding term is read off its weights, as for merged layers."""
    network = wide_network(piecewise, certificate.ramp)
    try:
        table = follow(network, piecewise.target, piecewise.grid, certificate.ramp, piecewise.contexts)
    except Rejected as verdict:
        raise ProvenformerError(
            f"construction='wide' does not fit float64 at this size ({verdict}); use fewer cells or construction='sum'."
        ) from verdict
    return network, with_rounding(certificate, 3 * table.radius, piecewise.target)


@dataclass(frozen=True)
class Draft:
    """Everything up to the certificate, for one grid."""

    plan: Plan
    piecewise: PiecewiseConstant
    modified: ModifiedNetwork
    certificate: Certificate


def smallest_that_certifies(
    attempt: Callable[[int], Draft], tolerance: float, target: Target, construction: Construction, norm_order: float
) -> Draft:
    """The coarsest grid whose certificate is within the tolerance.

    The error of a grid falls about like 1/N (paper: like N^(-d/p)), so each attempt predicts the next; then step down as
    long as the certificate holds.
    """
    cells, best, failed = 2, None, 1
    while best is None:
        if construction == "paper":
            cells = max(cells, _cells_for_lost_cubes(target, norm_order, tolerance))
        draft = attempt(cells)
        if draft.certificate.bound <= tolerance:
            best = draft
        else:
            failed = cells
            fixed = draft.certificate.terms["rounding"] + draft.certificate.terms["softmax"]
            if fixed >= tolerance:
                raise ProvenformerError(
                    f"tolerance={tolerance} is below what float64 rounding allows here ({fixed:.2e}, ids of "
                    f"{draft.certificate.details['id_bits']} bits); use a larger tolerance or fewer tokens."
                )
            predicted = int(np.ceil(0.97 * cells * draft.certificate.bound / tolerance))
            cells = min(max(cells + 1, predicted), 4 * cells)
    while best.plan.grid.cells_per_axis - 1 > failed:
        draft = attempt(best.plan.grid.cells_per_axis - 1)
        if draft.certificate.bound > tolerance:
            break
        best = draft
    return best


def _cells_for_lost_cubes(target: Target, norm_order: float, tolerance: float) -> int:
    """About the smallest N for the paper's construction: there the norm of f over the lost cubes is the tolerance."""
    size = float((np.abs(target(target.sample(4096))) ** norm_order).sum(axis=(1, 2)).mean())
    volume = float(np.prod(target.high - target.low) ** target.seq_len)
    if not target.equivariant or size == 0:
        return 2
    allowed = tolerance**norm_order / (size * volume)

    def too_coarse(cells: int) -> bool:
        return bool(Grid(target.token_dim, target.seq_len, cells).lost_share > allowed)

    low, high = 1, 2
    while too_coarse(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if too_coarse(middle) else (low, middle)
    return high


def require_tolerance(tolerance: float | None) -> float:
    """A positive, finite tolerance."""
    if not isinstance(tolerance, int | float | np.number) or not 0 < tolerance < np.inf:
        raise ProvenformerError(f"tolerance={tolerance} is not a positive number; give the distance you can accept.")
    return float(tolerance)


def plan_for(target: Target, cells_per_axis: int, construction: Construction) -> Plan:
    """The plan for a target: positions iff it is not equivariant."""
    sizes = (target.token_dim, target.seq_len, cells_per_axis)
    return plan(*sizes, construction, positional=not target.equivariant)


def require_norm_order(norm_order: float) -> None:
    """p in [1, inf): the paper's distance is an integral; and float64 must hold the powers."""
    if not isinstance(norm_order, int | float | np.number) or not 1 <= norm_order < np.inf:
        raise ProvenformerError(f"norm_order={norm_order} is outside [1, inf); use a finite p >= 1.")
    if norm_order > NORM_LIMIT:
        raise ProvenformerError(f"norm_order={norm_order} is above the limit {NORM_LIMIT}; use a smaller p.")


def paper_network(piecewise: PiecewiseConstant, in_cells: bool = False) -> tuple[ModifiedNetwork, Budget]:
    """Proposition 4: g_v . g_c . g_q, with positions (Theorem 3) when the target is not equivariant.

    `in_cells` counts in cells instead of the paper's unit interval: the same layers after one that multiplies by N, all
    numbers integers, hence exact in float64 for every N.
    """
    grid, target = piecewise.grid, piecewise.target
    sweep = context.Sweep(grid, positional=not target.equivariant)
    ids = sweep.ids(piecewise.contexts)
    q = sweep.context_ids(ids)
    columns = values.context_columns(sweep, ids, q, piecewise.contexts)
    delta = Fraction(1) if in_cells else grid.cell_width
    scale = values.output_scale(grid.id_vector, piecewise.values, sweep.id_low * delta, delta)
    scaled = piecewise.values / scale  # a power of two: exact
    flat = (q.ravel(), columns.reshape(-1, grid.token_dim), scaled.reshape(-1, grid.token_dim))
    runs: list[Run] = [
        *quantize.rescale(*target.support, length=grid.cells_per_axis if in_cells else 1),
        *(quantize.positional_quantizer(grid, delta) if sweep.positional else quantize.quantizer(grid, delta)),
        *sweep.layers(delta),
        *([] if sweep.positional else values.drop_other_contexts(sweep, delta)),
        values.value_bumps(grid.id_vector, *flat, delta),
        *values.rescale_output(scaled, scale),
    ]
    softmax = softmax_error(sweep.id_high, sweep.gain, sweep.final_gain, grid.column_count, grid.seq_len)
    return _network(piecewise, runs), Budget(sweep.id_high, scale, 0.0, softmax, far_below=0)


def sum_network(piecewise: PiecewiseConstant) -> tuple[ModifiedNetwork, Budget]:
    """The sum construction (docs/sum.md), over multisets or, with positions, over sequences."""
    grid, target = piecewise.grid, piecewise.target
    codes = sums.token_codes(grid, positional=not target.equivariant)
    q = codes.context_ids(piecewise.contexts)
    # One layer per different token of a context: equal tokens have equal ids.
    q, first = np.unique(q.ravel(), return_index=True)
    outputs = piecewise.values.reshape(-1, grid.token_dim)[first]
    columns = np.zeros(outputs.shape, dtype=q.dtype)
    columns[:, 0] = q
    e1 = tuple(quantize.unit(0, grid.token_dim))
    scale = values.output_scale(e1, outputs, Fraction(codes.id_low), Fraction(1))
    scaled = outputs / scale
    runs: list[Run] = [
        *sums.quantizer(grid, codes, *target.support),
        sums.recoder(grid.id_vector, codes),
        sums.sum_attention(grid.id_vector, codes),
        *sums.drop_outside(codes, grid.token_dim),
        values.value_bumps(e1, q, columns, scaled, Fraction(1)),
        *values.rescale_output(scaled, scale),
    ]
    # The uniform mean: n + 4 rounded operations on numbers whose absolute values sum to the id; two more for the skip.
    budget = Budget(codes.id_high, scale, (grid.seq_len + 8) * ROUND, 0.0, codes.far_below)
    return _network(piecewise, runs), budget


def wide_budget(piecewise: PiecewiseConstant) -> tuple[ModifiedNetwork, Budget]:
    """The wide network computes what the sum network does; its ids are ranks, and its rounding is measured later."""
    modified, budget = sum_network(piecewise)
    sizes = plan_for(piecewise.target, piecewise.grid.cells_per_axis, "wide")
    # Ramps of 2^-24 keep the rounding of a code, of size code * 2^24 * N * 2^-53, far below one half.
    return modified, replace(budget, id_high=1 << sizes.id_bits, output_scale=1, far_below=0, ramp_bits=24)


BUILDERS: dict[Construction, Callable[[PiecewiseConstant], tuple[ModifiedNetwork, Budget]]] = {
    "sum": sum_network,
    "paper": paper_network,
    "wide": wide_budget,
}


def _network(piecewise: PiecewiseConstant, runs: list[Run]) -> ModifiedNetwork:
    target = piecewise.target
    d, n = target.token_dim, target.seq_len
    if target.equivariant:
        return ModifiedNetwork(d, n, tuple(runs))
    low, high = target.support
    widths = [Fraction(b) - Fraction(a) for a, b in zip(low, high, strict=True)]
    positions = ExactArray.of([[j * width for j in range(n)] for width in widths])
    return ModifiedNetwork(d, n, tuple(runs), positions, closed_at=high)
