"""Reach: what each mixer sees, measured against the formulas; and average attention's counter-examples."""

from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from contextual_cases import mixer_bert, trained
from experiments.contextual.mixing import mixing, same_mean

from provenformer import contextual
from provenformer.bert.mixers import Average, BProj, SepConv
from provenformer.bert.model.claims import layers_until_every_token_sees_all

LENGTH = 16


def untrained(model: Any) -> Any:
    return model


def sequences(count: int = 24, length: int = LENGTH, seed: int = 0) -> np.ndarray:
    """(count, 16, n): a few tokens, as vectors."""
    rng = np.random.default_rng(seed)
    return np.swapaxes(rng.standard_normal((12, 16))[rng.integers(12, size=(count, length))], 1, 2)


@pytest.mark.parametrize("taps", [3, 4, 7])
def test_sepconv_reaches_exactly_its_taps_per_layer(taps: int) -> None:
    """Output j reads j - before .. j + after, so a change goes `after` places to the left and `before` to the right a layer."""
    torch.manual_seed(taps)
    before, after = (taps - 1) // 2, taps - 1 - (taps - 1) // 2
    depth = layers_until_every_token_sees_all(LENGTH, taps)
    stack = [SepConv(16, filters=4, filter_length=taps).double() for _ in range(depth)]
    found = contextual.reach(stack, sequences(), edits=8)
    for layer, row in enumerate(found):
        assert (row.left, row.right) == (min(LENGTH - 1, layer * after), min(LENGTH - 1, layer * before))
        assert row.everywhere == (layer >= depth)  # ceil((n - 1) / before) layers, and not one less
        inside = [s for o, s in zip(row.offsets, row.share, strict=True) if -layer * after <= o <= layer * before]
        assert min(inside) == 1
    assert depth == ceil((LENGTH - 1) / before)


@pytest.mark.parametrize("after", [untrained, trained])
@pytest.mark.parametrize("mixer", ["attention", "bproj", "average", "fourier"])
def test_others_reach_everything_in_one_layer(mixer: str, after: Any) -> None:
    found = mixing(after(mixer_bert(mixer)), 24)
    assert found["reach"] == [[0, 0], [23, 23], [23, 23]]
    assert found["everywhere"] == [False, True, True]


@pytest.mark.parametrize("after", [untrained, trained])
def test_sepconv_inside_bert_reaches_its_taps(after: Any) -> None:
    model = after(mixer_bert("sepconv", 3, mixer_options={"sepconv": {"filter_length": 6, "filters": 4}}))
    assert mixing(model, 24)["reach"] == [[0, 0], [3, 2], [6, 4], [9, 6]]


@pytest.mark.parametrize("after", [untrained, trained])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_layer_with_average_attention_collapses_on_a_counter_example(order: str, after: Any) -> None:
    moved = {
        mixer: same_mean(after(mixer_bert(mixer, norm_position=order)))
        for mixer in ("average", "attention", "bproj", "sepconv")
    }
    assert moved.pop("average") < 1e-14
    assert min(moved.values()) > 1e-4


def counter_example() -> np.ndarray:
    """1 among (1, 0, 2) and 1 among (1, 1, 1): Section 5.2 says why a mean cannot tell them apart."""
    return np.array([[[1.0, 0.0, 2.0]], [[1.0, 1.0, 1.0]]])


def test_average_attention_collapses_on_its_counter_example() -> None:
    found = contextual.measure(Average(1), counter_example(), modes=("tokens",), identify="permutations").model
    assert found.modes["tokens"][1].delta == 0
    assert found.modes["tokens"][1].worst[0].replace("[", "").replace("]", "") == "1 0 2"
    torch.manual_seed(0)
    told = contextual.measure(BProj(1, size=3).double(), counter_example(), modes=("tokens",), identify="permutations")
    assert told.model.modes["tokens"][1].delta > 0


@pytest.mark.parametrize(("mixer", "notices"), [(Average(16), False), (BProj(16, size=LENGTH).double(), True)])
def test_whether_an_exchange_is_noticed(mixer: Any, notices: bool) -> None:
    found = contextual.measure(mixer, sequences(), modes=("swaps",), identify="nothing", line_tokens=0).model
    ratio = found.modes["swaps"][1].quantile(0.95).value * found.modes["swaps"][1].radius
    assert (ratio > 1e-3) == notices


def test_the_sentences_of_section_5_2() -> None:
    """Tokens as words: "I am happy", "I am Bob"; the words they share move once there is a layer that mixes."""

    class Words:
        pad_token_id, eos_token_id, unk_token_id = 0, None, None
        all_special_ids = (0,)

        def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
            numbers = {"I": 5, "am": 6, "happy": 7, "Bob": 8}
            return {"input_ids": [[numbers[word] for word in text.split()] for text in texts]}

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [str(i) for i in ids]

    found = contextual.two_sentences(mixer_bert("attention"), "I am happy", "I am Bob", [1.0] * 3, tokenizer=Words())
    assert found.tokens == ("5", "6")
    assert found.distance[0] == (0.0, 0.0)
    assert min(found.distance[1] + found.distance[2]) > 1e-3
