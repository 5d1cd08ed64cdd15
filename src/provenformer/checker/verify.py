"""An independent check of a saved network: reads the weights and the target, re-derives the bound, trusts nothing else.

It shares no code with the construction. It knows only what a layer of the class computes, and follows *all* good inputs
(those on no ramp) through the layers at once:

1. Coordinates. Each cell of each row is an interval of inputs. Feed-forward layers that read and write one row map it by a
   piecewise linear function; the interval must never straddle a break that matters, and must end as a single number.
2. Points. Now there are finitely many tokens. A short run is applied to all of them. A long run is read back as windows:
   layer i must be 0 up to its start s_i, the starts must decrease, and a token hit by one layer must end below every
   later start. Then each token is hit exactly once and one binary search finds where: linear in the number of layers.
3. Contexts. Attention must be uniform, or decided so clearly that the other columns weigh less than the smallest float64.
4. The outputs form a table, context -> value, whatever the weights were meant to be. The distance between the target and
   this table is bounded as in docs/certificates.md, with ramps bounded by the final clip.

Float64 rounding is carried along as a radius around every number; sums of short dyadic numbers are recognised as exact.
So an altered weight either breaks one of the rules above, and the layer is named, or changes the table, and the bound
that comes out is true of the altered network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.bounds.integrals import KINDS, NORM_LIMIT, Cells, IntegralBound, Kind, bound_integral, p_sum
from provenformer.checker.table import OutputTable
from provenformer.checker.thin import thin_table
from provenformer.checker.wide import wide_table
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target, is_built_in
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideNetwork
from provenformer.storage import Saved, load

# How each kind of network is walked through.
WALKS: dict[type[FloatNetwork], Callable[[Any, Target, Grid, float, str], OutputTable]] = {
    Network: thin_table,
    WideNetwork: wide_table,
}


@dataclass(frozen=True)
class Report:
    """What verify found. `ok` is true when the claimed bound follows from the weights and the target."""

    ok: bool
    claimed: float
    derived: float | None  # the bound re-derived from the weights; None when a rule was broken
    reason: str
    terms: dict[str, float]

    def __bool__(self) -> bool:
        return self.ok


def verify(path: str | Path, target: Target | None = None) -> Report:
    """Check a saved folder. Hashes are not trusted: the bound is derived again from the weights.

    `target` is needed when the folder was made from a function without an import path.
    """
    saved = load(path, check_hashes=False)
    claimed = float(saved.certificate.bound)
    try:
        if saved.certificate.domain == "data":
            terms = {"data": _error_on_data(saved)}
            derived = terms["data"]
        else:
            derived, terms = _derive(saved, target or saved.target)
    except Rejected as verdict:
        return Report(False, claimed, None, str(verdict), {})
    if not derived <= claimed * (1 + 1e-9):
        reason = f"the weights give {derived:.6g}, more than the claimed bound {claimed:.6g}"
        return Report(False, claimed, derived, reason, terms)
    return Report(True, claimed, derived, f"the bound {claimed:.6g} holds for these weights", terms)


def executed_table(network: FloatNetwork, target: Target, grid: Grid, ramp: float) -> OutputTable:
    """What the network gives on good inputs of the box, and how far float64, summing in any order, may be from that."""
    return WALKS[type(network)](network, target, grid, ramp, "box")


def _error_on_data(saved: Saved) -> float:
    """A memorised data set: the largest error over all pairs, by running the network."""
    inputs, outputs = saved.data.get("inputs"), saved.data.get("outputs")
    if inputs is None or outputs is None or inputs.shape != outputs.shape or inputs.ndim != 3:
        raise Rejected("the certificate is about a data set, but the folder has no inputs and outputs of one shape")
    got = saved.network(inputs)
    if not np.isfinite(got).all():
        raise Rejected("the network gives a value that is not finite on its data")
    return float(np.abs(got - outputs).max(initial=0.0))


def _derive(saved: Saved, target: Target | None) -> tuple[float, dict[str, float]]:
    network, claim = saved.network, saved.certificate
    if target is None:
        raise ProvenformerError("the target of this network has no import path; pass it: verify(path, target=...).")
    target.require_pointwise()
    target.require_equivariance()
    grid = _grid(saved, target)
    positional = network.positions is not None
    if target.equivariant == positional:
        raise Rejected("positions are given exactly when the target is not equivariant")
    ramp, p, kind = float(claim.ramp), float(claim.norm_order or 0.0), claim.kind
    if not (0 < ramp < 0.5 and 1 <= p <= NORM_LIMIT and kind in KINDS):
        raise Rejected("the certificate's ramp, norm or kind is outside its range")
    found = WALKS[type(network)](network, target, grid, ramp, claim.domain)
    if not np.isfinite(found.values).all() or not np.isfinite(found.radius):
        raise Rejected("the network gives a value that is not finite")
    cells = Cells.of(grid, found.contexts, found.values, positional, is_built_in(target))
    integral = bound_integral(target, cells, p, _claimed_kind(kind))
    if not np.isfinite(integral.upper):
        raise Rejected("the target has no finite bound on a cube")
    return _combine(target, grid, p, integral, found, claim.domain)


def _claimed_kind(kind: str) -> Kind:
    return next(k for k in KINDS if k == kind)


def _grid(saved: Saved, target: Target) -> Grid:
    cells = saved.manifest.get("cells_per_axis")
    if (target.token_dim, target.seq_len) != (saved.network.token_dim, saved.network.seq_len):
        raise Rejected("the target's token_dim and seq_len are not those of the network")
    return Grid(target.token_dim, target.seq_len, cells)  # type: ignore[arg-type]


def _combine(
    target: Target, grid: Grid, p: float, integral: IntegralBound, found: OutputTable, domain: str
) -> tuple[float, dict[str, float]]:
    """Good inputs: table and rounding. Inputs on a ramp: at most the clip range (doubled, see certify.py) against f."""
    volume = float(np.prod(target.high - target.low) ** grid.seq_len)
    axes = grid.token_dim * grid.seq_len
    low, high = np.minimum(integral.low, 0.0), np.maximum(integral.high, 0.0)
    worst = np.maximum(high - 2 * found.low, 2 * found.high - low)
    measure = axes * found.ramp_share
    if domain == "space":
        if not target.vanishes_outside:
            raise Rejected("the claim is about the whole space, but the target does not vanish outside its box")
        measure += (1 + 2 * found.ramp_share / grid.cells_per_axis) ** axes - 1
    elif domain != "box":
        raise Rejected(f"the certificate's domain '{domain}' is unknown")
    ramps = float((volume * measure * grid.seq_len) ** (1 / p) * p_sum(worst, p))
    table, rounding = integral.upper ** (1 / p), found.radius * (axes * volume) ** (1 / p)
    bound = p_sum((table + rounding, ramps), p)
    return float(bound), {"table": float(table), "rounding": float(rounding), "ramps": ramps}
