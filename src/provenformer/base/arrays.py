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


def real_numbers(value: Any) -> FloatArray:
    """`value` as float64. Nothing of it is dropped without a word: no imaginary part, no mask, no digit of a whole number."""
    if np.ma.is_masked(value):
        raise TypeError("there are masked entries; fill them")
    given = np.asarray(value)
    if given.dtype.kind == "c":
        raise TypeError("they are complex")
    if given.dtype.kind not in "biufO" or any(
        isinstance(v, str) for v in (given.flat if given.dtype == object else ())
    ):
        raise TypeError(f"they are no numbers but {given.dtype}")
    array: FloatArray = given.astype(np.float64)
    cut = given.dtype.kind in "iu" and (array.astype(given.dtype) != given).any()
    if cut or (given.dtype == object and any(isinstance(v, int) and float(v) != v for v in given.flat)):
        raise ValueError("float64 does not hold whole numbers so far beyond 2^53")
    return array


def require_sequences(x: Any, token_dim: int, seq_len: int) -> FloatArray:
    """`x` as finite float64 of shape (..., token_dim, seq_len), or one clear line."""
    try:
        array = real_numbers(x)
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
