"""Which states are still told apart after rounding: float16, bfloat16, and whole numbers of 8 and 4 bits.

Integers are those of common inference formats: one scale for a layer, its largest absolute entry at 127 or 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provenformer.contextual.closest import rows_by_content
from provenformer.contextual.corpus import Ints

FORMATS = ("float16", "bfloat16", "int8", "int4")
LARGEST = {"int8": 127, "int4": 7}
Array = NDArray[Any]


def rounded(x: Array, form: str, largest: float) -> Array:
    """x in a format; `largest` is the largest absolute entry of its layer. Beyond float16's range is infinity."""
    if form in LARGEST:
        scale = LARGEST[form] / largest if largest > 0 else 0.0
        return np.rint(x * scale).astype(np.int8)
    if form == "float16":
        with np.errstate(over="ignore"):
            return np.asarray((x.astype(np.float16) + np.float16(0)).view(np.int16))
    halves = torch.from_numpy(np.ascontiguousarray(x)).to(torch.bfloat16) + 0.0  # + 0.0: minus zero is zero
    return np.asarray(halves.view(torch.int16).numpy())


def collisions(x: Array, groups: Ints | None = None) -> dict[str, int]:
    """How many rows equal another row (of their group, if there are groups) after rounding."""
    largest = float(np.abs(x).max(initial=0.0))
    found = {}
    for form in FORMATS:
        content = rows_by_content(rounded(x, form, largest))
        if groups is not None:
            content = rows_by_content(np.stack([content, groups], axis=1))
        _, count = np.unique(content, return_counts=True)
        found[form] = int(count[count > 1].sum())
    return found


def equal_pairs(one: Array, other: Array, largest: float) -> dict[str, int]:
    """How many rows of `one` equal the same row of `other` after rounding."""
    return {
        form: int((rounded(one, form, largest) == rounded(other, form, largest)).all(axis=1).sum()) for form in FORMATS
    }
