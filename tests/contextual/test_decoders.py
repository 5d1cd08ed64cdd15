"""Models of transformers that read left to right: found out, not asked about the future, and with the reach they should have."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralModel,
    T5Config,
    T5Model,
)

from provenformer import contextual

WORDS = 40
SIZES = {"vocab_size": WORDS, "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2}
HIDDEN = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
DECODERS: dict[str, tuple[Any, Any]] = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **SIZES)),
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, **HIDDEN, num_key_value_heads=1)),
    "neox": (GPTNeoXModel, GPTNeoXConfig(**SIZES, **HIDDEN)),
}
LENGTH = 12


def made(kind: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return kind(config).eval()


def sequences() -> list[list[int]]:
    """The first two share the first half of their tokens."""
    ids = np.random.default_rng(0).integers(5, WORDS, size=(10, LENGTH))
    ids[1, : LENGTH // 2] = ids[0, : LENGTH // 2]
    return ids.tolist()


@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder_is_not_asked_about_the_future(family: str) -> None:
    model = made(*DECODERS[family])
    found = contextual.measure(model, sequences(), modes=("tokens", "edits"), line_tokens=0)
    assert found.identify == "pasts"
    assert found.random is not None
    assert [row.delta > 0 for row in found.model.modes["tokens"]][1:] == [True, True]
    assert [row.delta > 0 for row in found.model.modes["edits"]] == [False, True, True]
    told = contextual.measure(model, sequences(), modes=("tokens",), line_tokens=0, identify="nothing").model
    assert [row.delta for row in told.modes["tokens"]] == [0, 0, 0]  # the two that share a past
    for layer, row in enumerate(contextual.reach(model, sequences(), edits=6)):
        assert (row.left, row.right) == (0, (LENGTH - 1) * (layer > 0))


def test_a_sliding_window_reaches_its_width_per_layer() -> None:
    config = MistralConfig(**SIZES, **(HIDDEN | {"num_hidden_layers": 3}), num_key_value_heads=1, sliding_window=4)
    model = made(MistralModel, config)
    assert contextual.measure(model, sequences(), modes=("edits",), line_tokens=0).identify == "pasts"
    rows = contextual.reach(model, sequences(), edits=8)
    assert [(row.left, row.right) for row in rows] == [
        (0, 0),
        (0, 3),
        (0, 6),
        (0, 9),
    ]  # a token reads itself and 3 before it


def test_of_an_encoder_decoder_the_encoder_is_measured() -> None:
    config = T5Config(vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, initializer_factor=1.0)
    found = contextual.measure(made(T5Model, config), sequences(), modes=("edits",), line_tokens=0)
    assert found.identify == "nothing"
    assert [row.everywhere for row in found.model.reach] == [False, True, True]


def test_marks_of_spaces_are_not_shown() -> None:
    class Bytes:
        pad_token_id, eos_token_id, unk_token_id, all_special_ids = None, None, None, ()

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [f"\u0120w{i}" for i in ids]

    model, ids = made(*DECODERS["gpt2"]), [[7, 8, 9], [7, 8, 10]]
    found = contextual.measure(model, ids, tokenizer=Bytes(), modes=("tokens",), identify="nothing", line_tokens=0)
    assert found.model.modes["tokens"][0].worst == ("[w7] w8 w9", "[w7] w8 w10")
