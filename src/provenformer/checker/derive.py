"""What follows from a network's weights and a target: the bound with its terms; and whether a certificate says the same.

The walk (thin.py, wide.py) gives a table, context -> value, that the network computes on good inputs up to a radius, and a
range that its outputs keep to anywhere. From there on it is docs/certificates.md: the table against the target, the radius, and
the ramps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.base.errors import Rejected
from provenformer.bounds.cells import Cells
from provenformer.bounds.integrals import KINDS, NORM_LIMIT, IntegralBound, bound_integral, p_sum
from provenformer.certificates.certificate import Certificate
from provenformer.checker.table import OutputTable
from provenformer.checker.thin import thin_table
from provenformer.checker.wide import wide_table
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target, one_order_suffices
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideNetwork

ROOM = 2.0**-20  # the certifier bounds the same things by other formulas; its last digits may differ
TERMS = ("piecewise", "lost cubes", "ramps", "softmax", "rounding")  # of a network made from a table
# How each kind of network is walked through.
WALKS: dict[type[FloatNetwork], Callable[[Any, Target, Grid, float, str], OutputTable]] = {
    Network: thin_table,
    WideNetwork: wide_table,
}


@dataclass(frozen=True, eq=False)
class Derived:
    """d_p(f, g) <= bound, and what it is made of."""

    bound: float
    table: (
        float  # f against what the network gives on good inputs: over cubes that it keeps, and over those that it loses
    )
    kept: float
    lost: float
    rounding: float
    ramps: float
    found: OutputTable

    @property
    def terms(self) -> dict[str, float]:
        """For a report."""
        return {"table": self.table, "rounding": self.rounding, "ramps": self.ramps}


def output_table(network: FloatNetwork, target: Target, grid: Grid, ramp: float, domain: str) -> OutputTable:
    """The walk through the weights; Rejected where a rule is broken."""
    found = WALKS[type(network)](network, target, grid, ramp, domain)
    if not all(np.isfinite(v).all() for v in (found.values, found.radius, found.low, found.high)):
        raise Rejected("the network gives a value that is not finite")
    return found


def derive(network: FloatNetwork, target: Target, grid: Grid, claim: Certificate) -> Derived:
    """The bound for these weights, in the norm, over the domain, of the kind and with the ramp that are claimed."""
    if target.equivariant == (network.positions is not None):
        raise Rejected("positions are given exactly when the target is not equivariant")
    if not (0 < claim.ramp < 0.5 and 1 <= (claim.norm_order or 0) <= NORM_LIMIT and claim.kind in KINDS):
        raise Rejected("the certificate's ramp, norm or kind is outside its range")
    return against(target, grid, claim, output_table(network, target, grid, float(claim.ramp), claim.domain))


def against(target: Target, grid: Grid, claim: Certificate, found: OutputTable) -> Derived:
    """The bound for a table that was read off the weights."""
    p, kind = float(claim.norm_order or 1), next(k for k in KINDS if k == claim.kind)
    lost = _lost_cubes(claim, found)
    parts = []
    for part in (~lost, lost):
        cells = Cells.of(
            grid, found.contexts[part], found.values[part], not target.equivariant, one_order_suffices(target)
        )
        parts.append(bound_integral(target, cells, p, kind))
        if not np.isfinite(parts[-1].upper):
            raise Rejected("the target has no finite bound on a cube")
    return _combine(target, grid, p, parts, found, claim.domain)


def _lost_cubes(claim: Certificate, found: OutputTable) -> Any:
    """Where a claim has a term for lost cubes: those with two equal tokens, on which the network is 0."""
    repeated = (np.diff(np.sort(found.contexts, axis=1), axis=1) == 0).any(axis=1)
    return repeated & (found.values == 0).all(axis=(1, 2)) & (claim.terms.get("lost cubes", 0.0) > 0)


def _combine(
    target: Target, grid: Grid, p: float, parts: list[IntegralBound], found: OutputTable, domain: str
) -> Derived:
    """Good inputs: table and rounding. Inputs on a ramp: at most the clip range (doubled, see certify.py) against f."""
    volume = float(np.prod(target.high - target.low) ** grid.seq_len)
    axes = grid.token_dim * grid.seq_len
    low = np.min([np.minimum(part.low, 0.0) for part in parts], axis=0)
    high = np.max([np.maximum(part.high, 0.0) for part in parts], axis=0)
    # An output that keeps away from 0 is no better: doubling a range needs 0 in it.
    worst = np.maximum(high - 2 * np.minimum(found.low, 0.0), 2 * np.maximum(found.high, 0.0) - low)
    measure = axes * found.ramp_share
    if domain == "space":
        if not target.vanishes_outside:
            raise Rejected("the claim is about the whole space, but the target does not vanish outside its box")
        measure += (1 + 2 * found.ramp_share / grid.cells_per_axis) ** axes - 1
    elif domain != "box":
        raise Rejected(f"the certificate's domain '{domain}' is unknown")
    ramps = float((volume * measure * grid.seq_len) ** (1 / p) * p_sum(worst, p))
    kept, lost = (part.upper ** (1 / p) for part in parts)
    table = p_sum((kept, lost), p)
    rounding = float(found.radius * (axes * volume) ** (1 / p))
    return Derived(p_sum((table + rounding, ramps), p), table, kept, lost, rounding, ramps, found)


def false_statement(claim: Certificate, derived: Derived, cells_per_axis: int) -> str | None:
    """What a certificate says beside its bound and does not follow from the weights; None if all of it does.

    Its terms are upper bounds, each on what its name says, and may be larger. The value of a cube is what the network gives
    there up to the terms for softmax and rounding, so these count with those for the table. Its clip is the network's.
    """
    stated, p = claim.terms, float(claim.norm_order or 1.0)
    if stated.keys() != set(TERMS) or not all(0 <= value < np.inf for value in stated.values()):
        return f"the certificate's terms are not {', '.join(TERMS)}, each a number from 0 up"
    blur = stated["softmax"] + stated["rounding"]
    good = p_sum((stated["piecewise"], stated["lost cubes"]), p) + blur
    needed = {
        "piecewise": (derived.kept, stated["piecewise"] + blur),
        "lost cubes": (derived.lost, stated["lost cubes"] + blur),
        "rounding": (derived.rounding, blur),
        "ramps": (derived.ramps, stated["ramps"]),
        "piecewise, lost cubes, softmax and rounding": (derived.table + derived.rounding, good),
    }
    for name, (least, said) in needed.items():
        if not least <= said * (1 + ROOM):
            return f"the weights give {least:.6g} for {name}, more than the {said:.6g} that the certificate states"
    if not p_sum((good, stated["ramps"]), p) <= claim.bound * (1 + 1e-9):
        return "the certificate's terms add up to more than its bound"
    found = derived.found
    for ends, own in zip((claim.clip_low, claim.clip_high), found.clip, strict=True):
        if np.shape(ends) != own.shape or not (np.abs(np.array(ends) - own) <= found.clip_room).all():
            return f"the certificate's clip [{claim.clip_low}, {claim.clip_high}] is not that of the network"
    if claim.details.get("cells_per_axis") != cells_per_axis:
        return "the certificate's details name another number of cells than the manifest"
    return None
