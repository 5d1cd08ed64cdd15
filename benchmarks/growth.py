"""Where bounds grow in Transformer blocks one after the other: ranges and amplifications, by rule and as they are on samples.

Amplification: how much an error of a value counts in the output, at most by the rules, at least by moving the value by a small
number at all tokens. Only tables of formulas are moved. docs/circuits-howto.md shows the output.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

import provenformer as pf
from benchmarks.circuits import stack
from provenformer.constructions.circuit.build import amplifications
from provenformer.constructions.circuit.parts import Lowered, lower
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.formula import apply, constant
from provenformer.symbols.graph import Apply, Graph, Lin, Term
from provenformer.symbols.trace import Traced, samples, trace

BLOCKS = (1, 2, 3)
TOLERANCE = 1e-2
STEP = 1e-5


def measured(traced: Traced, number: int, x: np.ndarray) -> tuple[float, float]:
    """The largest |value| of an atom, and the largest change of an output for one of it, on samples."""
    graph = traced.graph
    itself = Lin(graph.seq_len, {number: Term(1.0)}, np.zeros(1))
    size = float(np.abs(evaluate(graph, [itself], x)).max())
    atom = graph.atoms[number]
    if not isinstance(atom.operation, Apply):
        raise TypeError("only tables of formulas are moved")
    formula = apply("add", atom.operation.formula, constant(STEP))
    moved = list(graph.atoms)
    moved[number] = replace(atom, operation=replace(atom.operation, formula=formula))
    other = Graph(graph.token_dim, graph.seq_len, moved, graph.steps)
    change = np.abs(evaluate(other, traced.outputs, x) - evaluate(graph, traced.outputs, x)).max() / STEP
    return size, float(change)


def rows(count: int) -> list[tuple[int, str, float, float, float, float]]:
    """By layer and formula: ranges and amplifications, by rule and measured, of the worst of those alike."""
    f = pf.Target(stack(count, 4, 4), 4, 16, name=f"{count} blocks")
    traced = trace(f)
    lowered: Lowered = lower(traced.graph, traced.outputs)
    amplified, x = amplifications(lowered, TOLERANCE), samples(f, 40, seed=3)
    worst: dict[tuple[int, str], tuple[float, float, float, float]] = {}
    for part in lowered.parts:
        if part.kind == "value" and isinstance(part.atom.operation, Apply):
            key, seen = (part.layer // 2 - 1, str(part.atom.operation.formula)), measured(traced, part.atom.number, x)
            found = (part.size, seen[0], amplified[part.index], seen[1])
            before = worst.get(key, (0.0,) * 4)
            worst[key] = (*(max(a, b) for a, b in zip(found, before, strict=True)),)  # type: ignore[assignment]
    return [(block, formula, *found) for (block, formula), found in sorted(worst.items())]


def main() -> bool:
    """Print the tables; True, since there is no goal."""
    console = Console(width=120)
    for count in BLOCKS:
        table = Table(title=f"{count} Transformer blocks, d = 4, n = 16")
        for name in ("block", "table of", "|value| <=", "in samples", "amplification <=", "in samples >="):
            table.add_column(name, justify="left" if name == "table of" else "right")
        for block, formula, *numbers in rows(count):
            table.add_row(str(block), formula, *(f"{v:.3g}" for v in numbers))
        console.print(table)
    return True
