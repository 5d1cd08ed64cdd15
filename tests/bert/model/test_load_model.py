"""A model changed by `replace_attention` comes back from disk as it was, and never as a plain one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    pipeline,
)

from provenformer.base.errors import ProvenformerError
from provenformer.bert import (
    MixerBertConfig,
    MixerBertForMaskedLM,
    MixerBertForSequenceClassification,
    load_model,
    replace_attention,
)

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
    (RobertaForSequenceClassification, RobertaConfig),
    (ElectraForSequenceClassification, ElectraConfig),
    (DistilBertForSequenceClassification, DistilBertConfig),
]
INPUT = torch.arange(3, 21).reshape(2, 9)
ELSEWHERE = """
import json, sys, torch
from provenformer.bert import load_model
x = torch.arange(3, 21).reshape(2, 9)
print(json.dumps([load_model(folder)(x).logits.tolist() for folder in sys.argv[1:]]))
"""


def changed(kind: Any = BertForSequenceClassification, config: Any = BertConfig) -> Any:
    model = kind(config(**TINY)).eval()
    replace_attention(model, [0], "sepconv", filters=4, filter_length=5)
    return replace_attention(model, [1], "bproj")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    changed().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@torch.no_grad()
def test_comes_back_as_it_was_in_another_process(tmp_path: Path) -> None:
    folders, expected = [], []
    for kind, config in FAMILY:
        model, folder = changed(kind, config), str(tmp_path / kind.__name__)
        model.save_pretrained(folder)
        assert {path.name for path in Path(folder).iterdir()} == {"config.json", "model.safetensors"}
        back = load_model(folder)
        assert type(back) is kind
        assert back.config.to_dict() | {"_name_or_path": ""} == model.config.to_dict()
        assert back.state_dict().keys() == model.state_dict().keys()
        folders.append(folder)
        expected.append(model(INPUT).logits.tolist())
    found = subprocess.run([sys.executable, "-c", ELSEWHERE, *folders], capture_output=True, text=True, check=True)
    for there, here in zip(json.loads(found.stdout), expected, strict=True):
        assert_allclose(
            there, here, rtol=0, atol=1e-6
        )  # processes may have other numbers of threads, so sum in another order


@pytest.mark.parametrize(("kind", "config"), FAMILY)
def test_a_plain_model_of_it_is_an_error(kind: Any, config: Any, tmp_path: Path) -> None:
    """However one tries: class, Auto class, other labels, a configuration of one's own, a pipeline, the weights alone."""
    model = changed(kind, config)
    model.save_pretrained(tmp_path)
    sentence = r"its attention was replaced, load it with provenformer\.bert\.load_model"
    for plain in (kind, AutoModel, AutoModelForSequenceClassification):
        for options in ({}, {"ignore_mismatched_sizes": True, "num_labels": 3}):
            with pytest.raises(KeyError, match=sentence):
                plain.from_pretrained(tmp_path, **options)
    with pytest.raises(KeyError, match=sentence):
        pipeline("text-classification", model=str(tmp_path))
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        kind.from_pretrained(tmp_path, config=config(**TINY))
    with pytest.raises(RuntimeError, match="size mismatch"):  # the Trainer loads checkpoints so
        kind(config(**TINY)).load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)


class Parity(torch.utils.data.Dataset[dict[str, Any]]):
    """Whether the first token is even."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = torch.randint(3, 50, (9,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": int(tokens[0]) % 2}


def test_with_the_trainer(tmp_path: Path) -> None:
    """Its checkpoints and its model come back; it resumes, and it finds its best model again."""
    settings = TrainingArguments(
        str(tmp_path / "run"), max_steps=4, per_device_train_batch_size=8, learning_rate=1e-2, save_steps=2, eval_steps=2,
        eval_strategy="steps", load_best_model_at_end=True, report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(changed(), settings, train_dataset=Parity(), eval_dataset=Parity())
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    losses = {loss["step"]: loss["eval_loss"] for loss in trainer.state.log_history if "eval_loss" in loss}
    for folder, expected in ((tmp_path / "saved", min(losses.values())), (tmp_path / "run/checkpoint-2", losses[2])):
        back = Trainer(load_model(folder), settings, eval_dataset=Parity())
        assert back.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-6)
    again = Trainer(changed(), settings, train_dataset=Parity(), eval_dataset=Parity())
    again.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-2"))
    repeated = {loss["step"]: loss["eval_loss"] for loss in again.state.log_history if "eval_loss" in loss}
    assert repeated[4] == pytest.approx(losses[4], abs=1e-6)
    plain = Trainer(
        BertForSequenceClassification(BertConfig(**TINY)), settings, train_dataset=Parity(), eval_dataset=Parity()
    )
    with pytest.raises(RuntimeError, match="size mismatch"):
        plain.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-2"))


@torch.no_grad()
def test_another_head_is_new_above_the_same_layers(saved: Path) -> None:
    body = load_model(saved, AutoModel)
    assert type(body) is BertModel
    more = load_model(saved, AutoModelForSequenceClassification, num_labels=5)
    assert more.classifier.out_features == 5
    assert torch.equal(more.bert(INPUT)[0], body(INPUT)[0])
    assert load_model(saved, BertForMaskedLM)(INPUT).logits.shape == (2, 9, 50)
    assert load_model(saved, dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(ProvenformerError, match="holds a bert model, for which RobertaForSequenceClassification"):
        load_model(saved, RobertaForSequenceClassification)


@torch.no_grad()
@pytest.mark.parametrize(
    "kind", [BertForSequenceClassification, MixerBertForMaskedLM, MixerBertForSequenceClassification]
)
def test_models_that_were_not_changed_load_too(kind: Any, tmp_path: Path) -> None:
    config = (MixerBertConfig if kind.__name__.startswith("Mixer") else BertConfig)(**TINY)
    model = kind(config).eval()
    model.save_pretrained(tmp_path)
    back = load_model(tmp_path)
    assert type(back) is kind
    assert torch.equal(back(INPUT).logits, model(INPUT).logits)


@torch.no_grad()
def test_a_mixer_bert_can_be_changed_as_well(tmp_path: Path) -> None:
    model = changed(MixerBertForSequenceClassification, MixerBertConfig)
    model.save_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path)(INPUT).logits, model(INPUT).logits)


def test_a_layer_replaced_twice_is_what_it_became_last(tmp_path: Path) -> None:
    model = replace_attention(changed(), [0], "average")
    model.save_pretrained(tmp_path)
    back = load_model(tmp_path)
    assert [entry["mixer"] for entry in back.config.replaced_attention] == ["average", "bproj"]
    assert back.config.hidden_act == model.config.hidden_act


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replaced_attention": None}, "lacks replaced_attention"),
        ({"replaced_attention": 3}, "replaced_attention = 3 must be a list"),
        ({"replaced_attention": [{"layer": 0}]}, "the setting 'mixer' is missing"),
        ({"replaced_attention": [{"layer": "0", "mixer": "average", "options": {}}]}, "must be of type int"),
        ({"replaced_attention": [{"layer": 7, "mixer": "average", "options": {}}]}, "layer 7 does not exist"),
        ({"replaced_attention": [{"layer": 0, "mixer": "gru", "options": {}}]}, "unknown mixer 'gru'"),
        ({"replaced_attention": [{"layer": 0, "mixer": "average", "options": {"x": 1}}]}, "has no option 'x'"),
        ({"replaced_attention": [{"layer": 0, "mixer": "average", "options": {}}]}, "cannot be loaded|no .* that fits"),
        ({"architectures": ["os"]}, "for which os does not stand"),
        ({"architectures": ["RobertaModel"]}, "for which RobertaModel does not stand"),
        ({"architectures": []}, "for which its class does not stand"),
        ({"model_type": "nothing"}, "model_type 'nothing' is not known"),
        ({"model_type": None}, "model_type None is not known"),
    ],
)
def test_what_a_folder_says_is_checked(change: dict[str, Any], message: str, saved: Path) -> None:
    content = json.loads((saved / "config.json").read_text()) | change
    (saved / "config.json").write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    with pytest.raises(ProvenformerError, match=message) as caught:
        load_model(saved)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_nothing_is_one_line(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (tmp_path / "missing", saved / "config.json", "a/b/c"):
        with pytest.raises(ProvenformerError, match="is not a folder"):
            load_model(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(ProvenformerError, match="run/model is not a folder"):  # and nobody asks the hub
        load_model("run/model")
    with pytest.raises(ProvenformerError, match="nobody/nothing cannot be loaded"):
        load_model("nobody/nothing", local_files_only=True)
