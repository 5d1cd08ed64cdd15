"""construction="paper": the proof to the letter. g_v . g_c . g_q with positions where the target needs them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from provenformer.certificates.certify import Budget, softmax_error
from provenformer.constructions.base import Blueprint, Clip, with_positions
from provenformer.constructions.paper import quantize, values
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.plan import Plan
from provenformer.constructions.relax import TINY_WIDTH, relaxed_tiny
from provenformer.functions.grid import ContextKind, Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import ModifiedNetwork, Run
from provenformer.networks.stages import CLIP, CONTEXT, QUANTISE, RESCALE, VALUES


class Paper:
    """Selective shifts by hardmax attention (Lemma 6). Cubes with a repeated token are lost: the network is 0 there."""

    name = "paper"
    has_temperature = True
    has_channels = False
    drops_outside = True
    in_words = "a sweep of selective shifts, as in the proof"
    ids_in_words = (
        "Selective shifts move one token after the other, until the id of each names token and context. Value layers "
        "answer to ids in [id_low, id_high) only."
    )

    def contexts(self, positional: bool) -> ContextKind:
        return "sequences" if positional else "sets"

    def plan(self, grid: Grid, positional: bool) -> Plan:
        d, kind = grid.token_dim, self.contexts(positional)
        columns = grid.seq_len if positional else 1  # windows per cell
        stages = {
            RESCALE: d,
            QUANTISE: d * columns * grid.cells_per_axis + (0 if positional else d),
            CONTEXT: columns * grid.column_count + 1,
            VALUES: grid.column_layers(kind) + (0 if positional else 1 + d),
            CLIP: d,
        }
        lost = Fraction(0) if positional else grid.lost_share
        bits = Sweep(grid, positional).id_bits
        return Plan(grid, self.name, positional, stages, stages[CONTEXT], grid.count(kind), bits, lost)

    def fewest_cells(self, target: Target, norm_order: float, tolerance: float) -> int:
        """About the smallest N for which the norm of f over the lost cubes is the tolerance."""
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

    def build(self, piecewise: PiecewiseConstant) -> Blueprint:
        return paper_network(piecewise)

    def in_cells(self, piecewise: PiecewiseConstant) -> ModifiedNetwork:
        return paper_network(piecewise, in_cells=True).modified

    def relaxed(self, piecewise: PiecewiseConstant, ramp: float, clip: Clip, hidden_dim: int) -> FloatNetwork:
        return relaxed_tiny(self.in_cells(piecewise), ramp, clip, hidden_dim)

    def rounding_is_known(self, hidden_dim: int) -> bool:
        return hidden_dim == TINY_WIDTH

    def naming(self, grid: Grid, positional: bool) -> Sweep:
        return Sweep(grid, positional)

    def id_range(self, grid: Grid, positional: bool) -> tuple[int, int]:
        sweep = Sweep(grid, positional)
        return sweep.id_low, sweep.id_high


def paper_network(piecewise: PiecewiseConstant, in_cells: bool = False) -> Blueprint:
    """Proposition 4: g_v . g_c . g_q, with positions (Theorem 3) when the target is not equivariant.

    `in_cells` counts in cells instead of the paper's unit interval: the same layers after one that multiplies by N, all
    numbers integers, hence exact in float64 for every N.
    """
    grid, target = piecewise.grid, piecewise.target
    sweep = Sweep(grid, positional=not target.equivariant)
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
    return Blueprint(with_positions(target, runs), Budget(sweep.id_high, scale, 0.0, softmax, far_below=0))
