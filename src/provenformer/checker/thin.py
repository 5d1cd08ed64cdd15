"""The table of a network of many tiny layers: a walk through its runs, the final clip, and a bound on every number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.growth import first_overflow
from provenformer.checker.outside import require_zero_outside
from provenformer.checker.points import Where
from provenformer.checker.table import OutputTable
from provenformer.checker.walk import Walk
from provenformer.functions.grid import Grid
from provenformer.functions.targets import Target
from provenformer.networks.thin import Network, ReluRun

LARGEST_INPUT = 1e100  # claims over the whole space are about inputs up to this, as executed


def thin_table(network: Network, target: Target, grid: Grid, ramp: float, domain: str) -> OutputTable:
    """The table, or Rejected with the layer and the rule that it breaks."""
    _require_finite(network, target, domain)
    walk = Walk(network, target, grid, ramp)
    values, radius = walk.outputs()
    low, high = _clip_range(network.runs)
    if domain == "space":
        require_zero_outside(walk)
    return OutputTable(walk.contexts, values, radius, low, high, walk.lost_share, (low, high))


def _require_finite(network: Network, target: Target, domain: str) -> None:
    """Nothing may overflow on a ramp, where only the clip bounds the output."""
    largest = float(np.maximum(np.abs(target.low), np.abs(target.high)).max()) + 1.0
    if network.positions is not None:
        largest += float(np.abs(network.positions).max())
    found = first_overflow(network, max(largest, LARGEST_INPUT) if domain == "space" else largest)
    if found:
        run, layer = found
        where = Where(run, network.runs[run].stage)
        raise Rejected(f"{where.layer(layer)}: a number might overflow on a ramp, where the output is only clipped")


def _clip_range(runs: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
    """The last d layers must be x + ReLU(low - x) - ReLU(x - high), one per row, with 0 in [low, high]."""
    last = runs[-1] if runs else None
    if not isinstance(last, ReluRun) or last.W_2.shape[1:] != (len(last), 4):
        raise Rejected("the last run is not one clipping layer per row")
    d = len(last)
    low, high = np.zeros(d), np.zeros(d)
    for row in range(d):
        W_1, W_2 = np.zeros((4, d)), np.zeros((d, 4))
        W_1[:2, row] = -1.0, 1.0
        W_2[row, :2] = 1.0, -1.0
        if (
            (last.W_1[row] != W_1).any()
            or (last.W_2[row] != W_2).any()
            or last.b_2[row].any()
            or last.b_1[row, 2:].any()
        ):
            raise Rejected(f"layer {row} of the last run does not clip row {row} of the output")
        low[row], high[row] = last.b_1[row, 0], -last.b_1[row, 1]
        if not low[row] <= 0 <= high[row]:
            raise Rejected(f"layer {row} of the last run clips to a range without 0")
    return low, high
