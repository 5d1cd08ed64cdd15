"""How errors pass through a table: piece by piece, each amplified by the slope that is there (docs/circuits.md, Lemma 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.errors import RHO, corners

HULL_PASSES = 6  # each leaves about half of the points
FEW = 200  # points of which it is quicker to look at all than to look for those on the hull
NEARLY = 8  # a piece with the share s of the worst error counts about s to this power


@dataclass(frozen=True, eq=False)
class Curve:
    """What errors need to know of a table, or of a plan of one."""

    ends: FloatArray  # (k + 1,): of its pieces
    own: FloatArray  # (k,): |table - formula|
    slopes: FloatArray  # (k + 2,): |slope of the table|, also before the first end and after the last
    least: FloatArray  # (k,): |formula| from below
    _last: dict[tuple[bytes, bool], Passed] = field(default_factory=dict)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.least, kind="stable")

    def through(self, profile: FloatArray, own: bool = True) -> Passed:
        """For an argument with this profile of errors. The last answer is kept: hundreds of tokens may be gathered alike."""
        key = profile.tobytes(), own
        if key not in self._last:
            self._last.clear()
            self._last[key] = self._through(profile, own)
        return self._last[key]

    def _through(self, profile: FloatArray, own: bool) -> Passed:
        start, end = self.ends[:-1], self.ends[1:]
        size = np.maximum(np.abs(start), np.abs(end))
        some = corners(profile)
        every = profile[some, None] + RHO[some, None] * size
        which = some[np.argmin(every, axis=0)]
        moved = profile[which] + RHO[which] * size
        first = np.searchsorted(self.ends, start - moved, side="right")
        last = np.searchsorted(self.ends, end + moved, side="left")
        steep = window_max(self.slopes, first, last)
        with np.errstate(over="ignore"):  # an infinite slope is no limit
            steepest = self._variation(start - moved, end + moved, first, last) / np.maximum(moved, 1e-300)
        steep = np.minimum(steep, steepest) * (1 + 1e-12)
        total = steep * moved + (self.own if own else 0.0)
        return Passed(size, self.least, total, steep, which, self._behind(total))

    def _behind(self, total: FloatArray) -> FloatArray:
        """The profile of a result that is off by so much on every piece."""
        worst = float(total.max())
        if not np.isfinite(worst):
            return np.full(len(RHO), np.inf)
        at, most = upper_hull(self.least[self._order], total[self._order])
        return np.asarray(np.maximum((most - RHO[:, None] * at).max(axis=1) + 1e-13 * worst, 0.0))

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
    profile: FloatArray  # (RHO,)

    def back(self, weight: FloatArray) -> FloatArray:
        """What the argument's profile counts if that of the result counts `weight`."""
        found = np.zeros_like(weight)
        moved = self._shared(weight) * self.steep
        np.add.at(found.transpose(2, 1, 0), self.which, np.stack([moved, moved * self.size]).transpose(2, 1, 0))
        return found

    def gains(self, weight: FloatArray) -> tuple[float, float]:
        """What one more of its own error counts, plain and relative to the value, in the output that it counts most in."""
        shared = self._shared(weight)
        return float(shared.sum(axis=1).max()), float((shared @ self.least).max())

    def _shared(self, weight: FloatArray) -> FloatArray:
        """(outputs, k): what the error on every piece counts. The worst decides, but those that are nearly as bad will, if only
        the worst is mended: so they have their share. Where a profile has nothing plain left, by what is relative."""
        found = np.zeros((weight.shape[1], len(self.total)))
        plain = np.flatnonzero((self.profile > 0) & weight[0].any(axis=0))
        if len(plain):
            short = np.maximum(self.total - RHO[plain, None] * self.least, 0.0)
            found += weight[0][:, plain] @ _nearly_worst(short)
        relative = weight[1][:, self.profile <= 0].sum(axis=1)
        if relative.any() and self.least.any():
            some = self.least > 0
            share = np.where(some, self.total / np.where(some, self.least, 1.0), 0.0)
            found += relative[:, None] * (_nearly_worst(share[None]) / np.where(some, self.least, 1.0))
        return found


def _nearly_worst(errors: FloatArray) -> FloatArray:
    """(r, k): a share for every piece, rows add up to one."""
    largest = errors.max(axis=1, keepdims=True)
    share = (errors / np.where(largest > 0, largest, 1.0)) ** NEARLY
    return np.asarray(share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300))


def upper_hull(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points, x ascending, without most of those below the line through two others: up to rounding, y - rho x has its largest
    value at one that is left, for every rho."""
    for _ in range(HULL_PASSES):
        if len(x) <= FEW:
            break
        gap, rise = x[1:] - x[:-1], y[1:] - y[:-1]
        below = rise[:-1] * gap[1:] <= rise[1:] * gap[:-1]
        below &= (x[2:] > x[:-2]) | (rise[:-1] <= 0) | (rise[1:] >= 0)  # of three at one place the highest stays
        below[1:] &= ~below[:-1]  # of two neighbours one at a time: without it the other may be on the hull
        kept = np.concatenate([[True], ~below, [True]])
        x, y = x[kept], y[kept]
    return x, y


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
