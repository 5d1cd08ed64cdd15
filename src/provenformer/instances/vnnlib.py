"""Problems and witnesses as VNN-LIB and VNN-COMP write them: X_i and Y_i number inputs and outputs row by row."""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.instances.problems import Problem


def vnnlib_text(problem: Problem) -> str:
    """The property: sat if some input of the box has an output in one of the half-spaces."""
    low, high = problem.low.ravel(), problem.high.ravel()
    lines = [f"; {problem.name}: {problem.answer}. {problem.why}.", ""]
    lines += [f"(declare-const {kind}_{i} Real)" for kind in "XY" for i in range(len(low))]
    lines.append("")
    for i, (least, most) in enumerate(zip(low, high, strict=True)):
        lines += [f"(assert (<= X_{i} {number(most)}))", f"(assert (>= X_{i} {number(least)}))"]
    each = [f"({u.side} Y_{u.index} {number(u.value)})" for u in problem.unsafe]
    unsafe = each[0] if len(each) == 1 else "(or {})".format(" ".join(f"(and {one})" for one in each))
    return "\n".join([*lines, "", f"(assert {unsafe})", ""])


def witness_text(x: FloatArray, y: FloatArray) -> str:
    """A counterexample: the input, and the output that the network gives for it."""
    entries = [f"({kind}_{i} {number(v)})" for kind, array in (("X", x), ("Y", y)) for i, v in enumerate(array.ravel())]
    return "sat\n(" + "\n ".join(entries) + ")\n"


def number(value: float) -> str:
    """All digits, without an exponent, which not every parser reads."""
    return np.format_float_positional(float(value), trim="0")
