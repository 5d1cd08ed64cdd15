"""Recipes and epochs are chosen by trials: the same list for every model, with its own weights, on data of their own."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from study_cases import SQUAD, change, forget, read

from provenformer.base.errors import ProvenformerError
from provenformer.bert.study import StudyData, StudySettings, recipe_table, run_study, table
from provenformer.bert.study.recipes import epochs_search, finetuning_search, pretraining_search
from provenformer.bert.training.finetune import file_fingerprint
from provenformer.bert.training.pretrain import data_fingerprint


def test_recipes_are_chosen_on_text_of_their_own(done: Path, data: StudyData, settings: StudySettings) -> None:
    folder = done / "results/recipes"
    names = [f"{model}{task}.json" for model in ("attention", "average") for task in ("", ".mnli")]
    assert sorted(path.name for path in folder.glob("*.json")) == sorted(names)  # hybrid takes attention's
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
        forget(path, "mnli")
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
    assert shown[shown.index("| MNLI, epochs | 0.02 | 0.3 |") + 2].startswith("| attention |")

    # They are of weights that had learnt SNLI as it is learnt now.
    assert {one["asked"]["weights"] for one in trials.values()} == {started}
    assert [*trials[best]["asked"]["learnt"]] == ["pretrain", "snli"]
    earlier = [
        {"snli": first | {"epochs": 0.03}, "mnli": own | tried},
        {"mnli": {name: value for name, value in (own | tried).items() if name != "starts_from"}},
    ]
    for tasks in earlier:
        with pytest.raises(ProvenformerError, match=r"epochs\.json: the trial of '0\.02' is from other settings"):
            epochs_search(dataclasses.replace(both, finetune=tasks), "attention", "mnli", recipe, results).done()

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
    result = read(results / "attention-seed-0.json")
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
    both = dataclasses.replace(settings, finetune=settings.finetune | {"squad": {**SQUAD, "recipe_of": "mnli"}})
    (results / "attention-seed-0.json").write_text(
        json.dumps(result)
    )  # attention is to learn SQuAD, not what the trials are of
    with pytest.raises(ProvenformerError, match="hybrid takes the recipe of attention for mnli"):
        run_study(both, data, tmp_path / "runs", results, ["attention", "hybrid"], [0])
    assert not (tmp_path / "runs").exists()


def test_trials_start_with_the_same_weights(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    """A search that stopped goes on with its weights; with others, those of another seed, it is made anew."""
    path = results / "recipes/attention.mnli.json"
    trials = read(path)["trials"]
    for seed in (0, 1):
        forget(results / f"attention-seed-{seed}.json", "mnli")
    shutil.copytree(done / "runs/attention", tmp_path / "runs/attention", ignore=shutil.ignore_patterns("mnli*"))
    pretrained = [tmp_path / f"runs/attention/seed-{seed}/pretrain/model/model.safetensors" for seed in (0, 1)]
    assert {one["asked"]["weights"] for one in trials.values()} == {file_fingerprint(pretrained[0])}
    change(path, trials={name: trials[name] for name in ("low", "high")})
    run_study(settings, data, tmp_path / "runs", results, ["attention"], [1])
    again = read(path)["trials"]
    assert {one["asked"]["weights"] for one in again.values()} == {file_fingerprint(pretrained[1])}
    change(path, trials={name: again[name] for name in ("low", "high")})
    run_study(settings, data, tmp_path / "runs", results, ["attention"], [1])  # it has a result: nothing is tried
    forget(results / "attention-seed-1.json", "mnli")
    kept = path.read_text()
    run_study(settings, data, tmp_path / "runs", results, ["attention"], [1])
    assert read(path)["trials"] == again | {"good": read(path)["trials"]["good"]}
    assert kept != path.read_text()

    longer = dataclasses.replace(settings, pretrain=dataclasses.replace(settings.pretrain, steps=7))
    for stale in results.glob("*.json"):
        stale.unlink()
    with pytest.raises(ProvenformerError, match=r"mnli\.json: the trial of 'low' is from other settings"):
        run_study(longer, data, tmp_path / "other", results, ["attention"], [0])


def test_trials_that_no_run_is_left_to_make_are_told(
    done: Path, results: Path, data: StudyData, settings: StudySettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_study(settings, data, done / "runs", results)
    assert "trials" not in capsys.readouterr().out
    (results / "recipes/average.mnli.json").unlink()
    run_study(settings, data, done / "runs", results)
    assert capsys.readouterr().out.startswith(
        "average: trials of mnli are not complete, and its runs are; move a result"
    )


def test_no_recipe_that_stays_finite(data: StudyData, settings: StudySettings, tmp_path: Path) -> None:
    high = {"high": {"learning_rate": 1e20}, "higher": {"learning_rate": 1e21}}
    hopeless = dataclasses.replace(settings, recipes=high)
    with pytest.raises(ProvenformerError, match="lower learning_rate"):
        run_study(hopeless, data, tmp_path / "runs", tmp_path / "results")
