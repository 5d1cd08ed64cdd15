"""What follows from a circuit's weights and its target: the uniform bound, hence one in every norm, in float64 and in float32."""

from __future__ import annotations

import numpy as np

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.certificates.certificate import Certificate
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.functions.distance import entries_factor
from provenformer.functions.targets import Target
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.trace import trace

TERMS = {"tables", "attention", "rounding"}
SMALLEST = float(np.finfo(np.float64).tiny)  # what is smaller may have become 0
ROOM = 1e-9  # relative: sums of the same numbers in another order


def derive_circuit(network: CircuitNetwork, target: Target) -> CircuitBound:
    """sup |f - g| over the box: f is traced anew, and the walk goes through the weights."""
    if (target.token_dim, target.seq_len) != (network.token_dim, network.seq_len):
        raise Rejected("the target's token_dim and seq_len are not those of the network")
    try:
        traced = trace(target, network.kernel_steps, network.square_depth)
    except ProvenformerError as error:
        raise Rejected(str(error)) from None
    return circuit_bound(network, traced.graph, traced.outputs, target.low, target.high)


def in_norm(uniform: float, target: Target, norm_order: float | None) -> float:
    """d_p <= sup (d n vol)^(1/p); the largest entry for None and infinity."""
    if norm_order is None or norm_order == np.inf:
        return uniform
    return max(uniform * entries_factor(target, norm_order), SMALLEST) if uniform else 0.0


def false_statement(claim: Certificate, found: CircuitBound, target: Target) -> str | None:
    """What a certificate says beside its bound and does not follow from the weights; None if all of it does."""
    if claim.kind != "rigorous" or claim.domain != "box":
        return "a circuit's certificate is rigorous and about the box"
    if not (claim.norm_order is None or claim.norm_order >= 1):
        return f"the certificate's norm {claim.norm_order} is below 1"
    terms = claim.terms.values()
    if not claim.terms.keys() <= TERMS:
        return f"the certificate has terms other than {', '.join(sorted(TERMS))}"
    if not all(0 <= value < np.inf for value in terms) or not sum(terms) <= claim.bound * (1 + ROOM):
        return "the certificate's terms are not numbers from 0 up whose sum is at most its bound"
    parts = {
        "tables and attention": (found.exact, sum(terms) - claim.terms.get("rounding", 0.0)),
        "rounding": (found.float64 - found.exact, claim.terms.get("rounding", 0.0)),
    }
    for name, (uniform, value) in parts.items():
        least = in_norm(uniform, target, claim.norm_order)
        if not least <= value * (1 + ROOM) + 2.0**-48 * claim.bound:
            return f"the weights give {least:.6g} for {name}, more than the {value:.6g} that the certificate states"
    stated, derived = claim.details.get("bounds", {}), {"float64": found.float64, "float32": found.float32}
    if not isinstance(stated, dict) or not stated.keys() <= derived.keys():
        return "the certificate states bounds of its own for something else than float64 and float32"
    beside = [(f"in {name}", in_norm(derived[name], target, claim.norm_order), value) for name, value in stated.items()]
    if "sup" in claim.details:
        beside.append(("for the largest entry", found.float64, claim.details["sup"]))
    for name, least, value in beside:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value:
            return f"the weights give {least:.6g} {name}, more than the {value} that the certificate states"
    return None
