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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, ProvenformerError, Rejected, one_line
from provenformer.certificates.certificate import Certificate, rounded_up
from provenformer.certificates.claim import BUILT_IN, YOURS, Claim, claim_about, claim_about_pairs, claim_about_program
from provenformer.checker.derive import derive, false_statement
from provenformer.functions import programs
from provenformer.functions.grid import ContextKind, Grid
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork
from provenformer.storage import Saved, built_in_program, import_function, load, source_digest

CONTEXT_LIMIT = 1 << 27
MOST_BITS = 64  # of the number of tokens on the grid: more cannot be counted through anyway


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


def verify(path: str | Path, target: Target | TokenProgram | None = None, *, trust_target: bool = False) -> Report:
    """Check a saved folder. Hashes are not trusted: the bound is derived again from the weights.

    `target` is the function that the claim is checked against. Without one it is the built-in function that the folder names.
    Any other function that it names is imported, and so run, only with `trust_target=True`. The report says whose it was.
    Raises ProvenformerError when the folder is malformed, or when there is no target to check against.
    """
    if target is not None and not isinstance(target, Target | TokenProgram):
        raise ProvenformerError(
            f"target={target!r:.60} is not a Target; wrap your function: provenformer.Target(fn, d, n), or "
            f"provenformer.TokenProgram "
            "for a program on tokens."
        )
    saved = load(path, check_hashes=False)
    try:
        if saved.certificate.domain == "tokens":
            return _on_program(saved, target, trust_target)
        if isinstance(target, TokenProgram):
            raise ProvenformerError("this certificate is not about a program on tokens; give a Target.")
        return (
            _on_data(saved, target) if saved.certificate.domain == "data" else _on_function(saved, target, trust_target)
        )
    except (MemoryError, OverflowError, ArithmeticError) as error:
        reason = one_line(f"{type(error).__name__}: {error}")[:200]
        raise BadFolder(f"{path} cannot be checked ({reason}): its sizes are beyond this machine.") from error


def _on_function(saved: Saved, given: Target | None, trust_target: bool) -> Report:
    """The claim is about a function: walk through the weights."""
    target, claim = _target(saved, given, trust_target)
    target.require_pointwise()
    target.require_equivariance()
    target.require_vanishing()
    if isinstance(saved.network, CircuitNetwork):
        return _on_circuit(saved.network, saved.certificate, target, claim)
    try:
        grid = _grid(saved, target)
        found = derive(saved.network, target, grid, saved.certificate)
    except Rejected as verdict:
        return Report(False, claim.bound, None, str(verdict), {}, claim)
    false = false_statement(saved.certificate, found, grid.cells_per_axis)
    return _compared(claim, found.bound, found.terms, false)


def _on_circuit(network: CircuitNetwork, certificate: Certificate, target: Target, claim: Claim) -> Report:
    """The claim is about a function whose formula became the network."""
    from provenformer.checker.circuit import derive as circuits  # noqa: PLC0415  (as large as the rest of the library)

    try:
        found = circuits.derive_circuit(network, target)
    except Rejected as verdict:
        return Report(False, claim.bound, None, str(verdict), {}, claim)
    parts = {"weights": found.exact, "rounding": found.float64 - found.exact}
    terms = {name: circuits.in_norm(value, target, claim.norm_order) for name, value in parts.items()}
    false = circuits.false_statement(certificate, found, target) or _other_parts(certificate, network)
    return _compared(claim, circuits.in_norm(found.float64, target, claim.norm_order), terms, false)


def _on_program(saved: Saved, given: Target | TokenProgram | None, trust_target: bool) -> Report:
    """The claim is about all sequences of an alphabet."""
    from provenformer.checker.tokens import derive as tokens  # noqa: PLC0415  (as large as the rest of the library)

    program, whose = _program(saved, given, trust_target)
    digest, recorded = source_digest(program), saved.manifest["target"].get("source_sha256")
    changed = digest is not None and recorded is not None and digest != recorded
    notes = ("note:   the source of this program is not the one that the network was made from.",) if changed else ()
    stated = saved.certificate.details.get("step")
    step = float(stated) if isinstance(stated, int | float) else 0.0
    claim = claim_about_program(saved.certificate, program, whose, digest, step, notes)
    try:
        found, true_step = tokens.derive_program(saved.network, program)
    except Rejected as verdict:
        return Report(False, claim.bound, None, str(verdict), {}, claim)
    terms = {name: value for name, value in vars(found).items() if np.isfinite(value)}
    false = tokens.false_statement(saved.certificate, found, program, true_step)
    false = false or _other_parts(saved.certificate, saved.network)
    return _compared(claim, found.float64, terms, false)


def _other_parts(certificate: Certificate, network: FloatNetwork) -> str | None:
    """What a certificate says of what a circuit is made of and is not so."""
    if certificate.ramp or any((*certificate.clip_low, *certificate.clip_high)):
        return "the certificate states a ramp or a clip, and a circuit has neither"
    units = sum(network.hidden_units.values())
    stated = certificate.details.get("units", units)
    return None if stated == units else f"the network has {units:,} units, not {stated!r:.20}"


def _program(saved: Saved, given: Target | TokenProgram | None, trust_target: bool) -> tuple[TokenProgram, str]:
    """The program to check against, and whose it is."""
    spec = saved.manifest["target"]
    if spec["source"] != "program":
        raise ProvenformerError(
            "the certificate is about a program on tokens, but the manifest names none: they do not belong together."
        )
    if isinstance(given, Target):
        raise ProvenformerError("this certificate is about a program on tokens; give a provenformer.TokenProgram.")
    if given is not None:
        return given, f"{BUILT_IN}, and {YOURS}" if programs.is_built_in(given) else YOURS
    if (program := built_in_program(spec)) is not None:
        return program, BUILT_IN
    if trust_target and "import" in spec:
        function = import_function(spec["import"])
        whose = f"imported from {spec['import']}, which the folder names"
        return TokenProgram(function, spec["vocab_size"], spec["seq_len"], spec["name"]), whose
    named = f"the folder names the program {spec['import']}" if "import" in spec else "the program has no import path"
    trust = ", or import it with trust_target=True (--trust-target) if you trust the folder" if "import" in spec else ""
    raise ProvenformerError(
        f"{named}; name the program yourself, target=TokenProgram(fn, vocab_size, seq_len) (--target){trust}."
    )


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
    details = saved.certificate.details
    if details.get("pairs_sha256", claim.digest) != claim.digest or details.get("pairs", claim.pairs) != claim.pairs:
        return Report(False, claim.bound, None, "the stored pairs are not those that the certificate names", {}, claim)
    got = saved.network(inputs)
    if not np.isfinite(got).all():
        return Report(False, claim.bound, None, "the network gives a value that is not finite on its data", {}, claim)
    error = float(np.abs(got - outputs).max())
    stated = saved.certificate.terms
    false = None
    if stated.keys() != {"rounding"} or not stated["rounding"] >= error:
        false = "its terms are not its largest error"
    elif not 0 < saved.certificate.ramp < 0.5 or not _is_range(saved.certificate, outputs):
        false = "its ramp is not between 0 and 1/2, or its clip is not the range of the stored outputs"
    return _compared(claim, error, {"data": error}, false)


def _is_range(certificate: Certificate, outputs: FloatArray) -> bool:
    """Whether the clip is the range of the outputs, row by row, with or without 0."""
    low, high = outputs.min(axis=(0, 2)), outputs.max(axis=(0, 2))
    ranges = [(low, high), (np.minimum(low, 0.0), np.maximum(high, 0.0))]
    stated = certificate.clip_low, certificate.clip_high
    return any(all(map(np.array_equal, stated, found)) for found in ranges)


def _compared(claim: Claim, derived: float, terms: dict[str, float], false: str | None) -> Report:
    """The verdict; `false` is what else the certificate says and is not so."""
    if not derived <= claim.bound:
        reason = f"the weights give {derived:.6g}, more than the claimed bound {claim.bound:.6g}"
        return Report(False, claim.bound, derived, reason, terms, claim)
    if false:
        return Report(False, claim.bound, derived, false, terms, claim)
    if claim.kind == "statistical":  # no bound: what is rare can be missed twice
        reason = f"the estimate {claim.bound:.6g} is not below what samples of these weights give; it is not a bound"
        return Report(True, claim.bound, derived, reason, terms, claim)
    where = f" on the {claim.pairs:,} stored pairs only" if claim.domain == "data" else " for these weights"
    return Report(True, claim.bound, derived, f"the bound {rounded_up(claim.bound)} holds{where}", terms, claim)


def _target(saved: Saved, given: Target | None, trust_target: bool) -> tuple[Target, Claim]:
    """The function to check against, and the claim about it: whose it is, and whether its source is the one recorded."""
    spec, declared_by = saved.manifest["target"], "you"
    if given is not None:
        target, whose = given, YOURS
    elif saved.target is not None:
        target, whose = saved.target, BUILT_IN
    elif trust_target and spec["source"] == "import":
        target, whose = saved.import_target(), f"imported from {spec['import']}, which the folder names"
        declared_by = "the folder"
    else:
        trust = ", or import it with trust_target=True (--trust-target) if you trust the folder"
        remedy = f"name the target yourself, target=... (--target){trust if spec['source'] == 'import' else ''}"
        raise ProvenformerError(f"{saved.why_no_target}; {remedy}.")
    digest, recorded = source_digest(target), spec.get("source_sha256")
    changed = digest is not None and recorded is not None and digest != recorded
    notes = ("note:   the source of this function is not the one that the network was made from.",) if changed else ()
    return target, claim_about(saved.certificate, target, whose, digest, declared_by, notes)


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
