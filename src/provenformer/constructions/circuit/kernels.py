"""How sums of kernels over pairs of tokens are made: by nodes, at a cost that does not depend on n, or by gathering, exactly."""

from __future__ import annotations

import numpy as np

from provenformer.base.errors import Untraceable
from provenformer.constructions.circuit.build import amplifications
from provenformer.constructions.circuit.nodes import aligned_step, kinks
from provenformer.constructions.circuit.parts import lower
from provenformer.constructions.circuit.tables import Density
from provenformer.symbols.atoms import MOST_STATISTICS
from provenformer.symbols.graph import Apply, Graph, Input, Lin, PairMean, Product
from provenformer.symbols.jets import slope_range
from provenformer.symbols.ranges import hull

ALONE, SHARED = 0.97, 0.5  # of the tolerance, for all nodes together: without and with tables beside them
GATHERED = 0.0


def choose_steps(graph: Graph, outputs: list[Lin], tolerance: float) -> tuple[float, ...]:
    """For every kernel in the order of the graph, which has made no choice yet: the distance of its nodes, or 0 to gather.

    Nodes where they take fewer units; both counts are estimates, the bound is derived from what is built.
    """
    if not graph.kernels:
        return ()
    lowered = lower(graph, outputs)
    amplified = amplifications(lowered, tolerance)
    needed = [part.atom for part in lowered.parts if part.kind == "value"]
    made = [atom for atom in needed if isinstance(atom.operation, PairMean)]
    tabled = any(isinstance(atom.operation, Apply | Product) for atom in needed)
    share = tolerance * (SHARED if tabled else ALONE) / max(1, len(made))
    found = dict.fromkeys(graph.kernels, GATHERED)
    for atom in made:
        operation, amp = atom.operation, max(amplified[lowered.value(atom.number).index], 1e-12)
        if isinstance(operation, PairMean):
            found[operation.key] = _step(graph, operation, share / amp)
    return tuple(found[key] for key in graph.kernels)


def _step(graph: Graph, operation: PairMean, error: float) -> float:
    """The distance of nodes for this error, or GATHERED."""
    if not all(isinstance(graph.atoms[i].operation, Input) for i in operation.column.terms):
        return GATHERED  # errors of the columns would count once per node
    (a, b), (c, d) = hull(graph, operation.row), hull(graph, operation.column)
    try:
        low, high = slope_range(operation.kernel, a + c, b + d)
        if not np.isfinite(high - low) or high == low:
            return GATHERED
        step = min(4 * error / (high - low), b - a)
        low, high = slope_range(operation.kernel, a + c - 2 * step, b + d + 2 * step)  # nodes reach a little further
        step = aligned_step(operation.kernel, min(4 * error / (high - low), b - a))
    except Untraceable:
        return GATHERED
    by_nodes = (2 * (b - a) + d - c) / step
    density = Density.of(operation.kernel, a + c, b + d)
    each = len(kinks(operation.kernel)) + (density.pieces(error) if _bends(operation) else 0.0)
    gates = len(operation.column.terms) * (1 if c >= 0 or d <= 0 else 2)
    gathered = graph.seq_len * (gates + max(each, 1.0))
    return float(step) if by_nodes < gathered and (d - c) / step < MOST_STATISTICS / 2 else GATHERED


def _bends(operation: PairMean) -> bool:
    """Whether it is more than pieces of lines."""
    smooth = {"add", "multiply", "variable", "constant", "absolute", "maximum", "minimum"}
    found, left = set(), [operation.kernel]
    while left:
        one = left.pop()
        line = one.operation == "divide" and one.parts[1].operation == "constant"
        found.add("add" if line else one.operation)
        left += one.parts
    return not found <= smooth
