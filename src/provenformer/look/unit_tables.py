"""Units as the function they stand for: what they add to a channel, as a function of the one number that they read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.nodes import Node, listed
from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.ranges import Narrowed
from provenformer.look.circuit import CircuitSubject
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.graph import Apply, Graph, Lin, Pieces

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
    """Of nodes that units compute from one combination by a formula; of many that are alike, of some."""
    traced, found = subject.traced, []
    if traced is None:
        return []
    narrowed = Narrowed.of(traced.graph)  # tables promise nothing beyond the ranges that they were made for
    for node in (one for one in listed(subject.nodes) if isinstance(one, Node)):
        operation = None if node.atom is None else traced.graph.atoms[node.atom].operation
        if node.rows is None and node.units and isinstance(operation, Apply | Pieces):
            found.append(_table(subject, traced.graph, node, operation, narrowed.hull(operation.of)))
    return found


def _table(
    subject: CircuitSubject, graph: Graph, node: Node, operation: Apply | Pieces, reach: tuple[float, float]
) -> UnitTable:
    """Read off at one token: units' slopes along the argument, which stays within reach, and their offsets."""
    network, channel, block = subject.network, node.channel or 0, subject.network.circuit_blocks[node.block or 0]
    used = np.flatnonzero(block.W_2[channel])
    rows, weights = block.W_1[used], block.W_2[channel, used]
    # What the argument is in terms of channels, (D,): at the first token or the last, where one may be compared with itself.
    read = set(np.flatnonzero(rows.any(axis=0)).tolist())
    choices = [(_along(network, graph, node, operation.of, read, j), j) for j in (0, graph.seq_len - 1)]
    direction, token = max(choices, key=lambda choice: float(np.abs(choice[0]).sum()))
    slopes = rows @ direction / max(float(direction @ direction), 1e-300)
    known = network.positions[:, token] * network.constant_channels
    start = float(operation.of.constant[token % len(operation.of.constant)])
    offsets = rows @ known + block.b_1[used] - slopes * start
    base = float(block.b_2[channel] + network.positions[channel, token])
    low, high = reach
    bends = -offsets[slopes != 0] / slopes[slopes != 0]
    corners = np.unique(bends[(bends > low) & (bends < high)])
    z = np.unique(np.concatenate([np.linspace(low, high, POINTS), corners]))
    held = np.maximum(z[:, None] * slopes + offsets, 0.0) @ weights + base
    function = operation.formula if isinstance(operation, Apply) else operation.curve
    return UnitTable(node, z, np.broadcast_to(function(z), z.shape), held, corners)


def _along(network: CircuitNetwork, graph: Graph, node: Node, of: Lin, read: set[int], token: int) -> FloatArray:
    """Weights on channels that are read whose sum is the argument without its constant, at one token.

    What a channel holds and what the argument is are vectors over (atom, token); the weights are the least squares solution.
    """
    n = graph.seq_len
    holds: dict[int, tuple[int, FloatArray | None]] = {row: (row, None) for row in range(network.token_dim)}
    for claim in sorted(network.witness, key=lambda claim: claim.layers):
        if claim.layers < node.layers:
            holds[claim.channel] = (claim.atom, claim.rows)
    atoms = sorted(of.terms)
    columns = {c: np.zeros((len(atoms), n)) for c, (atom, _) in holds.items() if c in read and atom in of.terms}
    own = np.eye(n)[token]
    for channel, column in columns.items():
        atom, rows = holds[channel]
        column[atoms.index(atom)] = own if rows is None else _row(rows, token)
    wanted = np.zeros((len(atoms), n))
    for i, atom in enumerate(atoms):
        term = of.terms[atom]
        wanted[i] = term.own * own
        if term.mix is not None:
            wanted[i] += _row(term.mix, token)
        if graph.atoms[atom].uniform:  # the same number at every token
            wanted[i] = own * wanted[i].sum()
            for channel, column in columns.items():
                if holds[channel][0] == atom:
                    column[i] = own * column[i].sum()
    found = np.zeros(network.model_dim)
    if columns:
        matrix = np.stack([column.ravel() for column in columns.values()], axis=1)
        found[list(columns)] = np.linalg.lstsq(matrix, wanted.ravel(), rcond=None)[0]
    return found


def _row(rows: FloatArray, token: int) -> FloatArray:
    """The weights of one token: one row stands for every token, a vector is a factor for each."""
    if rows.ndim == 1:
        return np.asarray(np.eye(len(rows))[token] * rows[token])
    return np.asarray(rows[min(token, len(rows) - 1)])
