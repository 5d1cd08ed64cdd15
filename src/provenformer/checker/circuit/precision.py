"""Three arithmetics at once: real numbers, float64, float32. Every error of the walk is an array of three, one for each.

A sum of k terms, each a product of a weight and a number, computed in any order, fused or not, is off by at most gamma(k + 1)
sum |weight| |number|, plus k + 1 times the smallest normal number if results may be flushed to zero (Higham, Accuracy and
Stability, ch. 3 and 4). Two roundings more when weights and numbers are first cast to the type: `CAST`. In real numbers all
of this is 0, so the walk's bound in the first entry is that of the weights alone.
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray

ARITHMETICS = ("exact", "float64", "float32")
UNIT: FloatArray = np.array([0.0, 2.0**-53, 2.0**-24])
TINY: FloatArray = np.array([0.0, 2.0**-1022, 2.0**-126])
LARGEST: FloatArray = np.array([np.inf, 2.0**1000, 2.0**120])  # beyond it no claim is made: sums might overflow
CAST = np.array([0.0, 0.0, 1.0])  # weights are float64: only float32 rounds them
ELEMENTARY = 8.0  # units that exp may be off by: four in the last place


def gamma_of(counts: FloatArray | float) -> FloatArray:
    """k u / (1 - k u): the relative error of k roundings, in each arithmetic; infinite where that proves nothing."""
    product = counts * UNIT
    return np.where(product < 0.5, product / (1 - np.minimum(product, 0.5)), np.inf)


def sum_rounding(terms: float, size: FloatArray | float) -> FloatArray:
    """How far a computed sum of `terms` rounded products with absolute sum `size` may be off."""
    size = np.broadcast_to(np.asarray(size, dtype=np.float64), UNIT.shape)
    error = gamma_of(terms + 1 + 2 * CAST) * size * (1 + 1e-12) + (terms + 1) * TINY
    return np.where(UNIT == 0, 0.0, np.where(size <= LARGEST, error, np.inf))
