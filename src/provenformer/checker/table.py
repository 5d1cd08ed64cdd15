"""What a network gives on all good inputs (those on no ramp), read off its weights; one walk per kind of network."""

from __future__ import annotations

from dataclasses import dataclass

from provenformer.base.arrays import FloatArray
from provenformer.functions.grid import IntArray


@dataclass(frozen=True, eq=False)
class OutputTable:
    """Context -> value, whatever the weights were meant to be.

    radius      how far float64, summing in any order, may be from a value: entry-wise, on good inputs
    low, high   the range of outputs anywhere, per row: all that is known on ramps
    ramp_share  the share of each cell of each coordinate in which an input is not good
    clip        the ends to which outputs are clipped, or the range of the values and 0 where nothing clips them
    clip_room   how far a certificate may be off in naming them
    """

    contexts: IntArray  # (contexts, n) of token ids
    values: FloatArray  # (contexts, n, d)
    radius: float
    low: FloatArray
    high: FloatArray
    ramp_share: float
    clip: tuple[FloatArray, FloatArray]
    clip_room: float = 0.0
