"""Callbacks: what they log, and that training does not notice them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from contextual_cases import mixer_bert, some_ids
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from provenformer.base.errors import ProvenformerError
from provenformer.bert import MixerBertConfig, MixerBertForMaskedLM
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.training.loop import watched
from provenformer.bert.training.pretrain import PretrainSettings, pretrain
from provenformer.contextual import Probe, ProbeCallback, measure

NAMES = {"edit_ratio_1", "edit_smallest_1", "edit_ratio_2", "edit_smallest_2"}


def test_a_probe_says_what_measure_says() -> None:
    model = mixer_bert("attention")
    found = Probe(some_ids(), longest=None)(model)
    edits = measure(model, some_ids(), line_tokens=0, identify="nothing").model.modes["edits"]
    assert found.keys() == NAMES
    for k in (1, 2):
        assert found[f"edit_smallest_{k}"] == edits[k].ratio
        assert found[f"edit_ratio_{k}"] == edits[k].quantile(0.5).value


def test_pre_training_logs_it_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    write_sample(tmp_path / "text")
    prepare([tmp_path / "text" / "valid"], tmp_path / "data", PrepareSettings(seq_len=32, vocabulary_size=200))
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    settings = PretrainSettings(steps=4, batch_size=4, evaluate_every=2, evaluate_examples=8, model=sizes, threads=1)
    ids = [[7, 8, 9, 10], [11, 12, 13, 14, 15]]
    for name, watch in (("plain", None), ("watched", Probe(ids))):
        pretrain(settings, tmp_path / "data", tmp_path / "data", tmp_path / name, watch=watch)
    plain, watched = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("plain", "watched"))
    assert plain == watched
    log = [json.loads(line) for line in (tmp_path / "watched" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if entry.keys() >= NAMES] == [0, 2, 4]
    assert not any(entry.keys() & NAMES for entry in map(json.loads, (tmp_path / "plain" / "metrics.jsonl").open()))
    assert not json.loads((tmp_path / "watched" / "result.json").read_text())["metrics"].keys() & NAMES


def test_what_the_log_could_not_read_again_is_refused_at_once() -> None:
    with pytest.raises(ProvenformerError, match=r"watch gives odd = -1.0; the log takes numbers from 0"):
        watched(mixer_bert("attention"), lambda _: {"odd": -1.0})


class Masked(Dataset[dict[str, Any]]):
    """A few sequences to learn by heart."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.arange(6) + 5 + index
        return {"input_ids": ids, "labels": ids}


def test_the_trainer_of_transformers_logs_it(tmp_path: Path) -> None:
    config = MixerBertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    arguments = TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(MixerBertForMaskedLM(config), arguments, train_dataset=Masked())
    trainer.add_callback(ProbeCallback(trainer, Probe(some_ids()), every=2))
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if entry.keys() >= NAMES] == [0, 2, 4]
