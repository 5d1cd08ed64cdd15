"""Bad input is one line: what, which limit, what to do."""

from typing import Any

import numpy as np
import pytest
from contextual_cases import mixer_bert, some_ids
from torch import nn

from provenformer import contextual
from provenformer.base.errors import ProvenformerError
from provenformer.contextual.corpus import corpus_of_ids
from provenformer.contextual.senses import parse


def states(batch: np.ndarray) -> list[np.ndarray]:
    return [np.stack([batch, batch**2], axis=2).astype(float)]


@pytest.mark.parametrize(
    ("sequences", "said"),
    [
        ([], "there are no sequences"),
        ("one text", "sequences are one text"),
        ([[1, 2], []], "sequence 1 is empty"),
        ([[1, 2], [3]], "is a single token and has no context"),
        ([[1, 2], [1, 2]], "1 different sequence given"),
        ([[1, 2], [1.5, 2.5]], "sequence 1 is no list of token ids"),
        ([[1, 2], [[1], [2, 3]]], "sequence 1 is no list of token ids"),
        (["a text", "another"], "texts need a tokenizer"),
        ([[5, 5], [5, 5, 5]], "all measured tokens are the same one"),
        (np.zeros((2, 0, 3)), "give numbers (count, token_dim, seq_len)"),
        (np.full((2, 1, 3), np.nan), "not finite"),
    ],
)
def test_sequences(sequences: Any, said: str) -> None:
    with pytest.raises(ProvenformerError) as caught:
        contextual.measure(states, sequences)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_padding_is_refused_and_special_tokens_are_left_out() -> None:
    names = [str(i) for i in range(10)].__getitem__
    with pytest.raises(ProvenformerError, match=r"sequence 1 has the padding token .id 0. at place 2"):
        corpus_of_ids([[1, 5, 6, 2], [1, 5, 0, 0]], lambda ids: [names(i) for i in ids], {0, 1, 2}, False, 0)
    corpus = corpus_of_ids([[1, 5, 6, 2], [1, 7, 8, 2]], lambda ids: [names(i) for i in ids], {0, 1, 2}, False, 0)
    assert corpus.token_of.tolist() == [5, 6, 7, 8]
    assert corpus.special_tokens == "read by the model, not measured"
    with pytest.raises(ProvenformerError, match=r"is empty beside its special tokens"):
        corpus_of_ids([[1, 2], [1, 7, 8, 2]], lambda ids: [names(i) for i in ids], {0, 1, 2}, False, 0)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Linear(2, 2), "has no hidden states per layer"),
        (3, "has no hidden states per layer"),
        (lambda batch: batch, "no hidden states per layer"),
        (lambda _: [np.zeros((1, 1, 2))], "it must be floats"),
        (lambda batch: [np.full((*batch.shape, 2), np.nan)], "a state is not finite at"),
    ],
)
def test_models(model: Any, said: str) -> None:
    with pytest.raises(ProvenformerError) as caught:
        contextual.measure(model, [[1, 2, 3], [4, 5, 6]], identify="nothing")
    assert said in str(caught.value)


def test_more_text_than_memory() -> None:
    with pytest.raises(ProvenformerError, match=r"78 tokens x 3 layers need .* give less text, or raise memory="):
        contextual.measure(mixer_bert("attention"), some_ids(), memory=1000)


def test_a_sequence_beyond_the_positions() -> None:
    with pytest.raises(ProvenformerError, match=r"has 41 tokens, .* takes at most 40"):
        contextual.measure(mixer_bert("attention"), [[7] * 20 + [8] * 21, [5, 6]])


def test_an_unknown_mode() -> None:
    with pytest.raises(ProvenformerError, match=r"unknown mode 'moods'; choose from: tokens, words, edits, swaps"):
        contextual.measure(states, [[1, 2], [3, 4]], modes=("moods",))  # type: ignore[arg-type]


def test_words_that_never_recur() -> None:
    with pytest.raises(ProvenformerError, match=r"no word occurs in two contexts"):
        contextual.measure(states, [[1, 2], [3, 4]], modes=("words",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bank | money", "line 1: 'bank | money' is not"),
        ("bank | money | No such word here.", "must stand in its sentence exactly once"),
        ("bank | money | A bank.\nbank | money | The bank.", "needs two senses with two sentences each"),
        ("# nothing", "has no line"),
    ],
)
def test_senses(text: str, said: str) -> None:
    with pytest.raises(ProvenformerError) as caught:
        parse(text, "file")
    assert said in str(caught.value)
