"""Sharded training: the loss curve, the checkpoints and the saved model of one process, with half the memory."""

import dataclasses
import json
import os
import shutil
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.multiprocessing.spawn import spawn

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.runtime.metric_log import read_log
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.settings import read_settings
from provenformer.bert.training.finetune import FinetuneSettings, finetune
from provenformer.bert.training.loop import train
from provenformer.bert.training.pretrain import PretrainSettings, evaluate_pretrained, pretrain
from provenformer.cli.bert import app

# An odd vocabulary does not split evenly; a low clip_norm makes the norm of the whole gradient matter in every step;
# of 129 held-out examples one process has two batches and the other one.
SETTINGS = """
steps = 12
optimizer = "muon"
batch_size = 8
micro_batch = 3
learning_rate = 3e-3
warmup_steps = 4
clip_norm = 0.1
evaluate_every = 6
evaluate_examples = 129
log_every = 1
checkpoint_every = 5
threads = 1

[model]
mixers = ["sepconv", "attention", "bproj"]
hidden_size = 32
num_hidden_layers = 3
num_attention_heads = 2
intermediate_size = 64
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0
"""
MNLI = FinetuneSettings(seq_len=32, epochs=0.1, batch_size=8, log_every=1, threads=1)


def _one_of_two(rank: int, commands: dict[int, list[str]]) -> None:
    """The commands in the environment that torchrun makes, each at a port of its own; starting processes is slow."""
    os.environ |= {"MASTER_ADDR": "localhost", "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    for port, command in commands.items():
        os.environ["MASTER_PORT"] = str(port)
        app([*command, "--shard"], standalone_mode=False)


def losses(run: Path) -> list[float]:
    return [entry["loss"] for entry in read_log(run / "metrics.jsonl") if "loss" in entry]


def metrics(run: Path) -> dict[str, float]:
    return dict(json.loads((run / "result.json").read_text())["metrics"])


def assert_same_tensors(one: Path, other: Path) -> None:
    ours, theirs = load_file(one), load_file(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-4, msg=partial("{}: {}".format, name))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one process, and the same runs of two that share the weights: one, two; one-mnli, two-mnli; resumed."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    small = PrepareSettings(seq_len=32, vocabulary_size=301)
    prepare([folder / "text"], folder / "data", small)
    prepare([folder / "valid"], folder / "held-out", small, folder / "data/vocab.txt")
    (folder / "pretrain.toml").write_text(SETTINGS)
    pretrain(settings(folder), folder / "data", folder / "held-out", folder / "one")
    (folder / "mnli.json").write_text(json.dumps(dataclasses.asdict(MNLI)))
    files = folder / "mnli-train.jsonl", folder / "mnli-dev.jsonl"
    finetune(MNLI, folder / "one/model", *files, folder / "one-mnli")
    stopped_run(folder / "one", folder / "resumed")

    held = ("--data", folder / "data", "--valid", folder / "held-out")
    tuned = ("--model", folder / "one/model", "--train", files[0], "--dev", files[1])
    commands = [
        ("pretrain", folder / "pretrain.toml", *held, "--output", folder / "two"),
        ("pretrain", folder / "pretrain.toml", *held, "--output", folder / "resumed"),
        ("finetune", folder / "mnli.json", *tuned, "--output", folder / "two-mnli"),
    ]
    texts = [[str(argument) for argument in command] for command in commands]
    spawn(_one_of_two, args=(dict(zip(free_ports(len(texts)), texts, strict=True)),), nprocs=2)
    return folder


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:  # all open at once, so that they differ
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


def stopped_run(run: Path, copy: Path) -> None:
    """As if killed after step 10."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "model")
    (copy / "result.json").unlink()
    (copy / "checkpoints/step-00000012.safetensors").unlink()


def settings(sample: Path) -> PretrainSettings:
    return read_settings(PretrainSettings, sample / "pretrain.toml")


@pytest.mark.slow
def test_the_loss_curve_is_that_of_one_process(sample: Path) -> None:
    one, two = sample / "one", sample / "two"
    assert len(losses(one)) == 12
    assert losses(one)[-1] < losses(one)[0] - 0.1
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)
    assert metrics(two) == pytest.approx(metrics(one), abs=1e-5)


@pytest.mark.slow
def test_files_do_not_show_the_sharding(sample: Path) -> None:
    one, two = sample / "one", sample / "two"
    for name in ("checkpoints/step-00000010.safetensors", "model/model.safetensors"):
        assert_same_tensors(two / name, one / name)
    for name in ("model/config.json", "model/vocab.txt"):
        assert (two / name).read_text() == (one / name).read_text()
    found = evaluate_pretrained(two / "model", sample / "held-out", settings(sample))
    assert found == pytest.approx(metrics(two), abs=1e-5)


@pytest.mark.slow
def test_one_process_goes_on_with_a_sharded_run_and_the_other_way_round(sample: Path, tmp_path: Path) -> None:
    stopped_run(sample / "two", tmp_path / "run")
    pretrain(settings(sample), sample / "data", sample / "held-out", tmp_path / "run")
    for run in (tmp_path / "run", sample / "resumed"):
        assert losses(run) == pytest.approx(losses(sample / "one"), abs=1e-5)
        assert_same_tensors(run / "model/model.safetensors", sample / "one/model/model.safetensors")


@pytest.mark.slow
def test_fine_tuning(sample: Path) -> None:
    assert losses(sample / "two-mnli") == pytest.approx(losses(sample / "one-mnli"), abs=1e-5)
    assert_same_tensors(sample / "two-mnli/model/model.safetensors", sample / "one-mnli/model/model.safetensors")


def test_batches_must_be_even(tmp_path: Path) -> None:
    three = Processes(0, 3, torch.device("cpu"), sharded=True)
    with pytest.raises(ProvenformerError, match="batch_size=8 is not even over 3 processes"):
        train(torch.nn.Linear(1, 1), None, PretrainSettings(batch_size=8), 1, tmp_path, three)  # type: ignore[arg-type]
