"""The page for circuits: of a built-in target, or the one that the explorer was started with; and what it does to an input."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from provenformer.anatomy.nodes import Node, repeats
from provenformer.anatomy.words import upper
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import size_of
from provenformer.certificates.certificate import CIRCUIT_TERM_MEANINGS, in_full
from provenformer.compiler import compile as compiler
from provenformer.compiler.tokens import compile_tokens
from provenformer.explore.settings import FieldError, Fields, choice, number, numbers_of_tokens, whole
from provenformer.functions import programs, targets
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram
from provenformer.look.circuit import CircuitSubject, node_values
from provenformer.look.loading import load_subject
from provenformer.look.patterns import Pattern, shown_patterns
from provenformer.look.programs import ProgramSubject
from provenformer.networks.circuit import CircuitNetwork

GIVEN = "network"  # the target's name for the network that the explorer was started with
PROGRAM = "tokens:"  # before the name of a program on tokens
CIRCUIT_LIMITS = {"token_dim": (1, 4), "seq_len": (2, 64), "vocab_size": (2, 16)}
MOST_NUMBERS = 1024  # in an input: a request is small
CIRCUIT_TOLERANCES = (1e-9, 1.0)
MOST_UNITS = 20_000
MOST_PARAMETERS = 1_000_000  # of a program's circuit
FINEST = 48  # rows and columns of a pattern


@dataclass(frozen=True)
class CircuitSettings:
    """A circuit that the page asks for."""

    target: str = "softmax-mean"
    token_dim: int = 1
    seq_len: int = 8
    tolerance: float = 1e-3
    vocab_size: int = 8  # of a program on tokens


def programs_view() -> list[dict[str, str]]:
    """The programs on tokens, as the page offers them."""
    return [{"name": name, "value": PROGRAM + name, "words": programs.describe(name)} for name in programs.names()]


def read_circuit_settings(fields: Fields, given: CircuitSubject | None) -> CircuitSettings:
    """Settings from the form. Of the network that was given nothing else is asked."""
    known = [*targets.names(), *(PROGRAM + name for name in programs.names())]
    name = choice(fields, "target", [*known, *([GIVEN] if given is not None else [])])
    if name == GIVEN and given is not None:
        return CircuitSettings(GIVEN, given.token_dim, given.seq_len)
    if name.startswith(PROGRAM):
        sizes = {field: whole(fields, field, *CIRCUIT_LIMITS[field]) for field in ("seq_len", "vocab_size")}
        return CircuitSettings(name, **sizes)
    return CircuitSettings(
        name,
        whole(fields, "token_dim", *CIRCUIT_LIMITS["token_dim"]),
        whole(fields, "seq_len", *CIRCUIT_LIMITS["seq_len"]),
        number(fields, "tolerance", *CIRCUIT_TOLERANCES),
    )


def build_circuit(settings: CircuitSettings) -> CircuitSubject:
    """Compile and take apart. What is handed back has not been run, so that it can be sent to another process."""
    if settings.target.startswith(PROGRAM):
        return _build_program(settings)
    f = targets.get(settings.target, settings.token_dim, settings.seq_len)
    try:
        made = compiler.compile(
            f, tolerance=settings.tolerance, norm_order=np.inf, construction="circuit", max_units=MOST_UNITS
        )
    except ProvenformerError as error:
        reason = str(error)
        raise FieldError("tolerance", reason[0].upper() + reason[1:]) from error
    return replace(CircuitSubject.of(made), network=_fresh(made.network))


def _build_program(settings: CircuitSettings) -> CircuitSubject:
    name = settings.target.removeprefix(PROGRAM)
    try:
        made = compile_tokens(programs.get(name, settings.vocab_size, settings.seq_len), max_parameters=MOST_PARAMETERS)
    except ProvenformerError as error:
        reason = str(error)
        raise FieldError("seq_len", reason[0].upper() + reason[1:]) from error
    subject = ProgramSubject.of_tokens(made)
    return replace(subject, network=_fresh(subject.network))


def _fresh(network: CircuitNetwork) -> CircuitNetwork:
    layout = {"token_dim": network.token_dim, "seq_len": network.seq_len, **network.layout()}
    return CircuitNetwork.of_tensors(layout, network.tensors(), network.positions)


def open_circuit(folder: str | Path, target: Target | TokenProgram | None) -> CircuitSubject:
    """A saved circuit; `target` is its function, where that is not a built-in one."""
    subject = load_subject(folder, target)
    if not isinstance(subject, CircuitSubject):
        raise ProvenformerError(f"the explorer opens saved circuits, and {folder} is no circuit; use `report`.")
    require_drawable(subject)
    return subject


def require_drawable(subject: CircuitSubject) -> None:
    """Refuse, before the server starts, a network whose input does not fit a request, or whose function is not known."""
    d, n = subject.token_dim, subject.seq_len
    if d * n > MOST_NUMBERS:
        raise ProvenformerError(
            f"the explorer draws inputs of up to {MOST_NUMBERS:,} numbers, and this network's have {d * n:,}; use `report`."
        )
    if subject.circuit is None:
        raise ProvenformerError(
            f"{subject.missing}; name the function with --target, so that the explorer can draw its graph."
        )


def circuit_view(subject: CircuitSubject) -> dict[str, Any]:
    """What does not change with the input: sizes, claim, drawing, nodes."""
    circuit, certificate, network = subject.circuit, subject.certificate, subject.network
    if circuit is None:
        raise ProvenformerError("The function of this network is not known.")
    norm = "sup |f - g|" if certificate.norm_order is None else f"d(p = {in_full(certificate.norm_order)})(f, g)"
    sizes = {
        "blocks": network.blocks, "heads": network.heads, "ReLU units": sum(network.hidden_units.values()),
        "channels": network.model_dim, "parameters": network.parameters,
    }  # fmt: skip
    single = certificate.bounds.get("float32")
    tokens = len(subject.token_names)
    return {
        "name": subject.target_name,
        "token_dim": subject.token_dim,
        "seq_len": subject.seq_len,
        "low": subject.support[0].tolist(),
        "high": subject.support[1].tolist(),
        "names": list(subject.token_names),
        "answers": subject.answers_are_tokens,
        "sizes": [[name, size_of(size)] for name, size in sizes.items()],
        "bound": {
            "value": certificate.bound,
            "text": f"{norm} ≤ {upper(certificate.bound)}",
            "where": f"exact on all {tokens}^{subject.seq_len} sequences" if tokens else "for every input of the box",
            "basis": certificate.basis,
        },
        "float32": "no bound: rounding leaves the planned ranges" if single is None else f"≤ {upper(single)}",
        "terms": [
            {"name": name, "value": value, "text": upper(value), "meaning": CIRCUIT_TERM_MEANINGS.get(name, "")}
            for name, value in certificate.terms.items()
        ],
        "svg": circuit.to_svg(standalone=False),
        "nodes": [_node_view(node) for node in circuit.nodes],
        "folded": [f"blocks {first} to {last}" for first, last in repeats(circuit.nodes)],
        "rejected": circuit.rejected,
    }


def _node_view(node: Node) -> dict[str, Any]:
    made = node.by if node.block is None else f"block {node.block}, {node.by}"
    return {
        "name": node.name, "words": node.words, "by": made, "range": node.range, "channel": node.channel,
        "bound": None if node.error is None else node.error.float64,
        "text": "" if node.error is None else upper(node.error.float64),
    }  # fmt: skip


def circuit_look(subject: CircuitSubject, x: FloatArray) -> dict[str, Any]:
    """What happens to one input x (d, n): outputs, values and errors of all nodes, attention patterns."""
    wanted = subject.wanted(x[None])
    if wanted is None:
        raise ProvenformerError("The function of this network is not known.")
    values = node_values(subject, x[None])
    f, g = wanted[0], subject.network(x[None])[0]
    off = np.abs(g - f).max(axis=1)
    held = np.concatenate([values.held[:, 0], g])
    return {
        "target": f.tolist(),
        "output": g.tolist(),
        "off": float(off.max()),
        "values": [[float(f"{v:.6g}") for v in row] for row in held],
        "errors": [*values.errors.tolist(), *off.tolist()],
        "patterns": [_pattern_view(p) for p in shown_patterns(subject, x, FINEST)],
        "heads": subject.network.heads,
    }


def _pattern_view(pattern: Pattern) -> dict[str, Any]:
    """Weights as bytes: 255 is the largest."""
    top = float(pattern.weights.max()) or 1.0
    shades = np.round(255 * pattern.weights / top).astype(np.uint8)
    return {
        "title": f"block {pattern.block}, head {pattern.head}",
        "makes": ", ".join(pattern.makes),
        "looks": pattern.looks,
        "tokens": list(pattern.tokens),
        "size": len(shades),
        "largest": pattern.largest,
        "even": 1.0 / top / len(shades),  # how full the colour of a uniform pattern is
        "shades": base64.b64encode(shades.tobytes()).decode(),
    }


def read_circuit_tokens(fields: Fields, subject: CircuitSubject) -> FloatArray:
    """The input, given as one list of numbers per token, within the box."""
    x = numbers_of_tokens(fields, subject.token_dim, subject.seq_len)
    low, high = (end[:, None] for end in subject.support)
    if not ((x >= low) & (x <= high)).all():
        raise FieldError("tokens", "Every number of a token lies within the box of the target.")
    try:
        return subject.require_inside(x)
    except ProvenformerError as error:
        raise FieldError("tokens", str(error)[0].upper() + str(error)[1:]) from error
