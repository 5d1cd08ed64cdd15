"""A study on the sample: runs once, resumes, tunes, and its table has the paper's numbers beside ours."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.settings import read_settings
from provenformer.bert.study import StudyData, StudySettings, estimate, recipe_table, recipes, run_study, table
from provenformer.bert.study.figure import draw, draw_curves
from provenformer.bert.study.recipes import epochs_search, finetuning_search, pretraining_search
from provenformer.bert.training.finetune import file_fingerprint
from provenformer.bert.training.pretrain import data_fingerprint
from provenformer.cli.bert import app

SQUAD = {"seq_len": 32, "stride": 8, "epochs": 0.05, "threads": 1}
MODELS = ("average", "attention", "hybrid")
EXPERIMENTS = Path(__file__).parents[3] / "experiments"
STUDY = """
title = "Sample"
seeds = [0, 1]
tuning_steps = 4
models = { average = { mixers = "average" }, attention = { mixers = "attention" }, hybrid = { mixers = "sepconv" } }
tuned_as = { hybrid = "attention" }
paper = { average = { parameters = "88.3M", masked_accuracy = 28, mnli_accuracy = 66 } }

[pretrain]
steps = 6
batch_size = 8
threads = 1
evaluate_every = 3
short_fraction = 0.5
model = { hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32 }

[recipes]
low = { learning_rate = 1e-6 }
good = { learning_rate = 3e-3, optimizer = "muon", model = { attention_init = "tied" } }
high = { learning_rate = 1e20 }

[finetune.mnli]
seq_len = 32
epochs = 0.1
threads = 1
recipes = { low = { learning_rate = 1e-9 }, high = { learning_rate = 1e20 }, good = { learning_rate = 1e-3 } }
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    small = PrepareSettings(seq_len=32, vocabulary_size=300)
    prepare([folder / "text"], folder / "data", small)
    prepare([folder / "valid"], folder / "held-out", small, folder / "data/vocab.txt")
    prepare([folder / "text/more-people.txt"], folder / "other", small, folder / "data/vocab.txt")
    prepare([folder / "text"], folder / "short", dataclasses.replace(small, seq_len=16), folder / "data/vocab.txt")
    files = {
        "mnli": (folder / "mnli-train.jsonl", folder / "mnli-dev.jsonl"),
        "squad": (folder / "squad-train.json", folder / "squad-dev.json"),
    }
    return StudyData(folder / "data", folder / "held-out", folder / "other", folder / "short", files)


@pytest.fixture
def settings(tmp_path: Path) -> StudySettings:
    (tmp_path / "study.toml").write_text(STUDY)
    return read_settings(StudySettings, tmp_path / "study.toml")


@pytest.fixture(scope="module")
def done(data: StudyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and results of the whole study, and what was said, by the command line."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "study.toml").write_text(STUDY)
    where = ["--data", data.train, "--valid", data.valid, "--tuning", data.tuning, "--short", data.short]
    kept = ["--runs", folder / "runs", "--results", folder / "results"]
    (folder / "said").write_text(invoke("study", folder / "study.toml", *where, *kept, "--mnli", *data.tasks["mnli"]))
    return folder


def invoke(*arguments: object) -> str:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False).stdout


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.fixture
def results(done: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(done / "results", tmp_path / "results"))


def test_every_model_and_seed_has_a_result(done: Path) -> None:
    files = sorted((done / "results").glob("*.json"))
    assert [path.name for path in files] == [f"{m}-seed-{s}.json" for m in sorted(MODELS) for s in (0, 1)]
    for found in map(read, files):
        assert found["recipe"] == "good"
        assert found["asked"]["pretrain"]["optimizer"] == "muon"
        assert found["asked"]["pretrain"]["model"]["attention_init"] == "tied"
        assert [entry["step"] for entry in found["curve"]] == [3, 6]
        assert {"mask_token_accuracy", "mnli_accuracy"} <= found["metrics"].keys()
        assert found["tokens"] == found["curve"][-1]["tokens"]
        assert found["cpu_seconds"].keys() == {"pretrain", "mnli"}


def test_recipes_are_chosen_on_text_of_their_own(done: Path, data: StudyData, settings: StudySettings) -> None:
    folder = done / "results/recipes"
    names = [f"{model}{task}.json" for model in ("attention", "average") for task in ("", ".mnli")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)  # hybrid takes attention's
    tried = read(folder / "attention.json")["trials"]
    assert list(tried) == ["low", "good", "high"]
    assert tried["good"]["loss"] < tried["low"]["loss"]
    assert tried["high"]["loss"] is None  # it did not stay finite
    assert data.tuning is not None
    assert tried["good"]["asked"]["data"]["valid"] == data_fingerprint(data.tuning)
    assert tried["good"]["asked"]["settings"]["steps"] == 4
    tuned = read(folder / "attention.mnli.json")["trials"]
    assert tuned["high"]["loss"] is None
    assert tuned["good"]["asked"]["settings"]["held_out_fraction"] == 0.1
    best = min(("low", "good"), key=lambda name: tuned[name]["loss"])
    result = read(done / "results/attention-seed-0.json")["asked"]["finetune"]["mnli"]
    assert (result["recipe"], result["settings"]["held_out_fraction"]) == (best, 0.0)
    shown = recipe_table(settings, done / "results")
    assert f"{100 * tuned[best]['accuracy']:.1f}**" in shown
    assert f"| attention | {tried['low']['loss']:.3f} (" in shown
    assert "| **" in shown
    assert "not finite" in shown


def test_tables_need_no_data(done: Path, tmp_path: Path) -> None:
    shown = ["study", done / "study.toml", "--results", done / "results"]
    said = invoke(*shown, "--table-only", "--output", tmp_path / "out")
    written = [(tmp_path / "out" / name).read_text() for name in ("table.md", "recipes.md", "comparisons.md")]
    assert said == "".join(f"{text}\n" for text in written)
    assert said in (done / "said").read_text()
    assert "(88.3M)" in said
    assert "(66)" in said
    assert "±" in said
    only = invoke(*shown, "--table-only", "--only", "attention", "--output", tmp_path / "out")
    assert "average" not in only
    with pytest.raises(ProvenformerError, match="needs --data, --valid and --runs"):
        invoke(*shown)


def test_only_what_is_missing_is_run(done: Path, results: Path, data: StudyData, settings: StudySettings) -> None:
    lost, kept = results / "average-seed-1.json", results / "attention-seed-0.json"
    expected, written = read(lost)["metrics"], kept.stat().st_mtime_ns
    lost.unlink()
    run_study(settings, data, done / "runs", results, only=["attention"])
    assert not lost.exists()  # it is of the other model
    run_study(settings, data, done / "runs", results)
    assert kept.stat().st_mtime_ns == written
    assert read(lost)["metrics"] == expected


def test_results_are_enough_to_go_on(
    results: Path, data: StudyData, settings: StudySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the runs lost, recipes are not tried again, and a task that was left for later ends as it would have."""
    lost = results / "average-seed-1.json"
    expected = read(lost)["metrics"]
    lost.unlink()
    for training in ("pretrain", "finetune"):
        monkeypatch.setattr(recipes, training, lambda *_: pytest.fail("tried again"))
    run_study(settings, data, tmp_path / "runs", results, finetuned=False)
    found = read(lost)["metrics"]
    assert "mnli_accuracy" not in found
    assert found == {name: expected[name] for name in found}
    assert "average" in table(settings, results)  # one seed has the task, the other not
    run_study(settings, data, tmp_path / "other-runs", results)
    assert read(lost)["metrics"] == expected
    more = dataclasses.replace(settings, finetune={**settings.finetune, "squad": SQUAD})
    run_study(more, data, tmp_path / "runs", results, ["average"])
    assert expected.items() < read(lost)["metrics"].items()  # what was there is kept
    assert not (tmp_path / "runs/average/seed-0/mnli").exists()
    assert (tmp_path / "runs/average/seed-0/squad").exists()


def test_a_search_that_stopped_goes_on(results: Path, data: StudyData, settings: StudySettings, tmp_path: Path) -> None:
    path = results / "recipes/average.json"
    before = read(path)["trials"]
    path.write_text(json.dumps({"trials": {name: before[name] for name in ("low", "good")}}))
    (results / "average-seed-0.json").unlink()
    (results / "average-seed-1.json").unlink()
    assert pretraining_search(settings, "average", results).chosen() is None
    run_study(dataclasses.replace(settings, seeds=(0,)), data, tmp_path / "runs", results, ["average"], finetuned=False)
    assert read(path)["trials"]["high"]["loss"] is None
    assert read(path)["trials"]["low"] == before["low"]


def test_a_recipe_may_be_added(results: Path, data: StudyData, settings: StudySettings, tmp_path: Path) -> None:
    """The tables still show what there is; the next run tries it first, and refuses results if it is better."""
    better = {"learning_rate": 3e-3, "optimizer": "muon", "muon_learning_rate": 0.05}
    more = dataclasses.replace(settings, recipes={**settings.recipes, "better": better})
    assert table(more, results) == table(settings, results)
    asked = more, data, tmp_path / "runs", results, ["average"]
    trials = read(results / "recipes/average.json")["trials"]
    trials["good"]["loss"] = 99.0
    (results / "recipes/average.json").write_text(json.dumps({"trials": trials}))
    with pytest.raises(ProvenformerError, match=r"with the recipe 'good' \(pretrain\), which was not chosen"):
        run_study(*asked, finetuned=False)
    assert "better" in read(results / "recipes/average.json")["trials"]


def test_results_of_something_else_are_refused(results: Path, data: StudyData, settings: StudySettings) -> None:
    runs = results / "runs"
    longer = dataclasses.replace(settings, pretrain=dataclasses.replace(settings.pretrain, steps=7))
    with pytest.raises(ProvenformerError, match=r"attention-seed-0.json is from other settings \(pretrain\); move it"):
        table(longer, results, ["attention"])
    tuned = dataclasses.replace(settings, finetune={"mnli": {**settings.finetune["mnli"], "epochs": 9}})
    with pytest.raises(ProvenformerError, match=r"mnli\.json: the trial of 'low' is from other settings"):
        run_study(tuned, data, runs, results)
    without = dataclasses.replace(settings, finetune={})
    with pytest.raises(ProvenformerError, match=r"other settings \(mnli\)"):
        table(without, results)
    with pytest.raises(ProvenformerError, match="the trial of 'low' is from other settings; remove it to try again"):
        run_study(dataclasses.replace(settings, tuning_steps=5), data, runs, results)
    with pytest.raises(ProvenformerError, match=r"seed-0.json is from other data; move it away"):
        run_study(settings, dataclasses.replace(data, valid=data.train), runs, results)
    (results / "average-seed-0.json").unlink()
    with pytest.raises(ProvenformerError, match="the trial of 'low' is from other data"):
        run_study(settings, dataclasses.replace(data, tuning=data.valid), runs, results)
    with pytest.raises(ProvenformerError, match="give it with --tuning"):
        run_study(settings, dataclasses.replace(data, tuning=None), runs, results)
    with pytest.raises(ProvenformerError, match="no model 'fourier'; choose from average, attention, hybrid"):
        run_study(settings, data, runs, results, ["fourier"])
    with pytest.raises(ProvenformerError, match="--mnli TRAIN DEV"):
        run_study(settings, dataclasses.replace(data, tasks={}), runs, results)
    trials = read(results / "recipes/average.json")["trials"]
    better = {**trials, "low": {**trials["low"], "loss": 0.0}}
    (results / "recipes/average.json").write_text(json.dumps({"trials": better}))
    with pytest.raises(ProvenformerError, match=r"with the recipe 'good' \(pretrain\), which was not chosen"):
        table(settings, results)


def test_a_setting_that_is_new_counts_as_its_default(results: Path, settings: StudySettings) -> None:
    path = results / "attention-seed-0.json"
    result = read(path)
    del result["asked"]["pretrain"]["decay_fraction"]
    path.write_text(json.dumps(result))
    table(settings, results)
    changed = dataclasses.replace(settings, pretrain=dataclasses.replace(settings.pretrain, decay_fraction=0.5))
    with pytest.raises(ProvenformerError, match="other settings"):
        table(changed, results)


def test_a_task_may_take_the_recipe_of_another(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    both = dataclasses.replace(settings, finetune=settings.finetune | {"squad": {**SQUAD, "recipe_of": "mnli"}})
    shutil.copytree(done / "runs/attention", tmp_path / "runs/attention")
    run_study(both, data, tmp_path / "runs", results, only=["attention"], seeds=[0])
    found = read(results / "attention-seed-0.json")
    mnli, squad = (found["asked"]["finetune"][task] for task in ("mnli", "squad"))
    assert squad["recipe"] == mnli["recipe"]
    assert squad["settings"]["learning_rate"] == mnli["settings"]["learning_rate"]
    assert (squad["settings"]["task"], squad["settings"]["stride"]) == ("squad", 8)
    assert "squad_f1" in found["metrics"]
    assert not list((results / "recipes").glob("*.squad.json"))
    assert recipe_table(both, results) == recipe_table(settings, results)


def test_a_task_may_start_from_another(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    own = settings.finetune["mnli"]
    first = {name: value for name, value in own.items() if name != "recipes"} | {"recipe_of": "mnli"}
    both = dataclasses.replace(settings, finetune={"snli": first, "mnli": own | {"starts_from": "snli"}})
    pairs = dataclasses.replace(data, tasks=data.tasks | {"snli": data.tasks["mnli"]})
    path = results / "attention-seed-0.json"
    # What started from the pre-trained weights is another result.
    with pytest.raises(ProvenformerError, match=r"from other settings \(mnli\)"):
        run_study(both, pairs, tmp_path / "runs", results, only=["attention"], seeds=[0])
    before = read(path)
    del before["asked"]["finetune"]["mnli"], before["metrics"]["mnli_accuracy"]
    path.write_text(json.dumps(before))
    shutil.copytree(done / "runs/attention/seed-0/pretrain", tmp_path / "runs/attention/seed-0/pretrain")
    run_study(both, pairs, tmp_path / "runs", results, only=["attention"], seeds=[0])
    after, runs = read(path), tmp_path / "runs/attention/seed-0"
    assert [one["starts_from"] for one in after["asked"]["finetune"].values()] == ["", "snli"]
    assert {"snli_accuracy", "mnli_accuracy"} <= after["metrics"].keys()
    used = [read(runs / task / "result.json")["asked"]["model"] for task in ("snli", "mnli")]
    assert used == [file_fingerprint(runs / part / "model/model.safetensors") for part in ("pretrain", "snli")]
    # SNLI is learnt again where its weights are lost and MNLI is missing.
    del after["asked"]["finetune"]["mnli"]
    path.write_text(json.dumps(after))
    for lost in ("snli", "mnli"):
        shutil.rmtree(runs / lost)
    run_study(both, pairs, tmp_path / "runs", results, only=["attention"], seeds=[0])
    assert read(path)["metrics"] == after["metrics"]


def test_a_result_is_of_one_set_of_weights(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    """Pre-trained again on another processor, a model is another one: what the lost one had learnt does not count."""
    both = dataclasses.replace(settings, finetune=settings.finetune | {"squad": {**SQUAD, "recipe_of": "mnli"}})
    path, right = results / "attention-seed-0.json", read(results / "attention-seed-0.json")
    elsewhere = json.loads(json.dumps(right))
    elsewhere["metrics"]["mask_token_accuracy"] += 0.01
    elsewhere["metrics"]["mnli_accuracy"] = 0.99
    elsewhere["cpu_seconds"]["mnli"] = 1e6
    path.write_text(json.dumps(elsewhere))
    shutil.copytree(done / "runs/attention", tmp_path / "runs/attention")
    run_study(both, data, tmp_path / "runs", results, only=["attention"], seeds=[0])
    found = read(path)
    assert right["metrics"].items() <= found["metrics"].items()
    assert found["cpu_seconds"]["mnli"] == right["cpu_seconds"]["mnli"]
    assert found["asked"]["finetune"].keys() == {"mnli", "squad"}


def test_trials_of_a_task_may_be_shorter(settings: StudySettings, tmp_path: Path) -> None:
    mnli = settings.finetune["mnli"]
    shorter = dataclasses.replace(settings, finetune={"mnli": mnli | {"trial_epochs": 0.01}})
    full, tried = (finetuning_search(one, "average", "mnli", tmp_path).asked for one in (settings, shorter))
    assert {one.epochs for one in tried.values()} == {0.01}  # type: ignore[union-attr]
    assert {name: dataclasses.replace(one, epochs=mnli["epochs"]) for name, one in tried.items()} == full
    assert shorter.finetuning("mnli", 1, next(iter(full))).epochs == mnli["epochs"]
    with pytest.raises(ProvenformerError, match=r"epochs=0\.0 must be above 0"):
        dataclasses.replace(settings, finetune={"mnli": mnli | {"trial_epochs": 0}})


def test_epochs_are_chosen_after_the_recipe(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    own = {name: value for name, value in settings.finetune["mnli"].items() if name != "epochs"}
    first = {name: value for name, value in own.items() if name != "recipes"} | {"recipe_of": "mnli", "epochs": 0.02}
    tried = {"trial_epochs": 0.1, "epochs_tried": [0.02, 0.3], "starts_from": "snli"}
    both = dataclasses.replace(settings, finetune={"snli": first, "mnli": own | tried})
    pairs = dataclasses.replace(data, tasks=data.tasks | {"snli": data.tasks["mnli"]})
    for path in results.glob("*.json"):
        unlearnt = read(path)
        unlearnt["asked"]["finetune"] = {}
        path.write_text(json.dumps(unlearnt))
    shutil.copytree(done / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns("mnli*"))
    rates = (results / "recipes/attention.mnli.json").read_bytes()
    run_study(both, pairs, tmp_path / "runs", results, only=["attention", "hybrid"])
    assert (results / "recipes/attention.mnli.json").read_bytes() == rates

    recipe = finetuning_search(both, "attention", "mnli", results).chosen() or ""
    search, rate = epochs_search(both, "hybrid", "mnli", recipe, results), own["recipes"][recipe]["learning_rate"]
    trials = read(results / "recipes/attention.mnli.epochs.json")["trials"]
    assert list(trials) == list(search.asked) == ["0.02", "0.3"]
    best = max(trials, key=lambda name: trials[name]["accuracy"])
    assert search.chosen() == best
    asked = [trial["asked"]["settings"] for trial in trials.values()]
    assert [(one["epochs"], one["held_out_fraction"], one["learning_rate"]) for one in asked] == [
        (0.02, 0.1, rate),
        (0.3, 0.1, rate),
    ]
    # From the weights that the task starts with, once for all seeds and for the models that take it over.
    learnt = tmp_path / "runs/attention/seed-0"
    started = read(learnt / "mnli-epochs-0.3/result.json")["asked"]["model"]
    assert started == file_fingerprint(learnt / "snli/model/model.safetensors")
    assert len(list((tmp_path / "runs").glob("*/*/mnli-epochs-*"))) == 2
    for name in ("attention-seed-0", "attention-seed-1", "hybrid-seed-1"):
        assert read(results / f"{name}.json")["asked"]["finetune"]["mnli"]["settings"]["epochs"] == float(best)
    shown = recipe_table(both, results).splitlines()
    assert shown[shown.index("| mnli, epochs | 0.02 | 0.3 |") + 2].startswith("| attention |")

    other = next(name for name in trials if name != best)
    trials[other]["loss"] = 0.0
    (results / "recipes/attention.mnli.epochs.json").write_text(json.dumps({"trials": trials}))
    with pytest.raises(ProvenformerError, match=rf"is with {best} epochs \(mnli\), which was not chosen"):
        table(both, results)


def test_a_model_with_the_recipe_of_another_comes_after_it(
    results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    """Else the other's trials would be made with its weights."""
    for path in (results / "recipes/attention.mnli.json", *results.glob("hybrid*"), *results.glob("attention-*")):
        path.unlink()
    for only in (["hybrid"], ["hybrid", "attention"]):
        with pytest.raises(ProvenformerError, match="hybrid takes the recipe of attention for mnli"):
            run_study(settings, data, tmp_path / "runs", results, only, [0])
    assert not (tmp_path / "runs").exists()


def test_no_recipe_that_stays_finite(data: StudyData, settings: StudySettings, tmp_path: Path) -> None:
    high = {"high": {"learning_rate": 1e20}, "higher": {"learning_rate": 1e21}}
    hopeless = dataclasses.replace(settings, recipes=high)
    with pytest.raises(ProvenformerError, match="lower learning_rate"):
        run_study(hopeless, data, tmp_path / "runs", tmp_path / "results")


def test_figures_are_the_same_bytes(done: Path, settings: StudySettings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for figure in (draw, draw_curves):
        figure(settings, done / "results", tmp_path / "one.svg")
        figure(settings, done / "results", tmp_path / "two.svg", ["attention", "average", "hybrid"])
        figure(settings, done / "results", tmp_path / "three.svg")
        assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "three.svg").read_bytes()
        assert (tmp_path / "one.svg").read_bytes() != (tmp_path / "two.svg").read_bytes()


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
    with pytest.raises(ProvenformerError, match="tuned_as name 'other'"):
        dataclasses.replace(settings, tuned_as={"average": "other"})
    with pytest.raises(ProvenformerError, match=r"recipes\.bad: unknown setting 'rate'"):
        dataclasses.replace(settings, recipes={"bad": {"rate": 1}})
    with pytest.raises(ProvenformerError, match="at least one model, seed and recipe"):
        dataclasses.replace(settings, recipes={})
    with pytest.raises(ProvenformerError, match="unknown setting 'epoch'"):
        dataclasses.replace(settings, finetune={"mnli": {"epoch": 1}})
    for wrong in ("mnli", "glue", ["mnli"], "squad"):
        with pytest.raises(ProvenformerError, match=r"finetune\.squad: recipe_of = .*; name a task that has recipes"):
            dataclasses.replace(settings, finetune={"mnli": {}, "squad": {"recipe_of": wrong}})
    with pytest.raises(ProvenformerError, match="leave recipes and trial_epochs out"):
        dataclasses.replace(
            settings, finetune=settings.finetune | {"squad": {"recipe_of": "mnli", "trial_epochs": 1.0}}
        )


def test_wrong_epochs(settings: StudySettings) -> None:
    def tried(numbers: object, **more: object) -> None:
        dataclasses.replace(settings, finetune={"mnli": {"epochs_tried": numbers, **more}})

    for wrong in (1.0, [], [1.0], [1.0, 1], "12", [1.0, "2"], [1.0, [2]]):
        with pytest.raises(ProvenformerError, match=r"mnli: epochs_tried = .*; list at least two different numbers"):
            tried(wrong)
    with pytest.raises(ProvenformerError, match=r"epochs=0\.0 must be above 0"):
        tried([1.0, 0])
    for twice in ({"epochs": 1.0}, {"recipes": {"long": {"epochs": 4}}, "trial_epochs": 1.0}):
        with pytest.raises(ProvenformerError, match="epochs_tried stands in place of epochs; leave epochs out"):
            tried([1, 2], **twice)
    rates = {"low": {"learning_rate": 1e-3}, "high": {"learning_rate": 1e-2}}
    with pytest.raises(ProvenformerError, match="the recipes come before epochs_tried; set trial_epochs"):
        tried([1, 2], recipes=rates)
    tried([1, 2], recipes=rates, trial_epochs=1.0)


def test_a_task_starts_from_one_before_it(settings: StudySettings) -> None:
    for wrong in ("squad", "mnli", "", 3):
        with pytest.raises(
            ProvenformerError, match=r"mnli: starts_from = .*; name a task that stands before it \(snli\)"
        ):
            dataclasses.replace(settings, finetune={"snli": {}, "mnli": {"starts_from": wrong}, "squad": {}})


@pytest.mark.parametrize(
    "path",
    [path for name in ("paper", "study") for path in sorted(EXPERIMENTS.glob(f"*/{name}.toml"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
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
    settings = STUDY[: STUDY.index("[finetune")].replace("[0, 1]", "[0]")
    (tmp_path / "study.toml").write_text(settings)
    bin_folder = Path(sys.executable).parent
    launcher = [
        bin_folder / "torchrun",
        "--standalone",
        "--nproc-per-node=2",
        "--no-python",
        bin_folder / "provenformer",
    ]
    where = ["--data", data.train, "--valid", data.valid, "--tuning", data.tuning, "--short", data.short]
    options = [*where, "--runs", tmp_path / "runs", "--results", tmp_path / "out"]
    subprocess.run(
        [str(part) for part in (*launcher, "bert", "study", tmp_path / "study.toml", *options)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert len(list((tmp_path / "out").glob("*.json"))) == len(MODELS)


def test_one_seed(results: Path, data: StudyData, settings: StudySettings, tmp_path: Path) -> None:
    (results / "average-seed-1.json").unlink()
    (results / "average-seed-0.json").unlink()
    run_study(settings, data, tmp_path / "runs", results, ["average"], [1], finetuned=False)
    assert sorted(path.name for path in results.glob("average*")) == ["average-seed-1.json"]
    with pytest.raises(ProvenformerError, match="the study has no seed 7; choose from 0, 1"):
        run_study(settings, data, tmp_path / "runs", results, None, [7])


@pytest.mark.parametrize("missing", ["--data", "--valid", "--tuning", "--short"])
def test_data_that_is_not_prepared_is_one_line(missing: str, data: StudyData, tmp_path: Path) -> None:
    """A folder whose manifest, which is written last, is not there."""
    (tmp_path / "begun").mkdir()
    shutil.copy(data.train / "vocab.txt", tmp_path / "begun")
    (tmp_path / "study.toml").write_text(STUDY)
    where = {"--data": data.train, "--valid": data.valid, "--tuning": data.tuning, "--short": data.short}
    folders = [part for option in (where | {missing: tmp_path / "begun"}).items() for part in option]
    kept = ["--runs", tmp_path / "runs", "--results", tmp_path / "results", "--pretrain-only"]
    with pytest.raises(
        ProvenformerError, match="begun holds no complete data; run `provenformer bert prepare`"
    ) as caught:
        invoke("study", tmp_path / "study.toml", *folders, *kept)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()
