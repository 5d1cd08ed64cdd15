"""What is known of the state between two layers: per channel what it holds, exactly, and how far execution may be from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, Ranges, combine, hull, largest
from provenformer.checker.circuit.precision import UNIT, sum_rounding

NEGLIGIBLE = 1e-12  # a deviation this small relative to what it deviates from is bounded without looking closer


def known_rounding(rows: FloatArray, known: FloatArray) -> FloatArray:
    """(k,): how far rows @ known, computed here, may be off: as many roundings as there are terms that are not 0."""
    read = np.flatnonzero(rows.any(axis=0))
    if not len(read):
        return np.zeros(len(rows))
    rows, known = rows[:, read], known[read]
    terms = (rows != 0).astype(np.float64) @ (known != 0).astype(np.float64) + 2
    return np.asarray((terms * 2.0**-53 * (np.abs(rows) @ np.abs(known))).max(axis=1))


@dataclass(frozen=True, eq=False)
class Channel:
    """|executed - holds| is within `error`, at every token and for every input of the box.

    fixed   never an input, never written so far: it holds its positions, and only rounding to float32 changed them
    only    tokens beside which it is exactly 0 in every arithmetic, if there are such
    """

    holds: Combination
    error: Error
    fixed: bool = False
    only: NDArray[np.bool_] | None = None
    _reach: list[float] = field(default_factory=list)  # found once: most channels outlive many layers

    def reach(self, ranges: Ranges) -> float:
        """The largest |value| that it holds."""
        if not self._reach:
            self._reach.append(largest(self.holds, ranges))
        return self._reach[0]


@dataclass(frozen=True, eq=False)
class Reading:
    """row @ state: the value it stands for, how far the channels' errors may move it, and what computing it adds."""

    value: Combination
    error: Error
    rounding: FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """All channels; tokens are columns."""

    channels: tuple[Channel, ...]
    ranges: Ranges
    seq_len: int

    @cached_property
    def size(self) -> FloatArray:
        """(D, arithmetics): the largest executed |number|."""
        return np.array([c.reach(self.ranges) + c.error.plain for c in self.channels])

    @cached_property
    def errors(self) -> FloatArray:
        """(D, arithmetics): plain errors."""
        return np.array([c.error.plain for c in self.channels])

    @cached_property
    def constants(self) -> FloatArray:
        """(D, 1) or (D, n): the known part of every channel."""
        if all(len(c.holds.constant) == 1 for c in self.channels):
            return np.array([c.holds.constant for c in self.channels])
        return np.array([np.broadcast_to(c.holds.constant, (self.seq_len,)) for c in self.channels])

    @cached_property
    def data(self) -> list[Combination]:
        """What every channel holds beside its known part."""
        return [c.holds.without_constant() for c in self.channels]

    @cached_property
    def varying(self) -> NDArray[np.bool_]:
        """(D,): channels that hold more than their positions."""
        return np.array([not c.fixed for c in self.channels])

    def value(self, row: FloatArray) -> Combination:
        """What row @ state stands for."""
        used = np.flatnonzero(row)
        known = self.constants[used]
        constant = row[used] @ known if len(used) else np.zeros(1)
        slack = known_rounding(row[None, used], known)[0]
        data = combine([(float(row[c]), self.data[c]) for c in used if self.varying[c]], self.ranges)
        exact = len(used) <= 1 and np.abs(row[used]).max(initial=1.0) == 1.0
        if len(constant) > 1 and (constant == constant[0]).all():
            constant = constant[:1]
        return Combination(data.parts, constant, data.slack + (0.0 if exact else slack))

    def read(self, row: FloatArray) -> Reading:
        """row @ state."""
        value = self.value(row)
        used = np.flatnonzero(row)
        size = np.abs(row[used]) @ self.size[used] if len(used) else np.zeros(len(UNIT))
        return Reading(value, self._error(row, used), sum_rounding(len(used), size))

    def deviation(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        """(k, arithmetics): bounds of |row @ (state - constants)| for rows that should be 0, beside the size `reference` of each.

        Rounding dust is bounded channel by channel; what is larger as the combination it is, in which channels may cancel.
        """
        with np.errstate(invalid="ignore"):
            bounds = np.abs(rows) @ self.size
        for i in np.flatnonzero(~(bounds[:, 0] <= NEGLIGIBLE * reference)):
            closer = largest(self.value(rows[i]).without_constant(), self.ranges) + np.abs(rows[i]) @ self.errors
            bounds[i] = np.minimum(bounds[i], closer)
        return bounds

    def _error(self, row: FloatArray, used: NDArray[np.intp]) -> Error:
        """Errors add up; relative ones stay relative when all terms have one sign."""
        plain = np.abs(row[used]) @ self.errors[used] if len(used) else np.zeros(len(UNIT))
        pairs = [(plain, np.zeros(len(UNIT)))]
        one_sign = len(used) > 0 and any(len(self.channels[c].error.alpha) > 1 for c in used)
        if one_sign:
            ends = [[row[c] * e for e in hull(self.channels[c].holds, self.ranges)] for c in used]
            lows, highs = zip(*(sorted(pair) for pair in ends), strict=True)
            one_sign = min(lows) >= 0 or max(highs) <= 0
        if one_sign:
            errors = [self.channels[c].error for c in used]
            for limit in {float(r) for e in errors for r in e.rho[:, 0]} - {0.0}:
                alpha, rho = np.zeros(len(UNIT)), np.zeros(len(UNIT))
                for c, e in zip(used, errors, strict=True):
                    fits = [i for i in range(len(e.alpha)) if e.rho[i, 0] <= limit]
                    best = min(fits, key=lambda i: float(e.alpha[i, 0]))
                    alpha, rho = alpha + abs(row[c]) * e.alpha[best], np.maximum(rho, e.rho[best])
                pairs.append((alpha, rho))
        alphas, rhos = zip(*pairs, strict=True)
        return Error(np.array(alphas), np.array(rhos))
