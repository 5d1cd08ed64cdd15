"""What is known of the state between two layers: per channel what it holds, exactly, and how far execution may be from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, Ranges, combine, largest, sign_of
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
    only    tokens beside which it is exactly 0 in every arithmetic and holds 0, so that nothing is off, if there are such
    """

    holds: Combination
    error: Error
    fixed: bool = False
    only: NDArray[np.bool_] | None = None
    _reach: list[float] = field(default_factory=list)  # found once: most channels outlive many layers

    def reach(self, ranges: Ranges) -> tuple[float, float]:
        """The largest |value| that it holds, and the largest without what is known of it: either may be the larger."""
        if not self._reach:
            self._reach.extend(largest(one, ranges) for one in (self.holds, self.holds.without_constant()))
        return self._reach[0], self._reach[1]


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
        return np.array([c.reach(self.ranges)[0] + c.error.plain for c in self.channels])

    @cached_property
    def swing(self) -> FloatArray:
        """(D, arithmetics): the largest executed |number| less what is known of it."""
        return np.array([c.reach(self.ranges)[1] + c.error.plain for c in self.channels])

    @cached_property
    def errors(self) -> FloatArray:
        """(D, arithmetics): plain errors."""
        return np.array([c.error.plain for c in self.channels])

    @cached_property
    def constants(self) -> FloatArray:
        """(D, 1) or (D, n): the known part of every channel."""
        if all(len(c.holds.constant) == 1 for c in self.channels):
            return np.array([c.holds.constant for c in self.channels])
        found = np.empty((len(self.channels), self.seq_len))
        for row, channel in zip(found, self.channels, strict=True):
            row[:] = channel.holds.constant
        return found

    @cached_property
    def relative(self) -> NDArray[np.bool_]:
        """(D,): channels whose error is also known relative to what they hold."""
        return np.array([len(c.error.alpha) > 1 for c in self.channels])

    @cached_property
    def varying(self) -> NDArray[np.bool_]:
        """(D,): channels that hold more than their positions."""
        return np.array([not c.fixed for c in self.channels])

    def value(self, row: FloatArray) -> Combination:
        """What row @ state stands for."""
        used = np.flatnonzero(row)
        constant, slack = self._known(row, used) if len(used) else (np.zeros(1), 0.0)
        varying = used[self.varying[used]]
        data = combine([(float(row[c]), self.channels[c].holds.without_constant()) for c in varying], self.ranges)
        exact = len(used) <= 1 and np.abs(row[used]).max(initial=1.0) == 1.0
        if len(constant) > 1 and (constant == constant[0]).all():
            constant = constant[:1]
        return Combination(data.parts, constant, data.slack + (0.0 if exact else slack))

    def _known(self, row: FloatArray, used: NDArray[np.intp]) -> tuple[FloatArray, float]:
        """row @ constants, and how far that may be off, computed here (see known_rounding)."""
        if 2 * len(used) < len(row):
            known = self.constants[used]
            return row[used] @ known, float(known_rounding(row[None, used], known)[0])
        there, sizes = self._terms  # most channels are read: no copies of them
        off = ((row != 0).astype(np.float64) @ there + 2) * 2.0**-53 * (np.abs(row) @ sizes)
        return row @ self.constants, float(off.max())

    @cached_property
    def _terms(self) -> tuple[FloatArray, FloatArray]:
        """Of the constants: 1 where they are not 0, and their sizes."""
        return (self.constants != 0).astype(np.float64), np.abs(self.constants)

    def read(self, row: FloatArray) -> Reading:
        """row @ state."""
        value = self.value(row)
        used = np.flatnonzero(row)
        size = np.abs(row[used]) @ self.size[used] if len(used) else np.zeros(len(UNIT))
        return Reading(value, self._error(row, used, value), sum_rounding(len(used), size))

    def deviation(self, rows: FloatArray, reference: FloatArray) -> FloatArray:
        """(k, arithmetics): bounds of |row @ (state - constants)| for rows that should be 0, beside the size `reference` of each.

        Rounding dust is bounded channel by channel; what is larger as the combination it is, in which channels may cancel.
        """
        used = np.flatnonzero(rows.any(axis=0))
        with np.errstate(invalid="ignore"):
            bounds = np.abs(rows[:, used]) @ self.swing[used]
        for i in np.flatnonzero(~(bounds[:, 0] <= NEGLIGIBLE * reference)):
            closer = largest(self.value(rows[i]).without_constant(), self.ranges) + np.abs(rows[i]) @ self.errors
            bounds[i] = np.minimum(bounds[i], closer)
        return bounds

    def _error(self, row: FloatArray, used: NDArray[np.intp], value: Combination) -> Error:
        """Errors add up; relative ones stay relative when all terms have one sign: then |sum| is the sum of all |term|."""
        plain = np.abs(row[used]) @ self.errors[used] if len(used) else np.zeros(len(UNIT))
        pairs = [(plain, np.zeros(len(UNIT)))]
        if self.relative[used].any():
            channels = [self.channels[c] for c in used]
            signs = {np.sign(w) * sign_of(c.holds, self.ranges) for w, c in zip(row[used], channels, strict=True)}
            if signs in ({1.0}, {-1.0}):
                pairs += self._relative(row[used], channels, value.slack)
        alphas, rhos = zip(*pairs, strict=True)
        return Error(np.array(alphas), np.array(rhos))

    @staticmethod
    def _relative(row: FloatArray, channels: list[Channel], slack: float) -> list[tuple[FloatArray, FloatArray]]:
        """One pair for every rho that a channel has. What rounding took from combinations moves what errors are relative to."""
        found = []
        for limit in sorted({float(r) for c in channels for r in c.error.rho[:, 0]} - {0.0}):
            alpha, rho, apart = np.zeros(len(UNIT)), np.zeros(len(UNIT)), slack
            for weight, channel in zip(row, channels, strict=True):
                error = channel.error
                fits = [i for i in range(len(error.alpha)) if error.rho[i, 0] <= limit]
                best = min(fits, key=lambda i: float(error.alpha[i, 0]))
                alpha, rho = alpha + abs(weight) * error.alpha[best], np.maximum(rho, error.rho[best])
                apart += abs(weight) * channel.holds.slack
            found.append((alpha + rho * apart, rho))
        return found
