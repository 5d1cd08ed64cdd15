"""Which grid: the coarsest one whose certificate is within the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.certificates.certificate import Certificate
from provenformer.constructions.plan import Plan
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.networks.modified import ModifiedNetwork


@dataclass(frozen=True, eq=False)
class Draft:
    """Everything up to the certificate, for one grid."""

    plan: Plan
    piecewise: PiecewiseConstant
    modified: ModifiedNetwork
    certificate: Certificate


def coarsest_that_certifies(attempt: Callable[[int], Draft], tolerance: float, fewest_cells: int) -> Draft:
    """The draft of the coarsest grid that is good enough, from `fewest_cells` cells per axis on.

    The error of a grid falls about like 1/N (paper: like N^(-d/p)), so each attempt predicts the next; then step down as
    long as the certificate holds.
    """
    cells, best, failed = max(2, fewest_cells), None, 1
    while best is None:
        draft = attempt(cells)
        if draft.certificate.bound <= tolerance:
            best = draft
        else:
            failed = cells
            fixed = draft.certificate.terms["rounding"] + draft.certificate.terms["softmax"]
            if fixed >= tolerance:
                raise ProvenformerError(
                    f"tolerance={tolerance} is below what float64 rounding allows here ({fixed:.2e}, ids of "
                    f"{draft.certificate.details['id_bits']} bits); use a larger tolerance or fewer tokens."
                )
            predicted = int(np.ceil(0.97 * cells * draft.certificate.bound / tolerance))
            cells = min(max(cells + 1, predicted), 4 * cells)
    while best.plan.grid.cells_per_axis - 1 > failed:
        draft = attempt(best.plan.grid.cells_per_axis - 1)
        if draft.certificate.bound > tolerance:
            break
        best = draft
    return best
