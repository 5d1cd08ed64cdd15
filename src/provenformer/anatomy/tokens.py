"""A token circuit in words: what every head looks for, and what units make, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.tokens.graph import Lin, Pick, TokenGraph, Total

SHOWN = 3  # values of one head or layer that are named before ".."
LONGEST = 110


@dataclass(frozen=True)
class TokenNode:
    """A value of the program: where it is made, by what, and in which channel it stays."""

    words: str
    block: int
    channel: int
    heads: tuple[int, ...]  # that make it; empty: units do
    units: int
    low: int
    high: int


@dataclass(frozen=True, repr=False)
class TokenCircuit:
    """Nodes in the order in which they are made. `print` shows them."""

    nodes: tuple[TokenNode, ...]
    blocks: tuple[tuple[str, ...], ...]  # lines for each block
    output: str
    sizes: str

    def __str__(self) -> str:
        lines = [f"circuit: {self.sizes}"]
        for b, block in enumerate(self.blocks):
            lines += [f"block {b}", *(f"  {line}" for line in block)]
        return "\n".join([*lines, f"output: {self.output}"])

    def __repr__(self) -> str:
        return f"TokenCircuit({self.sizes})"


def circuit_of_tokens(network: CircuitNetwork, graph: TokenGraph, output: Lin) -> TokenCircuit:
    """The circuit of a network that build_tokens made."""
    nodes = []
    for claim in network.witness:
        block, part = divmod(claim.layers - 1, 2)
        layer, atom = network.circuit_blocks[block], graph.atoms[claim.atom]
        heads = tuple(k for k, head in enumerate(layer.heads) if head.W_O[claim.channel].any()) if part == 0 else ()
        units = int(np.count_nonzero(layer.W_2[claim.channel])) if part else 0
        nodes.append(
            TokenNode(atom.words, block, claim.channel, heads, units, int(atom.low.min()), int(atom.high.max()))
        )
    blocks = tuple(tuple(_lines(network, graph, b, nodes)) for b in range(network.blocks))
    count = sum(network.hidden_units.values())
    sizes = f"n={network.seq_len}, {network.blocks} blocks, {network.heads} heads, {count:,} units, {network.model_dim} channels"
    return TokenCircuit(tuple(nodes), blocks, _short(graph.words(output)), sizes)


def _lines(network: CircuitNetwork, graph: TokenGraph, block: int, nodes: list[TokenNode]) -> list[str]:
    found = []
    for k in range(len(network.circuit_blocks[block].heads)):
        made = [node for node in nodes if node.block == block and k in node.heads]
        atom = next(c.atom for c in network.witness if c.layers == 2 * block + 1 and c.channel == made[0].channel)
        found.append(f"head {k} {looks(graph, atom)}: {_listed([node.words for node in made])}")
    made = [node for node in nodes if node.block == block and not node.heads]
    units = len(network.circuit_blocks[block].b_1)
    return found + ([f"{units} units: {_listed([node.words for node in made])}"] if made else [])


def looks(graph: TokenGraph, atom: int) -> str:
    """What a head looks at."""
    operation = graph.atoms[atom].operation
    if isinstance(operation, Total):
        counts = operation.counts
        n = counts.shape[1]
        if len(counts) == 1:
            chosen = np.flatnonzero(counts[0])
            return f"looks at token {chosen[0]}" if len(chosen) == 1 else "looks at all tokens alike"
        if (np.count_nonzero(counts, axis=1) == 1).all():
            return _moves(counts.argmax(axis=1), n)
        return "looks at all earlier tokens" if not np.triu(counts, 1).any() else "looks at tokens by their places"
    assert isinstance(operation, Pick)
    return {
        "position": "looks at the token that an index names", "rank": "looks at the token whose rank is the own place",
        "order": "looks at the last or first token of its kind", "largest": "looks at the tokens of extreme value",
    }[operation.because]  # fmt: skip


def _moves(source: np.ndarray, n: int) -> str:
    places = np.arange(n)
    if (source == n - 1 - places).all():
        return "looks at the mirrored token"
    away = source - places
    values, often = np.unique(away, return_counts=True)
    most = int(values[often.argmax()])
    if most:
        return f"looks {abs(most)} token{'s' * (abs(most) > 1)} {'ahead' if most > 0 else 'back'}"
    return "looks at one known token each"


def _listed(words: list[str]) -> str:
    shown = [_short(w) for w in (words if len(words) <= SHOWN + 1 else [*words[:SHOWN], words[-1]])]
    if len(words) > SHOWN + 1:
        return f"{len(words)} values, {'; '.join(shown[:-1])}; .. {shown[-1]}"
    return "; ".join(shown)


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."
