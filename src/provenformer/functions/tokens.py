"""Programs on tokens: what compile_tokens is given, and what its certificate is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray, real_numbers
from provenformer.base.errors import ProvenformerError, one_line

VOCAB_LIMIT, LENGTH_LIMIT = 256, 512


@dataclass(frozen=True, eq=False, repr=False)
class TokenProgram:
    """fn maps whole numbers 0 .. vocab_size-1 of shape (..., seq_len) to as many numbers; ordinary numpy."""

    fn: Callable[[Any], Any]
    vocab_size: int
    seq_len: int
    name: str = "program"

    def __post_init__(self) -> None:
        for what, value, most in (
            ("vocab_size", self.vocab_size, VOCAB_LIMIT),
            ("seq_len", self.seq_len, LENGTH_LIMIT),
        ):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
                raise ProvenformerError(
                    f"{what}={value!r:.40} is not a whole number from 1 to {most}; use a smaller one."
                )

    def __call__(self, x: NDArray[np.int64]) -> FloatArray:
        """The program's own numbers for sequences (batch, seq_len)."""
        try:
            return np.broadcast_to(real_numbers(self.fn(x.copy())), x.shape)
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {error}")[:200]
            raise ProvenformerError(
                f"program '{one_line(self.name)}' fails on a batch of sequences ({reason})."
            ) from error

    def __repr__(self) -> str:
        return f"TokenProgram({self.name!r}, vocab_size={self.vocab_size}, seq_len={self.seq_len})"


def stored_tokens(vocab: Sequence[Any]) -> list[Any]:
    """Tokens as JSON holds them: words and numbers as they are, anything else by its words."""
    plain = [token.item() if isinstance(token, np.generic) else token for token in vocab]
    return [token if type(token) in (str, int, float) else str(token) for token in plain]
