"""How far channels may be from the values that they stand for, part by part: |channel - value| <= alpha[r] + RHO[r] |value|.

A profile is such an alpha, one number for every r, the first for RHO = 0: a plain bound. Relative errors are what makes the
reciprocal of something small affordable: where it is large, what goes into it is small, and so are its errors.

One pass for each way of running the network: `unit` is 2^-53 for float64, 2^-24 for float32, 0 for exact arithmetic. Rounding is
bounded for any order of the sums, and for weights rounded to that precision (docs/circuits.md, Lemma 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.parts import Local, Part


class TooWide(Exception):  # noqa: N818  (a verdict: tables must be finer, or the precision higher)
    """An error so large that a gadget leaves the range for which it was planned."""


UNITS = {"float64": 2.0**-53, "float32": 2.0**-24}
RHO: FloatArray = np.concatenate([[0.0], 2.0 ** np.arange(-28.0, -0.5, 0.25)])
DISTINCT = 50.0  # numbers of a profile count as different if their logarithms do, times this
# by part: (2, outputs, RHO), how much each number of its profile counts in every output, and how much its RHO does
Weights = dict[int, FloatArray]


def plain(error: float) -> FloatArray:
    """The profile of an error that is known without reference to the value."""
    return np.full(len(RHO), error)


def settled(alpha: FloatArray, rho: FloatArray, low: float, high: float) -> tuple[FloatArray, NDArray[np.intp]]:
    """The profile that follows from pairs (alpha, rho), for values in [low, high]; and which pair each number is from.

    alpha + rho |v| is at most alpha + (rho - rho') |v| + rho' |v|, and |v| lies between two numbers.
    """
    gap = rho[:, None] - RHO
    found = alpha[:, None] + np.where(gap > 0, gap * max(abs(low), abs(high)), gap * max(low, -high, 0.0))
    found = np.maximum(found * (1 + 1e-12), 0.0)
    which = np.argmin(found, axis=0)
    return found[which, np.arange(len(RHO))], which


def corners(profile: FloatArray) -> NDArray[np.intp]:
    """The numbers of a profile that are clearly below those before them: the others say little new."""
    with np.errstate(divide="ignore"):
        level = np.floor(DISTINCT * np.log(profile))
    return np.flatnonzero(np.append(True, level[1:] < level[:-1]))


@dataclass(eq=False)
class Errors:
    """Errors of the parts so far. `tables` False leaves out how far tables are from their formulas: what heads add remains."""

    unit: float
    tables: bool = True
    sizes: dict[int, float] = field(default_factory=dict)  # the largest |value| of a part, without its error
    of_part: dict[int, float] = field(default_factory=dict)  # without reference to the value
    profiles: dict[int, FloatArray] = field(default_factory=dict)
    signs: dict[int, float] = field(default_factory=dict)  # of the values; 0 where both occur

    def gamma(self, k: float) -> float:
        """k roundings one after the other."""
        return k * self.unit / (1 - k * self.unit)

    def set(self, part: Part, error: float | FloatArray) -> None:
        """A profile, or a plain bound."""
        profile = plain(error) if isinstance(error, float) else np.minimum.accumulate(error)
        self.sizes[part.index], self.of_part[part.index] = part.size, float(profile[0])
        self.profiles[part.index] = profile
        self.signs[part.index] = 1.0 if part.low >= 0 else -1.0 if part.high <= 0 else 0.0

    def of(self, x: Local) -> float:
        """|what the channels give - the combination|, in exact arithmetic."""
        slack = x.slack if self.unit else 0.0
        return slack + sum(abs(c) * self.of_part[i] for i, c in x.coefficients.items())

    def profile(self, x: Local) -> FloatArray:
        """The same, relative to the combination where all its terms have one sign: there |sum| is the sum of all |term|."""
        if not self._one_sign(x):
            return plain(self.of(x))
        found = plain(2 * x.slack if self.unit else 0.0)
        for i, c in x.coefficients.items():
            found = found + abs(c) * self.profiles[i]
        return found

    def back(self, x: Local, weight: FloatArray) -> Weights:
        """What the parts of a combination count if its profile counts `weight`."""
        if not self._one_sign(x):
            weight = as_plain(weight)
        share = 1 / max(1, len(x.coefficients))  # of what is relative: terms of about one size have about this each
        return {i: np.stack([abs(c) * weight[0], share * weight[1]]) for i, c in x.coefficients.items()}

    def _one_sign(self, x: Local) -> bool:
        signs = {np.sign(c) * self.signs[i] for i, c in x.coefficients.items()} | set(
            np.sign(x.constant[x.constant != 0])
        )
        return len(signs) == 1 and 0.0 not in signs

    def size(self, x: Local) -> float:
        """The sum of the sizes of all terms, errors included: what rounding is measured by."""
        terms = (abs(c) * (self.sizes[i] + self.of_part[i]) for i, c in x.coefficients.items())
        return float(np.abs(x.constant).max()) + sum(terms)

    def reading(self, *locals_: Local) -> float:
        """gamma for a sum over the terms of combinations, weights rounded, a bias made of two numbers added."""
        return self.gamma(sum(len(x.coefficients) for x in locals_) + 6)


def as_plain(weight: FloatArray) -> FloatArray:
    """All of it on the first number of the profile."""
    found = np.zeros_like(weight)
    found[0, :, 0] = weight[0].sum(axis=1)
    return found


def together(*weights: Weights) -> Weights:
    """Sums, part by part."""
    total: Weights = {}
    for each in weights:
        for i, weight in each.items():
            total[i] = total[i] + weight if i in total else weight
    return total
