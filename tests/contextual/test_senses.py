"""Senses: silhouettes against their definition, words found in sentences, separated senses seen."""

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from provenformer.contextual.models import Reader
from provenformer.contextual.senses import Occurrence, parse, sample, senses, silhouettes


class Letters:
    """A tokenizer of words; a word that ends in s is two tokens."""

    pad_token_id, eos_token_id, unk_token_id, mask_token_id = 0, None, None, None
    all_special_ids = (1,)

    def __call__(self, texts: Any, return_offsets_mapping: bool = False, **_: Any) -> dict[str, Any]:
        cut = [self._cut(text) for text in ([texts] if isinstance(texts, str) else texts)]
        ids = [[1, *(2 + hash_of(text[a:b]) for a, b in spans)] for text, spans in cut]
        places = [[(0, 0), *spans] for _, spans in cut]
        if isinstance(texts, str):
            return {"input_ids": ids[0], "offset_mapping": places[0] if return_offsets_mapping else None}
        return {"input_ids": ids, "offset_mapping": places}

    def _cut(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        spans, at = [], 0
        for word in text.split():
            end = at + len(word)
            spans += [(at, end - 1), (end - 1, end)] if word.endswith("s") else [(at, end)]
            at = end + 1
        return text, spans

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(i) for i in ids]


def hash_of(word: str) -> int:
    return sum(ord(c) * 31**k for k, c in enumerate(word)) % 997


def test_silhouettes_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((12, 3)), np.repeat([0, 1, 2], 4)
    distance, got = cdist(x, x), silhouettes(x, labels)
    for i in range(12):
        own = (labels == labels[i]) & (np.arange(12) != i)
        a = distance[i, own].mean()
        b = min(distance[i, labels == other].mean() for other in range(3) if other != labels[i])
        assert got[i] == pytest.approx((b - a) / max(a, b))
    assert (silhouettes(np.zeros((4, 2)), np.array([0, 0, 1, 1])) == 0).all()


def test_layers_that_know_the_sense_are_told_from_those_that_do_not() -> None:
    contexts = (("money", "pay"), ("river", "swim"))
    frames = ("we {} bank now", "they {} bank often", "you {} bank too")
    text = "\n".join(f"bank | {sense} | {frame.format(verb)}" for sense, verb in contexts for frame in frames)
    pay, swim = 2 + hash_of("pay"), 2 + hash_of("swim")

    def states(batch: np.ndarray) -> list[tuple[str, np.ndarray]]:
        own = np.stack([batch, batch], axis=2).astype(np.float64)
        sense = (batch == pay).any(axis=1)[:, None, None] * 1.0 - (batch == swim).any(axis=1)[:, None, None] * 1.0
        return [("embeddings", own), ("layer 1", own + 5 * sense + 0.01 * batch.sum(axis=1)[:, None, None])]

    found = senses(Reader("test", states, False, tokenizer=Letters()), parse(text, "text"))
    assert found.layers[0].silhouette == 0  # every state of the word is the same
    assert found.layers[1].silhouette > 0.3
    assert found.layers[1].low <= found.layers[1].silhouette <= found.layers[1].high


def test_a_word_of_two_tokens_has_their_mean() -> None:
    text = (
        "banks | a | we pay banks\nbanks | a | they pay banks\nbanks | b | we swim banks\nbanks | b | they swim banks"
    )

    def states(batch: np.ndarray) -> list[tuple[str, np.ndarray]]:
        return [("layer", batch[:, :, None].astype(np.float64))]

    found = senses(Reader("test", states, False, tokenizer=Letters()), parse(text, "text"))
    assert found.vectors[0].ravel().tolist() == [2 + (hash_of("bank") + hash_of("s")) / 2] * 4


def test_the_sample_is_whole() -> None:
    found = sample()
    assert len(found) == len({one.sentence for one in found}) == 96
    assert len({one.word for one in found}) == 8
    assert found[0] == Occurrence("bank", "money", "She opened an account at the bank before the holidays.")
