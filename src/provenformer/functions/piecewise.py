"""Step 1: the piecewise constant function f_bar (Lemma 8): on each cube the target's value at the cube's centre.

Values are computed once per context, at the sorted representative for sets and multisets, and permuted back: so f_bar
is exactly equivariant even where the target's own rounding is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from provenformer.base.arrays import FloatArray, HoldsArrays, require_sequences
from provenformer.functions.grid import ContextKind, Grid, IntArray
from provenformer.functions.targets import Target

BATCH = 1 << 16  # contexts evaluated at once: bounds the memory, not the result


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseConstant(HoldsArrays):
    """f_bar on a grid: contexts (count, n) of token ids and the values A_L, (count, n, d)."""

    target: Target
    grid: Grid
    kind: ContextKind
    contexts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, target: Target, grid: Grid, kind: ContextKind) -> PiecewiseConstant:
        """Evaluate the target at the centres of all cubes, in batches."""
        contexts = grid.contexts(kind)
        values = np.empty((*contexts.shape, grid.token_dim))
        for start in range(0, len(contexts), BATCH):
            part = slice(start, start + BATCH)
            values[part] = np.swapaxes(target(cell_centers(target, grid, contexts[part])), -1, -2)
        if kind == "multisets":  # equal tokens have equal values, however the target rounds
            for j in range(1, grid.seq_len):
                same = contexts[:, j] == contexts[:, j - 1]
                values[same, j] = values[same, j - 1]
        return cls(target, grid, kind, contexts, values)

    def __call__(self, x: FloatArray) -> FloatArray:
        """f_bar(x): 0 outside the support; for kind "sets" also 0 where two tokens share a cube (as the paper's network)."""
        x = require_sequences(x, self.grid.token_dim, self.grid.seq_len)
        if not len(self.contexts):  # fewer grid tokens than columns: no context has distinct tokens
            return np.zeros(x.shape)
        cells = self.cells(x.reshape(-1, *x.shape[-2:]))
        ids = np.tensordot(cells, np.array(self.grid.id_vector), axes=(1, 0))  # (batch, n)
        inside = ((cells >= 0) & (cells < self.grid.cells_per_axis)).all(axis=(1, 2))
        order = (
            np.argsort(ids, axis=1) if self.kind != "sequences" else np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        )
        ids = np.take_along_axis(ids, order, axis=1)
        if self.kind == "sets":
            inside &= (np.diff(ids, axis=1) != 0).all(axis=1)
        rank = np.searchsorted(self._keys, self._key(ids))
        picked = self.values[np.minimum(rank, len(self.values) - 1)]  # (batch, n, d), in sorted order
        out = np.zeros_like(picked)
        np.put_along_axis(out, order[..., None], picked, axis=1)
        out[~inside] = 0.0
        return np.swapaxes(out, 1, 2).reshape(x.shape)

    def cells(self, x: FloatArray) -> IntArray:
        """The cell of every coordinate, decided exactly; -1 below the support, N above it."""
        out = np.empty(x.shape, dtype=np.int64)
        for row, edges in enumerate(self._edges):
            out[:, row] = np.searchsorted(edges, x[:, row], side="right") - 1
        if self.kind == "sequences":  # positional domains are closed: the upper end belongs to the last cell
            out[x == self.target.high[:, None]] = self.grid.cells_per_axis - 1
        return out

    @cached_property
    def _edges(self) -> list[FloatArray]:
        """Per row, for each edge low + k (high - low) / N the smallest float64 that is not below it."""
        rows = []
        for low, high in zip(*self.target.support, strict=True):
            width = Fraction(high) - Fraction(low)
            exact = [Fraction(low) + k * width / self.grid.cells_per_axis for k in range(self.grid.cells_per_axis + 1)]
            near = [float(e) for e in exact]
            rows.append(
                np.array([v if Fraction(v) >= e else np.nextafter(v, np.inf) for v, e in zip(near, exact, strict=True)])
            )
        return rows

    def _key(self, ids: IntArray) -> np.ndarray:
        """Ids as one number in base K: increasing along `contexts`."""
        k, n = self.grid.column_count, self.grid.seq_len
        dtype = np.int64 if k**n < 2**62 else object
        return np.asarray(ids.astype(dtype) @ np.array([k ** (n - 1 - j) for j in range(n)], dtype=dtype))

    @cached_property
    def _keys(self) -> np.ndarray:
        return self._key(self.contexts)


def cell_centers(target: Target, grid: Grid, contexts: IntArray) -> FloatArray:
    """The centres of the cubes of contexts (count, n), in the target's coordinates: (count, d, n)."""
    middle = (np.swapaxes(grid.columns(contexts), -1, -2) + 0.5) / grid.cells_per_axis
    return np.asarray(target.low[:, None] + middle * (target.high - target.low)[:, None])
