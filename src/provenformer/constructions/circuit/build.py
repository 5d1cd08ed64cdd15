"""From parts to a network: gadgets within the budgets of budgets.py, errors, and the certificate's terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.constructions.circuit.budgets import Budget, Planner, too_many
from provenformer.constructions.circuit.errors import UNITS, Errors, TooWide
from provenformer.constructions.circuit.gadgets import (
    CompareUnits,
    Gadget,
    GateUnits,
    InputChannel,
    PairSumUnits,
    SquareUnits,
    TableUnits,
)  # fmt: skip
from provenformer.constructions.circuit.heads import (
    GatherHead,
    MaxHead,
    MeanHead,
    PickHead,
    RowsHead,
    SoftmaxHead,
    lambert,
)  # fmt: skip
from provenformer.constructions.circuit.nodes import NodeUnits
from provenformer.constructions.circuit.parts import Lowered, Part
from provenformer.constructions.circuit.sheet import Sheet
from provenformer.constructions.circuit.tables import Density, Table, exact_curve, fit, units_of_pieces
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.formula import Formula
from provenformer.symbols.graph import Apply, Attend, Compare, Input, Largest, PairMean, PairSum, Pieces, Product
from provenformer.symbols.piecewise import PiecewiseLinear

HEAD_SHARE = 1e-3  # of the tolerance: what all maxima together may use; sharpness costs nothing
UNDERFLOW = {"float64": 2.0**-900, "float32": 2.0**-80}  # what numbers below the smallest normal one may add (Lemma 0)
MODERATE = 2.0**40  # weights up to which UNDERFLOW holds in float32
SPARE = 1e-3  # a product's range is planned this much wider, so that the errors of float32 fit too
ROUNDS = 12
MOST_PIECES = 2.0**40  # of a square: far beyond any limit on units


@dataclass(frozen=True, eq=False)
class Built:
    """A network and what is proved of it: sup |f - network| <= bounds[precision]; the terms add up to that of float64."""

    network: CircuitNetwork
    bounds: dict[str, float]
    terms: dict[str, float]


def drawn(lowered: Lowered, tolerance: float, max_units: int, asked: float = 1.0) -> tuple[list[Gadget], Sheet]:
    """The gadgets of the network with the fewest units within the tolerance, on a sheet: all sizes are known then.

    A refusal names tolerances times `asked`: what was asked for may be another norm, or wider than what is tried.
    """
    gadgets = _Workshop.of(lowered, tolerance, asked).within(tolerance, max_units)
    in_place = {g.part.index: min(g.first.coefficients) for g in gadgets if isinstance(g, CompareUnits) and g.in_place}
    sheet = Sheet(lowered, in_place)
    for gadget in gadgets:
        gadget.emit(sheet)
    return gadgets, sheet


def build(lowered: Lowered, tolerance: float, max_units: int, asked: float = 1.0) -> Built:
    """The network with the fewest units that is certified within the tolerance in float64."""
    gadgets, sheet = drawn(lowered, tolerance, max_units, asked)
    heads, exact = (bound(lowered, gadgets, Errors(0.0, tables=t)) for t in (False, True))
    bounds = {name: executed_bound(lowered, gadgets, name) for name in UNITS}
    network = sheet.network([g.part for g in gadgets])
    if max((float(np.abs(v).max(initial=0.0)) for v in network.tensors().values()), default=0.0) > MODERATE:
        bounds["float32"] = np.inf
    terms = {"tables": exact - heads, "attention": heads, "rounding": bounds["float64"] - exact}
    return Built(network, bounds, terms)


def amplifications(lowered: Lowered, tolerance: float) -> dict[int, float]:
    """By part: about how much its error counts in the output in which it counts most."""
    return _Workshop.of(lowered, tolerance).planner.amplifications(tolerance)


def bound(lowered: Lowered, gadgets: list[Gadget], errors: Errors) -> float:
    """The largest error of an output; fills `errors` on the way."""
    for gadget in gadgets:
        errors.set(gadget.part, gadget.error(errors))
    return max(errors.of(x) + errors.reading(x) * errors.size(x) for x in lowered.outputs)


def executed_bound(lowered: Lowered, gadgets: list[Gadget], precision: str) -> float:
    """The bound for the network as it is run; infinite where rounding leaves the ranges that gadgets were planned for."""
    try:
        return bound(lowered, gadgets, Errors(UNITS[precision])) + UNDERFLOW[precision]
    except TooWide:
        return np.inf


@dataclass(eq=False)
class _Workshop:
    """Makes gadgets for parts, and tries budgets."""

    lowered: Lowered
    sharp: float  # what every maximum may use of the tolerance
    densities: dict[int, Density]  # of formulas, by part
    products: dict[int, float]  # by part: about how many units each takes for an error of 1
    last_read: dict[int, int]  # the last layer that reads a part
    asked: float  # for a tolerance of 1 here
    pieces: dict[object, Table] = field(default_factory=dict)  # tokens that are gathered have one table

    @classmethod
    def of(cls, lowered: Lowered, tolerance: float, asked: float = 1.0) -> _Workshop:
        values = [part for part in lowered.parts if part.kind == "value"]
        peaks = sum(isinstance(part.atom.operation, Largest) for part in values)
        densities: dict[int, Density] = {}
        products: dict[int, float] = {}
        known: dict[tuple[Formula, float, float], Density] = {}
        for part in values:
            operation, arguments = part.atom.operation, lowered.arguments[part.index]
            if isinstance(operation, Apply | Product) and operation.folded is not None:
                continue
            if isinstance(operation, Apply):
                key = (operation.formula, arguments[0].low, arguments[0].high)
                if key not in known:
                    known[key] = Density.of(*key)
                densities[part.index] = known[key]
            elif isinstance(operation, Product):
                widths = [x.high - x.low for x in arguments]
                products[part.index] = max(float(np.sqrt(widths[0] * widths[1])), 1e-6)
        return cls(lowered, tolerance * HEAD_SHARE / max(1, peaks), densities, products, _last_readers(lowered), asked)

    @cached_property
    def planner(self) -> Planner:
        return Planner(self.lowered, self.densities, self.products, self._gadget, self.asked)

    def within(self, tolerance: float, max_units: int) -> list[Gadget]:
        """Gadgets with the widest errors for tables that keep the bound below the tolerance."""
        planner = self.planner
        budget = planner.plan(tolerance) if planner.tabled else Budget({}, {}, {})
        planner.require_few(budget, max_units, tolerance)
        best, scale, low, high = None, 1.0, 0.0, np.inf
        found = np.inf
        for _ in range(ROUNDS):
            before = found
            try:
                gadgets = self._gadgets(budget.scaled(scale))
                found = bound(self.lowered, gadgets, Errors(UNITS["float64"]))
            except TooWide:
                found = np.inf
            if found <= tolerance:
                best, low = gadgets, scale
                if not planner.tabled or found > 0.97 * tolerance or high / low < 1.02:
                    break
                scale = min(scale * min(4.0, 0.99 * tolerance / found), high * 0.995)
            elif not planner.tabled:
                break
            else:
                high = scale
                stuck = found > 0.999 * before  # pieces are whole numbers: a small step may change nothing
                less = 0.7 if stuck else min(0.995, 0.99 * tolerance / found)
                scale = (low + high) / 2 if low else scale * max(0.05, less)
                planner.require_few(budget.scaled(scale), max_units, tolerance, room=2.0)
        if best is None:
            raise _unreachable(found * self.asked, tolerance * self.asked)
        _require_units(best, max_units, tolerance, planner)
        return best

    def _gadgets(self, budget: Budget) -> list[Gadget]:
        errors, gadgets = Errors(UNITS["float64"]), []
        tables: dict[object, Table] = {}
        for part in self.lowered.parts:
            operation = part.atom.operation
            if part.index in self.planner.densities and isinstance(operation, Apply):
                density, allowed = self.planner.densities[part.index], self.planner.allowed(part.index, budget)
                key = (operation.formula, id(density), allowed.tobytes())
                if key not in tables:
                    tables[key] = fit(operation.formula, density, allowed)
                of = self.lowered.arguments[part.index][0]
                gadget: Gadget = TableUnits(part, of, tables[key], operation.slack)
            else:
                gadget = self._gadget(part, budget, errors)
            errors.set(part, gadget.error(errors))
            gadgets.append(gadget)
        return gadgets

    def _gadget(self, part: Part, budget: Budget, errors: Errors) -> Gadget:
        """Of everything but the tables of formulas."""
        if part.kind != "value":
            makers: dict[str, Callable[[Part], Gadget]] = {
                "mean": MeanHead,
                "pick": PickHead,
                "rows": RowsHead,
                "scaled": GateUnits,
                "gathered": GatherHead,
            }
            return makers[part.kind](part)
        operation, arguments, n = part.atom.operation, self.lowered.arguments[part.index], self.lowered.graph.seq_len
        if isinstance(operation, Input):
            return InputChannel(part)
        if isinstance(operation, Pieces):
            return TableUnits(
                part, arguments[0], self._pieces(operation.curve, arguments[0].low, arguments[0].high), 0.0
            )
        if isinstance(operation, PairSum):
            return PairSumUnits(part, arguments, self._pieces(operation.curve, arguments[0].low, arguments[0].high))
        if isinstance(operation, Apply | Product) and operation.folded is not None:
            slack = operation.slack if isinstance(operation, Apply) else 0.0
            return TableUnits(
                part, arguments[-1], _line_table(lambda z: z, arguments[-1].low, arguments[-1].high), slack
            )
        if isinstance(operation, Product):
            x, y = arguments
            radii = tuple(
                (v.high - v.low) / 2 * (1 + SPARE) + 2 * errors.of(v) + 1e-9 * v.largest + 1e-300 for v in arguments
            )
            wanted = float(np.sqrt(radii[0] * radii[1] / budget.within[part.index]))
            if not wanted < MOST_PIECES:
                raise TooWide(f"a product of values up to {radii[0]:.3g} and {radii[1]:.3g}")
            pieces = max(3, int(np.ceil(wanted)))
            return SquareUnits(part, x, y, pieces + (pieces + 1) % 2, (radii[0], radii[1]))
        if isinstance(operation, PairMean):
            return NodeUnits.of(part, operation, arguments)
        if isinstance(operation, Compare):
            return CompareUnits(part, arguments[0], arguments[1], operation.sign, self._takes_over(part))
        if isinstance(operation, Largest):
            sharpness = 2.0 ** np.ceil(np.log2(lambert(n) / self.sharp + 1))
            return MaxHead(part, arguments[0], n, float(sharpness))
        if not isinstance(operation, Attend):
            raise TypeError(f"{type(operation).__name__} has no gadget")
        count = len(operation.queries)
        queries, keys = arguments[:count], arguments[count : 2 * count]
        return SoftmaxHead(part, queries, keys, operation.bias, arguments[-1], n, operation.score_key)

    def _pieces(self, curve: PiecewiseLinear, low: float, high: float) -> Table:
        key = (curve, low, high)
        if key not in self.pieces:
            self.pieces[key] = _pieces_table(curve, low, high)
        return self.pieces[key]

    def _takes_over(self, part: Part) -> bool:
        """Whether a comparison may be made on the channel of its first argument: nobody reads that afterwards."""
        first = self.lowered.arguments[part.index][0]
        if list(first.coefficients.values()) != [1.0] or first.constant.any():
            return False
        (index,) = first.coefficients
        rivals = [
            other for other in self.lowered.parts
            if other.kind == "value" and isinstance(other.atom.operation, Compare) and other.layer == part.layer
            and index in self.lowered.arguments[other.index][0].coefficients
        ]  # fmt: skip
        return self.last_read[index] <= part.layer and rivals == [part]


def _pieces_table(curve: PiecewiseLinear, low: float, high: float) -> Table:
    """Exact: the pieces that [low, high] meets."""
    inside = [i for i, knot in enumerate(curve.knots) if low < knot < high]
    if not inside:
        return _line_table(curve, low, high)
    slopes = np.array(curve.slopes)[[inside[0], *(i + 1 for i in inside)]]
    knots = np.array(curve.knots)[inside]
    units = units_of_pieces(knots, slopes, float(curve(knots[:1])[0]), low, high)
    # jumps and the value at the anchor are rounded
    steepest = float(np.abs(slopes).max())
    size = steepest * ((high - low) * len(knots) + float(np.abs(knots).max())) + abs(units.constant)
    return Table(units, exact_curve(units, 2.0**-53 * 8 * (len(curve.knots) + 2) * size, low, high))


def _line_table(line: Callable[[FloatArray], FloatArray], low: float, high: float) -> Table:
    """A linear function, by two units that meet in the middle."""
    ends = np.array([low, (low + high) / 2, high])
    values = line(ends)
    slope = float(values[2] - values[0]) / (high - low) if high > low else 0.0
    units = units_of_pieces(ends[1:2], np.full(2, slope), float(values[1]), low, high)
    rounding = 2.0**-50 * (abs(slope) * float(np.abs(ends).max()) + float(np.abs(values).max()))
    return Table(units, exact_curve(units, rounding, low, high))


def _last_readers(lowered: Lowered) -> dict[int, int]:
    """By part: the last layer that reads it; outputs read after all layers."""
    last = {part.index: 0 for part in lowered.parts}
    for part in lowered.parts:
        reads = {i for x in lowered.arguments.get(part.index, ()) for i in x.coefficients}
        if part.source is not None:
            reads.add(part.source.index)
        for i in reads:
            last[i] = max(last[i], part.layer)
    end = lowered.layers + 1
    for x in lowered.outputs:
        for i in x.coefficients:
            last[i] = end
    return last


def _require_units(gadgets: list[Gadget], max_units: int, tolerance: float, planner: Planner) -> None:
    if (total := sum(g.hidden_units for g in gadgets)) > max_units:
        largest = max(gadgets, key=lambda g: g.hidden_units)
        fits = tolerance * (total / max_units) ** 2
        raise too_many(f"{total:,}", fits, planner.asked, max_units, planner.size, largest.part)


def _unreachable(found: float, tolerance: float) -> ProvenformerError:
    return ProvenformerError(
        f"rounding and attention alone bring the bound to {found:.3g} (tolerance {tolerance:g}); use a larger tolerance."
    )
