"""How errors pass through a table: piece by piece, each amplified by the slope that is there (docs/circuits.md, Lemma 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.errors import RHO


@dataclass(frozen=True, eq=False)
class Curve:
    """What errors need to know of a table, or of a plan of one."""

    ends: FloatArray  # (k + 1,): of its pieces
    own: FloatArray  # (k,): |table - formula|
    slopes: FloatArray  # (k + 2,): |slope of the table|, also before the first end and after the last
    least: FloatArray  # (k,): |formula| from below

    def through(self, profile: FloatArray, own: bool = True) -> Passed:
        """For an argument with this profile of errors."""
        start, end = self.ends[:-1], self.ends[1:]
        size = np.maximum(np.abs(start), np.abs(end))
        if np.ptp(profile) == 0:  # nothing is known relative to the value
            which, moved = np.zeros(len(start), dtype=np.intp), np.full(len(start), profile[0])
        else:
            every = profile[:, None] + RHO[:, None] * size
            which = np.argmin(every, axis=0)
            moved = every[which, np.arange(len(start))]
        first = np.searchsorted(self.ends, start - moved, side="right")
        last = np.searchsorted(self.ends, end + moved, side="left")
        steep = window_max(self.slopes, first, last)
        steepest = self._variation(start - moved, end + moved, first, last) / np.maximum(moved, 1e-300)
        steep = np.minimum(steep, steepest) * (1 + 1e-12)
        total = steep * moved + (self.own if own else 0.0)
        short = total - RHO[:, None] * self.least
        worst = np.argmax(short, axis=1)
        profile = np.maximum(short[np.arange(len(RHO)), worst], 0.0)
        return Passed(size, self.least, total, steep, which, worst, profile)

    def _variation(
        self, low: FloatArray, high: FloatArray, first: NDArray[np.intp], last: NDArray[np.intp]
    ) -> FloatArray:
        """What the table goes up and down in all on [low, high], from piece `first` to piece `last`: it moves no further."""
        edges = np.concatenate([self.ends[:1], self.ends, self.ends[-1:]])
        total = np.concatenate([[0.0, 0.0], np.cumsum(self.slopes[1:-1] * np.diff(self.ends))])
        before = total[first] + self.slopes[first] * (low - edges[first])
        return np.asarray(total[last] + self.slopes[last] * (high - edges[last]) - before + 1e-13 * total[-1])


@dataclass(frozen=True, eq=False)
class Passed:
    """Errors behind a table, and what they come from."""

    size: FloatArray  # (k,): the largest |argument| of every piece
    least: FloatArray  # (k,): |formula| from below
    total: FloatArray  # (k,): the error
    steep: FloatArray  # (k,)
    which: NDArray[np.intp]  # (k,): the number of the argument's profile that counts there
    worst: NDArray[np.intp]  # (RHO,): the piece that decides
    profile: FloatArray  # (RHO,)

    def back(self, weight: FloatArray) -> FloatArray:
        """What the argument's profile counts if that of the result counts `weight`."""
        at, count = self._decides(weight)
        found = np.zeros_like(weight)
        moved = np.stack([self.steep[at] * count, self.steep[at] * self.size[at] * count])
        np.add.at(found.transpose(2, 0, 1), self.which[at], moved.transpose(2, 0, 1))
        return found

    def gains(self, weight: FloatArray) -> tuple[float, float]:
        """What one more of its own error counts, plain and relative to the value, in the output that it counts most in."""
        at, count = self._decides(weight)
        relative = np.where(RHO > 0, weight[1], count * self.least[at])
        return float(count.sum(axis=1).max()), float(relative.sum(axis=1).max())

    def _decides(self, weight: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Per RHO the piece that decides, and what its error counts: where nothing plain is left, by what is relative."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(self.least > 0, self.total / self.least, 0.0)
        largest = int(np.argmax(share))
        some = self.profile > 0
        one = weight[1] / self.least[largest] if self.least[largest] > 0 else 0 * weight[1]
        return np.where(some, self.worst, largest), np.where(some, weight[0], one)


def window_max(values: FloatArray, first: NDArray[np.intp], last: NDArray[np.intp]) -> FloatArray:
    """max(values[first_i .. last_i]), by doubling."""
    length = np.maximum(last - first, 0) + 1
    level = np.frexp(length)[1] - 1
    tables = [values]
    for step in (1 << k for k in range(int(level.max(initial=0)))):
        longer = tables[-1].copy()
        longer[:-step] = np.maximum(longer[:-step], tables[-1][step:])
        tables.append(longer)
    every = np.stack(tables)
    return np.asarray(np.maximum(every[level, first], every[level, np.maximum(last, first) + 1 - (1 << level)]))
