"""A study on the sample: runs once, resumes, and its table has the paper's numbers beside ours."""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from study_cases import MODELS, SQUAD, STUDY, change, forget, invoke, read

from provenformer.base.errors import ProvenformerError
from provenformer.bert.study import (
    StudyData,
    StudySettings,
    comparison_table,
    cost_table,
    estimate,
    recipes,
    run_study,
    table,
)
from provenformer.bert.study import figure as study_figure
from provenformer.bert.study.figure import draw, draw_curves
from provenformer.bert.study.table import metrics_of, summary
from provenformer.bert.training.finetune import file_fingerprint


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


def test_tables_need_no_data(done: Path, tmp_path: Path) -> None:
    shown = ["study", done / "study.toml", "--results", done / "results"]
    said = invoke(*shown, "--table-only", "--output", tmp_path / "out")
    written = [
        (tmp_path / "out" / name).read_text() for name in ("table.md", "recipes.md", "comparisons.md", "cost.md")
    ]
    assert said == "".join(f"{text}\n" for text in written)
    assert said in (done / "said").read_text()
    assert "| masked words | [MASK] | next sentence | MNLI |" in said
    assert "(88.3M)" in said
    assert "(66)" in said
    assert "±" in said
    only = invoke(*shown, "--table-only", "--only", "attention", "--output", tmp_path / "out")
    assert "average" not in only
    with pytest.raises(ProvenformerError, match="needs --data, --valid and --runs"):
        invoke(*shown)


def test_committed_tables_are_those_of_the_committed_results(tmp_path: Path) -> None:
    small = Path(__file__).parents[3] / "experiments/small"
    invoke("study", small / "study.toml", "--results", small / "results", "--table-only", "--output", tmp_path)
    for name in ("table.md", "recipes.md", "comparisons.md", "cost.md"):
        assert (small / name).read_text() == (tmp_path / name).read_text()


def test_columns_are_in_the_order_of_tasks(settings: StudySettings) -> None:
    """Not in that of learning, which differs between runs."""
    both = dataclasses.replace(settings, finetune={**settings.finetune, "squad": SQUAD})
    first, second = (dict.fromkeys(n, estimate([0.5])) for n in (("next", "squad_f1", "mnli_accuracy"), ("masked",)))
    assert metrics_of(both, [first, second]) == ["next", "masked", "mnli_accuracy", "squad_f1"]


def test_cost_is_of_runs_and_of_trials(results: Path, settings: StudySettings) -> None:
    """Trials count once, with the model whose they are."""
    for path in results.glob("*.json"):
        result = read(path)
        result["cpu_seconds"] = {"pretrain": 3600.0 * (1 + result["seed"]), "mnli": 360.0}
        path.write_text(json.dumps(result))
    for path in results.glob("recipes/*.json"):
        trials = read(path)["trials"]
        path.write_text(json.dumps({"trials": {name: one | {"cpu_seconds": 36.0} for name, one in trials.items()}}))
    (results / "average-seed-1.json").unlink()
    assert cost_table(settings, results).splitlines()[2:] == [
        "| average | 1.00 x 1 | 0.10 x 1 | 0.06 | 1.16 |",
        "| attention | 1.50 x 2 | 0.10 x 2 | 0.06 | 3.26 |",
        "| hybrid | 1.50 x 2 | 0.10 x 2 |  | 3.20 |",
        "| all |  |  |  | 7.62 |",
    ]
    assert cost_table(settings, results, ["hybrid"]).splitlines()[-1] == "| all |  |  |  | 3.20 |"


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


def test_what_is_learnt_from_other_weights_does_not_count(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    """Two tasks start from SNLI; one is missing, and SNLI's weights come back as others: the other task is learnt again, too."""
    own = {name: value for name, value in settings.finetune["mnli"].items() if name != "recipes"}
    tasks = {"snli": own, "mnli": own | {"starts_from": "snli"}, "squad": SQUAD | {"starts_from": "snli"}}
    three = dataclasses.replace(settings, finetune=tasks)
    pairs = dataclasses.replace(data, tasks=data.tasks | {"snli": data.tasks["mnli"]})
    path = results / "attention-seed-0.json"
    for seed in (0, 1):
        forget(results / f"attention-seed-{seed}.json", "mnli")
    shutil.copytree(done / "runs/attention/seed-0/pretrain", tmp_path / "runs/attention/seed-0/pretrain")
    run_study(three, pairs, tmp_path / "runs", results, only=["attention"], seeds=[0])
    right = read(path)["metrics"]
    forget(path, "squad")
    change(path, metrics=read(path)["metrics"] | {"snli_accuracy": 0.99, "mnli_accuracy": 0.98})
    shutil.rmtree(tmp_path / "runs/attention/seed-0/snli")
    run_study(three, pairs, tmp_path / "runs", results, only=["attention"], seeds=[0])
    assert read(path)["metrics"] == right


def test_a_table_is_of_one_data_and_one_recipe(results: Path, data: StudyData, settings: StudySettings) -> None:
    """Means and differences of what does not belong together are refused."""
    path, asked = results / "hybrid-seed-1.json", read(results / "hybrid-seed-1.json")["asked"]
    for part, other in (
        ("text", asked | {"data": asked["data"] | {"valid": "0" * 16}}),
        ("mnli", asked | {"finetune": {"mnli": asked["finetune"]["mnli"] | {"files": ["other", "files"]}}}),
    ):
        change(path, asked=other)
        for show in (table, comparison_table, cost_table):
            with pytest.raises(ProvenformerError, match=rf"hybrid-seed-1\.json are of different data \({part}\)"):
                show(settings, results)
        table(settings, results, ["attention"])
        # Before anything is run: what comes will be compared with it.
        with pytest.raises(ProvenformerError, match=r"hybrid-seed-1\.json is from other data"):
            run_study(settings, data, results / "runs", results, ["average"])
    change(path, asked=asked)
    # A recipe that is not tried yet: nothing is chosen, but a mean is of one recipe all the same.
    more = dataclasses.replace(settings, recipes=settings.recipes | {"new": {"learning_rate": 1.0}})
    low = asdict(more.pretraining("hybrid", 1, "low"))
    change(path, recipe="low", asked=asked | {"pretrain": json.loads(json.dumps(low))})
    with pytest.raises(ProvenformerError, match=r"hybrid-seed-1\.json are of different recipes \(pretrain\)"):
        table(more, results)


def test_a_metric_is_of_a_task_that_was_learnt(results: Path, settings: StudySettings) -> None:
    path = results / "hybrid-seed-1.json"
    forget(path, "mnli")
    lines = table(settings, results).splitlines()
    assert ", 1 seed" in next(line for line in lines if line.startswith("| hybrid"))
    assert ", 1 seed" in comparison_table(settings, results)
    assert not any("seed" in line for line in lines if line.startswith("| attention"))
    change(path, metrics=read(path)["metrics"] | {"mnli_accuracy": 0.9})
    with pytest.raises(ProvenformerError, match="has a metric of mnli, but not how it was learnt"):
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
    for seed in (0, 1):
        forget(results / f"attention-seed-{seed}.json", "mnli")
    shutil.copytree(done / "runs/attention/seed-0/pretrain", tmp_path / "runs/attention/seed-0/pretrain")
    run_study(both, pairs, tmp_path / "runs", results, only=["attention"], seeds=[0])
    after, runs = read(path), tmp_path / "runs/attention/seed-0"
    assert [one["starts_from"] for one in after["asked"]["finetune"].values()] == ["", "snli"]
    assert {"snli_accuracy", "mnli_accuracy"} <= after["metrics"].keys()
    used = [read(runs / task / "result.json")["asked"]["model"] for task in ("snli", "mnli")]
    assert used == [file_fingerprint(runs / part / "model/model.safetensors") for part in ("pretrain", "snli")]
    # SNLI is learnt again where its weights are lost and MNLI is missing: if it ends otherwise, that is what MNLI started from.
    forget(path, "mnli")
    change(path, metrics=read(path)["metrics"] | {"snli_accuracy": 0.99})
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


def test_figures_are_the_same_bytes(done: Path, settings: StudySettings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for figure in (draw, draw_curves):
        figure(settings, done / "results", tmp_path / "one.svg")
        figure(settings, done / "results", tmp_path / "two.svg", ["attention", "average", "hybrid"])
        figure(settings, done / "results", tmp_path / "three.svg")
        assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "three.svg").read_bytes()
        assert (tmp_path / "one.svg").read_bytes() != (tmp_path / "two.svg").read_bytes()


def test_the_papers_scale_is_ours_moved_to_its_first_number(
    done: Path, settings: StudySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(study_figure, "_save", lambda figure, *_: drawn.append(figure))
    paper = {"average": {"mnli_accuracy": 66.0}, "hybrid": {"mnli_accuracy": 73.0}}
    draw(dataclasses.replace(settings, paper=paper), done / "results", tmp_path / "figure.svg")
    (ours,) = (axes for axes in drawn[0].axes if axes.get_title() == "MNLI")
    (theirs,) = (axes for axes in drawn[0].axes if not axes.get_title())  # the paper has no other number
    first = next(model for model in settings.models if model in paper)
    mean = 100 * summary(settings, done / "results")[first]["mnli_accuracy"].mean
    shift = paper[first]["mnli_accuracy"] - mean
    assert theirs.get_ylim() == pytest.approx([limit + shift for limit in ours.get_ylim()])
    for axes in (ours, theirs):  # and nothing is cut off
        low, high = axes.get_ylim()
        points = [y for line in axes.get_lines() for y in line.get_ydata() if math.isfinite(y)]
        assert low <= min(points) <= max(points) <= high


def test_a_wide_interval_does_not_flatten_the_seeds(
    results: Path, settings: StudySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    for seed, accuracy in enumerate((0.5, 0.6)):  # half an interval of two seeds is 6.4 times what they are apart
        for model in settings.models:
            path = results / f"{model}-seed-{seed}.json"
            if path.exists():
                result = read(path)
                path.write_text(json.dumps(result | {"metrics": result["metrics"] | {"mnli_accuracy": accuracy}}))
    drawn = []
    monkeypatch.setattr(study_figure, "_save", lambda figure, *_: drawn.append(figure))
    draw(settings, results, tmp_path / "figure.svg")
    (axes,) = (axes for axes in drawn[0].axes if axes.get_title() == "MNLI")
    assert axes.get_ylim() == pytest.approx((40, 70))


def test_intervals_are_those_of_a_models_own_seeds() -> None:
    two = estimate([0.4, 0.6])
    assert two.mean == pytest.approx(0.5)
    assert two.half_width == pytest.approx(12.7062 * 0.1, rel=1e-4)  # t(0.975, 1) * standard error
    three = estimate([0.3, 0.4, 0.5])
    assert three.half_width == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)  # t(0.975, 2)
    assert str(estimate([0.5])) == "50.0"


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
