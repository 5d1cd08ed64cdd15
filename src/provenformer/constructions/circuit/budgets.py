"""Budgets: how far every table may be from its formula, so that the network has few units and its bound is the tolerance.

A table within delta has about C / sqrt(delta) pieces, and its delta counts amplification * delta in the result. The fewest pieces
for a given sum have delta proportional to (C / amplification)^(2/3). Amplifications come from one pass backwards over the errors
as they are; they depend on the budget, so both are repeated, in steps that get shorter where they overshoot. All this is done on
plans of tables, not on tables: nothing is allocated, and no bound rests on it. In the end every table is widened where errors are
damped: that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import TooLarge
from provenformer.constructions.circuit.curves import Curve, Passed
from provenformer.constructions.circuit.errors import RHO, Errors, TooWide, Weights
from provenformer.constructions.circuit.gadgets import Gadget, Used, used_in
from provenformer.constructions.circuit.parts import Local, Lowered, Part
from provenformer.constructions.circuit.sheet import Sheet
from provenformer.constructions.circuit.tables import Density
from provenformer.symbols.graph import Apply, Operation, Product

ROUNDS = 8
FOLDS = 6  # the depth that a refusal proposes
GOAL = 0.98  # of the tolerance: what plans use of it
SETTLED = 1e-3  # a relative gain in units that is not worth another step
FEWEST = 6.0  # units of a product, two squares of three pieces: its error does not grow beyond theirs
SHORTEST = 0.05  # steps
LEAST = 1e-150  # of a budget: its powers are numbers
HOPELESS = 1e9  # units: nothing makes a network of that
MOST = 1e100  # times as many units as allowed
TURNS, MOST_TURNS = (16.0, 4.0, 2.0, 1.3), 3  # of knobs: by how much, and how often in a row


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

    def turned(self, relative: bool, parts: Sequence[int], factor: float) -> Budget:
        """With what is plain, or what is relative, multiplied for some tables."""
        changed = {i: factor * v for i, v in (self.relative if relative else self.within).items() if i in parts}
        if relative:
            return Budget(self.within, self.relative | changed, {})
        return Budget(self.within | changed, self.relative, {})

    def towards(self, other: Budget, share: float) -> Budget:
        """A share of the way, on a logarithmic scale."""

        def between(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
            return {i: v ** (1 - share) * b[i] ** share for i, v in a.items()}

        return Budget(between(self.within, other.within), between(self.relative, other.relative), {})


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

    def used(self, errors: Errors, used: NDArray[np.bool_]) -> Used:  # noqa: ARG002
        """All that any of its pieces uses: one that does not decide now might, were it allowed more."""
        passed, every = self.passed(errors), np.zeros((2, 1, len(RHO)))
        every[:, :, passed.which] = 1.0
        return used_in(errors.back(self.of, every))

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
        return tables | {i: max(c / np.sqrt(budget.within[i]), FEWEST) for i, c in self.products.items()}

    def plan(self, tolerance: float) -> Budget:
        """The fewest units that a few rounds find; a step that finds no fewer is taken back, and the next one is shorter."""
        best, fewest, step = self._start(tolerance), np.inf, 1.0
        goal = self._moved(best, tolerance)
        while step > SHORTEST:
            budget, found = self._within(best.towards(goal, step), tolerance)
            total = sum(self.units(budget).values()) * max(1.0, found / tolerance)
            if total < fewest * (1 - SETTLED):
                best, fewest = budget, total
                goal = self._moved(best, tolerance)
            else:
                step /= 4
        if fewest > HOPELESS:
            return best
        return self._widened(self._within(self._polished(best, tolerance), tolerance)[0])

    def _polished(self, budget: Budget, tolerance: float) -> Budget:
        """One knob at a time turned as long as that helps: slopes mislead where another piece is about to be the worst."""
        best, fewest = budget, self._score(budget, tolerance)
        for factor in TURNS:
            for relative, parts in self._knobs():
                for turn in (factor, 1 / factor):
                    for _ in range(MOST_TURNS):
                        trial = best.turned(relative, parts, turn)
                        if (score := self._score(trial, tolerance)) >= fewest * (1 - SETTLED):
                            break
                        best, fewest = trial, score
        return best

    def _score(self, budget: Budget, tolerance: float) -> float:
        """About how many units, once scaled to the tolerance."""
        return float(sum(self.units(budget).values()) * np.sqrt(self._bound(budget) / tolerance))

    def _knobs(self) -> list[tuple[bool, list[int]]]:
        """Tables of one operation in one layer are turned together: what is plain of their budgets, or what is relative."""
        alike: dict[object, list[int]] = {}
        for i in self.tabled:
            part = self.lowered.parts[i]
            operation = part.atom.operation
            alike.setdefault((part.layer, operation.formula if isinstance(operation, Apply) else None), []).append(i)
        return [
            (relative, parts)
            for parts in alike.values()
            for relative in (False, True)[: 1 + (parts[0] in self.densities)]
        ]

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
            budget = budget.scaled(float(np.clip(GOAL * tolerance / found, 1e-3, 1e3)) if found else 1e3)
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

    def _moved(self, budget: Budget, tolerance: float) -> Budget:
        """Every part of the budget moved to where what it saves in pieces is in proportion to what it costs in the bound."""
        gadgets, errors, _ = self.run(budget)
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
        moved = Budget(within, relative, {}).scaled(tolerance / total)
        # Where errors count without limit nothing is gained: what was there has too many units, and is refused.
        return moved if all(LEAST < v < np.inf for v in moved.within.values()) else budget

    def _pieces_per_error(self, part: int, budget: Budget) -> FloatArray:
        """By cell (a product: in all) the pieces divided by what is allowed."""
        if part in self.products:
            return np.array([self.products[part] * max(budget.within[part], LEAST) ** -1.5])
        density, allowed = self.densities[part], self.allowed(part, budget)
        return np.asarray(np.sqrt(density.bend / (16 * allowed)) * np.diff(density.edges) / allowed)

    def _widened(self, budget: Budget) -> Budget:
        """What a table may be off further without any change in the bound: its worst piece decides, others have room."""
        gadgets, errors, _ = self.run(budget)
        used, spare = self._used(gadgets, errors), {}
        for i in self.densities:
            gadget, counts = gadgets[i], np.flatnonzero(used[i])
            if not isinstance(gadget, PlannedTable):
                raise TypeError("tables are planned")
            passed = gadget.passed(errors)
            if len(counts):
                room = passed.profile[counts, None] - (passed.total - RHO[counts, None] * gadget.curve.least)
                spare[i] = np.maximum(room.min(axis=0), 0.0)
        return Budget(budget.within, budget.relative, spare)

    def _used(self, gadgets: Sequence[Gadget], errors: Errors) -> dict[int, NDArray[np.bool_]]:
        """By part which numbers of its profile stand behind the bound: if these stay as they are, so does the bound."""
        total = {part.index: np.zeros(len(RHO), dtype=bool) for part in self.lowered.parts}
        plain = np.arange(len(RHO)) == 0
        for x in self.lowered.outputs:
            for i in x.coefficients:
                total[i] |= plain
        for gadget in reversed(gadgets):
            if (used := total[gadget.part.index]).any():
                for i, more in gadget.used(errors, used).items():
                    total[i] |= more
        return total

    def require_few(self, budget: Budget, max_units: int, tolerance: float, room: float = 1.0) -> None:
        """Before anything is allocated; `room` is how far above the limit a plan may be that is still to be improved."""
        counts = self.units(budget)
        if (total := sum(counts.values())) <= room * max_units:
            return
        fits = tolerance * min(total / max_units, MOST) ** 2
        if fits < self.size:  # else there is no tolerance to name
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
        f"a tolerance of about {1.05 * fits * asked:.2g} would fit, or a larger max_units{_or_depth(operation)}"
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
