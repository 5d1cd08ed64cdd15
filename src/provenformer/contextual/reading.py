"""From what a user gives (texts, ids, vectors) to a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.contextual.corpus import Corpus, corpus_of_ids, corpus_of_vectors
from provenformer.contextual.models import Reader

SPACE_MARKS = "\u0120\u2581"  # of byte-level tokenizers and of SentencePiece


def corpus_of(read: Reader, sequences: Sequence[Any] | Any, special_tokens: bool, longest: int | None) -> Corpus:
    """The sequences as this model reads them, none longer than it takes."""
    corpus = _corpus(read, sequences, special_tokens, longest)
    for place, one in enumerate(corpus.inputs):
        if read.limit is not None and len(one) > read.limit:
            sizes = f"sequence {place} has {len(one)} tokens, {read.name} takes at most {read.limit}"
            raise ProvenformerError(f"{sizes}; cut it, or give longest={read.limit}.")
    return corpus


def _corpus(read: Reader, sequences: Sequence[Any] | Any, special_tokens: bool, longest: int | None) -> Corpus:
    if isinstance(sequences, str):
        raise ProvenformerError("sequences are one text; give a list of them, one sequence each.")
    if read.reads_vectors or getattr(sequences, "ndim", None) == 3:
        return corpus_of_vectors(sequences)
    given = list(sequences)
    if not given:
        raise ProvenformerError("there are no sequences; give at least 2.")
    tokenizer = read.tokenizer
    if all(isinstance(one, str) for one in given):
        given = _ids_of_texts(given, tokenizer, _most(read, tokenizer, longest))
    elif longest is not None:
        given = [one[:longest] for one in given]
    if tokenizer is None:
        return corpus_of_ids(given, lambda ids: [str(i) for i in ids], set(), True, None)
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id != tokenizer.eos_token_id else None
    # The unknown word is a word of the text, if one that the vocabulary does not have; so is a mask.
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id, getattr(tokenizer, "mask_token_id", None)}
    return corpus_of_ids(given, lambda ids: _words(tokenizer, ids), special, special_tokens, padding)


def _words(tokenizer: Any, ids: list[int]) -> list[str]:
    """Names of tokens without the marks that some tokenizers put for a space."""
    return [name.lstrip(SPACE_MARKS) or name for name in tokenizer.convert_ids_to_tokens(ids)]


def _most(read: Reader, tokenizer: Any, longest: int | None) -> int | None:
    limits = [limit for limit in (longest, read.limit, getattr(tokenizer, "model_max_length", None)) if limit]
    return min(limits) if longest is not None else None


def _ids_of_texts(texts: list[str], tokenizer: Any, longest: int | None) -> list[Any]:
    if tokenizer is None:
        raise ProvenformerError("texts need a tokenizer; give tokenizer=, or sequences of token ids.")
    for place, text in enumerate(texts):
        if not text.strip():
            raise ProvenformerError(f"sequence {place} is empty; give at least 2 tokens.")
    cut = {"truncation": True, "max_length": longest} if longest else {}
    return [np.asarray(ids) for ids in tokenizer(texts, verbose=False, **cut)["input_ids"]]
