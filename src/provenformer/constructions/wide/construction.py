"""construction="wide": the sum construction in the shape that ordinary tools like."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from provenformer.constructions.base import Blueprint, Clip
from provenformer.constructions.plan import Plan
from provenformer.constructions.sum.construction import Sum, sum_network
from provenformer.constructions.sum.layers import token_codes
from provenformer.constructions.wide.blocks import wide_network
from provenformer.functions.grid import Grid
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.networks.base import FloatNetwork
from provenformer.networks.stages import CONTEXT, QUANTISE, RECODE, VALUES


class Wide(Sum):
    """What the sum network computes, by staircases on channels of their own."""

    name = "wide"
    has_channels = True
    drops_outside = False
    in_words = "the sum construction as a few ordinary blocks"
    ids_in_words = (
        "Every token gets a code, one uniform attention layer adds them up, and the id becomes the rank of that sum, "
        "times the number of tokens, plus the token: as small as ids can be."
    )

    def plan(self, grid: Grid, positional: bool) -> Plan:
        """Two units per step: at inner cell edges, between tokens (d > 1), between sums, between (context, token) pairs."""
        d, columns = grid.token_dim, grid.seq_len if positional else 1
        kind = self.contexts(positional)
        contexts = grid.count(kind)
        steps = {QUANTISE: d * (columns * grid.cells_per_axis - 1)}
        if d > 1:
            steps[RECODE] = columns * grid.column_count - 1
        steps |= {CONTEXT: contexts - 1, VALUES: grid.column_layers(kind) - 1}
        stages = dict.fromkeys(steps, 1) | {CONTEXT: 2}  # attention and feed-forward
        largest_id = (columns - 1) * grid.cells_per_axis * sum(grid.id_vector) + grid.column_count
        bits = (contexts * largest_id).bit_length()
        units = tuple(2 * count for count in steps.values())
        return Plan(grid, self.name, positional, stages, 1, contexts, bits, Fraction(0), units)

    def build(self, piecewise: PiecewiseConstant) -> Blueprint:
        """Ids are ranks. Ramps of 2^-24 keep the rounding of a code, of size code * 2^24 * N * 2^-53, far below one half."""
        blueprint = sum_network(piecewise)
        bits = self.plan(piecewise.grid, not piecewise.target.equivariant).id_bits
        budget = replace(blueprint.budget, id_high=1 << bits, output_scale=1, far_below=0, ramp_bits=24)
        return replace(blueprint, budget=budget)

    def relaxed(self, piecewise: PiecewiseConstant, ramp: float, clip: Clip, hidden_dim: int) -> FloatNetwork:  # noqa: ARG002
        return wide_network(piecewise, ramp)

    def rounding_is_known(self, hidden_dim: int) -> bool:  # noqa: ARG002
        return False

    def id_range(self, grid: Grid, positional: bool) -> tuple[int, int]:
        """Ranks of contexts, times the number of token ids."""
        names = int(token_codes(grid, positional).ids.max()) + 1
        return 0, grid.count(self.contexts(positional)) * names
