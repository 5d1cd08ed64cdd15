"""Which grid: the coarsest one whose certificate is within the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.certificates.certificate import Certificate
from provenformer.constructions import registry
from provenformer.constructions.plan import Plan
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.networks.modified import ModifiedNetwork

STEP = 1.08  # between the grids that are planned
TOO_FAR, PROBABLY_TOO_FAR = (
    0.7,
    0.9,
)  # of what is estimated to be reachable: below, nothing is tried any more, or little
SURE_AFTER = 3  # attempts, when the estimate is good enough for PROBABLY_TOO_FAR


@dataclass(frozen=True, eq=False)
class Draft:
    """Everything up to the certificate, for one grid."""

    plan: Plan
    piecewise: PiecewiseConstant
    modified: ModifiedNetwork
    certificate: Certificate


def coarsest_that_certifies(
    attempt: Callable[[int], Draft], feasible: Callable[[int], Plan | None], tolerance: float, fewest_cells: int
) -> Draft:
    """The draft of the coarsest grid that is good enough, from `fewest_cells` cells per axis on.

    The error of a grid falls about like 1/N (paper: like N^(-d/p)), so each attempt predicts the next; then step down as
    long as the certificate holds. `feasible` plans a grid, or says by None that there is none: what is out of reach is
    refused from plans, before anything large is built.
    """
    cells, best, failed = max(2, fewest_cells), None, list[Draft]()
    while best is None:
        draft = attempt(cells)
        if draft.certificate.bound <= tolerance:
            best = draft
        else:
            failed.append(draft)
            cells = _finer(failed, feasible, tolerance)
    coarser = failed[-1].plan.grid.cells_per_axis if failed else 1
    while best.plan.grid.cells_per_axis - 1 > coarser:
        draft = attempt(best.plan.grid.cells_per_axis - 1)
        if draft.certificate.bound > tolerance:
            break
        best = draft
    return best


def _finer(failed: list[Draft], feasible: Callable[[int], Plan | None], tolerance: float) -> int:
    """The grid to try next, or a refusal that says what can be had."""
    last = failed[-1]
    cells, bound, fixed = last.plan.grid.cells_per_axis, last.certificate.bound, _fixed(last)
    way_out = f"use a larger tolerance or fewer tokens{last.plan.way_out}."
    if len(failed) == 1 and fixed >= tolerance:  # the coarsest grid, and rounding grows with the ids
        raise ProvenformerError(
            f"tolerance={tolerance} is below what float64 rounding allows here ({fixed:.2e}, ids of "
            f"{last.certificate.details['id_bits']} bits); {way_out}"
        )
    predicted = min(max(cells + 1, int(np.ceil(0.97 * cells * bound / tolerance))), 4 * cells)
    if len(failed) == 1:
        return predicted
    reach, estimate = _reach(failed, feasible, tolerance)
    doubtful = tolerance < PROBABLY_TOO_FAR * estimate
    if tolerance < TOO_FAR * estimate or (doubtful and len(failed) >= SURE_AFTER):
        quoted = f"{1 / TOO_FAR**0.5 * estimate:.2g}"
        raise ProvenformerError(
            f"tolerance={tolerance} is out of reach of construction='{last.plan.construction}' here; about {quoted} can be had, "
            f"with {_cost(reach)}, beyond which rounding or the size limit wins; {way_out}"
        )
    if reach.grid.cells_per_axis <= cells:
        found = min(failed, key=lambda draft: draft.certificate.bound)
        raise ProvenformerError(
            f"tolerance={tolerance} is out of reach of construction='{last.plan.construction}' here; the smallest bound found is "
            f"{found.certificate.bound:.3g}, with {_cost(found.plan)}, beyond which rounding or the size limit wins; {way_out}"
        )
    most = 2 * cells if doubtful else reach.grid.cells_per_axis  # a small grid, to be sure before a large one is tried
    return min(predicted, most, reach.grid.cells_per_axis)


def _reach(failed: list[Draft], feasible: Callable[[int], Plan | None], tolerance: float) -> tuple[Plan, float]:
    """The grid with about the smallest bound, or the first that is well within the tolerance, and that bound.

    Before anything is built: what falls with N goes on falling as it did between the last two attempts; rounding grows as ids do.
    """
    before, last = failed[-2:]
    start, falling, rounding = last.plan.grid.cells_per_axis, last.certificate.bound - _fixed(last), _fixed(last)
    ratio = start / before.plan.grid.cells_per_axis
    slope = np.clip(np.log((before.certificate.bound - _fixed(before)) / falling) / np.log(ratio), 0.1, 1.0)
    best, cells = (last.plan, last.certificate.bound), start
    while (plan := feasible(cells := max(cells + 1, int(cells * STEP)))) is not None:
        there = rounding * (_largest_id(plan) / _largest_id(last.plan))
        bound = falling * (start / cells) ** slope + there
        best = min(best, (plan, float(bound)), key=lambda pair: pair[1])
        if there > best[1] or bound < tolerance / 2:
            break
    return best


def _largest_id(plan: Plan) -> int:
    how = registry.get(plan.construction)
    return 1 << plan.id_bits if how.has_channels else how.naming(plan.grid, plan.positional).id_high


def _fixed(draft: Draft) -> float:
    """What no finer grid makes smaller."""
    return draft.certificate.terms["rounding"] + draft.certificate.terms["softmax"]


def _cost(plan: Plan) -> str:
    size, what = plan.size
    return f"{plan.grid.cells_per_axis} cells per axis ({size:,} {what}, ids of {plan.id_bits} bits)"
