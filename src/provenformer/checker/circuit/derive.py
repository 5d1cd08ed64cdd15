"""What follows from a circuit's weights and its target: the uniform bound, hence one in every norm, in float64 and in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.certificates.certificate import Certificate
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.functions.targets import Target
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.trace import trace

ROOM = 1e-9  # relative: sums of the same numbers in another order


def derive_circuit(network: CircuitNetwork, target: Target) -> CircuitBound:
    """sup |f - g| over the box: f is traced anew, and the walk goes through the weights."""
    if (target.token_dim, target.seq_len) != (network.token_dim, network.seq_len):
        raise Rejected("the target's token_dim and seq_len are not those of the network")
    try:
        traced = trace(target)
    except ProvenformerError as error:
        raise Rejected(str(error)) from None
    return circuit_bound(network, traced.graph, traced.outputs, target.low, target.high)


def in_norm(uniform: float, target: Target, norm_order: float | None) -> float:
    """d_p <= sup (d n vol)^(1/p); the largest entry for None and infinity."""
    if norm_order is None or norm_order == np.inf:
        return uniform
    volume = float(np.prod(target.high - target.low) ** target.seq_len)
    return float(uniform * (target.token_dim * target.seq_len * volume) ** (1 / norm_order) * (1 + 1e-12))


def false_statement(claim: Certificate, found: CircuitBound, target: Target) -> str | None:
    """What a certificate says beside its bound and does not follow from the weights; None if all of it does."""
    if claim.kind != "rigorous" or claim.domain != "box":
        return "a circuit's certificate is rigorous and about the box"
    if not (claim.norm_order is None or claim.norm_order >= 1):
        return f"the certificate's norm {claim.norm_order} is below 1"
    terms = claim.terms.values()
    if not all(0 <= value < np.inf for value in terms) or not sum(terms) <= claim.bound * (1 + ROOM):
        return "the certificate's terms are not numbers from 0 up whose sum is at most its bound"
    derived = {"float64": found.float64, "float32": found.float32}
    for name, value in _stated(claim).items():
        if name not in derived or not isinstance(value, int | float):
            return f"the certificate states a bound for '{name}', which is neither float64 nor float32"
        least = in_norm(derived[name], target, claim.norm_order)
        if not least <= value * (1 + ROOM):
            return f"the weights give {least:.6g} in {name}, more than the {value:.6g} that the certificate states"
    return None


def _stated(claim: Certificate) -> dict[str, Any]:
    bounds = getattr(claim, "bounds", None) or {}
    return dict(bounds)
