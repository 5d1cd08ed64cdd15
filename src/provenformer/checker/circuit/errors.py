"""How far a number may be from what it stands for: at most alpha + rho |value|, for each of several pairs, in three arithmetics.

Relative errors are what keeps a reciprocal of something small affordable: they pass through products unamplified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.content import ByContent
from provenformer.checker.circuit.precision import UNIT

MOST_PAIRS = 48
WORTH = 0.99  # a pair with a larger rho is kept if its alpha is below this share of that of every smaller rho


@dataclass(frozen=True, eq=False)
class Error(ByContent):
    """|computed - value| <= alpha[i] + rho[i] |value| for every i. The first pair has rho = 0."""

    alpha: FloatArray  # (pairs, arithmetics)
    rho: FloatArray  # (pairs, arithmetics)

    @classmethod
    def absolute(cls, alpha: FloatArray | float) -> Error:
        """A plain bound."""
        one = np.broadcast_to(np.asarray(alpha, dtype=np.float64), UNIT.shape)
        return cls(one[None], np.zeros((1, len(UNIT))))

    @classmethod
    def of(cls, pairs: list[tuple[FloatArray, FloatArray]], size: float) -> Error:
        """From pairs, for values of absolute value at most `size`: the best plain bound first, then the others."""
        alpha, rho = (np.array([np.broadcast_to(p[i], UNIT.shape) for p in pairs]) for i in (0, 1))
        with np.errstate(invalid="ignore"):
            plain = np.fmin.reduce(alpha + rho * size, axis=0)
        plain = np.where(np.isnan(plain), np.inf, plain)
        best, kept = plain, [(plain, np.zeros(len(UNIT)))]
        for i in np.argsort(rho[:, 0], kind="stable"):
            if len(kept) < MOST_PAIRS and (rho[i] > 0).any() and (alpha[i] < WORTH * best).any():
                best = np.fmin(best, alpha[i])
                kept.append((alpha[i], rho[i]))
        return cls(*(np.array(part) for part in zip(*kept, strict=True)))

    @property
    def plain(self) -> FloatArray:
        """The bound without reference to the value."""
        first: FloatArray = self.alpha[0]
        return first

    def at(self, size: FloatArray) -> FloatArray:
        """Bounds (arithmetics, k) for |value| <= size_i."""
        with np.errstate(invalid="ignore"):
            every = self.alpha[:, :, None] + self.rho[:, :, None] * size
        return np.asarray(np.fmin.reduce(every, axis=0))

    def plus(self, alpha: FloatArray | float) -> Error:
        """A further absolute error."""
        return Error(self.alpha + alpha, self.rho)

    def beside(self, distance: FloatArray | float) -> Error:
        """The same error, relative to a value at most `distance` away from the one it was relative to."""
        with np.errstate(invalid="ignore"):
            return Error(self.alpha + np.where(self.rho > 0, self.rho * distance, 0.0), self.rho)

    def scaled(self, factor: float) -> Error:
        """Of factor times the number."""
        return Error(self.alpha * abs(factor), self.rho)
