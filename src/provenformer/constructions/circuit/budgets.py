"""Budgets: how far every table may be from its formula, so that the network has few units and its bound is the tolerance.

A table within delta has about C / sqrt(delta) pieces, and its delta counts amplification * delta in the result. The fewest pieces
for a given sum have delta proportional to (C / amplification)^(2/3). Amplifications come from one pass backwards over the errors
as they are; they depend on the budget, so both are repeated a few times. All this is done on plans of tables, not on tables:
nothing is allocated, and no bound rests on it. In the end every table is widened where errors are damped: that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import TooLarge
from provenformer.constructions.circuit.curves import Curve, Passed
from provenformer.constructions.circuit.errors import RHO, Errors, TooWide, Weights
from provenformer.constructions.circuit.gadgets import Gadget
from provenformer.constructions.circuit.parts import Local, Lowered, Part
from provenformer.constructions.circuit.sheet import Sheet
from provenformer.constructions.circuit.tables import Density
from provenformer.symbols.graph import Apply, Operation, Product

ROUNDS = 8
FOLDS = 6  # the depth that a refusal proposes
GOAL = 0.98  # of the tolerance: what plans use of it
SETTLED = 1e-3  # a relative gain in units that is not worth another round


@dataclass(frozen=True, eq=False)
class Budget:
    """Per table (by part) what it may be off: within[i] + relative[i] |formula|, and more where errors are damped."""

    within: dict[int, float]
    relative: dict[int, float]
    spare: dict[int, FloatArray]  # by cell

    def scaled(self, factor: float) -> Budget:
        return Budget(
            {i: factor * v for i, v in self.within.items()},
            {i: factor * v for i, v in self.relative.items()},
            {i: factor * v for i, v in self.spare.items()},
        )


@dataclass(frozen=True, eq=False)
class PlannedTable(Gadget):
    """A table that is not there yet."""

    part: Part
    of: Local
    curve: Curve

    def passed(self, errors: Errors) -> Passed:
        return self.curve.through(errors.profile(self.of), errors.tables)

    def error(self, errors: Errors) -> FloatArray:
        return self.passed(errors).profile

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        return errors.back(self.of, self.passed(errors).back(weight))

    def emit(self, sheet: Sheet) -> None:  # noqa: ARG002
        raise TypeError("a plan has no units")


Make = Callable[[Part, Budget, Errors], Gadget]


@dataclass(frozen=True, eq=False)
class Planner:
    """Everything but the tables of formulas is made by `make`."""

    lowered: Lowered
    densities: dict[int, Density]  # of the tables of formulas, by part
    products: dict[int, float]  # by part: C of each product
    make: Make
    asked: float  # what was asked for by whoever gets a refusal, for a tolerance of 1 here

    @property
    def tabled(self) -> list[int]:
        return [*self.densities, *self.products]

    def allowed(self, part: int, budget: Budget) -> FloatArray:
        """By cell."""
        found = budget.within[part] + budget.relative[part] * self.densities[part].least
        return found + budget.spare.get(part, 0.0)

    def run(self, budget: Budget) -> tuple[list[Gadget], Errors, float]:
        """Gadgets with plans for tables, errors in exact arithmetic, and the bound."""
        errors, gadgets = Errors(0.0), []
        for part in self.lowered.parts:
            if part.index in self.densities:
                curve = self.densities[part.index].planned(self.allowed(part.index, budget))
                gadget: Gadget = PlannedTable(part, self.lowered.arguments[part.index][0], curve)
            else:
                gadget = self.make(part, budget, errors)
            errors.set(part, gadget.error(errors))
            gadgets.append(gadget)
        return gadgets, errors, max(map(errors.of, self.lowered.outputs))

    def units(self, budget: Budget) -> dict[int, float]:
        """About how many each table takes."""
        tables = {i: density.pieces(self.allowed(i, budget)) for i, density in self.densities.items()}
        return tables | {i: c / np.sqrt(budget.within[i]) for i, c in self.products.items()}

    def plan(self, tolerance: float) -> Budget:
        """The fewest units that a few rounds find."""
        budget = self._start(tolerance)
        best, fewest = budget, np.inf
        for _ in range(ROUNDS):
            gadgets, errors, _ = self.run(budget)
            budget, found = self._within(self._moved(budget, gadgets, errors, tolerance), tolerance)
            if found == np.inf:
                break
            total = sum(self.units(budget).values()) * max(1.0, found / tolerance)
            if total < fewest:
                best, fewest, before = budget, total, fewest
                if total > before * (1 - SETTLED):
                    break
        return self._widened(best)

    def amplifications(self, tolerance: float) -> dict[int, float]:
        """By part: about how much its error counts in the output in which it counts most."""
        gadgets, errors, _ = self.run(self._start(tolerance))
        weights = self._weights(gadgets, errors)
        return {i: float(weight[0].sum(axis=1).max()) for i, weight in weights.items()}

    def _start(self, tolerance: float) -> Budget:
        """Errors everywhere so small that all gadgets stay in their ranges."""
        within = 1e-3 * tolerance / max(1, len(self.tabled))
        relative = {i: within / max(float(d.least.max()), 1e-300) for i, d in self.densities.items()}
        budget = Budget(dict.fromkeys(self.tabled, within), relative, {})
        for _ in range(ROUNDS):
            if self._bound(budget) < np.inf:
                return budget
            budget = budget.scaled(1e-3)
        raise TooLarge("errors of tables grow beyond all ranges on the way to the outputs; shrink the support.")

    def _bound(self, budget: Budget) -> float:
        """Infinite where errors leave the ranges that gadgets are planned for."""
        try:
            return self.run(budget)[2]
        except TooWide:
            return np.inf

    def _within(self, budget: Budget, tolerance: float) -> tuple[Budget, float]:
        """Scaled so that the bound is close to the goal; and that bound."""
        found = self._bound(budget)
        for _ in range(ROUNDS):
            if GOAL * 0.98 * tolerance < found <= tolerance:
                break
            budget = budget.scaled(float(np.clip(GOAL * tolerance / found, 1e-3, 1e3)))
            found = self._bound(budget)
        return budget, found

    def _weights(self, gadgets: Sequence[Gadget], errors: Errors) -> Weights:
        """How much the profile of every part counts in each output: one pass backwards."""
        count = len(self.lowered.outputs)
        total = {part.index: np.zeros((2, count, len(RHO))) for part in self.lowered.parts}
        for o, x in enumerate(self.lowered.outputs):
            weight = np.zeros((2, count, len(RHO)))
            weight[0, o, 0] = 1.0
            for i, share in errors.back(x, weight).items():
                total[i] += share
        for gadget in reversed(gadgets):
            for i, share in gadget.back(errors, total[gadget.part.index]).items():
                total[i] += share
        return total

    def _moved(self, budget: Budget, gadgets: Sequence[Gadget], errors: Errors, tolerance: float) -> Budget:
        """Every part of the budget moved to where what it saves in pieces is in proportion to what it costs in the bound."""
        weights, total = self._weights(gadgets, errors), 0.0
        within, relative = dict(budget.within), dict(budget.relative)
        for i in self.tabled:
            gadget, saved = gadgets[i], self._pieces_per_error(i, budget)
            parts = [(within, float(saved.sum()), float(weights[i][0].sum(axis=1).max()))]
            if isinstance(gadget, PlannedTable):
                plain, proportional = gadget.passed(errors).gains(weights[i])
                parts = [
                    (within, float(saved.sum()), plain),
                    (relative, float(saved @ gadget.curve.least), proportional),
                ]
            for part, less, gain in parts:
                part[i] *= (max(less, 1e-12) / max(gain, 1e-9)) ** (2 / 3)
                total += max(gain, 1e-9) * part[i]
        return Budget(within, relative, {}).scaled(tolerance / total)

    def _pieces_per_error(self, part: int, budget: Budget) -> FloatArray:
        """By cell (a product: in all) the pieces divided by what is allowed."""
        if part in self.products:
            return np.array([self.products[part] * budget.within[part] ** -1.5])
        density, allowed = self.densities[part], self.allowed(part, budget)
        return np.asarray(np.sqrt(density.bend / (16 * allowed)) * np.diff(density.edges) / allowed)

    def _widened(self, budget: Budget) -> Budget:
        """What a table may be off further without any change in the bound: its worst piece decides, others have room."""
        gadgets, errors, _ = self.run(budget)
        weights, spare = self._weights(gadgets, errors), {}
        for i in self.densities:
            gadget = gadgets[i]
            if not isinstance(gadget, PlannedTable):
                raise TypeError("tables are planned")
            passed = gadget.passed(errors)
            counts = np.flatnonzero(weights[i].any(axis=(0, 1)))
            if len(counts):
                room = passed.profile[counts, None] - (passed.total - RHO[counts, None] * gadget.curve.least)
                spare[i] = np.maximum(room.min(axis=0), 0.0)
        return Budget(budget.within, budget.relative, spare)

    def require_few(self, budget: Budget, max_units: int, tolerance: float, room: float = 1.0) -> None:
        """Before anything is allocated; `room` is how far above the limit a plan may be that is still to be improved."""
        counts = self.units(budget)
        if (total := sum(counts.values())) <= room * max_units:
            return
        fits = tolerance * (total / max_units) ** 2
        fits *= max(1.0, sum(self.units(self.plan(fits)).values()) / max_units) ** 2
        worst = self.lowered.parts[max(counts, key=lambda i: counts[i])]
        raise too_many(f"about {total:,.0f}", fits, self.asked, max_units, self.size, worst)

    @property
    def size(self) -> float:
        """The largest |output|."""
        return max(x.largest for x in self.lowered.outputs)


def too_many(said: str, fits: float, asked: float, max_units: int, size: float, worst: Part) -> TooLarge:
    """How many units are needed, by what most of all, and the remedy: a tolerance that fits, if that says anything."""
    operation = worst.atom.operation
    what = str(operation.formula) if isinstance(operation, Apply) else f"a {type(operation).__name__.lower()}"
    remedy = (
        f"a tolerance of about {fits * asked:.1g} would fit, or a larger max_units{_or_depth(operation)}"
        if fits < size
        else f"a tolerance that would fit is above the function's own size ({size:.2g}): shrink the support, or keep that range "
        "small (np.clip, np.tanh, pf.softmax, pf.normalize)"
    )
    return TooLarge(
        f"the circuit needs {said} units (max_units={max_units:,}), most of them for {what} with values in "
        f"[{worst.low:.3g}, {worst.high:.3g}]; {remedy}."
    )


def _or_depth(operation: Operation) -> str:
    """Squares need few units where they may be deep."""
    if not isinstance(operation, Apply | Product) or operation.folded is not None:
        return ""
    return f", or depth={FOLDS}" if isinstance(operation, Product) or operation.formula.operation == "square" else ""
