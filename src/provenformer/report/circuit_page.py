"""The page about a circuit: its claim, its graph, and every value with what makes it and how far it may be off."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from provenformer.anatomy.nodes import Node, listed
from provenformer.anatomy.words import upper
from provenformer.certificates.certificate import CIRCUIT_TERM_MEANINGS, in_full
from provenformer.look.circuit import CircuitSubject
from provenformer.networks.inside import distinct_names
from provenformer.report.circuit_findings import CircuitFindings
from provenformer.report.page import Row, figure, number, render
from provenformer.report.pictures import Picture
from provenformer.report.pictures_circuit import sequence_words

MOST_TOKENS = 8
MOST_NAMES = 32  # tokens of an alphabet that are named
MOST_CHANNELS = 60
NOT_HERE = "not known"
Rows = list[list[Any]]


def page(found: CircuitFindings, drawn: dict[str, Picture], folder: str) -> str:
    """The page for what was found; `folder` is named in the commands it gives."""
    subject = found.subject
    tokens = min(subject.seq_len, MOST_TOKENS)
    return render(
        "circuit.html",
        folder,
        title=f"{subject.target_name} as a Transformer",
        lead=_lead(subject),
        asked=_asked(subject),
        claim=_claim(subject),
        confirmed=_confirmed(subject),
        missing=subject.missing,
        terms=_terms(subject),
        bounds=_bounds(found),
        measured=found.measured,
        sizes=_sizes(subject),
        nodes=_nodes(found),
        folded=found.folded,
        tables=_tables(found),
        blocks=_blocks(subject),
        channels=_channels(subject),
        all_channels=subject.network.model_dim,
        tokens=tokens,
        token_heads=["value", *_token_heads(found, tokens)],
        more_tokens=subject.seq_len - tokens,
        values=_values(found, tokens),
        sequence=sequence_words(found),
        figures={name: figure(picture) for name, picture in drawn.items()},
    )


def bound(value: float | None) -> Any:
    """A bound for people, rounded up, with the exact one in its `value`."""
    return NOT_HERE if value is None else Markup('<data value="{}">{}</data>').format(repr(float(value)), upper(value))


def _lead(subject: CircuitSubject) -> str:
    network, certificate = subject.network, subject.certificate
    several = "" if network.blocks == 1 else "s"
    made_from = "program" if subject.token_names else "formula"
    blocks = f"{network.blocks:,} Transformer block{several}, constructed from the {made_from} and not trained"
    if subject.token_names:
        count = f"{len(subject.token_names)}^{subject.seq_len}"
        return f"{blocks}: every one of the {count} sequences of tokens is answered exactly."
    if certificate.norm_order is None:
        return f"{blocks}: for every input of the box, no number is further than {upper(certificate.bound)} from the target's."
    return f"{blocks}: within {upper(certificate.bound)} of the target in d_{in_full(certificate.norm_order)}."


def _asked(subject: CircuitSubject) -> list[Row]:
    rows: list[Row] = [("target", subject.target_name)]
    if subject.formula is not None:
        rows.append(("formula", subject.formula))
    if subject.token_names:
        names = subject.token_names
        shown = " ".join(names if len(names) <= MOST_NAMES else [*names[: MOST_NAMES - 1], "..", names[-1]])
        return [
            *rows, ("alphabet", f"{len(names)} tokens: {shown}"), ("tokens, n", number(subject.seq_len)),
            ("outputs", "tokens" if subject.answers_are_tokens else "numbers"),
            ("construction", "circuit: the program itself, each of its operations by heads or ReLU units on whole numbers"),
        ]  # fmt: skip
    ends = [f"[{a:g}, {b:g}]" for a, b in zip(*subject.support, strict=True)]
    norm = subject.certificate.norm_order
    return [
        *rows, ("numbers per token, d", number(subject.token_dim)), ("tokens, n", number(subject.seq_len)),
        ("box", ends[0] if len(set(ends)) == 1 else " x ".join(ends)),
        ("norm", "the largest entry (sup)" if norm is None else f"p = {norm:g}"),
        ("construction", "circuit: the formula itself, each of its operations by heads or ReLU units"),
    ]  # fmt: skip


def _claim(subject: CircuitSubject) -> list[Row]:
    """In full, as `verify` states it."""
    claim = subject.claim()
    if claim is None:
        return [("claim", subject.certificate.short), ("target", f"{subject.target_name}, which is not here")]
    return [
        ("claim", claim.sentence),
        ("target", claim.about),
        ("basis", claim.basis),
        *(("note", note) for note in claim.notes),
    ]


def _confirmed(subject: CircuitSubject) -> tuple[bool, str] | None:
    """What the checker's walk, done for this page, says of the sup norm; None without the function."""
    circuit, claimed = subject.circuit, subject.claimed
    if circuit is None:
        return None
    errors = [node.error.float64 for node in circuit.nodes if node.kind == "output" and node.error is not None]
    if circuit.rejected is not None or not errors:
        return False, f"The checker does not accept this network for this function: {circuit.rejected}."
    found = max(errors)
    if claimed is None or found > claimed * (1 + 1e-9):
        return (
            False,
            f"The weights give {upper(found)} for the largest entry in float64, which is more than the certificate states.",
        )
    return (
        True,
        f"Derived again from the weights for this page: no entry is off by more than {upper(found)} in float64.",
    )


def _terms(subject: CircuitSubject) -> Rows:
    whole = subject.certificate.bound or 1.0
    return [
        [name, bound(float(value)), f"{value / whole:.1%}", CIRCUIT_TERM_MEANINGS.get(name, "")]
        for name, value in subject.certificate.terms.items()
    ]


def _bounds(found: CircuitFindings) -> Rows:
    """Precision, certified in the norm of the certificate, the same for the largest entry, measured."""
    certificate = found.subject.certificate
    sup = certificate.details.get("sup")
    scale = sup / certificate.bound if isinstance(sup, float) and certificate.bound else 1.0
    rows = []
    for precision in ("float64", "float32"):
        certified = certificate.bounds.get(precision)
        largest = None if certified is None else certified * scale
        seen = NOT_HERE if found.measured is None else number(found.measured.outputs[precision])
        stated = "none: rounding leaves the planned ranges" if certified is None else bound(certified)
        rows.append([precision, stated, bound(largest) if largest is not None else "", seen])
    return rows


def _sizes(subject: CircuitSubject) -> list[Row]:
    network = subject.network
    tensors = network.tensors()
    weights = sum(int(np.count_nonzero(v)) for name, v in tensors.items() if not name.startswith("witness."))
    return [
        ("blocks", number(network.blocks)), ("heads", number(network.heads)),
        ("ReLU units", number(sum(network.hidden_units.values()))), ("channels", number(network.model_dim)),
        ("parameters", number(network.parameters)), ("weights that are not 0, without positions", number(weights)),
    ]  # fmt: skip


def _nodes(found: CircuitFindings) -> Rows:
    """Name, words, made by, channel, range, bound, measured, bound in float32; a row of one cell for what is left out."""
    if found.subject.circuit is None:
        return []
    seen = dict(enumerate(found.measured.nodes if found.measured else []))
    rows: Rows = []
    for node in listed(found.subject.circuit.nodes):
        rows.append([node] if isinstance(node, str) else _node(node, seen.get(node.index)))
    return rows


def _node(node: Node, seen: float | None) -> list[Any]:
    errors = (None, None) if node.error is None else (node.error.float64, node.error.float32)
    made = node.by if node.block is None else f"block {node.block}, {node.by}"
    channel = "" if node.channel is None else number(node.channel)
    measured = "" if seen is None else Markup('<data value="{}">{}</data>').format(repr(seen), f"{seen:.2g}")
    return [node.name, node.words, made, channel, node.range, bound(errors[0]), measured, bound(errors[1])]


def _tables(found: CircuitFindings) -> Rows:
    return [
        [
            table.node.name, table.node.words, number(table.node.units),
            f"[{table.argument[0]:.4g}, {table.argument[-1]:.4g}]", number(table.error),
        ]
        for table in found.tables
    ]  # fmt: skip


def _blocks(subject: CircuitSubject) -> Rows:
    """Block, heads and what they make, units and what they make."""
    rows: Rows = []
    names = distinct_names(subject.network)
    for b, block in enumerate(subject.network.circuit_blocks):
        heads = []
        for k, head in enumerate(block.heads):
            written = np.flatnonzero(head.W_O.any(axis=1))
            looks = "" if subject.circuit is None else subject.circuit.looks.get((b, k), "")
            size = looks or (f"head size {len(head.b_Q)}" if len(head.b_Q) else "uniform")
            heads.append(f"head {k} ({size}): {_held(subject, b, 1, written, names)}")
        written = np.flatnonzero(block.W_2.any(axis=1) | (block.b_2 != 0))
        units = f"{len(block.b_1):,}: {_held(subject, b, 2, written, names)}" if len(written) else "none"
        rows.append([number(b), "; ".join(heads) or "none", units])
    return rows


def _held(subject: CircuitSubject, block: int, half: int, channels: Any, names: tuple[str, ...]) -> str:
    """The nodes that channels hold after a layer, or the names of the channels."""
    made = {node.channel: node.name for node in subject.nodes if node.layers == 2 * block + half}
    listed = [made.get(int(c), names[c]) for c in channels]
    return ", ".join(listed) if len(listed) <= 12 else f"{', '.join(listed[:11])} and {len(listed) - 11} more"


def _channels(subject: CircuitSubject) -> Rows:
    """Number, name, what it holds in order."""
    held: dict[int, list[str]] = {}
    for node in subject.nodes:
        held.setdefault(node.channel or 0, []).append(node.name)
    fixed = subject.network.constant_channels
    rows: Rows = []
    for c, name in enumerate(distinct_names(subject.network)[:MOST_CHANNELS]):
        holds = held.get(c, [])
        listed = ", then ".join(holds) if len(holds) <= 4 else f"{holds[0]}, then {holds[1]}, … and at last {holds[-1]}"
        rows.append([number(c), name, listed or ("numbers by position, throughout" if fixed[c] else NOT_HERE)])
    return rows


def _token_heads(found: CircuitFindings, tokens: int) -> list[str]:
    """A column for every token, with its name where it has one."""
    if not found.subject.token_names:
        return [f"token {j + 1}" for j in range(tokens)]
    return [f"{j + 1}: {name}" for j, name in enumerate(found.subject.in_words(found.sequence)[:tokens])]


def _values(found: CircuitFindings, tokens: int) -> Rows:
    """Per node the numbers that its channel holds, for the first tokens; then network and target."""
    rows: Rows = []
    if found.values is not None:
        for node in found.shown:
            rows.append([node.name, *(number(float(v)) for v in found.values.held[node.index, 0, :tokens])])
    several = found.subject.token_dim > 1
    for name, values in (("network g", found.output), ("target f", found.wanted)):
        for row, numbers in enumerate([] if values is None else values):
            label = f"{name}, row {row}" if several else name
            rows.append([label, *(number(float(v)) for v in numbers[:tokens])])
    if found.subject.answers_are_tokens:
        rows.append(["answer", *found.subject.in_words(np.rint(found.output))[:tokens]])
    return rows
