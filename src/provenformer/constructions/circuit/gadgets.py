"""Gadgets of ReLU units: each makes one part, says how far it is from its value, and writes its weights.

The lemmas that `error` implements are in docs/circuits.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.curves import Passed
from provenformer.constructions.circuit.errors import (
    RHO,
    Errors,
    TooWide,
    Weights,
    as_plain,
    corners,
    plain,
    settled,
    together,
)
from provenformer.constructions.circuit.parts import Local, Part
from provenformer.constructions.circuit.sheet import Row, Sheet
from provenformer.constructions.circuit.tables import Table, Units

Used = dict[int, NDArray[np.bool_]]  # by part, as long as RHO


class Gadget(ABC):
    """How one part is made."""

    part: Part

    @property
    def hidden_units(self) -> int:
        """ReLUs that it takes."""
        return 0

    @abstractmethod
    def error(self, errors: Errors) -> float | FloatArray:
        """A bound on |channel - value| from those of what is read: plain, or a profile."""

    @abstractmethod
    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        """How much the errors of the parts that are read count if its own count `weight`: guides the budget, proves nothing."""

    def used(self, errors: Errors, used: NDArray[np.bool_]) -> Used:
        """Which numbers of the profiles that it reads stand behind those of its own: while they stay, its error does."""
        weight = np.zeros((2, 1, len(RHO)))
        weight[:, :, used] = 1.0
        return used_in(self.back(errors, weight))

    @abstractmethod
    def emit(self, sheet: Sheet) -> None:
        """Write the weights."""


def used_in(weights: Weights) -> Used:
    """The numbers of profiles that count at all."""
    return {i: np.asarray(weight.any(axis=(0, 1))) for i, weight in weights.items()}


@dataclass(frozen=True, eq=False)
class TableUnits(Gadget):
    """A token-wise function by a piecewise linear table (Lemma 2); `slack` is what fusing formulas changed."""

    part: Part
    of: Local
    table: Table
    slack: float

    @property
    def hidden_units(self) -> int:
        return len(self.table.units)

    def _passed(self, errors: Errors) -> Passed:
        return self.table.curve.through(errors.profile(self.of), errors.tables)

    def error(self, errors: Errors) -> FloatArray:
        slack = self.slack if errors.unit else 0.0
        return self._passed(errors).profile + slack + units_rounding(errors, self.of, self.table.units)

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        return errors.back(self.of, self._passed(errors).back(weight))

    def emit(self, sheet: Sheet) -> None:
        write_units(sheet, self.part, self.of, self.table.units)


def units_rounding(errors: Errors, x: Local, units: Units) -> float:
    """Every unit reads x and a knot; then all outputs are added (Lemma 2)."""
    if not errors.unit:
        return 0.0
    read, total = _read(errors, x, units)
    return read + errors.gamma(len(units) + 6) * total


def _read(errors: Errors, x: Local, units: Units) -> tuple[float, float]:
    """What rounding adds to the units' arguments, weighted, and the sum of the sizes of all that they add."""
    weight, moved = np.abs(units.coefficient), errors.of(x)
    read = errors.reading(x) * (errors.size(x) + np.abs(units.knot))
    reach = units.reach(x.low - moved, x.high + moved) + read
    return float(np.sum(weight * read)), float(np.sum(weight * reach)) + abs(units.constant)


def write_units(sheet: Sheet, part: Part, x: Local, units: Units) -> None:
    """coefficient * relu(sign * (x - knot)) each, and the constant."""
    for sign, knot, coefficient in zip(units.sign, units.knot, units.coefficient, strict=True):
        sheet.unit(part, sheet.row(x, float(sign), float(-sign * knot)), float(coefficient))
    sheet.bias(part, units.constant)


@dataclass(frozen=True, eq=False)
class PairSumUnits(Gadget):
    """One table at n arguments, one for every token that is known to all; the units of all write one channel (Lemma 14)."""

    part: Part
    of: tuple[Local, ...]
    table: Table

    @property
    def hidden_units(self) -> int:
        return len(self.of) * len(self.table.units)

    def _passed(self, errors: Errors, x: Local) -> Passed:
        return self.table.curve.through(plain(errors.of(x)), errors.tables)

    def error(self, errors: Errors) -> float:
        alike = Counter((errors.of(x), errors.size(x), len(x.coefficients)) for x in self.of)
        some = {(errors.of(x), errors.size(x), len(x.coefficients)): x for x in self.of}
        found = total = 0.0
        for key, count in alike.items():
            read, size = _read(errors, some[key], self.table.units)
            found += count * (float(self._passed(errors, some[key]).profile[0]) + read)
            total += count * size
        return found + errors.gamma(self.hidden_units + 6) * total

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        weight = as_plain(weight)
        return together(*(errors.back(x, self._passed(errors, x).back(weight)) for x in self.of))

    def emit(self, sheet: Sheet) -> None:
        for x in self.of:
            write_units(sheet, self.part, x, self.table.units)


@dataclass(frozen=True, eq=False)
class SquareUnits(Gadget):
    """A product as a difference of two squares, each a table of `pieces` equal pieces on [-2, 2] (Lemma 3).

    x = cx + rx s, y = cy + ry t with |s|, |t| <= 1, errors included:  xy = rx ry ((s+t)^2 - (s-t)^2) / 4 + cy x + cx y - cx cy.
    """

    part: Part
    left: Local
    right: Local
    pieces: int  # odd
    radii: tuple[float, float]

    @property
    def centres(self) -> tuple[float, float]:
        return (self.left.low + self.left.high) / 2, (self.right.low + self.right.high) / 2

    @property
    def knots(self) -> FloatArray:
        """Those right of 0; the table is flat between the first and its mirror image."""
        return -2.0 + 4.0 * np.arange((self.pieces + 1) // 2, self.pieces) / self.pieces

    @property
    def hidden_units(self) -> int:
        return 2 * (self.pieces - 1) + any(self.centres)

    def error(self, errors: Errors) -> FloatArray:
        x, y = self.left, self.right
        ex, ey = errors.of(x), errors.of(y)
        (cx, cy), (rx, ry) = self.centres, self.radii
        if ex > rx - (x.high - x.low) / 2 or ey > ry - (y.high - y.low) / 2:
            raise TooWide(f"a product of values with errors {ex:.3g} and {ey:.3g}")
        moved = self._moved(errors)[0]
        own = rx * ry / self.pieces**2 * (1 + 1e-9) if errors.tables else 0.0
        if not errors.unit:
            return moved + own
        read = errors.reading(x, y)
        square = read * ((errors.size(x) + abs(cx)) / rx + (errors.size(y) + abs(cy)) / ry + 4)
        line = self._offset + abs(cy) * errors.size(x) + abs(cx) * errors.size(y)
        total = 4 * rx * ry * (1 + square) + 2 * line + abs(cx * cy)
        return moved + own + 4 * rx * ry * square + read * line + errors.gamma(2 * self.pieces + 8) * total

    def _moved(self, errors: Errors) -> tuple[FloatArray, NDArray[np.intp], NDArray[np.intp]]:
        """|x^ y^ - x y| <= |x| e_y + |y| e_x + e_x e_y with e = alpha + rho |value|: a pair for each choice of two pairs.

        The profile, and which numbers of those of the factors each of its own is from.
        """
        of_left, of_right = errors.profile(self.left), errors.profile(self.right)
        left, right = corners(of_left), corners(of_right)
        a, b = of_left[left, None], of_right[right]
        r, s = RHO[left, None], RHO[right]
        alpha = self.left.largest * b * (1 + r) + self.right.largest * a * (1 + s) + a * b
        found, pair = settled(alpha.ravel(), (r + s + r * s).ravel(), self.part.low, self.part.high)
        first, second = np.divmod(pair, len(right))
        return found, left[first], right[second]

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        profile, left, right = self._moved(errors)
        r, s = RHO[left], RHO[right]
        a, b = errors.profile(self.left)[left], errors.profile(self.right)[right]
        value = np.where(r + s + r * s > RHO, self.part.size, max(self.part.low, -self.part.high, 0.0))
        count = weight[0] * (profile > 0)
        relative = weight[1] * (profile == 0) + value * count
        found = np.zeros_like(weight), np.zeros_like(weight)
        x, y = self.left.largest, self.right.largest
        for one, at, gain, more in (
            (found[0], left, y * (1 + s) + b, 1 + s),
            (found[1], right, x * (1 + r) + a, 1 + r),
        ):
            np.add.at(one.transpose(2, 0, 1), at, np.stack([gain * count, more * relative]).transpose(2, 0, 1))
        return together(errors.back(self.left, found[0]), errors.back(self.right, found[1]))

    @property
    def _offset(self) -> float:
        """Keeps the unit of the linear part on."""
        (cx, cy), (rx, ry) = self.centres, self.radii
        return 2 * (abs(cx * cy) + abs(cy) * rx + abs(cx) * ry)

    def emit(self, sheet: Sheet) -> None:
        (cx, cy), (rx, ry) = self.centres, self.radii
        x = sheet.row(self.left, 1 / rx, -cx / rx)
        weight = 2 * rx * ry / self.pieces
        for sign in (1.0, -1.0):
            both = x.plus(sheet.row(self.right, sign / ry, -sign * cy / ry))
            for knot in self.knots:
                sheet.unit(self.part, both.plus(Row({}, -float(knot))), sign * weight)
                sheet.unit(self.part, both.times(-1.0).plus(Row({}, -float(knot))), sign * weight)
        if cx or cy:
            line = sheet.row(self.left, cy, self._offset).plus(sheet.row(self.right, cx))
            sheet.unit(self.part, line, 1.0)
            sheet.bias(self.part, -self._offset - cx * cy)


@dataclass(frozen=True, eq=False)
class CompareUnits(Gadget):
    """max(a, b) = a + relu(b - a), min(a, b) = a - relu(a - b); which of them, by position (Lemma 4)."""

    part: Part
    first: Local
    second: Local
    sign: FloatArray
    in_place: bool  # on the channel of the first

    @property
    def _gate(self) -> float:
        """Closes a unit: far below -(second - first), whatever the errors."""
        return -4 * (self.first.largest + self.second.largest) - 1

    @property
    def hidden_units(self) -> int:
        return len(set(self.sign[self.sign != 0])) + (not self.in_place)

    def error(self, errors: Errors) -> float:
        ea, eb = errors.of(self.first), errors.of(self.second)
        size = errors.size(self.first) + errors.size(self.second)
        if not ea + eb + self.first.largest + self.second.largest < -self._gate / 2:
            raise TooWide(f"a comparison of values with errors {ea:.3g} and {eb:.3g}")
        rounding = (2 * errors.reading(self.first, self.second) + errors.gamma(8)) * (size + self._copy_offset)
        return max(ea, eb) + rounding

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        larger = max((self.first, self.second), key=errors.of)
        return errors.back(larger, as_plain(weight))

    @property
    def _copy_offset(self) -> float:
        """Keeps the unit that copies the first on."""
        return 0.0 if self.in_place else 2 * self.first.largest + 1

    def emit(self, sheet: Sheet) -> None:
        if not self.in_place:
            sheet.unit(self.part, sheet.row(self.first, 1.0, self._copy_offset), 1.0)
            sheet.bias(self.part, -self._copy_offset)
        for sign in (1.0, -1.0):
            if (self.sign == sign).any():
                row = sheet.row(self.second, sign).plus(sheet.row(self.first, -sign))
                if (self.sign != sign).any():
                    row = row.plus(sheet.position(np.where(self.sign == sign, 0.0, self._gate)))
                sheet.unit(self.part, row, sign)


@dataclass(frozen=True, eq=False)
class GateUnits(Gadget):
    """A part times a number by position: one unit (two where it may be negative) per number, closed elsewhere (Lemma 5)."""

    part: Part

    @property
    def _source(self) -> Part:
        return source_of(self.part)

    @property
    def _factors(self) -> FloatArray:
        if self.part.factors is None:
            raise ValueError("a scaled part has factors")
        return self.part.factors

    @property
    def _gate(self) -> float:
        return -4 * self._source.size - 1

    @property
    def _signs(self) -> tuple[float, ...]:
        return (1.0,) if self._source.low >= 0 else (1.0, -1.0)

    @property
    def hidden_units(self) -> int:
        return len(self._signs) * len(set(self._factors[self._factors != 0]))

    def error(self, errors: Errors) -> float:
        error, largest = errors.of_part[self._source.index], float(self._factors.max())
        if not error + self._source.size < -self._gate / 2:
            raise TooWide(f"a scaled value with error {error:.3g}")
        return largest * (error + errors.gamma(self.hidden_units + 6) * (self._source.size + error))

    def back(self, errors: Errors, weight: FloatArray) -> Weights:  # noqa: ARG002
        return {self._source.index: float(self._factors.max()) * as_plain(weight)}

    def emit(self, sheet: Sheet) -> None:
        for factor in sorted(set(self._factors[self._factors != 0])):
            on = self._factors == factor
            gate = Row() if on.all() else sheet.position(np.where(on, 0.0, self._gate))
            for sign in self._signs:
                row = Row({sheet.channel_of(self._source): sign}).plus(gate)
                sheet.unit(self.part, row, sign * float(factor))


@dataclass(frozen=True, eq=False)
class InputChannel(Gadget):
    """Nothing to do: the input is there."""

    part: Part

    def error(self, errors: Errors) -> float:  # noqa: ARG002
        return 0.0

    def back(self, errors: Errors, weight: FloatArray) -> Weights:  # noqa: ARG002
        return {}

    def emit(self, sheet: Sheet) -> None:
        """The input rows are the first channels."""


def source_of(part: Part) -> Part:
    """What a mixed or scaled part is made of."""
    if part.source is None:
        raise ValueError(f"{part.name} has no source")
    return part.source
