"""MixerBert as a Hugging Face model: equal to BERT where it is BERT, initialised, saved, loaded, padded, configured."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
)

from provenformer.base.errors import ProvenformerError
from provenformer.bert import (
    MIXERS,
    MixerBertConfig,
    MixerBertForMaskedLM,
    MixerBertForPreTraining,
    MixerBertForQuestionAnswering,
    MixerBertForSequenceClassification,
    MixerBertModel,
)
from provenformer.bert.model.models import sinusoids

TINY: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 16,
}
every_mixer = pytest.mark.parametrize("mixer", MIXERS)


def tiny(mixers: Any = "sepconv", **more: Any) -> MixerBertConfig:
    return MixerBertConfig(mixers=mixers, **(TINY | more))


def batch(tokens: int = 9) -> dict[str, torch.Tensor]:
    mask = torch.ones(2, tokens, dtype=torch.long)
    mask[1, tokens // 2 :] = 0
    return {"input_ids": torch.randint(50, (2, tokens)), "attention_mask": mask}


# --- equality with transformers ---


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("training", [False, True])
def test_attention_config_is_bert_bit_for_bit(implementation: str, training: bool) -> None:
    stock = BertModel(BertConfig(**TINY, attn_implementation=implementation)).train(training)
    ours = MixerBertModel(tiny("attention", attn_implementation=implementation)).train(training)
    ours.load_state_dict(stock.state_dict(), strict=True)
    inputs, outputs = batch(), []
    for model in (stock, ours):
        torch.manual_seed(1)  # dropout
        outputs.append(model(**inputs, output_hidden_states=True))
        outputs[-1].last_hidden_state.square().sum().backward()
    for mine, theirs in zip(outputs[1].hidden_states, outputs[0].hidden_states, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(outputs[1].pooler_output, outputs[0].pooler_output)
    for mine, theirs in zip(ours.parameters(), stock.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        assert mine.grad is None or torch.equal(mine.grad, theirs.grad)


def test_pretraining_loss_is_berts_bit_for_bit() -> None:
    stock, ours = BertForPreTraining(BertConfig(**TINY)).eval(), MixerBertForPreTraining(tiny("attention")).eval()
    ours.load_state_dict(stock.state_dict(), strict=True)
    inputs = batch() | {"labels": torch.randint(50, (2, 9)), "next_sentence_label": torch.tensor([0, 1])}
    assert torch.equal(ours(**inputs).loss, stock(**inputs).loss)


@every_mixer
def test_pre_norm_is_the_formula(mixer: str) -> None:
    model = MixerBertModel(tiny(mixer, norm_position="pre")).eval()
    inputs = batch()
    x = model.embeddings(inputs["input_ids"])
    mask = inputs["attention_mask"].bool()[:, None, None]
    for layer in model.encoder.layer:
        norm, dense = layer.attention.output.LayerNorm, layer.attention.output.dense
        x = x + dense(layer.attention.self(norm(x), attention_mask=mask)[0])
        x = x + layer.output.dense(layer.intermediate(layer.output.LayerNorm(x)))
    expected = model.encoder.final_norm(x)
    torch.testing.assert_close(model(**inputs).last_hidden_state, expected)


# --- initialisation ---


@every_mixer
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_every_weight_is_initialised_and_trained(mixer: str, norm_position: str) -> None:
    config = tiny(mixer, norm_position=norm_position, initializer_range=0.05)
    model = MixerBertForPreTraining(config)
    labels = torch.randint(50, (2, 9))
    model(**batch(), labels=labels, next_sentence_label=torch.tensor([0, 1])).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert parameter.grad is not None, name
        if name.endswith(("dense.weight", "gate.weight", "predict.weight", "query.weight")):
            assert 0.04 < parameter.std() < 0.06, name
        elif "LayerNorm.weight" in name:
            assert (parameter == 1).all(), name


def test_bare_parameters_keep_their_own_scale() -> None:
    model: Any = MixerBertModel(tiny(["bproj", "sepconv"]))
    bproj, sepconv = (layer.attention.self.mixer for layer in model.encoder.layer)
    assert bproj.position_weight.shape == (16, 16)
    assert 0.2 < bproj.position_weight.std() < 0.3  # 1 / sqrt(16)
    assert 0.08 < sepconv.filters.std() < 0.1  # 1 / sqrt(128)
    banded: Any = MixerBertModel(tiny("bproj", mixer_options={"bproj": {"band": 1.0}}))
    assert (banded.encoder.layer[0].attention.self.mixer.position_weight.argmax(dim=0) == torch.arange(16)).all()


@every_mixer
def test_sinusoidal_positions(mixer: str) -> None:
    positions = MixerBertModel(tiny(mixer, position_init="sinusoidal", position_amplitude=0.3)).embeddings
    weight = positions.position_embeddings.weight
    torch.testing.assert_close(weight, 0.3 * sinusoids(16, 32))
    assert weight.requires_grad
    # The first and last frequency: wavelengths 2 pi and 200 pi.
    torch.testing.assert_close(weight[:, 0], 0.3 * torch.arange(16.0).sin())
    torch.testing.assert_close(weight[:, 15], 0.3 * (torch.arange(16.0) / 100).sin())


def test_tied_attention_starts_with_one_matrix_for_queries_and_keys() -> None:
    config = tiny("attention", attention_init="tied", attention_gain=3.0, initializer_range=0.05)
    tied: Any = MixerBertModel(config)
    attention = tied.encoder.layer[1].attention.self
    assert torch.equal(attention.query.weight, attention.key.weight)
    assert attention.query.weight is not attention.key.weight
    assert 0.13 < attention.query.weight.std() < 0.17
    assert 0.04 < attention.value.weight.std() < 0.06
    untied: Any = MixerBertModel(tiny("attention"))
    plain = untied.encoder.layer[1].attention.self
    assert not torch.equal(plain.query.weight, plain.key.weight)


def test_what_was_learnt_is_loaded_whatever_the_start(tmp_path: Path) -> None:
    """A start is for new weights: loading must not begin again."""
    config = tiny(["attention", "bproj"], attention_init="tied", mixer_options={"bproj": {"band": 2.0}})
    model = MixerBertForPreTraining(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    loaded = MixerBertForSequenceClassification.from_pretrained(tmp_path)
    for name, value in model.bert.state_dict().items():
        assert torch.equal(loaded.bert.state_dict()[name], value), name


# --- saving and loading ---


@every_mixer
def test_round_trip_through_auto_classes(mixer: str, tmp_path: Path) -> None:
    heads = [
        (MixerBertModel, AutoModel),
        (MixerBertForPreTraining, AutoModelForPreTraining),
        (MixerBertForMaskedLM, AutoModelForMaskedLM),
        (MixerBertForSequenceClassification, AutoModelForSequenceClassification),
        (MixerBertForQuestionAnswering, AutoModelForQuestionAnswering),
    ]
    inputs = batch()
    for ours, auto in heads:
        config = tiny([mixer, "attention"], norm_position="pre", mixer_options={"sepconv": {"filter_length": 5}})
        model = ours(config).eval()
        model.save_pretrained(tmp_path / ours.__name__)
        again = auto.from_pretrained(tmp_path / ours.__name__).eval()
        assert type(again) is ours
        assert again.config.mixers == [mixer, "attention"]
        assert torch.equal(again(**inputs)[0], model(**inputs)[0])
    assert type(AutoConfig.from_pretrained(tmp_path / "MixerBertModel")) is MixerBertConfig


def test_fine_tuning_from_pre_training(tmp_path: Path) -> None:
    first = MixerBertForPreTraining(tiny("sepconv"))
    first.save_pretrained(tmp_path)
    second = MixerBertForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    for name, weight in first.bert.state_dict().items():
        assert torch.equal(second.bert.state_dict()[name], weight), name
    assert second(**batch()).logits.shape == (2, 3)


@pytest.fixture
def stock_checkpoint(tmp_path: Path) -> Path:
    BertForMaskedLM(BertConfig(**TINY)).save_pretrained(tmp_path)
    return tmp_path


def test_stock_checkpoint_is_loaded_and_reported(stock_checkpoint: Path) -> None:
    stock = BertForMaskedLM.from_pretrained(stock_checkpoint)
    model, report = MixerBertForMaskedLM.from_bert(stock_checkpoint, mixers=["sepconv", "attention"])
    attention = {
        f"bert.encoder.layer.0.attention.self.{p}.{w}" for p in ("query", "key", "value") for w in ("weight", "bias")
    }
    assert set(report.dropped) == attention
    mixer = "bert.encoder.layer.0.attention.self.mixer."
    assert set(report.new) == {mixer + name for name in ("gate.weight", "gate.bias", "filters")}
    assert set(report.kept) == set(stock.state_dict()) - attention
    assert str(report) == f"{len(report.kept)} weights kept, 3 new (initialised), 6 dropped"
    for name in report.kept:
        assert torch.equal(model.state_dict()[name], stock.state_dict()[name]), name
    new = model.bert.encoder.layer[0].attention.self.mixer
    assert 0.08 < new.filters.std() < 0.1
    assert 0.015 < new.gate.weight.std() < 0.025
    assert (new.gate.bias == 0).all()


def test_stock_checkpoint_with_attention_loses_nothing(stock_checkpoint: Path) -> None:
    inputs = batch()
    model, report = MixerBertForMaskedLM.from_bert(stock_checkpoint, mixers="attention")
    assert (report.new, report.dropped) == ((), ())
    stock = BertForMaskedLM.from_pretrained(stock_checkpoint)
    assert torch.equal(model.eval()(**inputs).logits, stock.eval()(**inputs).logits)


def test_stock_checkpoint_is_post_norm(stock_checkpoint: Path) -> None:
    with pytest.raises(ProvenformerError, match="post-norm"):
        MixerBertForMaskedLM.from_bert(stock_checkpoint, norm_position="pre")


# --- padding through the whole model ---


@every_mixer
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("left", [0, 3])
@torch.no_grad()
def test_padding_through_the_model(mixer: str, implementation: str, left: int) -> None:
    model = MixerBertModel(tiny([mixer, "attention"], attn_implementation=implementation)).double().eval()
    ids, tokens = torch.randint(1, 50, (2, 7)), slice(left, left + 7)
    padded, mask = torch.zeros(2, 12, dtype=torch.long), torch.zeros(2, 12, dtype=torch.long)
    padded[:, tokens], mask[:, tokens] = ids, 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)  # BERT's positions are absolute: left padding must say so
    alone = model(ids).last_hidden_state
    with_padding = model(padded, attention_mask=mask, position_ids=positions).last_hidden_state[:, tokens]
    torch.testing.assert_close(with_padding, alone, rtol=1e-9, atol=1e-9)


# --- only masked positions ---


@pytest.mark.parametrize("model_class", [MixerBertForPreTraining, MixerBertForMaskedLM])
def test_projecting_masked_positions_only_gives_the_same_loss(model_class: Any) -> None:
    full = model_class(tiny()).eval()
    gathered = model_class(tiny(predict_masked_only=True)).eval()
    gathered.load_state_dict(full.state_dict())
    labels = torch.full((2, 9), -100)
    labels[0, 2], labels[0, 5], labels[1, 1] = 7, 8, 9
    inputs = batch() | {"labels": labels}
    if model_class is MixerBertForPreTraining:
        inputs["next_sentence_label"] = torch.tensor([0, 1])
    mine, theirs = gathered(**inputs), full(**inputs)
    torch.testing.assert_close(mine.loss, theirs.loss)
    logits = "prediction_logits" if model_class is MixerBertForPreTraining else "logits"
    assert mine[logits].shape == (3, 50)
    torch.testing.assert_close(mine[logits], theirs[logits][labels != -100])
    mine.loss.backward()
    theirs.loss.backward()
    for one, other in zip(gathered.parameters(), full.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    del inputs["labels"]
    assert gathered(**inputs)[logits].shape == (2, 9, 50)


# --- configuration ---


def test_hybrid_puts_the_mixer_next_to_the_input() -> None:
    assert MixerBertConfig.hybrid(sepconv=2).mixers == ["sepconv"] * 2 + ["attention"] * 10
    small = MixerBertConfig.hybrid(fourier=1, sepconv=1, **(TINY | {"num_hidden_layers": 3}))
    assert small.mixers == ["fourier", "sepconv", "attention"]
    assert small.hidden_size == 32


def test_bert_base_takes_overrides() -> None:
    config = MixerBertConfig.bert_base(mixer="average", max_position_embeddings=128)
    assert (config.mixers, config.max_position_embeddings, config.hidden_size) == (["average"] * 12, 128, 768)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tiny("gru"), "unknown mixer 'gru'; choose one of attention, average, bproj"),
        (lambda: tiny(["sepconv"]), "mixers lists 1 layers, the model has 2; give one name per layer"),
        (lambda: tiny(["sepconv", 3]), "unknown mixer 3"),
        (lambda: tiny(5), "mixers=5 must be a name or a list of names"),
        (lambda: tiny(hidden_size=40, num_attention_heads=2), "filters=16 must divide dim=40; choose one of"),
        (lambda: tiny(mixer_options={"sepconv": {"filter_length": 0}}), "filter_length=0 must be at least 1"),
        (lambda: tiny(mixer_options={"sepconv": {"symmetric": True}}), "filter_length=128 is even.*use 127 or 129"),
        (lambda: tiny(mixer_options={"sepconv": {"taps": 3}}), "has no option 'taps'; it takes filters, filter_length"),
        (lambda: tiny(mixer_options={"gru": {}}), "unknown mixer 'gru'"),
        (lambda: tiny(mixer_options=[1]), r"mixer_options=\[1\] must be a dict"),
        (lambda: tiny(mixer_options={"sepconv": 3}), r"mixer_options={'sepconv': 3} must be a dict"),
        (lambda: tiny(mixer_options={"attention": {"heads": 4}}), "no effect; set num_attention_heads"),
        (lambda: tiny("attention", num_attention_heads=3), "num_attention_heads=3 must divide hidden_size=32"),
        (lambda: tiny("average", num_attention_heads=3), "num_attention_heads=3 must divide hidden_size=32"),
        (lambda: tiny(num_attention_heads=0), "num_attention_heads=0 must be at least 1"),
        (lambda: tiny(hidden_dropout_prob=1.5), "hidden_dropout_prob=1.5 must be from 0 to 1"),
        (lambda: tiny(hidden_act="foo"), "unknown hidden_act 'foo'; choose one of gelu"),
        (lambda: tiny(norm_position="middle"), "unknown norm_position 'middle'; choose one of post, pre"),
        (lambda: tiny(position_init="random"), "unknown position_init 'random'; choose one of normal, sinusoidal"),
        (lambda: tiny(attention_init="equal"), "unknown attention_init 'equal'; choose one of normal, tied"),
        (lambda: tiny(attention_gain=0.0), "attention_gain=0.0 must be above 0 and finite"),
        (lambda: tiny(is_decoder=True), "is_decoder and add_cross_attention must be False"),
        (lambda: MixerBertConfig.hybrid(sepconv=13), r"hybrid\(sepconv=13\) does not fit 12 layers"),
        (lambda: MixerBertConfig.hybrid(sepconv=-1), r"hybrid\(sepconv=-1\) does not fit 12 layers"),
    ],
)
def test_bad_configuration_is_one_clear_line(make: Any, message: str) -> None:
    with pytest.raises(ProvenformerError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_too_long_for_bproj_is_one_clear_line() -> None:
    model = MixerBertModel(tiny("bproj", mixer_options={"bproj": {"size": 8}}))
    with pytest.raises(ProvenformerError, match="built for 8 tokens and got 9; truncate the input or build"):
        model(**batch())


def test_the_trainer_must_not_rescale_the_loss() -> None:
    assert MixerBertForMaskedLM(tiny()).accepts_loss_kwargs is False
