"""Everything a report shows about a circuit, computed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.nodes import Node, listed, repeats
from provenformer.base.arrays import FloatArray
from provenformer.look.circuit import CircuitSubject, Measured, NodeValues, measured, node_values
from provenformer.look.patterns import Pattern, shown_patterns
from provenformer.look.unit_tables import UnitTable, unit_tables
from provenformer.report.findings import one_sequence

LINE_POINTS = 301


@dataclass(frozen=True)
class Along:
    """Target and network while the first number moves over its range and the others stay, in the output that changes most."""

    at: FloatArray
    target: FloatArray
    network: FloatArray
    entry: tuple[int, int]  # row and token that are shown


@dataclass(frozen=True)
class CircuitFindings:
    """The data behind page and figures. What needs the function is None or empty without it."""

    subject: CircuitSubject
    sequence: FloatArray  # (d, n): the one that is followed
    output: FloatArray
    wanted: FloatArray | None
    values: NodeValues | None  # of the nodes, for that sequence
    measured: Measured | None
    patterns: list[Pattern]
    heads: int  # of which `patterns` may show only some
    tables: list[UnitTable]
    along: Along | None
    folded: tuple[tuple[int, int], ...]  # blocks that repeat what the one before them does

    @property
    def shown(self) -> list[Node]:
        """Inputs and nodes that are listed: of those that are alike, and of blocks that repeat, only some are."""
        return [node for node in listed(self.subject.nodes) if isinstance(node, Node)]


def find_circuit(subject: CircuitSubject, given: FloatArray | None = None) -> CircuitFindings:
    """Look at a circuit; `given` (d, n) is the sequence to follow through it."""
    circuit = subject.circuit
    sequence = subject.example() if given is None else one_sequence(given, subject.token_dim, subject.seq_len)
    wanted = subject.wanted(subject.require_inside(sequence)[None])
    folded = () if circuit is None else repeats(circuit.nodes)
    return CircuitFindings(
        subject=subject,
        sequence=sequence,
        output=subject.network(sequence[None])[0],
        wanted=None if wanted is None else wanted[0],
        values=None if circuit is None else node_values(subject, sequence[None]),
        measured=measured(subject),
        patterns=shown_patterns(subject, sequence),
        heads=subject.network.heads,
        tables=unit_tables(subject),
        along=_along(subject, sequence),
        folded=folded,
    )


def _along(subject: CircuitSubject, sequence: FloatArray) -> Along | None:
    if subject.target is None:
        return None
    count = min(LINE_POINTS, max(24, subject.affordable(0.5)))
    at = np.linspace(subject.support[0][0], subject.support[1][0], count)
    x = np.repeat(sequence[None], count, axis=0)
    x[:, 0, 0] = at
    f, g = subject.target(x), subject.network(x)
    spread = f.std(axis=0)
    row, token = (int(i) for i in np.unravel_index(int(np.argmax(spread > 0.999 * spread.max())), spread.shape))
    return Along(at, f[:, row, token], g[:, row, token], (row, token))
