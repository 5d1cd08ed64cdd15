"""The certificate of finished weights: they are walked through as `verify` will, so that what compile hands out verify accepts.

Rounding of a narrow network follows from its construction (certify.py). What merged or wide layers round, and how far rounded
weights are from the values they were meant to give, is read off the weights: the radius of the checker's table and its
distance from the values, entry by entry. Where that shows in the bound, the distance from the target is bounded once more, for
the table that the weights really give: a value that is absorbed by a large id is then counted as what it has become.
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.bounds.integrals import p_sum
from provenformer.certificates.certificate import Certificate
from provenformer.certificates.certify import per_entry, with_terms
from provenformer.checker.derive import against, output_table
from provenformer.constructions.base import Construction
from provenformer.constructions.relax import TINY_WIDTH
from provenformer.functions.grid import IntArray
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.networks.base import FloatNetwork

VISIBLE = 2.0**-24  # of a term: smaller changes are covered by the room that a certificate leaves verify


def executed(
    how: Construction, network: FloatNetwork, piecewise: PiecewiseConstant, certificate: Certificate, hidden_dim: int
) -> Certificate:
    """The certificate with the rounding of these very weights; one line where they do not fit float64."""
    try:
        return _executed(network, piecewise, certificate, how.rounding_is_known(hidden_dim))
    except Rejected as verdict:
        other = [f"hidden_dim={TINY_WIDTH}"] * (hidden_dim > TINY_WIDTH) + ["construction='sum'"] * (how.name != "sum")
        ways = " or ".join(["fewer cells", *other])
        raise ProvenformerError(
            f"construction='{how.name}' with hidden_dim={network.hidden_dim:,} does not fit float64 at this size ({verdict}); "
            f"use {ways}."
        ) from verdict


def _executed(
    network: FloatNetwork, piecewise: PiecewiseConstant, certificate: Certificate, rounding_is_known: bool
) -> Certificate:
    target, grid, p = piecewise.target, piecewise.grid, float(certificate.norm_order or 1)
    found = output_table(network, target, grid, certificate.ramp, certificate.domain)
    whole = per_entry(target, p)
    moved = float(np.abs(found.values - _meant(piecewise, found.contexts)).max(initial=0.0))
    entry = found.radius + moved
    expected = certificate.terms["rounding"]
    values = float(np.subtract(certificate.clip_high, certificate.clip_low).max())
    if not rounding_is_known and entry > values and entry * whole > expected:
        raise Rejected(f"rounding may cost {entry:.2g} per entry, more than the range {values:.2g} of the values")
    rounding = max(expected, entry * whole) if rounding_is_known else entry * whole
    certificate = with_terms(certificate, rounding=rounding)
    beyond = max(float((found.clip[0] - found.low).max()), float((found.high - found.clip[1]).max()))
    terms = certificate.terms
    table = p_sum((terms["piecewise"], terms["lost cubes"]), p)
    if entry * whole <= VISIBLE * table and beyond <= VISIBLE * values:
        return certificate
    derived = against(target, grid, certificate, found)
    needed = max(
        rounding,
        derived.kept - terms["piecewise"] + derived.rounding,
        derived.lost - terms["lost cubes"] + derived.rounding,
        derived.table - table + derived.rounding,
    )
    return with_terms(certificate, rounding=needed, ramps=max(terms["ramps"], derived.ramps))


def _meant(piecewise: PiecewiseConstant, contexts: IntArray) -> FloatArray:
    """The values (contexts, n, d) that a network was built for: 0 where two tokens share a cube, if it loses those."""
    values = np.zeros((*contexts.shape, piecewise.grid.token_dim))
    lost = piecewise.kind == "sets" and (np.diff(contexts, axis=1) == 0).any(axis=1)
    values[~np.broadcast_to(lost, len(contexts))] = piecewise.values
    return values
