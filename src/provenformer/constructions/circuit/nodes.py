"""Means of a kernel over pairs of tokens by nodes (docs/circuits.md, Lemma 12): a cost that does not depend on n.

    value_j = G(u_j),  G(t) = mean over k of kernel(t + v_k)

G(t_r) at nodes t_r = t_0 + r h are linear in the means over k of relu(v_k - c_m), which a uniform head makes known to all.
Between nodes G + lambda t rises by g_r, 0 <= g_r <= M = h (sup kernel' - inf kernel'), at most as fast as M / h: up to M / 4 it
is G(t_0) + sum_r min(g_r, M s_r^+) - M/4, s_r = (u - t_r) / h, two units per node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.errors import Errors, Weights, as_plain, together
from provenformer.constructions.circuit.gadgets import Gadget
from provenformer.constructions.circuit.parts import Local, Part
from provenformer.constructions.circuit.sheet import Row, Sheet
from provenformer.symbols.formula import KINKS, Formula
from provenformer.symbols.graph import PairMean
from provenformer.symbols.jets import jet, slope_range

SHRUNK = 1e-6  # of a cell, at either end: a kink at its end does not count as one inside (Lemma 12)
DUST = 1e-13  # coefficients this small beside the largest are rounding


@dataclass(frozen=True, eq=False)
class NodeUnits(Gadget):
    """nodes: t_0 .. t_R. values: kernel at t_0 + c_0 + i h. Statistics are the means of relu(v - c_m)."""

    part: Part
    row: Local
    column: Local
    statistics: tuple[Local, ...]
    nodes: FloatArray
    step: float
    least: float  # inf kernel'
    steep: float  # sup |kernel'|
    rise: float  # M
    constants: FloatArray  # (R + 1,): T_r at v = c_0; the last is that of G(t_R)
    weights: FloatArray  # (R + 1, statistics): T_r = constant + sum of weight * relu(v - c_m)
    own: float  # how far T_r is from the kernel at t_r, and so from its rises

    @classmethod
    def of(cls, part: Part, operation: PairMean, arguments: tuple[Local, ...]) -> NodeUnits:
        row, column, *statistics = arguments
        kernel, knots = operation.kernel, np.array(operation.knots)
        if not len(knots):  # nothing chosen yet: good for budgets only
            least, most = slope_range(kernel, row.low + column.low, row.high + column.high)
            empty, steep = np.zeros(0), max(abs(least), abs(most))
            return cls(part, row, column, (), empty, 0.0, least, steep, 0.0, empty, np.zeros((0, 0)), 0.0)
        step = float(knots[1] - knots[0]) if len(knots) > 1 else column.high - column.low
        nodes = _nodes(kernel, row, float(knots[0]), step)
        count = len(nodes) + len(knots)
        grid = nodes[0] + knots[0] + step * np.arange(count)
        least, most = slope_range(kernel, float(grid[0]), float(grid[-1]))
        steep = max(abs(least), abs(most))
        values = np.asarray(kernel(grid), dtype=np.float64)
        rises = np.diff(values)
        at = np.arange(len(nodes) - 1)[:, None] + np.arange(len(knots) + 1)  # of node r at knot m: z_(r + m)
        heights = np.vstack([rises[at], values[len(nodes) - 1 :][None]])  # (R + 1, knots + 1)
        slopes = np.diff(heights, axis=1) / step
        weights = np.diff(slopes, axis=1, prepend=0.0)
        weights = np.where(np.abs(weights) > DUST * np.abs(values).max() / step, weights, 0.0)
        kept = heights[:, :1] + np.concatenate(
            [np.zeros((len(heights), 1)), np.cumsum(np.cumsum(weights, axis=1), axis=1) * step], axis=1
        )
        dust = float(np.abs(kept - heights).max()) + 2.0**-40 * float(np.abs(rises).max()) + 2.0**-45 * steep * step
        rise = step * (most - least) * (1 + 1e-9) + 4 * dust
        own = _chord(kernel, grid, most - least) + (len(nodes) + 2) * dust
        return cls(
            part, row, column, tuple(statistics), nodes, step, least, steep, rise, heights[:, 0], weights, own
        )  # fmt: skip

    @property
    def hidden_units(self) -> int:
        return max(0, 2 * (len(self.nodes) - 1))

    def error(self, errors: Errors) -> float:
        row = errors.of(self.row)
        if not len(self.nodes):
            return self.steep * (row + errors.of(self.column))
        sizes, off = (np.array([f(x) for x in self.statistics]) for f in (errors.size, errors.of))
        own = self.rise / 4 + self.own if errors.tables else 0.0
        moved = self.steep * (row + (self.column.slack if errors.unit else 0.0))
        terms = np.abs(self.weights) @ sizes + np.abs(self.constants)
        line = self.rise / self.step * (errors.size(self.row) + np.abs(self.nodes)) + abs(self.least) * self.step
        total = float(2 * (terms + 2 * line).sum()) + 2 * self._offset
        rounding = (2 * errors.gamma(len(self.statistics) + 12) + errors.gamma(self.hidden_units + 8)) * total
        return own + moved + 2 * float((np.abs(self.weights) @ off).sum()) + rounding

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        weight = self.steep * as_plain(weight)
        return together(errors.back(self.row, weight), errors.back(self.column, weight))

    @property
    def _offset(self) -> float:
        """Keeps the unit of the linear part on."""
        return 2 * self.part.size + 2 * self.rise + abs(self.least) * (2 * self.row.largest + self.step) + 1

    def emit(self, sheet: Sheet) -> None:
        """G_R + lambda (R h - u + t_0) - sum relu(g_r - M s_r) + sum relu(-M s_r) - M/4, lambda = -inf kernel'."""
        lift, slope, count = -self.least, self.rise / self.step, len(self.nodes) - 1
        sheet.unit(self.part, self._reading(sheet, count).plus(sheet.row(self.row, -lift, self._offset)), 1.0)
        sheet.bias(self.part, lift * (count * self.step + float(self.nodes[0])) - self.rise / 4 - self._offset)
        for r, node in enumerate(self.nodes[:-1]):
            down = sheet.row(self.row, -slope, slope * float(node))
            sheet.unit(self.part, self._reading(sheet, r, lift * self.step).plus(down), -1.0)
            if r:
                sheet.unit(self.part, down, 1.0)

    def _reading(self, sheet: Sheet, r: int, bias: float = 0.0) -> Row:
        """T_r, as read from the statistics."""
        total = Row({}, float(self.constants[r]) + bias)
        for m in np.flatnonzero(self.weights[r]):
            total = total.plus(sheet.row(self.statistics[m], float(self.weights[r, m])))
        return total


def kinks(kernel: Formula) -> list[float]:
    """Where a kernel has kinks that are easily found: absolute values, maxima and minima of affine functions."""
    found = [z for part in kernel.parts for z in kinks(part)]
    if kernel.operation in KINKS:
        parts = [_affine(part) for part in kernel.parts]
        if None not in parts:
            slopes, heights = (np.array(v) for v in zip(*(p for p in parts if p is not None), strict=True))
            slope, height = slopes[0] - slopes[1:].sum(), heights[0] - heights[1:].sum()
            found += [float(-height / slope)] if slope else []
        elif len(kernel.parts) == 2:  # a maximum of a kinked function and a number: where its pieces cross that number
            found += _crossings(kernel.parts)
    return sorted(set(found))


def aligned_step(kernel: Formula, step: float) -> float:
    """A step not larger, of which the distance between the outermost kinks is a multiple."""
    found = kinks(kernel)
    span = found[-1] - found[0] if len(found) > 1 else 0.0
    return span / float(np.ceil(span / step)) if span else step


def _crossings(parts: tuple[Formula, ...]) -> list[float]:
    numbers = [part for part in parts if part.operation == "constant"]
    others = [part for part in parts if part.operation != "constant"]
    if len(numbers) != 1 or others[0].operation not in KINKS:
        return []
    found = []
    for inner in others[0].parts:
        line = _affine(inner)
        if line is not None and line[0]:
            signs = (1.0, -1.0) if others[0].operation == "absolute" else (1.0,)
            found += [(sign * numbers[0].value - line[1]) / line[0] for sign in signs]
    return [z for z in found if np.isclose(float(others[0](z)), numbers[0].value, atol=1e-12)]


def _affine(formula: Formula) -> tuple[float, float] | None:
    """(slope, height) of a formula that is affine."""
    if formula.operation == "constant":
        return 0.0, formula.value
    if formula.operation == "variable":
        return 1.0, 0.0
    if formula.operation not in ("add", "multiply", "divide"):
        return None
    parts = [_affine(part) for part in formula.parts]
    if parts[0] is None or parts[1] is None:
        return None
    (a, b), (c, d) = parts[0], parts[1]
    if formula.operation == "add":
        return a + c, b + d
    if formula.operation == "divide":
        return (a / d, b / d) if c == 0 and d != 0 else None
    return (a * d + b * c, b * d) if a == 0 or c == 0 else None


def _nodes(kernel: Formula, row: Local, first_knot: float, step: float) -> FloatArray:
    """Nodes that cover the row's range, so that the kernel's first kink is at a node plus a knot."""
    start, found = row.low, kinks(kernel)
    if found:
        first = found[0] - first_knot
        start = first - step * float(np.ceil((first - row.low) / step - 1e-9))
    count = max(1, int(np.ceil((row.high - start) / step - 1e-9)))
    return np.asarray(start + step * np.arange(count + 1), dtype=np.float64)


def _chord(kernel: Formula, edges: FloatArray, change: float) -> float:
    """How far the kernel is from its chords between the edges, on each cell without its utmost ends (Lemma 12)."""
    width = np.diff(edges)
    found = jet(kernel, edges[:-1] + SHRUNK * width, edges[1:] - SHRUNK * width)
    with np.errstate(invalid="ignore"):
        bend = width**2 / 8 * np.maximum(np.abs(found.second.lo), np.abs(found.second.hi))
        cone = width / 4 * (found.first.hi - found.first.lo)
    return float(np.fmin(bend, cone).max()) * (1 + 1e-9) + 2 * SHRUNK * float(width.max()) * change
