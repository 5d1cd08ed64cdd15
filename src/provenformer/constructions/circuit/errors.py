"""How far channels may be from the values that they stand for: |channel - value| <= error, part by part.

One pass for each way of running the network: `unit` is 2^-53 for float64, 2^-24 for float32, 0 for exact arithmetic. Rounding is
bounded for any order of the sums, and for weights rounded to that precision (docs/circuits.md, Lemma 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from provenformer.constructions.circuit.parts import Local, Part


class TooWide(Exception):  # noqa: N818  (a verdict: tables must be finer, or the precision higher)
    """An error so large that a gadget leaves the range for which it was planned."""


UNITS = {"float64": 2.0**-53, "float32": 2.0**-24}


@dataclass(eq=False)
class Errors:
    """Errors of the parts so far. `tables` False leaves out how far tables are from their formulas: what heads add remains."""

    unit: float
    tables: bool = True
    sizes: dict[int, float] = field(default_factory=dict)  # the largest |value| of a part, without its error
    of_part: dict[int, float] = field(default_factory=dict)

    def gamma(self, k: float) -> float:
        """k roundings one after the other."""
        return k * self.unit / (1 - k * self.unit)

    def set(self, part: Part, error: float) -> None:
        self.sizes[part.index], self.of_part[part.index] = part.size, error

    def of(self, x: Local) -> float:
        """|what the channels give - the combination|, in exact arithmetic."""
        slack = x.slack if self.unit else 0.0
        return slack + sum(abs(c) * self.of_part[i] for i, c in x.coefficients.items())

    def size(self, x: Local) -> float:
        """The sum of the sizes of all terms, errors included: what rounding is measured by."""
        terms = (abs(c) * (self.sizes[i] + self.of_part[i]) for i, c in x.coefficients.items())
        return float(np.abs(x.constant).max()) + sum(terms)

    def reading(self, *locals_: Local) -> float:
        """gamma for a sum over the terms of combinations, weights rounded, a bias made of two numbers added."""
        return self.gamma(sum(len(x.coefficients) for x in locals_) + 6)
