"""What verify says of a token circuit: the program is traced again, and the bound derived from the weights."""

from __future__ import annotations

from fractions import Fraction

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.certificates.certificate import Certificate
from provenformer.checker.tokens.walk import TokenBound, token_bound
from provenformer.functions.tokens import TokenProgram
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.tokens.trace import require_same, trace


def derive_program(network: FloatNetwork, program: TokenProgram) -> tuple[TokenBound, Fraction]:
    """(largest errors, distance of neighbouring outputs); Rejected if the weights do not compute the program exactly."""
    if not isinstance(network, CircuitNetwork):
        raise Rejected("a network that is no circuit was not made from a program on tokens")
    try:
        traced = trace(program)
    except ProvenformerError as error:
        raise Rejected(f"the program cannot be traced ({error})") from error
    require_same(program, traced)
    found, step = token_bound(network, traced.graph, traced.output), Fraction(1, traced.output.den)
    if not found.float64 < step / 2:
        raise Rejected(
            f"outputs may be off by {found.float64:.3g}, and lie {float(step):g} apart: they are not told apart"
        )
    return found, step


def false_statement(certificate: Certificate, found: TokenBound, program: TokenProgram, step: Fraction) -> str | None:
    """What else the certificate says and is not so."""
    details, stated, terms = certificate.details, certificate.bounds, certificate.terms
    if certificate.kind != "rigorous" or certificate.norm_order is not None:
        return "a program's certificate is rigorous and about the largest entry"
    facts = {"vocab_size": program.vocab_size, "seq_len": program.seq_len, "step": float(step)}
    for name, value in facts.items():
        if details.get(name) != value:
            return f"its {name} is {details.get(name)!r:.20}, not {value:g}"
    if stated.keys() - {"float64", "float32"} or any(not v >= getattr(found, name) for name, v in stated.items()):
        return "its bounds by precision are below what the weights give"
    margin = details.get("margin")
    if margin is None or not margin <= float(step) / 2 - found.float64:
        return "its margin is larger than what the weights give"
    if terms.keys() != {"rounding"} or not found.float64 <= terms["rounding"] <= certificate.bound:
        return "its terms are not one for rounding, between what the weights give and its bound"
    return None
