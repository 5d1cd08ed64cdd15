"""Arrays of sequences, (..., token_dim, seq_len), one token per column, float64; and manners of objects that hold arrays."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError

FloatArray = NDArray[np.float64]


class HoldsArrays:
    """A dataclass (eq=False, repr=False) with arrays in it: one line that shows their shapes, and == is identity."""

    def __repr__(self) -> str:
        shown = (f"{field.name}={_brief(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"array{tuple(shape)}"


def require_sequences(x: Any, token_dim: int, seq_len: int) -> FloatArray:
    """`x` as finite float64 of shape (..., token_dim, seq_len), or one clear line. Nothing of it is dropped without a word."""
    if np.ma.is_masked(x):
        raise ProvenformerError("X has masked entries; fill them: the network reads every number.")
    try:
        if np.iscomplexobj(x):
            raise TypeError("they are complex")
        array: FloatArray = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProvenformerError(f"X is not an array of numbers ({error}); give shape (..., d, n).") from error
    if array.shape[-2:] != (token_dim, seq_len):
        raise ProvenformerError(
            f"X has shape {array.shape}, but the last two axes must be (token_dim, seq_len) = ({token_dim}, {seq_len}); "
            "put one token in each column."
        )
    if not np.all(np.isfinite(array)):
        raise ProvenformerError("X has an entry that is not finite; give real numbers.")
    return array
