"""The cubes of a grid with the values that a network has on them, and how often each counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.functions.grid import Grid, IntArray

SEQUENCE_LIMIT = 1 << 22


@dataclass(frozen=True)
class Cells:
    """Cubes with the value assigned to them: ids (count, n), values (count, d, n), and how often each occurs."""

    grid: Grid
    ids: IntArray
    values: FloatArray
    multiplicity: FloatArray  # permutations of the cube; 1 with positions

    @classmethod
    def of(cls, grid: Grid, ids: IntArray, values: FloatArray, positional: bool, trusted: bool = True) -> Cells:
        """`values` (count, n, d) for contexts that cover the box: all multisets, or all sequences."""
        if not trusted and not positional:
            ids, values = _every_order(grid, ids, values)
            positional = True
        if positional:
            count = np.ones(len(ids))
        else:
            same = ids[:, :, None] == ids[:, None, :]
            # n! / prod(m_i!): the j-th of equal tokens contributes its rank among them. Factor by factor in float64, since
            # 21! does not fit 64 bits; the rounding is covered by _SUM_SLACK of integrals.py.
            rank = np.tril(same).sum(axis=2)
            count = (np.arange(1, grid.seq_len + 1) / rank).prod(axis=1)
        return cls(grid, ids, np.ascontiguousarray(np.swapaxes(values, 1, 2)), count)

    def __getitem__(self, part: Any) -> Cells:
        return Cells(self.grid, self.ids[part], self.values[part], self.multiplicity[part])


def _every_order(grid: Grid, ids: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Contexts in every order of their tokens, with the values that an equivariant network has there.

    Where the target's equivariance is only the user's word, its distance from the network is bounded in every order.
    """
    k, n = grid.column_count, grid.seq_len
    if k**n > SEQUENCE_LIMIT:
        raise ProvenformerError(
            f"a bound for a function of your own needs {k**n:,} cubes (limit {SEQUENCE_LIMIT:,}); use fewer cells per axis, "
            "or vouch for its equivariance, Target(..., vouched=True) (--vouched)."
        )
    weights = k ** np.arange(n - 1, -1, -1)
    everything = grid.contexts("sequences")
    order = np.argsort(everything, axis=1, kind="stable")
    at = np.searchsorted(ids @ weights, np.take_along_axis(everything, order, axis=1) @ weights)
    at = np.minimum(at, len(ids) - 1)
    found = (
        (ids[at] == np.take_along_axis(everything, order, axis=1)).all(axis=1) if len(ids) else np.zeros(len(at), bool)
    )
    out = np.empty((int(found.sum()), n, values.shape[2]))
    np.put_along_axis(out, order[found][..., None], values[at[found]], axis=1)
    return everything[found], out
