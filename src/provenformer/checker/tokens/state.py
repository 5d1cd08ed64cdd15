"""What the channels of a token circuit hold: known numbers and at most one atom each, up to an error; and what weights read.

Weights are those of the arithmetic that is looked at (float32 rounds them first), so only the arithmetic itself errs. A sum
of k products,
in any order, errs by at most (k + 2) u of the sum of absolute products; the walk itself computes in float64 and errs by
that, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.tokens.ranges import Ranges
from provenformer.symbols.tokens.graph import Ints, Lin

Fresh = Callable[
    [FloatArray, FloatArray, FloatArray], FloatArray
]  # of weights, bias and the sizes of channels, for every row
OWN = 2.0**-53  # of the walk itself
LARGEST = 2.0**60  # of a weight, a number or a score
SMALLEST = (
    2.0**-60
)  # of a weight that is not 0: products of smaller ones may leave the range in which errors are relative


@dataclass(eq=False)
class State:
    """Channel c holds known[c] + atom[c] within error[c], at every token; atom -1: none."""

    known: FloatArray  # (D, n)
    atom: Ints  # (D,)
    error: FloatArray  # (D,)
    ranges: Ranges
    unit: float  # 2^-53 or 2^-24
    fresh: Fresh | None = None  # what the network errs beside that, if it is a circuit in disguise

    @property
    def size(self) -> FloatArray:
        """(D, n): no channel's executed number is larger in absolute value."""
        held = np.where(self.atom[:, None] >= 0, self.ranges.size[self.atom], 0.0)
        return np.asarray(np.abs(self.known) + held + self.error[:, None])

    def require_moderate(self, place: str) -> None:
        """Raise Rejected where a channel may overflow, one that nothing reads included: 0 times infinity is not a number."""
        if not (self.size <= LARGEST).all():
            raise Rejected(f"{place}: a number may exceed 2^60")


@dataclass(frozen=True, eq=False)
class Reading:
    """Rows of weights on a state: known (r, n), coefficients of atoms (r, atoms), error and size (r, n); of the error what is
    no channel's and no rounding, fresh (r,).
    """

    known: FloatArray
    atoms: FloatArray
    error: FloatArray
    size: FloatArray
    fresh: FloatArray

    def against(self, row: int, known: FloatArray, atoms: FloatArray, ranges: Ranges) -> FloatArray:
        """(n,): how far what the row reads may be from this combination, errors aside."""
        return np.asarray(np.abs(self.known[row] - known) + np.abs(self.atoms[row] - atoms) @ ranges.size)


def rounding(terms: int | Ints, unit: float) -> FloatArray:
    """Share of the absolute sum by which a sum of so many products may be off, as executed and as computed here."""
    return np.asarray((terms + np.int64(2)) * (unit + OWN) * 1.01)


def read(state: State, weights: FloatArray, bias: FloatArray) -> Reading:
    """What rows of weights read."""
    fresh = np.zeros(len(weights)) if state.fresh is None else state.fresh(weights, bias, state.size.max(axis=1))
    size = np.abs(weights) @ state.size + np.abs(bias)[:, None] + fresh[:, None]
    if not (size <= LARGEST).all():
        raise Rejected("a number may exceed 2^60")
    terms = (weights != 0).astype(np.int64) @ (state.size > 0).astype(
        np.int64
    ) + 1  # what is 0 for certain does not round
    atoms = np.zeros((len(weights), len(state.ranges.low)))
    for channel in np.flatnonzero(state.atom >= 0):
        atoms[:, state.atom[channel]] += weights[:, channel]
    error = (np.abs(weights) @ state.error)[:, None] + rounding(terms, state.unit) * size + fresh[:, None]
    return Reading(weights @ state.known + bias[:, None], atoms, error, size, fresh)


def combination(lin: Lin, atoms: int) -> tuple[FloatArray, FloatArray]:
    """(known (n,), coefficients (atoms,)) of a numerator."""
    found = np.zeros(atoms)
    for atom, c in lin.terms:
        found[atom] = c
    return lin.constant.astype(np.float64), found
