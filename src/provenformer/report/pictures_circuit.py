"""Which figures a circuit has, each with the words that go with it."""

from __future__ import annotations

import numpy as np

from provenformer.look.patterns import FINEST
from provenformer.look.unit_tables import UnitTable
from provenformer.report import figures, figures_circuit
from provenformer.report.circuit_findings import CircuitFindings
from provenformer.report.figures import entry_name, sequence_name
from provenformer.report.pictures import Picture

MOST_CURVES = 6
MOST_ERRORS = 28
MOST_NAMED = 32  # tokens of a caption


def pictures(found: CircuitFindings) -> dict[str, Picture]:
    """All figures that apply to this circuit, by name."""
    made = [_certificate(found), _circuit(found), _patterns(found), _curves(found), _errors(found), _along(found)]
    return {picture.name: picture for picture in made if picture is not None}


def sequence_words(found: CircuitFindings) -> str:
    """The sequence that is followed, in a caption: its tokens by name, or as numbers."""
    if not found.subject.token_names:
        return sequence_name(found.sequence)
    words = found.subject.in_words(found.sequence)
    return " ".join(words if len(words) <= MOST_NAMED else [*words[: MOST_NAMED - 1], ".."])


def _certificate(found: CircuitFindings) -> Picture:
    certificate = found.subject.certificate
    marks = {"measured": found.measured.outputs["float64"]} if found.measured and certificate.norm_order is None else {}
    parts = ", ".join(f"{name} {value:.3g}" for name, value in certificate.terms.items())
    return Picture(
        "certificate", "The bound and its terms",
        f"One stacked bar of length {certificate.bound:.4g}, split into {parts}.",
        "The terms of a circuit add up to its bound" + ("; the line is the largest error that was measured." if marks else "."),
        lambda: figures.certificate_bar(certificate.contributions(), certificate.terms, marks),
    )  # fmt: skip


def _circuit(found: CircuitFindings) -> Picture | None:
    circuit = found.subject.circuit
    if circuit is None:
        return None
    folded = "".join(f" Blocks {a} to {b} do what block {a - 1} does." for a, b in found.folded)
    return Picture(
        "circuit", "The circuit",
        f"A graph of boxes in rows from input to output: {circuit.summary}.",
        "Blue boxes are made by heads, orange ones by ReLU units; lines are weights that are not 0, dashed where they make "
        f"queries or keys only. Values that are alike share a box.{folded}",
        lambda: circuit,
    )  # fmt: skip


def _patterns(found: CircuitFindings) -> Picture | None:
    if not found.patterns:
        return None
    n = found.subject.seq_len
    some = f" {len(found.patterns)} of {found.heads:,} heads are drawn." if len(found.patterns) < found.heads else ""
    coarse = f" {n} tokens are averaged to {FINEST}." if n > FINEST else ""
    return Picture(
        "attention", "What heads look at",
        f"{len(found.patterns)} squares of attention weights, queries down and keys across.",
        f"For the sequence {sequence_words(found)}: each row adds up to 1; the fuller the colour, the larger the weight."
        f"{some}{coarse}",
        lambda: figures_circuit.attention_patterns(found.patterns),
    )  # fmt: skip


def _curves(found: CircuitFindings) -> Picture | None:
    chosen = _different(found.tables)
    if not chosen:
        return None
    listed = "; ".join(f"{table.node.name} = {table.node.words}" for table in chosen)
    some = f" {len(chosen)} of {len(found.tables)} are drawn." if len(chosen) < len(found.tables) else ""
    return Picture(
        "units", "Functions as ReLU units",
        f"For {len(chosen)} values the function, the piecewise linear function of its units, and the difference.",
        f"{listed}. Read off the weights, over the whole range of the argument.{some}",
        lambda: figures_circuit.unit_curves(chosen),
    )  # fmt: skip


def _different(tables: list[UnitTable]) -> list[UnitTable]:
    """One of each kind of function first, then the others, in the order of the network."""
    first = {table.node.family: i for i, table in reversed(list(enumerate(tables)))}
    order = sorted(range(len(tables)), key=lambda i: (first[tables[i].node.family] != i, i))[:MOST_CURVES]
    return [tables[i] for i in sorted(order)]


def _errors(found: CircuitFindings) -> Picture | None:
    if found.measured is None:
        return None
    made = [
        (node, error)
        for node, error in zip(found.subject.nodes, found.measured.nodes, strict=True)
        if node.block is not None
    ]
    if not made:
        return None
    kept = np.unique(np.linspace(0, len(made) - 1, min(len(made), MOST_ERRORS)).round().astype(int))
    nodes, errors = [made[i][0] for i in kept], [made[i][1] for i in kept]
    some = f" {len(nodes)} of {len(made)} values are drawn." if len(nodes) < len(made) else ""
    return Picture(
        "errors", "Error of every value",
        f"Per value a bar up to its bound in float64, marks for float32, and dots for what was measured: {len(nodes)} rows.",
        "How far a channel may be from the value that it stands for, as the checker derives it from the weights, and how far it "
        f"was on samples.{some}",
        lambda: figures_circuit.node_errors(nodes, errors),
    )  # fmt: skip


def _along(found: CircuitFindings) -> Picture | None:
    data = found.along
    if data is None:
        return None
    certificate = found.subject.certificate
    bound = certificate.details.get("sup") if isinstance(certificate.details.get("sup"), float) else None
    largest = float(np.abs(data.network - data.target).max())
    return Picture(
        "along", "Target and network along a line",
        f"Two curves while {entry_name((0, 0))} moves, and their difference, at most {largest:.3g}.",
        f"Other numbers stay as in {sequence_words(found)}. The difference is at most {largest:.3g} here"
        + (f"; the dashed lines are the bound for all inputs, {bound:.3g}." if bound is not None else "."),
        lambda: figures_circuit.error_along(data, bound),
    )  # fmt: skip
