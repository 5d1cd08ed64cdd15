"""Several processes at one study: each takes what is free, waits for the rest, and loses nothing of what others write."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from study_cases import SQUAD, STUDY, change, forget, invoke, read

from provenformer.base.errors import ProvenformerError
from provenformer.bert.runtime.locks import Busy, lock_folder
from provenformer.bert.study import StudyData, StudySettings, recipes, run, run_study
from provenformer.bert.training.finetune import finetune as train


class Others:
    """Other processes, which hold folders until this one has nothing left to do but to wait for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[Any] = []
        self.waits = 0
        monkeypatch.setattr("time.sleep", self._let_go)

    def hold(self, *folders: Path) -> None:
        self.held += [lock_folder(folder) for folder in folders]

    def seen(self) -> None:
        """What a test looks at when the process waits."""

    def _let_go(self, _seconds: float) -> None:
        self.seen()
        self.waits += 1
        assert self.held, "waits for nobody"
        while self.held:
            self.held.pop().close()


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    return Others(monkeypatch)


def metrics(results: Path) -> dict[str, Any]:
    return {path.name: read(path)["metrics"] for path in results.glob("*.json")}


def test_a_held_run_is_passed_over_and_waited_for(
    results: Path, data: StudyData, settings: StudySettings, others: Others, tmp_path: Path
) -> None:
    expected = metrics(results)
    for path in results.glob("*-seed-0.json"):
        path.unlink()
    others.hold(tmp_path / "runs/average/seed-0/pretrain")

    def seen() -> None:
        assert not (results / "average-seed-0.json").exists()
        assert all(metrics(results)[f"{model}-seed-0.json"] for model in ("attention", "hybrid"))

    others.seen = seen  # type: ignore[method-assign]
    run_study(settings, data, tmp_path / "runs", results)
    assert others.waits == 1
    assert metrics(results) == expected


def test_trials_are_shared(
    data: StudyData, settings: StudySettings, done: Path, others: Others, tmp_path: Path
) -> None:
    """The others are tried meanwhile, and the choice waits for all."""
    results = tmp_path / "results"
    others.hold(tmp_path / "runs/average/recipe-good")

    def seen() -> None:
        assert read(results / "recipes/average.json")["trials"].keys() == {"low", "high"}
        assert not list(results.glob("*.json"))

    others.seen = seen  # type: ignore[method-assign]
    run_study(settings, data, tmp_path / "runs", results, ["average"], [0], finetuned=False)
    assert others.waits == 1
    assert metrics(results)["average-seed-0.json"].items() <= metrics(done / "results")["average-seed-0.json"].items()


def test_one_run_makes_the_trials_of_a_task(
    done: Path, results: Path, data: StudyData, settings: StudySettings, others: Others, tmp_path: Path
) -> None:
    """While they are not complete, neither another seed nor a model that borrows them makes any with its own weights."""
    runs = Path(shutil.copytree(done / "runs", tmp_path / "runs"))
    expected = metrics(results)
    (results / "recipes/attention.mnli.json").unlink()
    for folder in runs.glob("*/seed-*/mnli*"):
        shutil.rmtree(folder)
    for path in results.glob("*-seed-?.json"):
        forget(path, "mnli")
    others.hold(runs / "attention/seed-0/mnli-recipe-good")

    def seen() -> None:
        assert read(results / "recipes/attention.mnli.json")["trials"].keys() == {"low", "high"}
        assert not (runs / "attention/seed-1/mnli-recipe-low").exists()
        assert not (runs / "hybrid/seed-0/mnli-recipe-low").exists()
        assert read(results / "average-seed-1.json")["metrics"].keys() >= {"mnli_accuracy"}

    others.seen = seen  # type: ignore[method-assign]
    run_study(settings, data, runs, results)
    assert others.waits == 1
    assert metrics(results) == expected


def test_tasks_of_one_model_are_shared(
    done: Path,
    results: Path,
    data: StudyData,
    settings: StudySettings,
    others: Others,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task is held, the next one is learnt; what another process writes meanwhile stays."""
    runs = Path(shutil.copytree(done / "runs", tmp_path / "runs"))
    both = dataclasses.replace(settings, finetune={**settings.finetune, "squad": SQUAD})
    path = results / "average-seed-0.json"
    whole = read(path)
    forget(path, "mnli")
    others.hold(runs / "average/seed-0/mnli")

    def finetune(*arguments: Any) -> Any:
        found = train(*arguments)
        change(path, **whole)  # the other process is done with its task
        return found

    def seen() -> None:
        assert "squad" in read(path)["asked"]["finetune"]

    others.seen = seen  # type: ignore[method-assign]
    monkeypatch.setattr(run, "finetune", finetune)
    run_study(both, data, runs, results, ["average"], [0])
    assert read(path)["metrics"].keys() > whole["metrics"].keys()
    assert read(path)["asked"]["finetune"].keys() == {"mnli", "squad"}
    assert read(path)["metrics"].items() >= whole["metrics"].items()


def test_nobody_waits_for_trials_that_no_other_run_makes(
    done: Path, results: Path, data: StudyData, settings: StudySettings, tmp_path: Path
) -> None:
    """A task starts from one that is learnt and whose search is not complete: this run makes the trials itself."""
    runs = Path(shutil.copytree(done / "runs", tmp_path / "runs"))
    both = dataclasses.replace(settings, finetune={**settings.finetune, "squad": {**SQUAD, "starts_from": "mnli"}})
    (results / "recipes/average.mnli.json").unlink()
    run_study(both, data, runs, results, ["average"], [0])
    assert read(results / "recipes/average.mnli.json")["trials"].keys() == {"low", "high", "good"}
    assert "squad" in read(results / "average-seed-0.json")["asked"]["finetune"]


def test_a_search_that_others_complete_stays(
    done: Path,
    results: Path,
    data: StudyData,
    settings: StudySettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another command makes all trials, with another seed's weights, and rests a result on them."""
    runs = Path(shutil.copytree(done / "runs", tmp_path / "runs"))
    search = results / "recipes/average.mnli.json"
    search.unlink()
    for folder in runs.glob("average/seed-*/mnli*"):
        shutil.rmtree(folder)
    for path in results.glob("average-seed-?.json"):
        forget(path, "mnli")
    complete: list[Any] = []

    def finetune(*arguments: Any) -> Any:
        monkeypatch.setattr(recipes, "finetune", train)
        run_study(settings, data, runs, results, ["average"], [1])
        complete.append(read(search))
        return train(*arguments)

    monkeypatch.setattr(recipes, "finetune", finetune)
    run_study(settings, data, runs, results, ["average"], [0])
    assert [read(search)] == complete
    assert "mnli_accuracy" in read(results / "average-seed-0.json")["metrics"]


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(Busy, match="another process is training in"):
        lock_folder(tmp_path)
    lock_folder(tmp_path).close()


def test_jobs_give_what_one_process_gives(done: Path, data: StudyData, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    where = ["--data", data.train, "--valid", data.valid, "--tuning", data.tuning, "--short", data.short]
    kept = ["--runs", tmp_path / "runs", "--results", tmp_path / "results", "--mnli", *data.tasks["mnli"]]
    said = invoke("study", tmp_path / "study.toml", *where, *kept, "--jobs", 2)
    assert "| attention | 2 |" in said
    assert metrics(tmp_path / "results") == metrics(done / "results")
    lost = tmp_path / "results/average-seed-1.json"
    change(lost, seed=7)
    with pytest.raises(ProvenformerError, match="is of 'average', seed 7") as caught:
        invoke("study", tmp_path / "study.toml", *where, *kept, "--jobs", 2)
    assert "\n" not in str(caught.value)
    with pytest.raises(ProvenformerError, match="--jobs 0 must be at least 1"):
        invoke("study", tmp_path / "study.toml", *where, *kept, "--jobs", 0)


def test_workers_end_with_their_parent(data: StudyData, tmp_path: Path) -> None:
    """Killed in a way that it cannot notice: they would train on unseen."""
    (tmp_path / "study.toml").write_text(STUDY)
    held = [lock_folder(tmp_path / f"runs/average/recipe-{recipe}") for recipe in ("low", "good", "high")]
    where = ["--data", data.train, "--valid", data.valid, "--tuning", data.tuning, "--short", data.short]
    kept = ["--runs", tmp_path / "runs", "--results", tmp_path / "results", "--mnli", *data.tasks["mnli"]]
    command = [sys.executable, "-m", "provenformer", "bert", "study", tmp_path / "study.toml", *where, *kept]
    options = ["--only", "average", "--jobs", 2]
    with subprocess.Popen(
        [str(part) for part in (*command, *options)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as parent:
        assert parent.stdout is not None
        try:
            said = "".join(parent.stdout.readline() for _ in range(2))  # of two workers, who may speak at once
        finally:
            parent.kill()
        for one in held:  # whoever is left could go on now, and would say so
            one.close()
        assert said.count("waiting: another process is training in") == 2
        assert parent.stdout.read() == ""  # which ends when nobody is left who could write
