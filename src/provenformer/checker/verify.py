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
   this table is bounded as in docs/certificates.md, with ramps bounded by the final clip (derive.py).
5. What the certificate says beside its bound (its terms, its clip, its cells) must follow as well.

Float64 rounding is carried along as a radius around every number; sums of short dyadic numbers are recognised as exact.
So an altered weight either breaks one of the rules above, and the layer is named, or changes the table, and the bound
that comes out is true of the altered network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from provenformer.base.errors import ProvenformerError, Rejected
from provenformer.checker.derive import Derived, derive, false_statement
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target
from provenformer.storage import Saved, load


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
            derived = _error_on_data(saved)
            terms, false = {"data": derived}, None
        else:
            found = _derive(saved, target or saved.target)
            derived, terms = found.bound, found.terms
            false = false_statement(saved.certificate, found, saved.manifest["cells_per_axis"])
    except Rejected as verdict:
        return Report(False, claimed, None, str(verdict), {})
    if not derived <= claimed * (1 + 1e-9):
        reason = f"the weights give {derived:.6g}, more than the claimed bound {claimed:.6g}"
        return Report(False, claimed, derived, reason, terms)
    if false:
        return Report(False, claimed, derived, false, terms)
    return Report(True, claimed, derived, f"the bound {claimed:.6g} holds for these weights", terms)


def _error_on_data(saved: Saved) -> float:
    """A memorised data set: the largest error over all pairs, by running the network."""
    inputs, outputs = saved.data.get("inputs"), saved.data.get("outputs")
    if inputs is None or outputs is None or inputs.shape != outputs.shape or inputs.ndim != 3:
        raise Rejected("the certificate is about a data set, but the folder has no inputs and outputs of one shape")
    got = saved.network(inputs)
    if not np.isfinite(got).all():
        raise Rejected("the network gives a value that is not finite on its data")
    return float(np.abs(got - outputs).max(initial=0.0))


def _derive(saved: Saved, target: Target | None) -> Derived:
    if target is None:
        raise ProvenformerError("the target of this network has no import path; pass it: verify(path, target=...).")
    target.require_pointwise()
    target.require_equivariance()
    return derive(saved.network, target, _grid(saved, target), saved.certificate)


def _grid(saved: Saved, target: Target) -> Grid:
    cells = saved.manifest.get("cells_per_axis")
    if (target.token_dim, target.seq_len) != (saved.network.token_dim, saved.network.seq_len):
        raise Rejected("the target's token_dim and seq_len are not those of the network")
    return Grid(target.token_dim, target.seq_len, cells)  # type: ignore[arg-type]
