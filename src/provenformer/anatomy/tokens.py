"""A token circuit in words: what every head looks for, and what units make, block by block."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.book import Book, Errors
from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.nodes import Error, Node
from provenformer.base.errors import Rejected
from provenformer.checker.tokens.state import State
from provenformer.checker.tokens.walk import token_bound
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.inside import distinct_names
from provenformer.symbols.tokens.graph import Input, Lin, Pick, TokenGraph, Total, Units

SHOWN = 3  # values of one head or layer that are named before ".."
LONGEST = 140
LONG = 50  # characters from which on values are called by their names,
WORTH_A_NAME = 12  # if what they are in words is longer
KINDS = {Input: "input", Units: "function", Total: "total", Pick: "pick"}


@dataclass(frozen=True, eq=False, repr=False)
class TokenCircuit(Circuit):
    """The circuit of a program; `print` says block by block what heads look at and what is made."""

    block_units: tuple[int, ...] = ()  # hidden units of every block: values share them

    def __str__(self) -> str:
        lines = [f"circuit: {self.summary}"]
        for b in range(self.blocks):
            lines += [f"block {b}", *(f"  {line}" for line in self.lines(b))]
        return "\n".join([*lines, *(f"output: {node.words}" for node in self.nodes if node.kind == "output")])

    def lines(self, block: int) -> list[str]:
        """What the heads and units of a block do."""
        made = [node for node in self.nodes if node.block == block]
        found = [
            f"head {head} {what}: {_listed([node for node in made if head in node.heads])}"
            for (b, head), what in self.looks.items()
            if b == block
        ]
        units = [node for node in made if not node.heads]
        count = self.block_units[block]
        return found + ([f"{count:,} unit{'' if count == 1 else 's'}: {_listed(units)}"] if units else [])


def circuit_of_tokens(network: CircuitNetwork, graph: TokenGraph, output: Lin) -> TokenCircuit:
    """What every channel of the network of a program holds and what makes it."""
    errors, total, rejected = _errors(network, graph, output)
    book = Book(network)
    looking: dict[tuple[int, int], str] = {}
    named: dict[str, str] = {}
    first = graph.atoms[0]
    entry = Node(
        0, "x", "the token", "input", "input", 0, 0, low=float(first.low.min()), high=float(first.high.max()), atom=0
    )
    book.holds[0] = book.add(entry).index
    for claim in book.claims(len(graph.atoms)):
        name, atom = book.turn_to_claim(claim), graph.atoms[claim.atom]
        heads, units, edges, positions = book.made(claim)
        words, kind = _by_names(atom.words, named), KINDS[type(atom.operation)]
        named[atom.words] = name
        family = kind if heads else re.sub(r"(?<![v\d])-?\d+", "·", words)
        ends = float(atom.low.min()), float(atom.high.max())
        node = Node(
            0, name, words, kind, family, claim.layers, claim.channel, heads, units, *ends, None, edges, positions, claim.atom
        )  # fmt: skip
        book.next_holds[claim.channel] = book.add(node).index
        looking |= {((claim.layers - 1) // 2, head): looks(graph, claim.atom) for head in heads}
    book.turn_to(2 * network.blocks + 1)
    edges, positions = book.reads(network.W_out, "value")
    words = _by_names(text, named) if (text := graph.words(output)) not in named else named[text]
    book.add(Node(0, "y", words, "output", "output", book.layers, None, reads=edges, positions=positions))
    units = sum(network.hidden_units.values())
    return TokenCircuit(
        1, network.seq_len, book.with_errors(errors, total), network.blocks, network.heads, units, distinct_names(network),
        rejected, dict(sorted(looking.items())), tuple(network.hidden_units.values()),
    )  # fmt: skip


def _errors(network: CircuitNetwork, graph: TokenGraph, output: Lin) -> tuple[Errors, Error | None, str | None]:
    """Of every channel after every layer, as executed, and of the output; or why the checker rejects the network."""
    found: dict[str, dict[tuple[int, int], float]] = {"float64": {}, "float32": {}}

    def watch(precision: str, layers: int, state: State) -> None:
        found[precision] |= {(layers, channel): float(error) for channel, error in enumerate(state.error)}

    try:
        bound = token_bound(network, graph, output, watch)
    except Rejected as verdict:
        return {}, None, str(verdict)
    double, single = found["float64"], found["float32"]
    errors = {place: Error(error, error, single.get(place, np.inf)) for place, error in double.items()}
    return errors, Error(bound.float64, bound.float64, bound.float32), None


def looks(graph: TokenGraph, atom: int) -> str:
    """What a head looks at that is claimed to make an atom."""
    operation = graph.atoms[atom].operation
    if isinstance(operation, Total):
        counts = operation.counts
        if len(counts) == 1:
            chosen = np.flatnonzero(counts[0])
            return f"looks at place {chosen[0]}" if len(chosen) == 1 else "looks at all tokens alike"
        if (np.count_nonzero(counts, axis=1) == 1).all():
            return _moves(counts.argmax(axis=1), counts.shape[1])
        return _mixes(counts)
    if not isinstance(operation, Pick):  # a claim that the checker rejects
        return "does what units do"
    return {
        "position": "looks at the place that an index names", "rank": "looks at the token whose rank is the own place",
        "order": f"looks at the {_first_or_last(operation)} token {_chosen(operation)}",
        "largest": "looks at the tokens of extreme value",
    }[operation.because]  # fmt: skip


def _first_or_last(operation: Pick) -> str:
    """Of tokens that are selected alike, the place decides."""
    return "last" if np.median(np.diff(operation.bias, axis=1)) > 0 else "first"


def _chosen(operation: Pick) -> str:
    """Scores of a selector depend on the query, and there may be nothing to select; there is always an extreme value."""
    return "of extreme value" if all(query.known for query in operation.queries) else "that it selects, if any"


def _mixes(counts: np.ndarray) -> str:
    """Known weights on several tokens; the own token may make up for what rows of a smaller sum miss."""
    n = len(counts)
    others = counts * (1 - np.eye(n, dtype=np.int64))
    for which, wanted in (("earlier", np.tri(n, k=-1)), ("later", np.tri(n, k=-1).T), ("other", 1 - np.eye(n))):
        if (others == wanted).all():
            own = ", and at itself with the rest of its weight" if counts.diagonal().any() else ""
            return f"looks at all {which} tokens alike{own}"
    return "looks at tokens by their places"


def _moves(source: np.ndarray, n: int) -> str:
    places = np.arange(n)
    if (source == n - 1 - places).all():
        return "looks at the mirrored token"
    away = source - places
    values, often = np.unique(away, return_counts=True)
    most = int(values[often.argmax()])
    if len(values) == 2 and often[0] == often[1] and values[0] == -values[1]:
        return f"looks at the token {abs(most)} away"
    if most:
        around = ", around the end" if len(values) > 1 and ((away - most) % n == 0).all() else ""
        return f"looks {abs(most)} token{'s' * (abs(most) > 1)} {'ahead' if most > 0 else 'back'}{around}"
    return "looks at one known token each"


def _listed(nodes: list[Node]) -> str:
    chosen = nodes if len(nodes) <= SHOWN + 1 else [*nodes[:SHOWN], nodes[-1]]
    shown = [f"{node.name} = {node.words}" for node in chosen]
    if len(nodes) > SHOWN + 1:
        return f"{len(nodes)} values, {'; '.join(shown[:-1])}; .. {shown[-1]}"
    return "; ".join(shown)


def _by_names(words: str, named: dict[str, str]) -> str:
    """What has a name by its name, longest first, where the words would be long."""
    if len(words) > LONG:
        for known in sorted((w for w in named if len(w) > WORTH_A_NAME and w != words), key=len, reverse=True):
            words = words.replace(known, named[known])
    return _short(re.sub(r"\((v\d+)\)", r"\1", words))  # a name needs no brackets


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."
