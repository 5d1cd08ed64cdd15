"""All good inputs (those on no ramp) on their way through a network at once: cells, tokens, contexts, outputs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.attention import attend
from provenformer.checker.coordinates import as_float, map_intervals, single_row
from provenformer.checker.points import U, Where, feed_points
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target
from provenformer.networks.thin import Network, ReluRun


class Walk:
    """All good inputs on their way through a network."""

    def __init__(self, network: Network, target: Target, grid: Grid, ramp: float) -> None:
        self.network, self.target, self.grid = network, target, grid
        positional = network.positions is not None
        self.contexts = grid.contexts("sequences" if positional else "multisets")
        # Room for the rounding of a coordinate before it is snapped: inputs this close to an edge count as ramp.
        width = target.high - target.low
        ends = np.abs(target.low) + np.abs(target.high) + grid.seq_len * width + 1
        slack = 48 * U * float((ends * (1 + grid.cells_per_axis / width)).max() + grid.seq_len * grid.cells_per_axis)
        self.slack, self.ramp = Fraction(slack), Fraction(ramp)
        self.lost_share = ramp + 2 * slack  # of each cell
        self.columns = grid.seq_len if positional else 1

    def outputs(self) -> tuple[FloatArray, float]:
        """The output table (contexts, n, d) and a bound on the executed difference from it."""
        cells, rest = self.collapse_cells()
        tokens, radius = self._tokens(cells)
        state: FloatArray | None = None
        # Equal tokens in a sequence without positions: whatever rounding does, it does to both alike.
        alike = self.contexts[:, :, None] == self.contexts[:, None, :]
        if self.columns > 1:
            alike = np.broadcast_to(np.eye(self.grid.seq_len, dtype=bool), alike.shape)
        for where, run in rest:
            if isinstance(run, ReluRun):
                if state is None:
                    tokens, radius = feed_points(where, run, tokens, radius)
                else:
                    flat = (v.reshape(-1, v.shape[-1]) for v in (state, radius))
                    state, radius = (v.reshape(state.shape) for v in feed_points(where, run, *flat))
            else:
                if state is None:
                    state, radius = self._sequences(tokens, radius)
                state, radius = attend(where, run, state, radius, alike)
        if state is None:
            raise Rejected("the network has no attention layer, so it cannot tell contexts apart")
        return state, float(radius.max(initial=0.0))

    def collapse_cells(self) -> tuple[FloatArray, list[tuple[Where, Any]]]:
        """Every cell of every row as a single number (row, cell), and the runs that are left."""
        d, cells = self.grid.token_dim, self.grid.cells_per_axis
        low: list[list[Fraction]] = []
        high: list[list[Fraction]] = []
        for row in range(d):
            start, end = Fraction(float(self.target.low[row])), Fraction(float(self.target.high[row]))
            step = (end - start) / cells
            low.append([])
            high.append([])
            for j in range(self.columns):
                shift = (
                    Fraction(0) if self.network.positions is None else Fraction(float(self.network.positions[row, j]))
                )
                for k in range(cells):
                    rounded = 2 * Fraction(U) * (abs(start) + abs(end) + abs(shift)) if shift else Fraction(0)  # x + E
                    low[row].append(start + shift + (k + self.slack) * step - rounded)
                    high[row].append(start + shift + (k + 1 - self.ramp - self.slack) * step + rounded)
        for index, run in enumerate(self.network.runs):
            where = Where(index, run.stage)
            if all(low == high for low, high in zip(low, high, strict=True)):
                points = np.array([[as_float(v, where) for v in row] for row in low])
                return points, [(Where(i, r.stage), r) for i, r in enumerate(self.network.runs) if i >= index]
            if not isinstance(run, ReluRun):
                raise Rejected(f"{where.layer(0)}: attention comes before the cells are single numbers")
            row = single_row(where, run)
            for i in range(len(run)):
                map_intervals(where, run, i, row, low[row], high[row])
        raise Rejected("the cells are not collapsed to single numbers by coordinate-wise layers")

    def _tokens(self, cells: FloatArray) -> tuple[FloatArray, FloatArray]:
        """All grid tokens, column by column: (columns * K, d)."""
        k, n = self.grid.column_count, self.grid.cells_per_axis
        digits = self.grid.columns(np.arange(k))  # (K, d)
        parts = [
            np.stack([cells[r, j * n + digits[:, r]] for r in range(cells.shape[0])], 1) for j in range(self.columns)
        ]
        tokens = np.concatenate(parts)
        return tokens, np.zeros(tokens.shape)

    def _sequences(self, tokens: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Tokens arranged in all contexts: (contexts, n, d)."""
        offset = np.arange(self.grid.seq_len) * (self.grid.column_count if self.columns > 1 else 0)
        index = self.contexts + offset
        return tokens[index], radius[index]
