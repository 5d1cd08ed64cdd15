"""compile(): the whole pipeline, in the order of the proof.

target -> grid -> piecewise constant (Lemma 8) -> modified network (Lemmas 5, 6, 7)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from provenformer import context, quantize, sums, values
from provenformer.errors import ProvenformerError
from provenformer.exact import ExactArray
from provenformer.grid import Grid
from provenformer.modified import ModifiedNetwork, Run
from provenformer.piecewise import PiecewiseConstant
from provenformer.planning import LAYER_LIMIT, Construction, Plan, context_kind, plan, require_construction
from provenformer.targets import Target


@dataclass(frozen=True)
class Compiled:
    """A target and the networks built for it."""

    target: Target
    construction: Construction
    norm_order: float
    plan: Plan
    piecewise: PiecewiseConstant  # f_bar
    modified: ModifiedNetwork  # g_bar

    @property
    def grid(self) -> Grid:
        return self.plan.grid


def compile(
    target: Target,
    *,
    cells_per_axis: int,
    norm_order: float = 2,
    construction: Construction = "sum",
    max_layers: int = LAYER_LIMIT,
) -> Compiled:
    """Build the networks for a target on a grid of `cells_per_axis` cells per axis."""
    require_construction(construction)
    require_norm_order(norm_order)
    sizes = plan_for(target, cells_per_axis, construction)
    sizes.require_buildable(max_layers)
    target.require_equivariance()
    piecewise = PiecewiseConstant.of(target, sizes.grid, context_kind(construction, sizes.positional))
    build = sum_network if construction == "sum" else paper_network
    return Compiled(target, construction, norm_order, sizes, piecewise, build(piecewise))


def plan_for(target: Target, cells_per_axis: int, construction: Construction) -> Plan:
    """The plan for a target: positions iff it is not equivariant."""
    sizes = (target.token_dim, target.seq_len, cells_per_axis)
    return plan(*sizes, construction, positional=not target.equivariant)


def require_norm_order(norm_order: float) -> None:
    """p in [1, inf): the paper's distance is an integral."""
    if not isinstance(norm_order, int | float | np.number) or not 1 <= norm_order < np.inf:
        raise ProvenformerError(f"norm_order={norm_order} is outside [1, inf); use a finite p >= 1.")


def paper_network(piecewise: PiecewiseConstant, in_cells: bool = False) -> ModifiedNetwork:
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
    return _network(piecewise, runs)


def sum_network(piecewise: PiecewiseConstant) -> ModifiedNetwork:
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
    return _network(piecewise, runs)


def _network(piecewise: PiecewiseConstant, runs: list[Run]) -> ModifiedNetwork:
    target = piecewise.target
    d, n = target.token_dim, target.seq_len
    if target.equivariant:
        return ModifiedNetwork(d, n, tuple(runs))
    low, high = target.support
    widths = [Fraction(b) - Fraction(a) for a, b in zip(low, high, strict=True)]
    positions = ExactArray.of([[j * width for j in range(n)] for width in widths])
    return ModifiedNetwork(d, n, tuple(runs), positions, closed_at=high)
