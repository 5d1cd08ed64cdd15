"""The graph on numbers: what it computes, in float64, for batches of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.symbols.graph import (
    Apply,
    Attend,
    Compare,
    Graph,
    Input,
    Largest,
    Lin,
    PairMean,
    PairSum,
    Pieces,
    Product,
)
from provenformer.symbols.linear import UNIT

ROUNDINGS = 16


def evaluate(
    graph: Graph, outputs: Sequence[Lin], x: FloatArray, moved: np.random.Generator | None = None
) -> FloatArray:
    """The outputs (batch, d, n) for inputs (batch, d, n). `moved`: with every combination, those within included, moved up or
    down at random by about what float64 may take from it."""
    known: dict[int, FloatArray] = {}

    def value(lin: Lin) -> FloatArray:
        total = np.broadcast_to(lin.constant, (len(x), lin.rows)).copy()
        sizes = np.abs(total)
        for i, term in lin.terms.items():
            if term.own:
                total += term.own * known[i][:, : lin.rows]
            if term.mix is not None:
                total += known[i] @ term.mix.T
            if moved is not None:
                sizes += abs(term.own) * np.abs(known[i][:, : lin.rows])
                sizes += 0.0 if term.mix is None else np.abs(known[i]) @ np.abs(term.mix.T)
        if moved is not None:
            total += moved.choice((-1.0, 1.0), total.shape) * ROUNDINGS * (UNIT * sizes + lin.slack)
        return np.broadcast_to(total, (len(x), graph.seq_len))

    needed = {i for lin in outputs for i in lin.terms}
    for atom in reversed(graph.atoms):
        if atom.number in needed:
            needed |= {i for lin in atom.operation.arguments for i in lin.terms}
    for atom in graph.atoms:
        if atom.number in needed:
            operation = atom.operation
            arguments = [] if isinstance(operation, Attend) else [value(lin) for lin in operation.arguments]
            match operation:
                case Input(row):
                    found = x[:, row]
                case Apply():
                    found = operation.formula(arguments[0])
                case Pieces():
                    found = operation.curve(arguments[0])
                case Product():
                    found = arguments[0] * arguments[1]
                case Largest():
                    found = np.broadcast_to(arguments[0].max(axis=1, keepdims=True), arguments[0].shape)
                case Compare():
                    a, b = arguments
                    found = np.where(
                        operation.sign > 0, np.maximum(a, b), np.where(operation.sign < 0, np.minimum(a, b), a)
                    )
                case PairMean():
                    found = _pair_mean(operation, arguments[0], arguments[1])
                case PairSum():
                    pairs = zip(arguments[0], arguments[1], strict=True)  # of each sequence: all at once fit no cache
                    found = np.stack([operation.curve(row[:, None] + column).sum(axis=1) for row, column in pairs])
                case Attend():
                    found = _attend(
                        operation,
                        [value(q) for q in operation.queries],
                        [value(k) for k in operation.keys],
                        value(operation.values),
                    )
            known[atom.number] = found
    return np.stack([value(lin) for lin in outputs], axis=1)


def _attend(operation: Attend, queries: list[FloatArray], keys: list[FloatArray], values: FloatArray) -> FloatArray:
    n = values.shape[1]
    scores = (
        np.zeros((len(values), n, n))
        if operation.bias is None
        else np.broadcast_to(operation.bias, (len(values), n, n))
    )
    for q, k in zip(queries, keys, strict=True):
        scores = scores + q[:, :, None] * k[:, None, :]
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray((weights * values[:, None, :]).sum(axis=2) / weights.sum(axis=2))


def _pair_mean(operation: PairMean, row: FloatArray, column: FloatArray) -> FloatArray:
    kernel = operation.kernel(row[:, :, None] + column[:, None, :])
    return np.asarray(np.broadcast_to(kernel, (*row.shape, column.shape[1])).mean(axis=2))
