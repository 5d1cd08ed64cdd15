"""From parts to a network: budgets for tables, gadgets, errors, and the certificate's terms.

A table of error delta has about C / sqrt(delta) knots, and its error counts amplification * delta in the result. The fewest
knots for a given sum of errors have delta proportional to (C / amplification)^(2/3); amplifications come from one pass backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, TooLarge
from provenformer.constructions.circuit.errors import UNITS, Errors, TooWide
from provenformer.constructions.circuit.gadgets import (
    CompareUnits,
    Gadget,
    GateUnits,
    InputChannel,
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
from provenformer.constructions.circuit.tables import Density, Table, fit, units_of_pieces
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.formula import Formula
from provenformer.symbols.graph import Apply, Compare, Input, Largest, PairMean, Pieces, Product
from provenformer.symbols.jets import slope_bound

HEAD_SHARE = 1e-3  # of the tolerance: what all maxima together may use; sharpness costs nothing
UNDERFLOW = {"float64": 2.0**-900, "float32": 2.0**-80}  # what numbers below the smallest normal one may add (Lemma 0)
MODERATE = 2.0**40  # weights up to which UNDERFLOW holds in float32
SPARE = 1e-3  # a product's range is planned this much wider, so that the errors of float32 fit too
ROUNDS = 12


@dataclass(frozen=True, eq=False)
class Built:
    """A network and what is proved of it: sup |f - network| <= bounds[precision]; the terms add up to that of float64."""

    network: CircuitNetwork
    bounds: dict[str, float]
    terms: dict[str, float]


def drawn(lowered: Lowered, tolerance: float, max_units: int) -> tuple[list[Gadget], Sheet]:
    """The gadgets of the network with the fewest units within the tolerance, on a sheet: all sizes are known then."""
    gadgets = _Workshop.of(lowered).within(tolerance, max_units)
    in_place = {g.part.index: min(g.first.coefficients) for g in gadgets if isinstance(g, CompareUnits) and g.in_place}
    sheet = Sheet(lowered, in_place)
    for gadget in gadgets:
        gadget.emit(sheet)
    return gadgets, sheet


def build(lowered: Lowered, tolerance: float, max_units: int) -> Built:
    """The network with the fewest units that is certified within the tolerance in float64."""
    gadgets, sheet = drawn(lowered, tolerance, max_units)
    heads, exact = (bound(lowered, gadgets, Errors(0.0, tables=t)) for t in (False, True))
    bounds = {name: executed_bound(lowered, gadgets, name) for name in UNITS}
    network = sheet.network([g.part for g in gadgets])
    if max((float(np.abs(v).max(initial=0.0)) for v in network.tensors().values()), default=0.0) > MODERATE:
        bounds["float32"] = np.inf
    terms = {"tables": exact - heads, "attention": heads, "rounding": bounds["float64"] - exact}
    return Built(network, bounds, terms)


def amplifications(lowered: Lowered) -> dict[int, float]:
    """By part: about how much its error counts in the output in which it counts most."""
    return {i: float(shares.max()) for i, shares in _Workshop.of(lowered).amplifications().items()}


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
    """What does not change while budgets are tried: which parts are tables, and how their knots grow."""

    lowered: Lowered
    tabled: list[Part]
    knots: dict[int, float]  # C of each
    steepness: dict[int, float]
    densities: dict[tuple[Formula, float, float], Density]
    tables: dict[object, Table]
    last_read: dict[int, int]  # the last layer that reads a part

    @classmethod
    def of(cls, lowered: Lowered) -> _Workshop:
        found = cls(lowered, [], {}, {}, {}, {}, _last_readers(lowered))
        for part in lowered.parts:
            operation, arguments = part.atom.operation, lowered.arguments.get(part.index, ())
            if part.kind != "value" or not isinstance(operation, Apply | Product):
                continue
            found.tabled.append(part)
            if isinstance(operation, Apply):
                low, high = arguments[0].low, arguments[0].high
                density = found._density(operation.formula, low, high)
                found.knots[part.index] = max(density.knots_per_root(), 1e-6)
                found.steepness[part.index] = slope_bound(operation.formula, low, high)
            else:
                widths = [x.high - x.low for x in arguments]
                found.knots[part.index] = max(float(np.sqrt(widths[0] * widths[1])), 1e-6)
        return found

    def _density(self, formula: Formula, low: float, high: float) -> Density:
        key = (formula, low, high)
        if key not in self.densities:
            self.densities[key] = Density.of(formula, low, high)
        return self.densities[key]

    def within(self, tolerance: float, max_units: int) -> list[Gadget]:
        """Gadgets with the widest errors for tables that keep the bound below the tolerance."""
        peaks = sum(isinstance(part.atom.operation, Largest) for part in self.lowered.parts if part.kind == "value")
        sharp = tolerance * HEAD_SHARE / max(1, peaks)
        shape = self._shape(tolerance) if self.tabled else {}
        best, scale, low, high = None, 1.0, 0.0, np.inf
        found = np.inf
        for _ in range(ROUNDS):
            budget = {i: scale * delta for i, delta in shape.items()}
            self._require_few(budget, max_units, tolerance)
            try:
                gadgets = self._gadgets(budget, sharp)
                found = bound(self.lowered, gadgets, Errors(UNITS["float64"]))
            except TooWide:
                found = np.inf
            if found <= tolerance:
                best, low = gadgets, scale
                if not shape or found > 0.97 * tolerance or high / low < 1.02:
                    break
                scale = min(scale * min(4.0, 0.99 * tolerance / found), high * 0.995)
            elif not shape:
                break
            else:
                high = scale
                scale = (low + high) / 2 if low else scale * max(0.05, min(0.9, 0.98 * tolerance / found))
        if best is None:
            raise _unreachable(found, tolerance)
        _require_units(best, max_units, tolerance, self._size)
        return best

    def _shape(self, tolerance: float) -> dict[int, float]:
        """Errors of the tables in the right proportion, their amplified sum the tolerance."""
        amplified = self.amplifications()
        counts = np.array([self.knots[part.index] for part in self.tabled])
        factors = np.array([amplified[part.index] for part in self.tabled])
        largest = np.maximum(factors.max(axis=1), 1e-9)
        shape = (counts / largest) ** (2 / 3)
        total = (factors * shape[:, None]).sum(axis=0).max()
        return {part.index: float(tolerance * s / total) for part, s in zip(self.tabled, shape, strict=True)}

    def amplifications(self) -> dict[int, FloatArray]:
        """By part: how much its error counts in each output. One pass backwards over the shares of the gadgets."""
        outputs = self.lowered.outputs
        total = {part.index: np.zeros(len(outputs)) for part in self.lowered.parts}
        for o, x in enumerate(outputs):
            for i, c in x.coefficients.items():
                total[i][o] += abs(c)
        for part in reversed(self.lowered.parts):
            for i, share in self._shares(part).items():
                total[i] += share * total[part.index]
        return total

    def _shares(self, part: Part) -> dict[int, float]:
        operation, arguments = part.atom.operation, self.lowered.arguments.get(part.index, ())
        if part.kind == "value" and isinstance(operation, Apply):
            steep = min(self.steepness[part.index], 1e6)
            return {i: abs(c) * steep for i, c in arguments[0].coefficients.items()}
        return self._gadget(part, {part.index: 1.0}, 1.0).shares(Errors(0.0))

    def _gadgets(self, budget: dict[int, float], sharp: float) -> list[Gadget]:
        errors, gadgets = Errors(UNITS["float64"]), []
        for part in self.lowered.parts:
            gadget = self._gadget(part, budget, sharp, errors)
            errors.set(part, gadget.error(errors))
            gadgets.append(gadget)
        return gadgets

    def _gadget(self, part: Part, budget: dict[int, float], sharp: float, errors: Errors | None = None) -> Gadget:
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
        if isinstance(operation, Apply):
            x = arguments[0]
            key = (operation.formula, x.low, x.high, budget[part.index])
            if key not in self.tables:
                self.tables[key] = fit(*key, self._density(*key[:3]))
            return TableUnits(part, x, self.tables[key], operation.slack)
        if isinstance(operation, Pieces):
            return TableUnits(part, arguments[0], _pieces_table(operation, arguments[0].low, arguments[0].high), 0.0)
        if isinstance(operation, Product):
            x, y = arguments
            extra = (errors.of(x), errors.of(y)) if errors else (0.0, 0.0)
            radii = tuple(
                (v.high - v.low) / 2 * (1 + SPARE) + 2 * e + 1e-9 * v.largest + 1e-300
                for v, e in zip(arguments, extra, strict=True)
            )
            pieces = max(3, int(np.ceil(np.sqrt(radii[0] * radii[1] / budget[part.index]))))
            return SquareUnits(part, x, y, pieces + (pieces + 1) % 2, (radii[0], radii[1]))
        if isinstance(operation, PairMean):
            return NodeUnits.of(part, operation, arguments)
        if isinstance(operation, Compare):
            return CompareUnits(part, arguments[0], arguments[1], operation.sign, self._takes_over(part))
        if isinstance(operation, Largest):
            sharpness = 2.0 ** np.ceil(np.log2(lambert(n) / sharp + 1))
            return MaxHead(part, arguments[0], n, float(sharpness))
        count = len(operation.queries)
        queries, keys = arguments[:count], arguments[count : 2 * count]
        return SoftmaxHead(part, queries, keys, operation.bias, arguments[-1], n, operation.score_key)

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

    def _require_few(self, budget: dict[int, float], max_units: int, tolerance: float) -> None:
        """Before anything is allocated."""
        counts = {i: self.knots[i] / np.sqrt(delta) for i, delta in budget.items()}
        if (total := float(sum(counts.values()))) > 1.5 * max_units + 100:
            worst = self.lowered.parts[max(counts, key=lambda i: counts[i])]
            raise _too_many(f"about {total:,.0f}", total, max_units, tolerance, self._size, _told(worst))

    @property
    def _size(self) -> float:
        """The largest |output|."""
        return max(x.largest for x in self.lowered.outputs)


def _pieces_table(operation: Pieces, low: float, high: float) -> Table:
    """Exact: the pieces that [low, high] meets."""
    inside = [i for i, knot in enumerate(operation.knots) if low < knot < high]
    slopes = np.array(operation.slopes)[[inside[0], *(i + 1 for i in inside)]]
    knots = np.array(operation.knots)[inside]
    units = units_of_pieces(knots, slopes, float(operation(knots[:1])[0]), low, high)
    # jumps and the value at the anchor are rounded
    size = float(np.abs(slopes).max()) * (high - low) * len(knots) + abs(units.constant)
    return Table(
        units,
        2.0**-53 * 8 * (len(operation.knots) + 2) * (size + float(np.abs(slopes).max()) * float(np.abs(knots).max())),
    )


def _last_readers(lowered: Lowered) -> dict[int, int]:
    """By part: the last layer that reads it; outputs read after all layers."""
    last = {part.index: 0 for part in lowered.parts}
    for part in lowered.parts:
        reads = {i for x in lowered.arguments.get(part.index, ()) for i in x.coefficients}
        if part.source is not None:
            reads.add(part.source.index)
        for i in reads:
            last[i] = max(last[i], part.layer)
    for x in lowered.outputs:
        for i in x.coefficients:
            last[i] = lowered.layers + 1
    return last


def _require_units(gadgets: list[Gadget], max_units: int, tolerance: float, size: float) -> None:
    counts = {g.part.index: g.hidden_units for g in gadgets}
    if (total := sum(counts.values())) > max_units:
        largest = max(gadgets, key=lambda g: g.hidden_units)
        raise _too_many(f"{total:,}", total, max_units, tolerance, size, _told(largest.part))


def _told(part: Part) -> str:
    """What a part computes, and of what range it is."""
    operation = part.atom.operation
    what = str(operation.formula) if isinstance(operation, Apply) else f"a {type(operation).__name__.lower()}"
    return f"{what} with values in [{part.low:.3g}, {part.high:.3g}]"


def _too_many(said: str, count: float, max_units: int, tolerance: float, size: float, worst: str) -> TooLarge:
    fits = tolerance * (count / max_units) ** 2
    remedy = (
        f"a tolerance of about {fits:.1g} would fit, or a larger max_units"
        if fits < size
        else f"a tolerance that would fit is above the function's own size ({size:.2g}): shrink the support, or keep that range "
        "small (np.clip, np.tanh, pf.softmax, pf.normalize)"
    )
    return TooLarge(f"the circuit needs {said} units (max_units={max_units:,}), most of them for {worst}; {remedy}.")


def _unreachable(found: float, tolerance: float) -> ProvenformerError:
    return ProvenformerError(
        f"rounding and attention alone bring the bound to {found:.3g} (tolerance {tolerance:g}); use a larger tolerance."
    )
