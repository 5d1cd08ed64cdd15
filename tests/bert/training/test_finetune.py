"""The whole way on the sample, by the command line: prepare, pretrain, finetune, evaluate; and fine-tuning's errors."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer
from typer.testing import CliRunner

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.squad import read_squad
from provenformer.bert.data.windows import Windows
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.saved_models import load_vocabulary
from provenformer.bert.training.finetune import FinetuneSettings, NliTask, finetune, finetuning_task, load_model
from provenformer.cli.bert import app

ALONE = Processes(0, 1, torch.device("cpu"))


def run(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception:
        raise result.exception
    return result.stdout


def metrics(output: str) -> dict[str, float]:
    return dict(json.loads(output[output.index("{") :]))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with a model pre-trained on it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sample")
    run("sample", folder)
    run("prepare", folder / "text", "--output", folder / "data", "--vocabulary-size", 300, "--seq-len", 48)
    vocabulary = folder / "data/vocab.txt"
    run("prepare", folder / "valid", "--output", folder / "held-out", "--vocabulary", vocabulary, "--seq-len", 48)
    where = ("--data", folder / "data", "--valid", folder / "held-out", "--output", folder / "run")
    run("pretrain", folder / "pretrain.toml", *where)
    return folder


def test_pretraining_learns_words(sample: Path) -> None:
    found = metrics(run("evaluate", sample / "run", sample / "held-out"))
    assert found["mask_token_accuracy"] > 0.3  # about 0.1 for the most frequent piece
    assert found == json.loads((sample / "run/result.json").read_text())["metrics"]


def test_mnli(sample: Path, tmp_path: Path) -> None:
    files = ("--train", sample / "mnli-train.jsonl", "--dev", sample / "mnli-dev.jsonl")
    found = metrics(
        run("finetune", sample / "mnli.toml", "--model", sample / "run/model", *files, "--output", tmp_path / "run")
    )
    assert found["accuracy"] > 0.9
    assert metrics(run("evaluate", tmp_path / "run", sample / "mnli-dev.jsonl")) == found


def test_squad(sample: Path, tmp_path: Path) -> None:
    files = ("--train", sample / "squad-train.json", "--dev", sample / "squad-dev.json")
    found = metrics(
        run("finetune", sample / "squad.toml", "--model", sample / "run/model", *files, "--output", tmp_path / "run")
    )
    assert found["f1"] >= found["exact_match"] > 0.25
    assert metrics(run("evaluate", tmp_path / "run", sample / "squad-dev.json")) == found


def test_resume_gives_the_same_bits(sample: Path, tmp_path: Path) -> None:
    settings = FinetuneSettings(seq_len=48, epochs=0.5, batch_size=16, checkpoint_every=9, threads=1)
    files = sample / "mnli-train.jsonl", sample / "mnli-dev.jsonl"
    finetune(settings, sample / "run/model", *files, tmp_path / "run")
    expected = load_file(tmp_path / "run/model/model.safetensors")
    shutil.rmtree(tmp_path / "run/model")
    (tmp_path / "run/result.json").unlink()
    max((tmp_path / "run/checkpoints").iterdir()).unlink()
    finetune(settings, sample / "run/model", *files, tmp_path / "run")
    found = load_file(tmp_path / "run/model/model.safetensors")
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.parametrize("task", ["mnli", "squad"])
def test_dropout_of_fine_tuning(sample: Path, task: str) -> None:
    def dropped(dropout: float | None) -> tuple[set[float], float]:
        model = load_model(task, sample / "run/model", dropout)
        return {
            m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)
        }, model.config.attention_probs_dropout_prob

    own = json.loads((sample / "run/model/config.json").read_text())
    assert dropped(None) == ({own["hidden_dropout_prob"]}, own["attention_probs_dropout_prob"])
    assert dropped(0.25) == ({0.25}, 0.25)
    assert dropped(0.0) == ({0.0}, 0.0)
    with pytest.raises(ProvenformerError, match=r"dropout=1.0 must be at least 0 and below 1"):
        FinetuneSettings(dropout=1.0)


def test_errors(sample: Path, tmp_path: Path) -> None:
    settings = FinetuneSettings(seq_len=48)
    files = sample / "mnli-train.jsonl", sample / "mnli-dev.jsonl"
    with pytest.raises(ProvenformerError, match="unknown task"):
        FinetuneSettings(task="cola")
    with pytest.raises(ProvenformerError, match="seq_len=2 must be at least 5"):
        FinetuneSettings(seq_len=2)
    with pytest.raises(ProvenformerError, match="epochs=-1 must be above 0"):
        FinetuneSettings(epochs=-1)
    with pytest.raises(ProvenformerError, match="balanced=True is about windows of SQuAD"):
        FinetuneSettings(balanced=True)
    with pytest.raises(ProvenformerError, match="above the model's 48 positions"):
        finetune(dataclasses.replace(settings, seq_len=64), sample / "run/model", *files, tmp_path / "a")
    with pytest.raises(ProvenformerError, match=r"no vocab\.txt"):
        finetune(settings, tmp_path, *files, tmp_path / "b")
    with pytest.raises(ProvenformerError, match="no finished run"):
        run("evaluate", tmp_path, sample / "mnli-dev.jsonl")
    broken = tmp_path / "broken"
    shutil.copytree(sample / "run/model", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(ProvenformerError, match=r"model\.safetensors is damaged"):
        finetune(settings, broken, *files, tmp_path / "c")
    (broken / "checksums.json").unlink()  # as in a model of others
    with pytest.raises(ProvenformerError, match="cannot be loaded"):
        finetune(settings, broken, *files, tmp_path / "c")
    (broken / "config.json").write_text((broken / "config.json").read_text()[:-50])
    with pytest.raises(ProvenformerError, match="cannot be loaded"):
        finetune(settings, broken, *files, tmp_path / "d")


def test_the_vocabulary_must_be_the_models(sample: Path, tmp_path: Path) -> None:
    settings = FinetuneSettings(seq_len=48)
    files = sample / "mnli-train.jsonl", sample / "mnli-dev.jsonl"
    model = tmp_path / "model"
    shutil.copytree(sample / "run/model", model)
    pieces = (model / "vocab.txt").read_text().splitlines()
    (model / "vocab.txt").write_text("\n".join([*pieces[:-2], pieces[-1], pieces[-2]]) + "\n")
    with pytest.raises(ProvenformerError, match=r"vocab\.txt is not the vocabulary of the model"):
        finetune(settings, model, *files, tmp_path / "a")
    # A model of others has no fingerprint, but it has a size.
    (model / "tokenizer_config.json").unlink()
    assert len(load_vocabulary(model)) == len(pieces)
    with (model / "vocab.txt").open("a") as file:
        file.write("extra\n")
    with pytest.raises(ProvenformerError, match=r"WordPieces and its vocab\.txt"):
        finetune(settings, model, *files, tmp_path / "b")
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    assert AutoTokenizer.from_pretrained(sample / "run/model").convert_tokens_to_ids(pieces[-1]) == len(pieces) - 1


def test_balanced_windows_and_batches_by_length(sample: Path) -> None:
    """An epoch is every question once, half of them with their answer; batches have little padding."""
    asked = FinetuneSettings(task="squad", seq_len=32, stride=8, batch_size=8, balanced=True, by_length=True)
    file = sample / "squad-train.json"
    task = finetuning_task(asked, file, file, load_vocabulary(sample / "run/model"), ALONE)
    assert len(task) == len(read_squad(file))
    batches = [task.part(step, range(8)) for step in range(len(task) // 8)]
    share = np.mean([float((batch["places"][:, 1] > 0).float().mean()) for batch in batches])
    assert abs(share - 0.5) < 0.02
    assert min(batch["attention_mask"].float().mean() for batch in batches[:-1]) > 0.7


@pytest.mark.parametrize(("task", "name"), [("mnli", "mnli-train.jsonl"), ("squad", "squad-train.json")])
def test_a_part_of_the_training_file_can_be_held_out(sample: Path, task: str, name: str) -> None:
    """No premise or context is on both sides; the dev file is not looked at."""
    vocabulary = load_vocabulary(sample / "run/model")
    whole, part = (
        finetuning_task(
            FinetuneSettings(task=task, seq_len=48, stride=8, held_out_fraction=share),
            sample / name,
            sample / (name if share == 0 else "missing"),
            vocabulary,
            ALONE,
        )
        for share in (0.0, 0.25)
    )

    def texts(windows: Windows) -> set[tuple[int, ...]]:
        return {tuple(row) for row in windows.batch(np.arange(len(windows)))["input_ids"].tolist()}

    kept = texts(part.train)
    held_out = texts(part.dev if isinstance(part, NliTask) else part.dev.windows)
    assert kept.isdisjoint(held_out)
    assert kept | held_out == texts(whole.train)
    assert 0.1 < len(held_out) / len(kept | held_out) < 0.4
