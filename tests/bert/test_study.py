"""A study on the sample: runs once, resumes, tunes, and its table has the paper's numbers beside ours."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from provenformer.base.errors import ProvenformerError
from provenformer.bert import study
from provenformer.bert.cli import app
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.sample import write_sample
from provenformer.bert.settings import read_settings
from provenformer.bert.study import StudyData, StudySettings, estimate, run_study, table
from provenformer.bert.study_figure import draw, draw_curves

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDY = """
title = "Sample"
seeds = [0, 1]
learning_rates = [1e-6, 3e-3, 1e20]
tuning_steps = 4
models = { average = { mixers = "average" }, attention = { mixers = "attention" } }
paper = { average = { parameters = "88.3M", masked_accuracy = 28, mnli_accuracy = 66 } }

[pretrain]
steps = 6
batch_size = 8
threads = 1
evaluate_every = 3
model = { hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32 }

[finetune.mnli]
seq_len = 32
epochs = 0.1
threads = 1
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    small = PrepareSettings(seq_len=32, vocabulary_size=300)
    prepare([folder / "text"], folder / "data", small)
    prepare([folder / "valid"], folder / "held-out", small, folder / "data/vocab.txt")
    files = {"mnli": (folder / "mnli-train.jsonl", folder / "mnli-dev.jsonl")}
    return StudyData(folder / "data", folder / "held-out", files)


@pytest.fixture
def settings(tmp_path: Path) -> StudySettings:
    (tmp_path / "study.toml").write_text(STUDY)
    return read_settings(StudySettings, tmp_path / "study.toml")


def test_study(data: StudyData, settings: StudySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    options = ["--data", data.train, "--valid", data.valid, "--runs", runs, "--results", results]
    arguments = ["study", tmp_path / "study.toml", *options, "--mnli", *data.tasks["mnli"]]
    said = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False).stdout
    files = sorted(results.glob("*.json"))
    assert [path.name for path in files] == [f"{m}-seed-{s}.json" for m in ("attention", "average") for s in (0, 1)]
    for path in files:
        found = json.loads(path.read_text())
        assert found["learning_rate"] == 3e-3  # 1e-6 learns nothing
        assert list(found["tuning"]) == ["1e-06", "0.003", "1e+20"]
        assert found["tuning"]["1e+20"] is None  # it did not stay finite
        assert [entry["step"] for entry in found["curve"]] == [3, 6]
        assert {"mask_token_accuracy", "mnli_accuracy"} <= found["metrics"].keys()
    written = (results / "table.md").read_text()
    assert written in said
    assert "(88.3M)" in written
    assert "(66)" in written
    assert "±" in written

    shown = ["study", str(tmp_path / "study.toml"), "--results", str(results)]
    assert CliRunner().invoke(app, [*shown, "--table-only"], catch_exceptions=False).stdout == f"{written}\n"
    with pytest.raises(ProvenformerError, match="needs --data, --valid and --runs"):
        CliRunner().invoke(app, shown, catch_exceptions=False)

    # What is finished is not run again; what is missing is, from its checkpoints.
    kept, missing = files[0].stat().st_mtime_ns, files[-1].read_text()
    files[-1].unlink()
    run_study(settings, data, runs, results, only=["attention"])
    assert not files[-1].exists()  # it is of the other model
    run_study(settings, data, runs, results)
    assert files[0].stat().st_mtime_ns == kept
    assert json.loads(files[-1].read_text())["metrics"] == json.loads(missing)["metrics"]

    # With the runs lost, the other seed's result still says which learning rate was chosen.
    files[-1].unlink()
    with monkeypatch.context() as patch:
        patch.setattr(study, "_tune", lambda *_: pytest.fail("tuned again"))
        run_study(settings, data, tmp_path / "other-runs", results)
    assert json.loads(files[-1].read_text())["metrics"] == json.loads(missing)["metrics"]

    hopeless = dataclasses.replace(settings, learning_rates=(1e20, 1e21))
    with pytest.raises(ProvenformerError, match="lower learning_rate"):
        run_study(hopeless, data, tmp_path / "hopeless", tmp_path / "none")
    changed = dataclasses.replace(settings, tuning_steps=5)
    with pytest.raises(ProvenformerError, match="other settings or data"):
        run_study(changed, data, runs, results)
    with pytest.raises(ProvenformerError, match=r"other settings \(tuning_steps\)"):
        table(changed, results)
    with pytest.raises(ProvenformerError, match="no model 'fourier'; choose from average, attention"):
        run_study(settings, data, runs, results, ["fourier"])
    with pytest.raises(ProvenformerError, match="--mnli TRAIN DEV"):
        run_study(settings, dataclasses.replace(data, tasks={}), runs, results)

    pytest.importorskip("matplotlib")
    for figure in (draw, draw_curves):
        figure(settings, results, tmp_path / "one.svg")
        figure(settings, results, tmp_path / "two.svg")
        assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_intervals_are_those_of_a_models_own_seeds() -> None:
    two = estimate([0.4, 0.6])
    assert two.mean == pytest.approx(0.5)
    assert two.half_width == pytest.approx(12.7062 * 0.1, rel=1e-4)  # t(0.975, 1) * standard error
    three = estimate([0.3, 0.4, 0.5])
    assert three.half_width == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)  # t(0.975, 2)
    assert str(estimate([0.5])) == "50.0"


def test_errors(settings: StudySettings, tmp_path: Path) -> None:
    with pytest.raises(ProvenformerError, match="no result"):
        table(settings, tmp_path)
    with pytest.raises(ProvenformerError, match="at least one model"):
        dataclasses.replace(settings, seeds=())
    with pytest.raises(ProvenformerError, match="one twice"):
        dataclasses.replace(settings, seeds=(0, 0))
    with pytest.raises(ProvenformerError, match="need tuning_steps"):
        dataclasses.replace(settings, tuning_steps=0)
    with pytest.raises(ProvenformerError, match="name 'other'"):
        dataclasses.replace(settings, paper={"other": {}})
    with pytest.raises(ProvenformerError, match="unknown setting 'epoch'"):
        dataclasses.replace(settings, finetune={"mnli": {"epoch": 1}})


@pytest.mark.parametrize(
    "path", sorted(EXPERIMENTS.glob("*/*.toml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_shipped_studies_are_valid(path: Path) -> None:
    shipped = read_settings(StudySettings, path)
    batch, steps = shipped.pretrain.batch_size, shipped.pretrain.steps
    if path.stem == "paper":
        assert (batch, steps) == {"table1": (8192, 60_000), "figure1": (1024, 250_000)}[path.parent.name]
        assert shipped.pretrain.model == {"hidden_dropout_prob": 0.01, "attention_probs_dropout_prob": 0.01}
        assert shipped.pretrain.weight_decay == 0.01
    else:
        assert len(shipped.seeds) >= 2


def test_two_processes_share_a_study(data: StudyData, tmp_path: Path) -> None:
    """Several trainings one after the other, in one process group."""
    settings = STUDY[: STUDY.index("[finetune")].replace("[0, 1]", "[0]").replace("[1e-6, 3e-3, 1e20]", "[3e-3]")
    (tmp_path / "study.toml").write_text(settings)
    bin_folder = Path(sys.executable).parent
    launcher = [
        bin_folder / "torchrun",
        "--standalone",
        "--nproc-per-node=2",
        "--no-python",
        bin_folder / "provenformer",
    ]
    options = ["--data", data.train, "--valid", data.valid, "--runs", tmp_path / "runs", "--results", tmp_path / "out"]
    subprocess.run(
        [str(part) for part in (*launcher, "bert", "study", tmp_path / "study.toml", *options)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert len(list((tmp_path / "out").glob("*.json"))) == 2
