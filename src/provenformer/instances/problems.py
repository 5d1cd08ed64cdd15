"""What is asked about a circuit, and why its answer is known.

A problem is a box of inputs and a list of unsafe half-spaces of outputs: "may some Y_k reach this threshold?" Both answers
follow from |f - g| <= bound, which holds for the network g as it is executed in float64 and in float32, and from a fact about f:

    no (unsat)    f_k <= most on the box, and threshold >= most + bound + margin
    yes (sat)     f_k(witness) >= value,  and threshold <= value - bound - margin

so no execution comes closer to the threshold than `margin`. All bounds of inputs are multiples of 2^-6, thresholds are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from provenformer.base.arrays import FloatArray, HoldsArrays
from provenformer.base.errors import ProvenformerError
from provenformer.functions.targets import Target

Answer = Literal["sat", "unsat"]
Side = Literal[">=", "<="]


@dataclass(frozen=True)
class Known:
    """A fact about output `index` (row-major) of f on a box: it is at most (side ">=") or at least ("<=") `value`."""

    index: int
    side: Side
    value: float


@dataclass(frozen=True, eq=False, repr=False)
class Question(HoldsArrays):
    """A box, what f does not exceed on it, and an input where f reaches something; why, in words."""

    name: str
    low: FloatArray  # (d, n)
    high: FloatArray
    never: tuple[Known, ...]
    reached: Known
    witness: FloatArray  # (d, n), in the box
    why: str


@dataclass(frozen=True, eq=False, repr=False)
class Problem(HoldsArrays):
    """A question about a network with thresholds: is there an input in the box whose output is in one of the half-spaces?"""

    name: str
    network: str
    low: FloatArray
    high: FloatArray
    unsafe: tuple[Known, ...]  # Y[index] >= value, or <= value
    answer: Answer
    margin: float  # how far every execution stays from the thresholds, or goes beyond one
    witness: FloatArray | None
    why: str


def problems(question: Question, target: Target, network: str, bound: float, margin: float) -> tuple[Problem, Problem]:
    """Two problems about a network within `bound` of the target, one that holds and one that fails, both by `margin`."""
    inside = (question.low >= target.low[:, None]).all() and (question.high <= target.high[:, None]).all()
    in_box = (question.witness >= question.low).all() and (question.witness <= question.high).all()
    if not (inside and in_box and margin > 0 and np.isfinite(bound)):
        raise ProvenformerError(
            f"the question {question.name} leaves the box of its certificate, or has no margin or no bound."
        )
    about = (network, question.low, question.high)
    held = tuple(_shifted(known, bound + margin) for known in question.never)
    failed = _shifted(question.reached, -bound - margin)
    return (
        Problem(f"{question.name}-holds", *about, held, "unsat", margin, None, question.why),
        Problem(f"{question.name}-fails", *about, (failed,), "sat", margin, question.witness, question.why),
    )


def _shifted(known: Known, by: float) -> Known:
    """The threshold that far on the side that is not reached, or on the other one; float32, rounded away from the value."""
    sign = 1.0 if known.side == ">=" else -1.0
    exact, outward = known.value + sign * by, np.copysign(1.0, sign * by)
    threshold = np.float32(exact)
    if (float(threshold) - exact) * outward < 0:
        threshold = np.nextafter(threshold, np.float32(np.inf * outward))
    return Known(known.index, known.side, float(threshold))


def is_unsafe(problem: Problem, output: FloatArray) -> bool:
    """Whether an output (d, n) lies in one of the half-spaces."""
    y = np.asarray(output).ravel()
    return any(y[u.index] >= u.value if u.side == ">=" else y[u.index] <= u.value for u in problem.unsafe)
