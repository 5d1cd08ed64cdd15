"""Keeping the book of a circuit: nodes in order, and which channel holds which. Who reads whom is read off the weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from provenformer.anatomy.nodes import Edge, Error, Node, Role
from provenformer.base.arrays import FloatArray
from provenformer.networks.circuit import CircuitNetwork, Claim

Errors = dict[tuple[int, int], Error]  # by layers and channel


@dataclass(eq=False)
class Book:
    """Nodes so far, and which channel holds which of them."""

    network: CircuitNetwork
    nodes: list[Node] = field(default_factory=list)
    holds: dict[int, int] = field(default_factory=dict)  # channel -> node, after the layer that was read last
    next_holds: dict[int, int] = field(default_factory=dict)
    layers: int = 0

    def add(self, node: Node) -> Node:
        node = replace(node, index=len(self.nodes))
        self.nodes.append(node)
        return node

    def claims(self, atoms: int) -> list[Claim]:
        """Claims about what is there, by layer. The checker has rejected the network otherwise; what is left can be shown."""

        def understood(claim: Claim) -> bool:
            sizes = claim.rows is None or len(claim.rows) in (1, self.network.seq_len)
            places = 0 <= claim.channel < self.network.model_dim and 0 < claim.layers <= 2 * self.network.blocks
            return sizes and places and 0 <= claim.atom < atoms

        return sorted(filter(understood, self.network.witness), key=lambda claim: claim.layers)

    def turn_to(self, layers: int) -> None:
        """What the last layer wrote is there to be read."""
        self.holds |= self.next_holds
        self.next_holds, self.layers = {}, layers

    def turn_to_claim(self, claim: Claim) -> str:
        """The layer of a claim, and the name of its node."""
        if claim.layers != self.layers:  # all nodes of a layer read what was there before it
            self.turn_to(claim.layers)
        return f"v{len(self.nodes) - self.network.token_dim + 1}"

    def with_errors(self, errors: Errors, total: Error | None) -> tuple[Node, ...]:
        """All nodes, with what the checker finds for their channels and for the outputs."""
        return tuple(
            replace(node, error=total if node.kind == "output" else errors.get((node.layers, node.channel or 0)))
            for node in self.nodes
        )

    def made(self, claim: Claim) -> tuple[tuple[int, ...], int, tuple[Edge, ...], bool]:
        """Which heads or how many units write the channel of a claim, what they read, and whether that is positions, too."""
        block = self.network.circuit_blocks[(claim.layers - 1) // 2]
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
