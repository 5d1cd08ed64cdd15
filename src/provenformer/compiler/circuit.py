"""compile(construction="circuit"): function -> graph -> parts -> gadgets -> network, certified, checked and compared.

The certificate is the larger of two bounds: the builder's, and the one that the checker reads off the finished weights. So what
is handed out is what `verify` will accept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.bounds.integrals import NORM_LIMIT
from provenformer.certificates.certificate import Certificate
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.constructions.circuit.build import Built, build
from provenformer.constructions.circuit.kernels import choose_steps
from provenformer.constructions.circuit.parts import lower
from provenformer.functions.distance import entries_factor
from provenformer.functions.targets import AGREES, Target
from provenformer.networks.circuit import CircuitNetwork
from provenformer.storage import save, target_spec
from provenformer.symbols.trace import Traced, samples, trace

if TYPE_CHECKING:
    from torch import nn

CIRCUIT = "circuit"
ATTEMPTS = 4
SMALLEST_FACTOR = 1e-150  # of (d n vol)^(1/p); 1 over it is the largest
BASIS = "f was traced to a graph, which was compared with f on samples; the bound is a theorem about the saved weights."


@dataclass(frozen=True, eq=False, repr=False)
class CompiledCircuit:
    """A target, the graph of its formula, the network built from it, and its certificate."""

    target: Target
    norm_order: float
    traced: Traced
    network: CircuitNetwork
    certificate: Certificate

    @property
    def construction(self) -> str:
        return CIRCUIT

    def to_torch(self) -> nn.Module:
        """The network as a torch module. Needs the extra `torch`, else raises MissingExtra."""
        return self.network.to_torch()

    def save(self, path: str | Path) -> None:
        """Write network, certificate and manifest to a folder."""
        save(path, self.network, self.certificate, {"construction": CIRCUIT, "target": target_spec(self.target)})

    def __repr__(self) -> str:
        net = self.network
        sizes = f"{net.blocks:,} blocks, {net.heads:,} heads, {sum(net.hidden_units.values()):,} units"
        return f"CompiledCircuit({self.target.name!r}, {sizes}, {self.certificate.short})"


def compile_circuit(
    target: Target,
    tolerance: float,
    norm_order: float,
    max_units: int,
    progress: Callable[[str], object] = lambda _: None,
) -> CompiledCircuit:
    """A circuit within the tolerance in float64, as small as certifies. See compile()."""
    p = _require_norm(norm_order)
    target.require_pointwise()
    target.require_equivariance()
    progress("tracing the formula")
    plain = trace(target)
    whole = entries_factor(target, p)
    if not SMALLEST_FACTOR < whole < 1 / SMALLEST_FACTOR:
        raise ProvenformerError(f"(d n vol)^(1/p) is {whole:g} at this support; use norm_order=np.inf.")
    sup = goal = tolerance / whole
    for _ in range(ATTEMPTS):
        progress(f"building within {goal:.3g}")
        traced, built = _built(target, plain, goal, max_units)
        checked = _checked(target, traced, built)
        bounds = {name: max(value, getattr(checked, name)) for name, value in built.bounds.items()}
        if bounds["float64"] <= sup:
            break
        goal *= 0.98 * sup / bounds["float64"]
    else:
        raise ProvenformerError(
            f"the checker finds {bounds['float64'] * whole:.3g} for a circuit built for {tolerance:g}; use a larger tolerance."
        )
    require_agreement(target, built.network, bounds["float64"], traced.rounding)
    return CompiledCircuit(
        target, norm_order, traced, built.network, _certificate(target, p, built, checked, bounds, whole)
    )


def _built(target: Target, plain: Traced, goal: float, max_units: int) -> tuple[Traced, Built]:
    """With sums over pairs of tokens in the way that takes fewer units; gathered if by nodes they do not reach the goal."""
    steps = choose_steps(plain.graph, plain.outputs, goal)
    traced = trace(target, steps) if steps else plain
    try:
        return traced, build(lower(traced.graph, traced.outputs), goal, max_units)
    except ProvenformerError:
        if not any(steps):
            raise
    traced = trace(target, (0.0,) * len(steps))
    return traced, build(lower(traced.graph, traced.outputs), goal, max_units)


def require_agreement(target: Target, network: CircuitNetwork, bound: float, rounding: float) -> None:
    """Raise if the network is farther from the function, itself computed with rounding, than its bound on any sample."""
    x = samples(target)
    wanted = target(x)
    error = np.abs(network(x) - wanted).max(axis=(1, 2))
    noise = min(AGREES * float(np.abs(wanted).max()), bound / 100) + rounding
    if error.max() > bound + noise:
        at = x[int(np.argmax(error))]
        raise ProvenformerError(
            f"target '{target.name}' is {error.max():.3g} away from its circuit at X={np.round(at, 4).tolist()!s:.200}, more "
            f"than the bound {bound:.3g}: it computes something else on symbols than on numbers; use construction='sum'."
        )


def _checked(target: Target, traced: Traced, built: Built) -> CircuitBound:
    try:
        return circuit_bound(built.network, traced.graph, traced.outputs, target.low, target.high)
    except Rejected as verdict:
        raise ProvenformerError(
            f"the checker does not accept this circuit ({verdict}); use construction='sum'."
        ) from verdict


def _certificate(
    target: Target, p: float | None, built: Built, checked: CircuitBound, bounds: dict[str, float], whole: float
) -> Certificate:
    """Terms add up to the bound; none is below what the checker finds for it. The builder's, moved as little as that needs."""
    bound, d = bounds["float64"], target.token_dim
    tables, attention = built.terms["tables"], built.terms["attention"]
    most = bound - (checked.float64 - checked.exact)
    exact = max(checked.exact, min(tables + attention, most))
    attention = min(attention, exact)
    parts = {"tables": exact - attention, "attention": attention, "rounding": max(0.0, bound - exact)}
    terms = {name: value * whole for name, value in parts.items()}
    details = {
        "sup": bound,
        "bounds": {name: value * whole for name, value in bounds.items() if np.isfinite(value)},
        "units": sum(built.network.hidden_units.values()),
    }
    return Certificate(bound * whole, terms, "rigorous", p, "box", BASIS, 0.0, (0.0,) * d, (0.0,) * d, details)


def _require_norm(norm_order: float) -> float | None:
    """None for the sup norm."""
    if isinstance(norm_order, bool) or not isinstance(norm_order, int | float | np.number) or not norm_order >= 1:
        raise ProvenformerError(f"norm_order={norm_order} is outside [1, inf]; use p >= 1 or np.inf.")
    if norm_order == np.inf:
        return None
    if norm_order > NORM_LIMIT:
        raise ProvenformerError(f"norm_order={norm_order} is above the limit {NORM_LIMIT}; use a smaller p or np.inf.")
    return float(norm_order)
