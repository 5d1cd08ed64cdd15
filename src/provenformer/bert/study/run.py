"""A study: the same training for several models and seeds, then a table. Table 1 and Figure 1 are made from one.

First every model finds its recipe (`recipes.py`). Then, for each seed: pre-train, fine-tune, evaluate. What is finished
is not run again, and what stopped resumes. A result is written when pre-training is done and again after every task.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.data.examples import Examples
from provenformer.bert.model.parameters import count_parameters
from provenformer.bert.runtime.metric_log import last_entry, read_log
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.settings import build_settings
from provenformer.bert.study.recipes import (
    Asked,
    Search,
    epochs_search,
    finetuning_search,
    pretraining_search,
    try_epochs,
    try_finetuning,
    try_recipes,
)
from provenformer.bert.study.results import Result, read_result, result_path
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.training.finetune import FinetuneSettings, finetune
from provenformer.bert.training.pretrain import model_config, pretrain


def run_study(
    settings: StudySettings,
    data: StudyData,
    runs: Path,
    results: Path,
    only: list[str] | None = None,
    seeds: list[int] | None = None,
    *,
    finetuned: bool = True,
    processes: Processes | None = None,
) -> None:
    """Run what is missing, of all models or of `only` these, of all seeds or of these, with or without fine-tuning.

    Weights and curves go to `runs`, one JSON file for each model and seed to `results`. A result whose weights are lost
    is pre-trained again if a task is missing from it.
    """
    tasks = list(settings.finetune) if finetuned else []
    # All models with one seed first: a table as early as possible.
    todo = [(model, seed) for seed in settings.only_seeds(seeds) for model in settings.only(only)]
    left = []
    for model, seed in todo:
        if result := finished_one(settings, results, model, seed):
            _check_data(result_path(results, model, seed), result, data, tasks)
        if not _complete(result, tasks):
            left.append(model)
    # What is not there is told now, not after hours of trials.
    for held_out in filter(None, (data.valid, data.tuning)):
        data.fingerprints(held_out)
    for task in tasks:
        data.files(task)
    _check_borrowed(settings, left, tasks, results)
    with joined(processes) as processes:
        for model, seed in todo:
            # First, since a recipe that was added to the list may be a better one.
            recipe = try_recipes(settings, model, data, runs, results, processes)
            found = finished_one(settings, results, model, seed)
            processes.wait()  # all have read before one writes
            if _complete(found, tasks):
                continue
            if processes.first:
                print(f"{settings.title}: {model}, seed {seed}")
            run = runs / model / f"seed-{seed}"
            for result in _stages(settings, model, seed, recipe, data, run, results, tasks, found, processes):
                if processes.first:
                    write_json(result_path(results, model, seed), result)
                processes.wait()


def _stages(
    settings: StudySettings,
    model: str,
    seed: int,
    recipe: str,
    data: StudyData,
    folder: Path,
    results: Path,
    tasks: list[str],
    earlier: Result | None,
    processes: Processes,
) -> Iterator[Result]:
    """The result after pre-training, and after every task that an earlier result does not have."""
    asked = settings.pretraining(model, seed, recipe)
    found = pretrain(asked, data.train, data.valid, folder / "pretrain", data.short, processes)
    log = read_log(folder / "pretrain/metrics.jsonl")
    spent = last_entry(folder / "pretrain/metrics.jsonl", "tokens", "cpu_seconds")
    examples = Examples(data.train)
    result: Result = {
        "model": model,
        "seed": seed,
        "recipe": recipe,
        "parameters": count_parameters(model_config(asked.model, examples.vocabulary, examples.seq_len)),
        "metrics": dict(found["metrics"]),
        "tokens": spent["tokens"],
        "cpu_seconds": {"pretrain": spent["cpu_seconds"]},
        "curve": [line for line in log if "masked_accuracy" in line],
        "asked": {"pretrain": asdict(asked), "data": data.fingerprints(data.valid), "finetune": {}},
        "provenance": provenance(),
    }
    # Weights that were lost come back only on a processor that rounds alike. A result is of one set of weights.
    if earlier and result["metrics"].items() <= earlier["metrics"].items():
        result = earlier
    yield result

    def learn(task: str) -> tuple[str, FinetuneSettings, dict[str, float]]:
        """Recipe, settings and scores; the task that it starts from is learnt again if its weights are lost."""
        if start := settings.start_of(task):
            learn(start)
        chosen = try_finetuning(settings, model, task, folder / "pretrain/model", data, folder, results, processes)
        weights = folder / (start or "pretrain") / "model"
        epochs = try_epochs(settings, model, task, chosen, weights, data, folder, results, processes)
        tuning = settings.finetuning(task, seed, chosen, epochs)
        return chosen, tuning, finetune(tuning, weights, *data.tasks[task], folder / task, processes)["metrics"]

    for task in (task for task in tasks if task not in result["asked"]["finetune"]):
        chosen, tuning, scores = learn(task)
        result["metrics"] |= {f"{task}_{name}": value for name, value in scores.items()}
        result["cpu_seconds"][task] = last_entry(folder / task / "metrics.jsonl", "cpu_seconds")["cpu_seconds"]
        result["asked"]["finetune"][task] = {
            "recipe": chosen,
            "starts_from": settings.start_of(task),
            "settings": asdict(tuning),
            "files": data.files(task),
            "provenance": provenance(),
        }
        yield result


def finished(settings: StudySettings, results: Path, model: str) -> Iterator[Result]:
    """The results of a model, in the order of the seeds."""
    for seed in settings.seeds:
        if result := finished_one(settings, results, model, seed):
            yield result


def finished_one(settings: StudySettings, results: Path, model: str, seed: int) -> Result | None:
    """The result of a model and a seed; one of other settings, or of a recipe that lost, does not belong into the table.

    A setting that an earlier version did not have counts as its default.
    """
    path, result = result_path(results, model, seed), read_result(results, model, seed)
    if result is None:
        return None
    asked, recipe = result["asked"], result["recipe"]
    _check_choice(path, "pretrain", f"the recipe {recipe!r}", recipe, pretraining_search(settings, model, results))
    _check_settings(path, "pretrain", asked["pretrain"], settings.pretraining(model, seed, recipe))
    for task, learnt in asked["finetune"].items():
        if task not in settings.finetune or learnt.get("starts_from", "") != settings.start_of(task):
            raise _other_settings(path, task)
        recipe, epochs = learnt["recipe"], build_settings(FinetuneSettings, learnt["settings"], str(path)).epochs
        _check_choice(path, task, f"the recipe {recipe!r}", recipe, finetuning_search(settings, model, task, results))
        lengths = epochs_search(settings, model, task, recipe, results)
        _check_choice(path, task, f"{epochs:g} epochs", f"{epochs:g}", lengths)
        _check_settings(path, task, learnt["settings"], settings.finetuning(task, seed, recipe, epochs))
    return result


def _check_choice(path: Path, part: str, said: str, chosen: str, search: Search) -> None:
    if chosen not in search.asked:
        raise _other_settings(path, part)
    if search.chosen() not in (chosen, None):
        raise ProvenformerError(f"{path} is with {said} ({part}), which was not chosen; move it away to run it anew")


def _check_settings(path: Path, part: str, recorded: dict[str, Any], now: Asked) -> None:
    if build_settings(type(now), recorded, str(path)) != now:
        raise _other_settings(path, part)


def _other_settings(path: Path, part: str) -> ProvenformerError:
    return ProvenformerError(f"{path} is from other settings ({part}); move it away or restore them")


def _complete(result: Result | None, tasks: list[str]) -> bool:
    return result is not None and all(task in result["asked"]["finetune"] for task in tasks)


def _check_borrowed(settings: StudySettings, left: list[str], tasks: list[str], results: Path) -> None:
    """A trial of fine-tuning is made with the weights of the model whose recipe it is: a run of that one has to come first.

    `left` are the models of the runs to come, in their order.
    """
    for place, model in enumerate(left):
        lender = settings.tuned_as.get(model, model)
        for task in tasks if lender not in left[: place + 1] else ():
            recipe = finetuning_search(settings, lender, task, results).chosen()
            if recipe is None or epochs_search(settings, lender, task, recipe, results).chosen() is None:
                raise ProvenformerError(
                    f"{model} takes the recipe of {lender} for {task}, whose trials are not complete; "
                    f"run {lender} first, with a seed that is not finished"
                )


def _check_data(path: Path, result: Result, data: StudyData, tasks: list[str]) -> None:
    asked = result["asked"]
    same = asked["data"] == data.fingerprints(data.valid) and all(
        asked["finetune"][task]["files"] == data.files(task) for task in tasks if task in asked["finetune"]
    )
    if not same:
        raise ProvenformerError(f"{path} is from other data; move it away to run it anew")
