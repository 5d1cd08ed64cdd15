"""The distance between target and network as measured, beside the bound that is proved."""

from __future__ import annotations

from collections.abc import Callable

from provenformer.base.arrays import FloatArray
from provenformer.functions.distance import REPEATS, Distance, distance
from provenformer.look.subject import Subject

SAMPLES = 1 << 13


def measured_distance(
    subject: Subject,
    g: Callable[[FloatArray], FloatArray] | None = None,
    samples: int = SAMPLES,
    in_strata: bool = True,
) -> Distance | None:
    """d_p of target and network, sampled with as many sequences as the size of the network allows.

    `g` is what to run in place of the network. Points lie in strata, the cubes of the grid; of only a few samples that leaves
    a larger error than a Sobol sequence does. None where there is no target, or no grid.
    """
    f, p = subject.target, subject.certificate.norm_order
    if f is None or p is None or subject.grid is None:
        return None
    if g is None:
        samples = max(REPEATS, min(samples, subject.affordable()))
    return distance(
        f, g or subject.network, token_dim=f.token_dim, seq_len=f.seq_len, norm_order=p, support=f.support,
        samples=1 << (samples.bit_length() - 1), cells_per_axis=subject.grid.cells_per_axis if in_strata else None,
    )  # fmt: skip
