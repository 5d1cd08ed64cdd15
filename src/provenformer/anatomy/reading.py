"""From a network and the graph it was built for to its anatomy. Who reads whom is read off the weights, not the graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from provenformer.anatomy.book import Book, Errors
from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.nodes import Error, Node
from provenformer.anatomy.words import Named, Terms, combination, in_words, rows_in_words, shape
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.state import State
from provenformer.checker.circuit.walk import circuit_bound
from provenformer.networks.circuit import CircuitNetwork, Claim
from provenformer.networks.inside import distinct_names
from provenformer.symbols.graph import Apply, Graph, Pieces, Term
from provenformer.symbols.trace import Traced


def circuit_of(network: CircuitNetwork, traced: Traced, low: FloatArray, high: FloatArray) -> Circuit:
    """What every channel holds and what makes it; ranges of the graph, errors that the checker finds in the weights."""
    errors, total, rejected = _errors(network, traced, low, high)
    book = _Formula(network, graph=traced.graph)
    for row in range(network.token_dim):
        book.input(row)
    for claim in book.claims(len(traced.graph.atoms)):
        book.claim(claim)
    book.turn_to(2 * network.blocks + 1)
    for row, lin in enumerate(traced.outputs):
        name = "y" if network.token_dim == 1 else f"y{row}"
        edges, positions = book.reads(network.W_out[row : row + 1], "value")
        words = combination(lin, book.named)
        book.add(Node(0, name, words, "output", "output", book.layers, None, reads=edges, positions=positions))
    units = sum(network.hidden_units.values())
    return Circuit(
        network.token_dim, network.seq_len, book.with_errors(errors, total), network.blocks, network.heads, units,
        distinct_names(network), rejected,
    )  # fmt: skip


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
class _Formula(Book):
    """The book of a formula's circuit, with the names of atoms and mixtures."""

    graph: Graph = field(kw_only=True)
    values: dict[int, str] = field(default_factory=dict)  # atom -> name
    mixtures: dict[int, list[tuple[FloatArray, str]]] = field(default_factory=dict)

    def input(self, row: int) -> None:
        atom = self.graph.atoms[row]
        self.values[row] = "x" if self.network.token_dim == 1 else f"x{row}"
        words = f"row {row} of the input"
        node = Node(0, self.values[row], words, "input", "input", 0, row, low=atom.low, high=atom.high, atom=row)
        self.holds[row] = self.add(node).index

    def claim(self, claim: Claim) -> None:
        """A node for what the witness says of a channel."""
        name = self.turn_to_claim(claim)
        atom = self.graph.atoms[claim.atom]
        if claim.rows is None:
            kind, words = in_words(atom.operation, self.named)
            self.values[claim.atom] = name
            low, high = atom.low, atom.high
        else:
            kind, words = rows_in_words(claim.rows, self.values.get(claim.atom, f"value {claim.atom}"))
            self.mixtures.setdefault(claim.atom, []).append((claim.rows, name))
            low, high = _range(claim.rows, atom.low, atom.high)
        family = {Apply: lambda o: shape(o.formula), Pieces: lambda o: f"pieces {len(o.curve.knots)}"}.get(
            type(atom.operation)
        )
        same = kind if family is None or claim.rows is not None else family(atom.operation)
        heads, units, edges, positions = self.made(claim)
        node = Node(
            0, name, words, kind, same, claim.layers, claim.channel, heads, units, low, high, None, edges, positions,
            claim.atom, claim.rows,
        )  # fmt: skip
        self.next_holds[claim.channel] = self.add(node).index

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
