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

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, ProvenformerError, Rejected, one_line
from provenformer.bounds.integrals import KINDS, NORM_LIMIT, Cells, IntegralBound, Kind, bound_integral, p_sum
from provenformer.certificates.certificate import Certificate
from provenformer.certificates.claim import BUILT_IN, YOURS, Claim, claim_about, claim_about_pairs
from provenformer.checker.table import OutputTable
from provenformer.checker.thin import thin_table
from provenformer.checker.wide import wide_table
from provenformer.functions.grid import ContextKind, Grid
from provenformer.functions.targets import Target, is_built_in
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideNetwork
from provenformer.storage import Saved, load, source_digest

CONTEXT_LIMIT = 1 << 27
MOST_BITS = 64  # of the number of tokens on the grid: more cannot be counted through anyway
TERM_ROOM = 2.0**-20  # the builder bounds the same things by other formulas; its last digits may differ
# What is found here, and the terms under which a certificate records it; other names are the same on both sides.
PARTS = {"table": ("piecewise", "lost cubes"), "rounding": ("softmax", "rounding"), "data": ("rounding",)}
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
    claim: Claim  # what was checked, in full: of which function and whose, where, in which norm

    def __bool__(self) -> bool:
        return self.ok

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {**vars(self), "claim": self.claim.to_json()}


def verify(path: str | Path, target: Target | None = None, *, trust_target: bool = False) -> Report:
    """Check a saved folder. Hashes are not trusted: the bound is derived again from the weights.

    `target` is the function that the claim is checked against. Without one it is the built-in function that the folder names.
    Any other function that it names is imported, and so run, only with `trust_target=True`. The report says whose it was.
    Raises ProvenformerError when the folder is malformed, or when there is no target to check against.
    """
    if target is not None and not isinstance(target, Target):
        raise ProvenformerError(
            f"target={target!r:.60} is not a Target; wrap your function: provenformer.Target(fn, d, n)."
        )
    saved = load(path, check_hashes=False)
    try:
        return (
            _on_data(saved, target) if saved.certificate.domain == "data" else _on_function(saved, target, trust_target)
        )
    except (MemoryError, OverflowError, ArithmeticError) as error:
        reason = one_line(f"{type(error).__name__}: {error}")[:200]
        raise BadFolder(f"{path} cannot be checked ({reason}): its sizes are beyond this machine.") from error


def _on_function(saved: Saved, given: Target | None, trust_target: bool) -> Report:
    """The claim is about a function: walk through the weights."""
    target, claim = _target(saved, given, trust_target)
    try:
        derived, terms = _derive(saved, target)
    except Rejected as verdict:
        return Report(False, claim.bound, None, str(verdict), {}, claim)
    return _compared(saved.certificate, claim, derived, terms)


def _on_data(saved: Saved, given: Target | None) -> Report:
    """The claim is about stored pairs: run the network on them."""
    if given is not None or saved.manifest["target"]["source"] != "data":
        raise ProvenformerError(
            "this certificate is about stored pairs of sequences only, not about a function; verify it without a target, "
            "or compile the function."
            if given is not None
            else "the certificate is about stored pairs, but the manifest names a function: they do not belong together."
        )
    inputs, outputs = _pairs(saved)
    claim = claim_about_pairs(saved.certificate, inputs, outputs, "stored in the folder")
    if saved.certificate.details.get("pairs_sha256", claim.digest) != claim.digest:
        return Report(False, claim.bound, None, "the stored pairs are not those that the certificate names", {}, claim)
    got = saved.network(inputs)
    if not np.isfinite(got).all():
        return Report(False, claim.bound, None, "the network gives a value that is not finite on its data", {}, claim)
    error = float(np.abs(got - outputs).max())
    return _compared(saved.certificate, claim, error, {"data": error})


def _compared(certificate: Certificate, claim: Claim, derived: float, terms: dict[str, float]) -> Report:
    if not derived <= claim.bound * (1 + 1e-9):
        reason = f"the weights give {derived:.6g}, more than the claimed bound {claim.bound:.6g}"
        return Report(False, claim.bound, derived, reason, terms, claim)
    if false := _false_term(certificate, terms):
        return Report(False, claim.bound, derived, false, terms, claim)
    where = f" on the {claim.pairs:,} stored pairs only" if claim.domain == "data" else " for these weights"
    return Report(True, claim.bound, derived, f"the bound {claim.bound:.6g} holds{where}", terms, claim)


def _false_term(certificate: Certificate, found: dict[str, float]) -> str | None:
    """What is wrong with the certificate's split of its bound: no term may be below what was found, nor all above the bound."""
    recorded, p = certificate.terms, float(certificate.norm_order or 1.0)
    expected = {name for part in found for name in PARTS.get(part, (part,))}
    if recorded.keys() != expected:
        return f"the certificate's terms are {', '.join(recorded)}, not {', '.join(sorted(expected))}"
    sums = {
        part: p_sum([recorded[n] for n in PARTS.get(part, (part,))], p if part == "table" else 1.0) for part in found
    }
    for part, value in found.items():
        weights = (
            sums.get("rounding", 0.0) if part == "table" else 0.0
        )  # the table is that of weights that were rounded
        if not value <= (sums[part] + weights) * (1 + TERM_ROOM) + certificate.bound * TERM_ROOM:
            names = " and ".join(PARTS.get(part, (part,)))
            return (
                f"the weights give {value:.6g} for what the certificate calls {names}, which is {sums[part]:.6g} there"
            )
    whole = p_sum([sum(v for part, v in sums.items() if part != "ramps"), sums.get("ramps", 0.0)], p)
    return None if whole <= certificate.bound * (1 + 1e-9) else "the certificate's terms add up to more than its bound"


def _require_clip(certificate: Certificate, found: OutputTable) -> None:
    """The recorded ends of the clip are those of the table's values and 0."""
    values = found.values.reshape(-1, found.values.shape[-1])
    room = 2 * found.radius + 1e-9 * float(np.abs(values).max(initial=0.0))
    for recorded, end in (
        (certificate.clip_low, values.min(0, initial=0.0)),
        (certificate.clip_high, values.max(0, initial=0.0)),
    ):
        if not (np.abs(np.subtract(recorded, end)) <= room).all():
            raise Rejected("the certificate's clip is not the range of the network's values")


def _target(saved: Saved, given: Target | None, trust_target: bool) -> tuple[Target, Claim]:
    """The function to check against, and the claim about it: whose it is, and whether its source is the one recorded."""
    spec = saved.manifest["target"]
    if given is not None:
        target, whose = given, YOURS
    elif saved.target is not None:
        target, whose = saved.target, BUILT_IN
    elif trust_target and spec["source"] == "import":
        target, whose = saved.import_target(), f"imported from {spec['import']}, which the folder names"
    else:
        trust = ", or import it with trust_target=True (--trust-target) if you trust the folder"
        remedy = f"name the target yourself, target=... (--target){trust if spec['source'] == 'import' else ''}"
        raise ProvenformerError(f"{saved.why_no_target}; {remedy}.")
    digest, recorded = source_digest(target), spec.get("source_sha256")
    changed = digest is not None and recorded is not None and digest != recorded
    notes = ("note:   the source of this function is not the one that the network was made from.",) if changed else ()
    return target, claim_about(saved.certificate, target, whose, digest, notes)


def _pairs(saved: Saved) -> tuple[FloatArray, FloatArray]:
    inputs, outputs = saved.data.get("inputs"), saved.data.get("outputs")
    shape = (saved.network.token_dim, saved.network.seq_len)
    if (
        inputs is None
        or outputs is None
        or inputs.shape != outputs.shape
        or inputs.ndim != 3
        or inputs.shape[1:] != shape
    ):
        raise BadFolder("the certificate is about a data set, but the folder has no inputs and outputs of its shape.")
    if not len(inputs):
        raise BadFolder("the certificate is about a data set without a single pair: it claims nothing.")
    return inputs, outputs


def executed_rounding(network: FloatNetwork, target: Target, grid: Grid, ramp: float) -> float:
    """How far float64, summing in any order, may be from the network's table: entry-wise, on good inputs of the box."""
    return WALKS[type(network)](network, target, grid, ramp, "box").radius


def _derive(saved: Saved, target: Target) -> tuple[float, dict[str, float]]:
    network, claim = saved.network, saved.certificate
    target.require_pointwise()
    target.require_equivariance()
    target.require_vanishing()
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
    _require_clip(claim, found)
    cells = Cells.of(grid, found.contexts, found.values, positional, is_built_in(target))
    integral = bound_integral(target, cells, p, _claimed_kind(kind))
    if not np.isfinite(integral.upper):
        raise Rejected("the target has no finite bound on a cube")
    return _combine(target, grid, p, integral, found, claim.domain)


def _claimed_kind(kind: str) -> Kind:
    return next(k for k in KINDS if k == kind)


def _grid(saved: Saved, target: Target) -> Grid:
    """The grid that the folder names, if its contexts can be counted through."""
    if (target.token_dim, target.seq_len) != (saved.network.token_dim, saved.network.seq_len):
        raise Rejected("the target's token_dim and seq_len are not those of the network")
    grid = saved.grid
    if grid is None:
        raise Rejected("the manifest names no grid")
    kind: ContextKind = "multisets" if target.equivariant else "sequences"
    many = grid.token_dim * math.log2(grid.cells_per_axis) > MOST_BITS or grid.count(kind) > CONTEXT_LIMIT
    if many:
        raise BadFolder(
            f"cells_per_axis={grid.cells_per_axis:,} gives more than {CONTEXT_LIMIT:,} contexts, the most that are checked."
        )
    return grid


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
