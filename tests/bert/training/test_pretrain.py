"""Pre-training: killed and resumed, split over processes or micro-batches, and what it says about bad input."""

import dataclasses
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tensorboardX.proto.event_pb2 import Event

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.bert.data.examples import Examples
from provenformer.bert.data.masking import NO_TARGET
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.runtime.metric_log import MetricLog, read_log
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.run_folder import RunFolder
from provenformer.bert.settings import build_settings, read_settings
from provenformer.bert.training.loop import NotFinite
from provenformer.bert.training.pretrain import PretrainingTask, PretrainSettings, evaluate_pretrained, pretrain

SETTINGS = """
steps = 24
batch_size = 8
learning_rate = 3e-3
warmup_steps = 4
log_every = 1
checkpoint_every = 5
threads = 1

[model]
mixers = ["sepconv", "attention"]
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 64
"""
NO_DROPOUT = SETTINGS + "hidden_dropout_prob = 0.0\nattention_probs_dropout_prob = 0.0\n"
BIN = Path(sys.executable).parent
ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    small = PrepareSettings(seq_len=32, vocabulary_size=300)
    prepare([folder / "text"], folder / "data", small)
    prepare([folder / "valid"], folder / "held-out", small, folder / "data/vocab.txt")
    for name, text in (("short", "text"), ("held-out-short", "valid")):
        prepare([folder / text], folder / name, PrepareSettings(16, 300), folder / "data/vocab.txt")
    return folder


def settings_from(text: str, folder: Path, **changes: Any) -> PretrainSettings:
    path = folder / "settings.toml"
    path.write_text(text)
    return dataclasses.replace(read_settings(PretrainSettings, path), **changes)


def losses(run: Path) -> list[float]:
    return [entry["loss"] for entry in read_log(run / "metrics.jsonl") if "loss" in entry]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model/model.safetensors")


def command(sample: Path, run: Path, text: str) -> list[str]:
    run.parent.mkdir(exist_ok=True)
    settings = run.parent / f"{run.name}.toml"
    settings.write_text(text)
    return [
        *(str(BIN / "provenformer"), "bert", "pretrain", str(settings)),
        *("--data", str(sample / "data"), "--valid", str(sample / "held-out"), "--output", str(run)),
    ]


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_bits(sample: Path, tmp_path: Path) -> None:
    """kill -9 at a random step, and at a random moment of it; KILL_SEED=... repeats the choice."""
    seed = int(os.environ.get("KILL_SEED", secrets.randbelow(2**32)))
    dice = random.Random(seed)
    steps, step, delay = 40, dice.randrange(1, 30), dice.uniform(0, 0.03)
    print(f"KILL_SEED={seed}: kill {1000 * delay:.0f} ms after step {step} of {steps}")
    text = SETTINGS.replace("steps = 24", f"steps = {steps}")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    settings = settings_from(text, tmp_path)
    pretrain(settings, sample / "data", sample / "held-out", whole)
    process = subprocess.Popen(command(sample, killed, text), stdout=subprocess.DEVNULL)
    while len(losses(killed)) < step:
        assert process.poll() is None
        time.sleep(0.002)
    with pytest.raises(ProvenformerError, match="another process is training"), RunFolder(killed, {}, ALONE):
        pass
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "result.json").exists()
    pretrain(settings, sample / "data", sample / "held-out", killed)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(killed)[name]), name
    assert losses(killed) == losses(whole)
    assert len(losses(whole)) == steps
    assert losses(whole)[-1] < losses(whole)[0] - 0.5


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one(sample: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    text = f'optimizer = "muon"\n{NO_DROPOUT}'
    pretrain(settings_from(text, tmp_path), sample / "data", sample / "held-out", one)
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "--no-python"]
    subprocess.run([*launcher, *command(sample, two, text)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)
    metrics = [json.loads((run / "result.json").read_text())["metrics"] for run in (one, two)]
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-5)
    assert json.loads((two / "result.json").read_text())["processes"] == 2


def stopped_copy(run: Path, copy: Path) -> None:
    """As if killed after the last checkpoint but one."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "model")
    (copy / "result.json").unlink()
    max((copy / "checkpoints").iterdir()).unlink()


def test_a_run_whose_settings_change_over_it_resumes_with_the_same_bits(sample: Path, tmp_path: Path) -> None:
    """Muon, masking and rate that change, shorter sequences first; killed before they get longer."""
    changing = {"optimizer": "muon", "masked_fraction": (0.4, 0.1), "decay": "stable", "short_fraction": 0.9}
    settings = settings_from(SETTINGS, tmp_path, **changing)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    pretrain(settings, sample / "data", sample / "held-out", whole, sample / "short")
    stopped_copy(whole, resumed)
    pretrain(settings, sample / "data", sample / "held-out", resumed, sample / "short")
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())
    assert losses(resumed) == losses(whole)
    assert losses(whole)[-1] < losses(whole)[0] - 0.5
    tokens = [[entry["tokens"] for entry in read_log(run / "metrics.jsonl")] for run in (whole, resumed)]
    assert tokens[0] == tokens[1] == sorted(tokens[0])
    assert read_log(resumed / "metrics.jsonl")[-1]["cpu_seconds"] > read_log(whole / "metrics.jsonl")[19]["cpu_seconds"]


def test_masking_and_length_change_over_the_run(sample: Path) -> None:
    settings = PretrainSettings(steps=11, batch_size=4, masked_fraction=(0.5, 0.1), short_fraction=0.5)
    examples = Examples(sample / "data")
    task = PretrainingTask(examples, None, settings, ALONE, Examples(sample / "short"))
    batches = [task.part(step, range(task.rows(step))) for step in range(11)]
    assert [batch["input_ids"].shape for batch in batches] == [(8, 16)] * 6 + [(4, 32)] * 5

    def share(step: int) -> float:
        batch = batches[step]
        words = (batch["attention_mask"].sum() - 3 * len(batch["labels"])).item()  # without [CLS], [SEP], [SEP]
        return (batch["labels"] != NO_TARGET).sum().item() / words

    assert [share(0), share(5), share(10)] == pytest.approx([0.5, 0.3, 0.1], abs=0.04)


def test_short_sequences_need_data_of_their_own(sample: Path, tmp_path: Path) -> None:
    both = settings_from(SETTINGS, tmp_path, steps=2, short_fraction=0.5)
    neither = dataclasses.replace(both, short_fraction=0.0)
    for settings, short in ((both, None), (neither, sample / "short")):
        with pytest.raises(ProvenformerError, match="give both or neither: the setting short_fraction and --short"):
            pretrain(settings, sample / "data", None, tmp_path / "run", short)
    with pytest.raises(ProvenformerError, match="not a proper part of 32; prepare it with --seq-len 16"):
        pretrain(both, sample / "data", None, tmp_path / "run", sample / "data")
    assert not (tmp_path / "run").exists()
    pretrain(both, sample / "data", None, tmp_path / "run", sample / "short")
    with pytest.raises(ProvenformerError, match=r"short = '.*', not '.*'"):
        pretrain(both, sample / "data", None, tmp_path / "run", sample / "held-out-short")


def test_models_are_compared_on_the_same_masks(sample: Path, tmp_path: Path) -> None:
    """Whatever share of the words they were trained on."""
    settings = settings_from(SETTINGS, tmp_path, steps=2)
    pretrain(settings, sample / "data", None, tmp_path / "run")
    others: list[dict[str, Any]] = [
        {"masked_fraction": 0.4},
        {"masked_fraction": (0.4, 0.3)},
        {"evaluate_masked_fraction": 0.4},
    ]
    usual, *found = (
        evaluate_pretrained(tmp_path / "run/model", sample / "held-out", dataclasses.replace(settings, **other))
        for other in ({}, *others)
    )
    assert [metrics == usual for metrics in found] == [True, True, False]


def test_micro_batches_do_not_change_the_loss(sample: Path, tmp_path: Path) -> None:
    whole = settings_from(NO_DROPOUT, tmp_path, steps=6)
    pretrain(whole, sample / "data", None, tmp_path / "whole")
    pretrain(dataclasses.replace(whole, micro_batch=3), sample / "data", None, tmp_path / "parts")
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), abs=1e-5)


def test_bf16_learns(sample: Path, tmp_path: Path) -> None:
    pretrain(settings_from(SETTINGS, tmp_path, steps=12, bf16=True), sample / "data", None, tmp_path / "run")
    assert losses(tmp_path / "run")[-1] < losses(tmp_path / "run")[0] - 0.3
    assert {value.dtype for value in weights(tmp_path / "run").values()} == {torch.float32}


def test_a_finished_run_is_not_run_again_and_evaluates_the_same(sample: Path, tmp_path: Path) -> None:
    settings = settings_from(SETTINGS, tmp_path, steps=3, whole_word=True)
    first = pretrain(settings, sample / "data", sample / "held-out", tmp_path / "run")
    saved = (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns
    assert pretrain(settings, sample / "data", sample / "held-out", tmp_path / "run") == first
    assert (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns == saved
    assert evaluate_pretrained(tmp_path / "run/model", sample / "held-out", settings) == first["metrics"]
    assert first["asked"]["settings"]["seed"] == 0
    assert {"commit", "torch", "python"} <= first["provenance"].keys()


def test_a_truncated_checkpoint_is_told_and_the_one_before_it_serves(sample: Path, tmp_path: Path) -> None:
    settings, run = settings_from(SETTINGS, tmp_path), tmp_path / "run"
    pretrain(settings, sample / "data", None, run)
    expected = weights(run)
    (run / "result.json").unlink()
    shutil.rmtree(run / "model")
    newest = max((run / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.raises(ProvenformerError, match=f"{newest.name} is damaged"):
        pretrain(settings, sample / "data", None, run)
    newest.unlink()
    pretrain(settings, sample / "data", None, run)
    assert all(torch.equal(value, expected[name]) for name, value in weights(run).items())


def test_other_settings_do_not_resume(sample: Path, tmp_path: Path) -> None:
    settings = settings_from(SETTINGS, tmp_path, steps=1)
    pretrain(settings, sample / "data", None, tmp_path / "run")
    with pytest.raises(ProvenformerError, match=r"settings\.seed = 0, not 1; choose another"):
        pretrain(dataclasses.replace(settings, seed=1), sample / "data", None, tmp_path / "run")
    wider = {**settings.model, "hidden_size": 64}
    with pytest.raises(ProvenformerError, match=r"settings\.model\.hidden_size = 32, not 64"):
        pretrain(dataclasses.replace(settings, model=wider), sample / "data", None, tmp_path / "run")
    with pytest.raises(ProvenformerError, match=r"data = '.*', not '.*'"):
        pretrain(settings, sample / "held-out", None, tmp_path / "run")
    with pytest.raises(ProvenformerError, match=r"valid = None, not '.*'"):
        pretrain(settings, sample / "data", sample / "held-out", tmp_path / "run")


def test_a_folder_belongs_to_one_process_at_a_time(sample: Path, tmp_path: Path) -> None:
    settings = settings_from(SETTINGS, tmp_path, steps=1)
    asked = settings, sample / "data", None, tmp_path / "run"
    with RunFolder(tmp_path / "run", {"settings": 0}, ALONE), pytest.raises(ProvenformerError, match="wait for it or"):
        pretrain(*asked)
    (tmp_path / "run/metrics.jsonl").touch()  # as after a first step
    with pytest.raises(ProvenformerError, match="settings = 0"):
        pretrain(*asked)
    (tmp_path / "run/run.json").unlink()
    assert pretrain(*asked) == pretrain(*asked)  # each has let it go


@pytest.mark.slow
def test_two_processes_leave_a_folder_in_use_together(sample: Path, tmp_path: Path) -> None:
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "--no-python"]
    ask = [*launcher, *command(sample, tmp_path / "run", SETTINGS)]
    with RunFolder(tmp_path / "run", {}, ALONE):
        done = subprocess.run(ask, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "another process is training in" in done.stderr
    assert not (tmp_path / "run/metrics.jsonl").exists()


def test_a_process_that_is_not_the_first_gives_up_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "sum", lambda _, values: values + 1)  # what the first one adds
    second = Processes(1, 2, torch.device("cpu"))
    with pytest.raises(ProvenformerError, match="the first process cannot train"), RunFolder(tmp_path, {}, second):
        pass


def test_vocabularies_must_agree(sample: Path, tmp_path: Path) -> None:
    settings = settings_from(SETTINGS, tmp_path, steps=1)
    prepare([sample / "valid"], tmp_path / "other", PrepareSettings(seq_len=32, vocabulary_size=200))
    with pytest.raises(ProvenformerError, match="another vocabulary"):
        pretrain(settings, sample / "data", tmp_path / "other", tmp_path / "run")
    pretrain(settings, sample / "data", None, tmp_path / "run")
    with pytest.raises(ProvenformerError, match="another vocabulary"):
        evaluate_pretrained(tmp_path / "run/model", tmp_path / "other", settings)


def test_held_out_data_must_not_be_longer_than_the_positions(sample: Path, tmp_path: Path) -> None:
    settings = settings_from(SETTINGS, tmp_path, steps=1)
    longer = PrepareSettings(seq_len=40, vocabulary_size=300)
    prepare([sample / "valid"], tmp_path / "longer", longer, sample / "data/vocab.txt")
    with pytest.raises(ProvenformerError, match="seq_len=40, above the model's 32 positions; prepare it with"):
        pretrain(settings, sample / "data", tmp_path / "longer", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    pretrain(settings, sample / "data", None, tmp_path / "run")
    with pytest.raises(ProvenformerError, match="above the model's 32 positions"):
        evaluate_pretrained(tmp_path / "run/model", tmp_path / "longer", settings)
    roomy = dataclasses.replace(settings, model={**settings.model, "max_position_embeddings": 40})
    assert pretrain(roomy, sample / "data", tmp_path / "longer", tmp_path / "roomy")["metrics"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hiden_size": 64}, r"\[model\] has no field 'hiden_size'; did you mean 'hidden_size'\?"),
        ({"norm_postion": "pre"}, "did you mean 'norm_position'"),
        ({"xyz": 1}, "no field 'xyz'; it takes the fields of MixerBertConfig"),
        ({"hidden_size": "64"}, "'hidden_size' expected int, got str"),
        ({"max_position_embeddings": "64"}, "'max_position_embeddings' expected int, got str"),
        ({"vocab_size": 99}, "vocab_size=99, but data and training need 300; leave vocab_size out"),
        ({"pad_token_id": 7}, "pad_token_id=7, but data and training need 0"),
        ({"predict_masked_only": False}, "predict_masked_only=False, but data and training need True"),
        ({"max_position_embeddings": 16}, "max_position_embeddings=16 is below the data's 32"),
        ({"type_vocab_size": 1}, "type_vocab_size=1 is below the data's 2"),
    ],
)
def test_bad_models_leave_no_folder(sample: Path, tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenformerError, match=message) as caught:
        pretrain(PretrainSettings(model=fields), sample / "data", None, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_a_number_stops_the_run(sample: Path, tmp_path: Path) -> None:
    settings = settings_from(SETTINGS, tmp_path, learning_rate=1e30, clip_norm=1e30, warmup_steps=0)
    with pytest.raises(NotFinite, match="lower learning_rate"):
        pretrain(settings, sample / "data", None, tmp_path / "run")


def test_clip_norm_0_is_no_clipping(sample: Path, tmp_path: Path) -> None:
    for name, norm in (("off", 0.0), ("high", 1e30), ("low", 0.1)):
        settings = settings_from(SETTINGS, tmp_path, steps=3, clip_norm=norm)
        pretrain(settings, sample / "data", None, tmp_path / name)
    assert losses(tmp_path / "off") == losses(tmp_path / "high") != losses(tmp_path / "low")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stepz = 3", "unknown setting 'stepz'; known are"),
        ("steps = 'many'", "must be of type int"),
        ("steps = true", "must be of type int"),
        ("decay = 'cosine'", "unknown decay"),
        ("batch_size = 0", "batch_size=0 must be at least 1; correct the settings"),
        ("micro_batch = -1", "must be at least 0"),
        ("seed = -1", "must be from 0 to"),
        ("threads = -1", "must be at least 0"),
        ("steps = 0", "must be at least 1"),
        ("clip_norm = -1.0", "must be at least 0"),
        ("learning_rate = -1.0", "must be above 0 and finite"),
        ("learning_rate = nan", "must be above 0 and finite"),
        ("weight_decay = inf", "must be at least 0 and finite"),
        ("beta2 = 1.5", "beta2=1.5 must be at least 0 and below 1"),
        ("masked_fraction = 1.5", "must be above 0 and at most 1"),
        ("masked_fraction = -0.5", "must be above 0 and at most 1"),
        ("masked_fraction = [0.3, 0.0]", r"masked_fraction=\(0.3, 0.0\) must be above 0 and at most 1"),
        ("masked_fraction = [0.3, 0.2, 0.1]", "must have 2 entries"),
        ("masked_fraction = 'much'", "must be of type float"),
        ("evaluate_masked_fraction = 0", "must be above 0 and at most 1"),
        ("optimizer = 'sgd'", "unknown optimizer 'sgd'; choose one of adamw, muon"),
        ("muon_learning_rate = 0", "must be above 0 and finite"),
        ("decay_fraction = 0", "must be above 0 and at most 1"),
        ("short_fraction = 1", "must be at least 0 and below 1"),
        ("steps =", "not a TOML file"),
    ],
)
def test_bad_settings(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ProvenformerError, match=message):
        settings_from(line, tmp_path)


def test_a_settings_file_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ProvenformerError, match=r"list\.json is not a JSON object"):
        read_settings(PretrainSettings, tmp_path / "list.json")
    # The tables of a study.
    kind = dataclasses.make_dataclass(
        "Several", [("models", dict[str, dict[str, Any]]), ("pretrain", PretrainSettings)]
    )
    with pytest.raises(ProvenformerError, match=r"file: models\.average = 3 must be of type dict"):
        build_settings(kind, {"models": {"average": 3}}, "file")
    with pytest.raises(ProvenformerError, match="file: pretrain = 3 must be a table"):
        build_settings(kind, {"pretrain": 3}, "file")
    both = {"models": {"average": {"mixers": "average"}}, "pretrain": {"steps": 3}}
    assert build_settings(kind, both, "file").models == both["models"]


def test_a_half_written_log_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n{"step": 3, "lo')
    log = MetricLog(path, start=1)
    log.write(2, loss=1.5)
    log.close()
    assert read_log(path) == [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    log = MetricLog(tmp_path / "metrics.jsonl", start=0)
    log.path = Path("/dev/full")
    with pytest.raises(ProvenformerError, match="no space left"):
        log.write(1, loss=1.0)
    with pytest.raises(ProvenformerError, match="no space left"), atomic_path(tmp_path / "weights"):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert not (tmp_path / "weights").exists()


ON_A_SMALL_DISK = """
import json, subprocess, sys
from pathlib import Path
from provenformer.bert.training.pretrain import PretrainSettings, pretrain
from provenformer.bert.settings import build_settings, read_settings
from provenformer.base.errors import ProvenformerError

settings, data, run, size = sys.argv[1:]
run = Path(run)
ask = read_settings(PretrainSettings, Path(settings)), Path(data), None, run / "on-disk"
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small", run], check=True)
try:
    pretrain(*ask)
except ProvenformerError as error:
    print(json.dumps([str(error), sorted(path.name for path in run.rglob("step*")), len(list(run.rglob("*.partial")))]))
subprocess.run(["mount", "-o", "remount,size=64m", run], check=True)
pretrain(*ask)
(run.parent / "resumed.safetensors").write_bytes((run / "on-disk/model/model.safetensors").read_bytes())
"""
PRIVATE_MOUNTS = ["unshare", "--map-root-user", "--mount"]


def can_mount() -> bool:
    try:
        return subprocess.run([*PRIVATE_MOUNTS, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_mount(), reason="needs a disk of its own, by Linux user namespaces")
@pytest.mark.slow
def test_a_disk_that_fills_up_loses_nothing(sample: Path, tmp_path: Path) -> None:
    """A real disk with room for one checkpoint and a half; with more room the same command ends with the same bits."""
    settings = settings_from(SETTINGS, tmp_path, steps=24)
    pretrain(settings, sample / "data", None, tmp_path / "whole")
    size = max((tmp_path / "whole/checkpoints").iterdir()).stat().st_size * 3 // 2
    (tmp_path / "run").mkdir()
    arguments = [tmp_path / "settings.toml", sample / "data", tmp_path / "run", size]
    script = [*PRIVATE_MOUNTS, sys.executable, "-c", ON_A_SMALL_DISK, *map(str, arguments)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    message, kept, partial = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    assert re.fullmatch(
        "no space left on the disk of .*step-00000010.*; free some and run the same command .*", message
    )
    assert (kept, partial) == (["step-00000005.safetensors"], 0)
    resumed = load_file(tmp_path / "resumed.safetensors")
    assert all(torch.equal(value, resumed[name]) for name, value in weights(tmp_path / "whole").items())


def test_schedule() -> None:
    settings = PretrainSettings(warmup_steps=2)
    assert [settings.schedule(step, 6) for step in range(6)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert dataclasses.replace(settings, decay="constant").schedule(5, 6) == 1.0
    stable = dataclasses.replace(settings, decay="stable", decay_fraction=0.5)
    assert [stable.schedule(step, 8) for step in range(8)] == [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]


def test_tensorboard_reads_the_same_curve(sample: Path, tmp_path: Path) -> None:
    pretrain(settings_from(SETTINGS, tmp_path, steps=3), sample / "data", None, tmp_path / "run")
    (path,) = (tmp_path / "run/tensorboard").iterdir()
    content, at, curve = path.read_bytes(), 0, []
    while at < len(content):  # records: length (8 bytes), its checksum (4), the event, its checksum (4)
        length = int.from_bytes(content[at : at + 8], "little")
        event = Event.FromString(content[at + 12 : at + 12 + length])
        curve += [value.simple_value for value in event.summary.value if value.tag == "loss"]
        at += 16 + length
    assert curve == pytest.approx(losses(tmp_path / "run"), rel=1e-6)


def test_held_out_text_in_which_no_word_is_masked_is_told_before_training(sample: Path, tmp_path: Path) -> None:
    """One target in all, which is left as it is, or replaced, in one draw of five: `[MASK]` does not occur then."""
    settings = settings_from(SETTINGS, tmp_path, evaluate_examples=1, evaluate_masked_fraction=1e-9)
    examples, held_out = Examples(sample / "data"), Examples(sample / "held-out")
    told = []
    for seed in range(20):
        try:
            PretrainingTask(examples, held_out, dataclasses.replace(settings, seed=seed), ALONE)
        except ProvenformerError as error:
            told.append(str(error))
    assert 0 < len(told) < 20
    assert all(line.startswith("no word of the 1 held-out examples is masked") and "\n" not in line for line in told)
