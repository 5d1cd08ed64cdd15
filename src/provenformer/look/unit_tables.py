"""Units as the function they stand for: what they add to a channel, as a function of the one number that they read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.nodes import Node
from provenformer.base.arrays import FloatArray
from provenformer.look.circuit import CircuitSubject
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.graph import Apply, Graph, Lin, Pieces
from provenformer.symbols.ranges import hull

POINTS = 801


@dataclass(frozen=True, eq=False)
class UnitTable:
    """A function and the units that compute it, over the range of its argument."""

    node: Node
    argument: FloatArray  # (points,), increasing: even ones, and all corners
    wanted: FloatArray  # the function
    held: FloatArray  # what the units give
    corners: FloatArray  # where the units' function bends

    @property
    def error(self) -> float:
        """The largest difference found."""
        return float(np.abs(self.held - self.wanted).max())


def unit_tables(subject: CircuitSubject) -> list[UnitTable]:
    """Of every node that units compute from one combination by a formula."""
    traced, found = subject.traced, []
    if traced is None:
        return []
    for node in subject.nodes:
        operation = None if node.atom is None else traced.graph.atoms[node.atom].operation
        if node.rows is None and node.units and isinstance(operation, Apply | Pieces):
            found.append(_table(subject, traced.graph, node, operation))
    return found


def _table(subject: CircuitSubject, graph: Graph, node: Node, operation: Apply | Pieces) -> UnitTable:
    """Read off at the first token: units' slopes along the argument, and their offsets."""
    network, channel, block = subject.network, node.channel or 0, subject.network.circuit_blocks[node.block or 0]
    used = np.flatnonzero(block.W_2[channel])
    rows, weights = block.W_1[used], block.W_2[channel, used]
    direction = _along(network, graph, node, operation.of)  # (D,): what the argument is in terms of channels
    slopes = rows @ direction / max(float(direction @ direction), 1e-300)
    known = network.positions[:, 0] * network.constant_channels
    start = float(operation.of.constant[0])
    offsets = rows @ known + block.b_1[used] - slopes * start
    base = float(block.b_2[channel] + network.positions[channel, 0])
    low, high = hull(graph, operation.of)
    bends = -offsets[slopes != 0] / slopes[slopes != 0]
    corners = np.unique(bends[(bends > low) & (bends < high)])
    z = np.unique(np.concatenate([np.linspace(low, high, POINTS), corners]))
    held = np.maximum(z[:, None] * slopes + offsets, 0.0) @ weights + base
    function = operation.formula if isinstance(operation, Apply) else operation
    return UnitTable(node, z, np.broadcast_to(function(z), z.shape), held, corners)


def _along(network: CircuitNetwork, graph: Graph, node: Node, of: Lin) -> FloatArray:
    """Weights on channels whose sum is the argument without its constant, at the first token.

    What a channel holds and what the argument is are vectors over (atom, token); the weights are the least squares solution.
    """
    n = graph.seq_len
    holds: dict[int, tuple[int, FloatArray | None]] = {row: (row, None) for row in range(network.token_dim)}
    for claim in sorted(network.witness, key=lambda claim: claim.layers):
        if claim.layers < node.layers:
            holds[claim.channel] = (claim.atom, claim.rows)
    atoms = sorted(of.terms)
    columns = {c: np.zeros((len(atoms), n)) for c, (atom, _) in holds.items() if atom in of.terms}
    for channel, column in columns.items():
        atom, rows = holds[channel]
        column[atoms.index(atom)] = np.eye(n)[0] if rows is None else rows[0]
    wanted = np.zeros((len(atoms), n))
    for i, atom in enumerate(atoms):
        term = of.terms[atom]
        wanted[i, 0] += term.own
        if term.mix is not None:
            wanted[i] += term.mix[0]
        if graph.atoms[atom].uniform:  # the same number at every token
            wanted[i] = np.eye(n)[0] * wanted[i].sum()
            for channel, column in columns.items():
                if holds[channel][0] == atom:
                    column[i] = np.eye(n)[0] * column[i].sum()
    found = np.zeros(network.model_dim)
    if columns:
        matrix = np.stack([column.ravel() for column in columns.values()], axis=1)
        found[list(columns)] = np.linalg.lstsq(matrix, wanted.ravel(), rcond=None)[0]
    return found
