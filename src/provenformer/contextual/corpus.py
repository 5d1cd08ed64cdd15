"""The finite set on which Definition 5.1 is asked: sequences as the model reads them, and which tokens must differ.

No sequence occurs twice and none is padded: sequences of one length are run together. Special tokens ([CLS], [SEP], ...)
are read by the model and, unless asked for, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError, one_line

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Which tokens need not differ: none; those with the same multiset around them (an equivariant map cannot tell them apart,
# Lemma 6); those with the same past (a causal model has not read the rest).
Identify = Literal["nothing", "permutations", "pasts"]
IDENTIFY_WORDS: dict[Identify, str] = {
    "nothing": "every two tokens must differ (Definition 5.1)",
    "permutations": "every two tokens must differ, unless the sequences are permutations of each other (Lemma 6)",
    "pasts": "every two tokens with different pasts must differ (the model reads left to right)",
}
SHORTEST = 2  # tokens; a single one has no context


@dataclass(frozen=True, eq=False)
class Corpus:
    """Distinct sequences of at least two tokens.

    inputs    what the model reads: (n,) token ids, or (n, d) vectors
    tokens    (n,) which token stands where; equal numbers are equal tokens
    counted   (n,) which of them are measured
    names     of the tokens of each sequence, for people
    repeated  how many sequences were left out because they were there already
    """

    inputs: tuple[NDArray[Any], ...]
    tokens: tuple[Ints, ...]
    counted: tuple[Bools, ...]
    names: tuple[tuple[str, ...], ...]
    repeated: int = 0
    special_tokens: str = "there are none"

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def sequence_of(self) -> Ints:
        """(measured tokens,): the sequence of each."""
        return np.repeat(np.arange(len(self)), [int(mask.sum()) for mask in self.counted])

    @cached_property
    def place_of(self) -> Ints:
        """(measured tokens,): where in its sequence each stands."""
        return np.concatenate([np.flatnonzero(mask) for mask in self.counted])

    @cached_property
    def token_of(self) -> Ints:
        """(measured tokens,): which token each is."""
        return np.concatenate([tokens[mask] for tokens, mask in zip(self.tokens, self.counted, strict=True)])

    def batches(self, tokens: int) -> list[Ints]:
        """Sequences of one length together, at most about so many tokens at a time."""
        lengths = np.array([len(one) for one in self.inputs])
        found = []
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            size = max(1, tokens // int(length))
            found += [same[at : at + size] for at in range(0, len(same), size)]
        return found

    def first_of_each(self, identify: Identify) -> Ints:
        """Measured tokens of which every two must differ: one of each class of those that need not."""
        if identify == "nothing":
            return np.arange(len(self.sequence_of))
        seen: dict[Any, int] = {}
        bags = [tuple(sorted(tokens.tolist())) for tokens in self.tokens] if identify == "permutations" else []
        for row, (i, j) in enumerate(zip(self.sequence_of.tolist(), self.place_of.tolist(), strict=True)):
            tokens = self.tokens[i]
            key = (int(tokens[j]), bags[i]) if identify == "permutations" else tokens[: j + 1].tobytes()
            seen.setdefault(key, row)
        return np.array(sorted(seen.values()), dtype=np.int64)

    def describe(self, sequence: int, place: int) -> str:
        """A token in its sequence, in brackets; a few tokens on either side."""
        names = self.names[sequence]
        low, high = max(0, place - 6), min(len(names), place + 7)
        shown = [f"[{name}]" if low + k == place else name for k, name in enumerate(names[low:high])]
        return one_line(" ".join(["..."] * (low > 0) + shown + ["..."] * (high < len(names))))

    def changed(self, inputs: list[NDArray[Any]], tokens: list[Ints]) -> Corpus:
        """The same sequences with other tokens in some places."""
        return replace(self, inputs=tuple(inputs), tokens=tuple(tokens))


def corpus_of_ids(
    sequences: Sequence[Any], names: Any, special: set[int], count_special: bool, padding: int | None
) -> Corpus:
    """From lists of token ids; `names` turns a list of ids into words."""
    arrays = [_ids(one, place) for place, one in enumerate(sequences)]
    kept, repeated = _distinct([one.tobytes() for one in arrays])
    inputs = [arrays[i] for i in kept]
    for place, one in zip(kept, inputs, strict=True):
        if padding is not None and (one == padding).any():
            where = f"sequence {place} has the padding token (id {padding}) at place {int(np.argmax(one == padding))}"
            raise ProvenformerError(f"{where}; give sequences without padding: those of one length are run together.")
    outside = np.array(sorted(special), dtype=np.int64)
    counted = [np.ones(len(one), bool) if count_special else ~np.isin(one, outside) for one in inputs]
    said = "measured like all others" if count_special else "read by the model, not measured"
    found = Corpus(
        tuple(inputs), tuple(inputs), tuple(counted), tuple(tuple(names(one.tolist())) for one in inputs), repeated, said
    )  # fmt: skip
    return _checked(found)


def corpus_of_vectors(sequences: Any) -> Corpus:
    """From an array (count, d, n), one token per column, as everywhere in this library."""
    array = np.asarray(sequences)
    if array.ndim != 3 or array.dtype.kind not in "fiu" or not array.size:
        raise ProvenformerError(
            f"sequences of vectors have shape {array.shape}; give numbers (count, token_dim, seq_len)."
        )
    if not np.isfinite(array).all():
        raise ProvenformerError("sequences have an entry that is not finite; give real numbers.")
    rows = np.swapaxes(array.astype(np.float64), 1, 2) + 0.0  # + 0.0: minus zero is zero
    _, tokens = np.unique(rows.reshape(-1, rows.shape[2]), axis=0, return_inverse=True)
    tokens = tokens.reshape(rows.shape[:2]).astype(np.int64)
    kept, repeated = _distinct([one.tobytes() for one in tokens])
    inputs, numbers = tuple(rows[i] for i in kept), tuple(tokens[i] for i in kept)
    names = tuple(tuple(_column(column) for column in one) for one in inputs)
    return _checked(Corpus(inputs, numbers, tuple(np.ones(len(one), bool) for one in inputs), names, repeated))


def _column(values: NDArray[np.float64]) -> str:
    shown = [f"{value:.4g}" for value in values[:4]] + ["..."] * (len(values) > 4)
    return shown[0] if len(values) == 1 else f"({', '.join(shown)})"


def _ids(one: Any, place: int) -> Ints:
    try:
        array = np.asarray(one)
    except ValueError:  # a list of lists of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProvenformerError(
            f"sequence {place} is no list of token ids; give texts, lists of ids or an array (count, d, n)."
        )
    return np.asarray(array, dtype=np.int64)


def _distinct(contents: list[bytes]) -> tuple[list[int], int]:
    first: dict[bytes, int] = {}
    for place, content in enumerate(contents):
        first.setdefault(content, place)
    return list(first.values()), len(contents) - len(first)


def _checked(corpus: Corpus) -> Corpus:
    """Enough to ask the question of."""
    for place, mask in enumerate(corpus.counted):
        if mask.sum() < SHORTEST:
            what = "is a single token" if mask.any() else "is empty"
            beside = " beside its special tokens" if mask.size > mask.sum() else ""
            shown = one_line(" ".join(corpus.names[place]))[:60]
            said = f"sequence {place} ({shown!r}) {what}{beside}" if shown else f"sequence {place} {what}"
            raise ProvenformerError(f"{said} and has no context; give at least {SHORTEST} tokens.")
    if len(corpus) < SHORTEST:
        raise ProvenformerError(
            f"{len(corpus)} different sequence given; a context needs another: give at least {SHORTEST}."
        )
    return corpus
