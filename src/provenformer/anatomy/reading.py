"""From a network and the graph it was built for to its anatomy. Who reads whom is read off the weights, not the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.nodes import Edge, Error, Node, Role
from provenformer.anatomy.words import Named, Terms, combination, in_words, rows_in_words, shape
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.state import State
from provenformer.checker.circuit.walk import circuit_bound
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim
from provenformer.networks.inside import distinct_names
from provenformer.symbols.graph import Apply, Graph, Pieces, Term
from provenformer.symbols.trace import Traced


def circuit_of(network: CircuitNetwork, traced: Traced, low: FloatArray, high: FloatArray) -> Circuit:
    """What every channel holds and what makes it; ranges of the graph, errors that the checker finds in the weights."""
    errors, total, rejected = _errors(network, traced, low, high)
    book = _Book(network, traced.graph)
    for row in range(network.token_dim):
        book.input(row)
    for claim in sorted(filter(book.understands, network.witness), key=lambda claim: claim.layers):
        book.claim(claim)
    book.turn_to(2 * network.blocks + 1)
    for row, lin in enumerate(traced.outputs):
        name = "y" if network.token_dim == 1 else f"y{row}"
        edges, positions = book.reads(network.W_out[row : row + 1], "value")
        words = combination(lin, book.named)
        book.add(Node(0, name, words, "output", "output", book.layers, None, reads=edges, positions=positions))
    nodes = []
    for node in book.nodes:
        error = total if node.kind == "output" else errors.get((node.layers, node.channel or 0))
        nodes.append(replace(node, error=error))
    units = sum(network.hidden_units.values())
    return Circuit(
        network.token_dim, network.seq_len, tuple(nodes), network.blocks, network.heads, units, distinct_names(network), rejected
    )  # fmt: skip


Errors = dict[tuple[int, int], Error]


def _errors(
    network: CircuitNetwork, traced: Traced, low: FloatArray, high: FloatArray
) -> tuple[Errors, Error | None, str | None]:
    """By layers and channel, for every channel after every layer; of the outputs; or why the checker rejects the network."""
    errors: Errors = {}

    def watch(layers: int, state: State) -> None:
        for channel, held in enumerate(state.channels):
            errors[layers, channel] = Error(*map(float, held.error.plain))

    try:
        bound = circuit_bound(network, traced.graph, traced.outputs, low, high, watch)
    except Rejected as verdict:
        return {}, None, str(verdict)
    return errors, Error(bound.exact, bound.float64, bound.float32), None


@dataclass(eq=False)
class _Book:
    """Nodes so far, which channel holds which of them, and the names of atoms and mixtures."""

    network: CircuitNetwork
    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    holds: dict[int, int] = field(default_factory=dict)  # channel -> node, after the layer that was read last
    next_holds: dict[int, int] = field(default_factory=dict)
    layers: int = 0
    values: dict[int, str] = field(default_factory=dict)  # atom -> name
    mixtures: dict[int, list[tuple[FloatArray, str]]] = field(default_factory=dict)

    def add(self, node: Node) -> Node:
        node = replace(node, index=len(self.nodes))
        self.nodes.append(node)
        return node

    def input(self, row: int) -> None:
        atom = self.graph.atoms[row]
        self.values[row] = "x" if self.network.token_dim == 1 else f"x{row}"
        words = f"row {row} of the input"
        node = Node(0, self.values[row], words, "input", "input", 0, row, low=atom.low, high=atom.high, atom=row)
        self.holds[row] = self.add(node).index

    def understands(self, claim: Claim) -> bool:
        """Whether what a claim names is there. The checker has rejected the network otherwise; what is left can be shown."""
        sizes = claim.rows is None or len(claim.rows) in (1, self.network.seq_len)
        places = 0 <= claim.channel < self.network.model_dim and 0 < claim.layers <= 2 * self.network.blocks
        return sizes and places and 0 <= claim.atom < len(self.graph.atoms)

    def turn_to(self, layers: int) -> None:
        """What the last layer wrote is there to be read."""
        self.holds |= self.next_holds
        self.next_holds, self.layers = {}, layers

    def claim(self, claim: Claim) -> None:
        """A node for what the witness says of a channel."""
        if claim.layers != self.layers:  # all nodes of a layer read what was there before it
            self.turn_to(claim.layers)
        atom, block = self.graph.atoms[claim.atom], self.network.circuit_blocks[(claim.layers - 1) // 2]
        name = f"v{len(self.nodes) - self.network.token_dim + 1}"
        if claim.rows is None:
            kind, words = in_words(atom.operation, self.named)
            self.values[claim.atom] = name
            low, high = atom.low, atom.high
        else:
            kind, words = rows_in_words(claim.rows, self.values.get(claim.atom, f"value {claim.atom}"))
            self.mixtures.setdefault(claim.atom, []).append((claim.rows, name))
            low, high = _range(claim.rows, atom.low, atom.high)
        family = {Apply: lambda o: shape(o.formula), Pieces: lambda o: f"pieces {len(o.knots)}"}.get(
            type(atom.operation)
        )
        same = kind if family is None or claim.rows is not None else family(atom.operation)
        heads, units, edges, positions = self._made(block, claim)
        node = Node(
            0, name, words, kind, same, claim.layers, claim.channel, heads, units, low, high, None, edges, positions,
            claim.atom, claim.rows,
        )  # fmt: skip
        self.next_holds[claim.channel] = self.add(node).index

    def _made(self, block: CircuitBlock, claim: Claim) -> tuple[tuple[int, ...], int, tuple[Edge, ...], bool]:
        """Which heads or how many units write a channel, and what they read."""
        channel, found, positions = claim.channel, dict.fromkeys(self._before(claim.channel)), False
        heads: tuple[int, ...] = ()
        used = np.flatnonzero(block.W_2[channel]) if claim.layers % 2 == 0 else np.zeros(0, dtype=np.intp)
        parts: list[tuple[FloatArray, Role]] = [(block.W_1[used], "value")]
        if claim.layers % 2:
            heads = tuple(k for k, head in enumerate(block.heads) if head.W_O[channel].any())
            for k in heads:
                head = block.heads[k]
                parts += [(head.W_V[head.W_O[channel] != 0], "value"), (head.W_Q, "query"), (head.W_K, "key")]
        for weights, role in parts:
            edges, by_position = self.reads(weights, role)
            found |= dict.fromkeys(edges)
            positions |= by_position
        return heads, len(used), tuple(found), positions

    def _before(self, channel: int) -> Iterable[Edge]:
        """What is added to stays."""
        return [Edge(self.holds[channel])] if channel in self.holds else []

    def reads(self, weights: FloatArray, role: Role) -> tuple[tuple[Edge, ...], bool]:
        """The nodes that rows of weights read now, and whether they read positions, too."""
        columns = [int(c) for c in np.flatnonzero(weights.any(axis=0))]
        edges = tuple(Edge(self.holds[c], role) for c in columns if c in self.holds)
        return edges, any(c not in self.holds and self.network.positions[c].any() for c in columns)

    @property
    def named(self) -> Named:
        return self._named

    def _named(self, atom: int, term: Term) -> Terms:
        """The share of an atom, by the names of the nodes that it is read from."""
        value = self.values.get(atom, f"value {atom}")
        found = [(term.own, value)] if term.own else []
        if term.mix is not None:
            for sign in (1.0, -1.0):
                weights = np.maximum(sign * term.mix, 0.0)
                if weights.any():
                    factor, name = self._mixture(atom, weights, value)
                    found.append((sign * factor, name))
        return found

    def _mixture(self, atom: int, weights: FloatArray, value: str) -> tuple[float, str]:
        for rows, name in reversed(self.mixtures.get(atom, [])):
            if rows.ndim == 1:
                if len(weights) > 1 and np.array_equal(weights, np.diag(rows)):
                    return 1.0, name
            elif rows.shape == weights.shape or len(weights) == 1:
                factor = float(weights.sum() / rows[: len(weights)].sum())
                if np.allclose(weights, factor * rows, rtol=1e-9, atol=1e-12 * abs(factor)):
                    return factor, name
        return 1.0, f"({rows_in_words(weights, value)[1]})"


def _range(rows: FloatArray, low: float, high: float) -> tuple[float, float]:
    whole = rows[:, None] if rows.ndim == 1 else rows
    positive, negative = np.maximum(whole, 0.0).sum(axis=1), np.minimum(whole, 0.0).sum(axis=1)
    return float((positive * low + negative * high).min()), float((positive * high + negative * low).max())
