"""`replace_attention` on stock models of the BERT family."""

from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertLMHeadModel,
    BertModel,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from provenformer.base.errors import ProvenformerError
from provenformer.bert import MIXERS, replace_attention
from provenformer.bert.model.slot import MixerSlot, encoder_layers, real_tokens

TINY: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
}
FAMILY = [
    (BertForSequenceClassification, BertConfig),
    (RobertaForMaskedLM, RobertaConfig),
    (XLMRobertaModel, XLMRobertaConfig),
    (ElectraModel, ElectraConfig),
    (DistilBertForSequenceClassification, DistilBertConfig),
]


def layers_of(model: Any) -> Any:
    return encoder_layers(model)


def mixing(layer: Any) -> Any:
    return getattr(layer.attention, "self", layer.attention)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize(("model_class", "config_class"), FAMILY)
def test_swaps_the_named_layers_and_trains(model_class: Any, config_class: Any, mixer: str) -> None:
    model = model_class(config_class(**TINY))
    upper = mixing(layers_of(model)[2])
    assert replace_attention(model, layers=[0, 1], mixer=mixer) is model
    assert [isinstance(mixing(layer), MixerSlot) for layer in layers_of(model)] == [True, True, False]
    assert mixing(layers_of(model)[2]) is upper
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 5:] = 0
    output = model(input_ids=torch.randint(3, 50, (2, 9)), attention_mask=mask)[0]
    output.square().sum().backward()
    for name, parameter in mixing(layers_of(model)[0]).named_parameters():
        assert parameter.grad is not None, name
    assert output.isfinite().all()


@torch.no_grad()
def test_the_sublayer_around_the_mixer_is_kept() -> None:
    model = BertModel(BertConfig(**TINY)).eval()
    attention = layers_of(model)[0].attention
    output = attention.output
    replace_attention(model, layers=[0], mixer="average")
    x = torch.randn(2, 5, 32)
    expected = output.LayerNorm(output.dense(x.mean(1, keepdim=True).expand_as(x)) + x)
    torch.testing.assert_close(attention(x)[0], expected)


@torch.no_grad()
def test_distilbert_keeps_its_output_projection() -> None:
    model = DistilBertForSequenceClassification(DistilBertConfig(**TINY)).eval()
    layer = layers_of(model)[0]
    output = layer.attention.out_lin
    replace_attention(model, layers=[0], mixer="average")
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(layer.attention(x)[0], output(x.mean(1, keepdim=True).expand_as(x)))


def test_takes_options_device_dtype_mode_and_scale() -> None:
    model = BertModel(BertConfig(**TINY, initializer_range=0.3)).to(torch.bfloat16).eval()
    replace_attention(model, layers=range(3), mixer="sepconv", filters=4, filter_length=7)
    mixer = layers_of(model)[0].attention.self.mixer
    assert mixer.filters.shape == (4, 7)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert not mixer.training
    assert 0.27 < mixer.gate.weight.float().std() < 0.33
    assert model(torch.randint(50, (1, 6)))[0].isfinite().all()


def test_bproj_takes_the_models_positions() -> None:
    model = replace_attention(BertModel(BertConfig(**TINY)), layers=[0], mixer="bproj")
    assert layers_of(model)[0].attention.self.mixer.size == 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace_attention(BertModel(BertConfig(**TINY)), [3], "average"), "layer 3 does not exist.*0 to 2"),
        (lambda: replace_attention(BertModel(BertConfig(**TINY)), [-1], "average"), "layer -1 does not exist"),
        (lambda: replace_attention(BertModel(BertConfig(**TINY)), [0], "gru"), "unknown mixer 'gru'"),
        (
            lambda: replace_attention(GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2)), [0], "average"),
            r"GPT2Model has no encoder.layer\[i\].attention.self to replace; give a BERT",
        ),
        (
            lambda: replace_attention(BertLMHeadModel(BertConfig(**TINY, is_decoder=True)), [0], "average"),
            "cannot replace a decoder's attention",
        ),
    ],
)
def test_bad_requests_are_one_clear_line(make: Any, message: str) -> None:
    with pytest.raises(ProvenformerError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_masks_of_every_attention_implementation() -> None:
    real = torch.tensor([[True, True, False], [True, True, True]])
    square = real[:, None, None, :].expand(2, 1, 3, 3)
    additive = torch.zeros(2, 1, 3, 3).masked_fill(~square, torch.finfo(torch.float32).min)
    for mask in (real, real.long(), square, additive):
        found = real_tokens(mask)
        assert found is not None
        assert torch.equal(found, real)
    assert real_tokens(None) is None


def test_masks_that_differ_by_query_are_refused() -> None:
    with pytest.raises(ProvenformerError, match="causal or packed masks need mixer='attention'"):
        real_tokens(torch.ones(3, 3).tril().bool()[None, None])
    with pytest.raises(ProvenformerError, match="not a list; load the model with attn_implementation='sdpa'"):
        real_tokens([1])  # type: ignore[arg-type]
