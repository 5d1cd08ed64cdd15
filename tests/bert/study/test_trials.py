"""Recipes and epochs are chosen by trials: the same list for every model, with its own weights, on data of their own."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from study_cases import SQUAD, read

from provenformer.base.errors import ProvenformerError
from provenformer.bert.study import StudyData, StudySettings, recipe_table, run_study, table
from provenformer.bert.study.recipes import epochs_search, finetuning_search, pretraining_search
from provenformer.bert.training.finetune import file_fingerprint
from provenformer.bert.training.pretrain import data_fingerprint


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
    (results / "recipes/attention.mnli.json").unlink()
    run_study(settings, data, tmp_path / "runs", results, ["hybrid"])  # nothing is left to run
    for path in results.glob("hybrid*"):
        path.unlink()

    def refused(*models: str) -> None:
        with pytest.raises(ProvenformerError, match="hybrid takes the recipe of attention for mnli"):
            run_study(settings, data, tmp_path / "runs", results, list(models), [0])

    refused("hybrid")
    refused("attention", "hybrid")  # attention is finished: it would make no trial
    (results / "attention-seed-0.json").unlink()
    refused("hybrid", "attention")
    assert not (tmp_path / "runs").exists()


def test_no_recipe_that_stays_finite(data: StudyData, settings: StudySettings, tmp_path: Path) -> None:
    high = {"high": {"learning_rate": 1e20}, "higher": {"learning_rate": 1e21}}
    hopeless = dataclasses.replace(settings, recipes=high)
    with pytest.raises(ProvenformerError, match="lower learning_rate"):
        run_study(hopeless, data, tmp_path / "runs", tmp_path / "results")
