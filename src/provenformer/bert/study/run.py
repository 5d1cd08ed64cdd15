"""A study: the same training for several models and seeds, then a table. Table 1 and Figure 1 are made from one.

First every model finds its recipe (`recipes.py`). Then, for each seed: pre-train, fine-tune, evaluate. What is finished
is not run again, and what stopped resumes. A result is written when pre-training is done and again after every task.
"""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.data.examples import Examples
from provenformer.bert.model.parameters import count_parameters
from provenformer.bert.runtime.metric_log import last_entry, read_log
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.study.finished import check_data, finished, finished_one, missing_tasks
from provenformer.bert.study.recipes import epochs_search, finetuning_search, try_epochs, try_finetuning, try_recipes
from provenformer.bert.study.results import Result, read_result, result_path
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.training.finetune import finetune
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
    finished(settings, results, only)
    # Of other models, too: what is run now will be compared with them.
    for model, seed in product(settings.models, settings.seeds):
        if earlier := read_result(results, model, seed):
            check_data(results, earlier, data, tasks)
    # What is not there is told now, not after hours of trials.
    for held_out in filter(None, (data.valid, data.tuning)):
        data.fingerprints(held_out)
    for task in tasks:
        data.files(task)
    left = [(model, missing_tasks(finished_one(settings, results, model, seed), tasks)) for model, seed in todo]
    _check_borrowed(settings, left, results)
    with joined(processes) as processes:
        for model, seed in todo:
            # First, since a recipe that was added to the list may be a better one.
            recipe = try_recipes(settings, model, data, runs, results, processes)
            found = finished_one(settings, results, model, seed)
            processes.wait()  # all have read before one writes
            if found and not missing_tasks(found, tasks):
                continue
            if processes.first:
                print(f"{settings.title}: {model}, seed {seed}")
            run = runs / model / f"seed-{seed}"
            for result in _stages(settings, model, seed, recipe, data, run, results, tasks, found, processes):
                if processes.first:
                    write_json(result_path(results, model, seed), result)
                processes.wait()
        for model in settings.only(only) if processes.first else ():
            for task in tasks:
                if model not in settings.tuned_as and not _chosen(settings, model, task, results):
                    remedy = "move a result away to make them with its next run"
                    print(f"{model}: trials of {task} are not complete, and its runs are; {remedy}")


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

    learnt = result["asked"]["finetune"]

    def learn(task: str) -> None:
        """A task, after the one that it starts from, which is learnt again if its weights are lost."""
        if start := settings.start_of(task):
            learn(start)
        chosen = try_finetuning(settings, model, task, folder / "pretrain/model", data, folder, results, processes)
        weights = folder / (start or "pretrain") / "model"
        epochs = try_epochs(settings, model, task, chosen, weights, data, folder, results, processes)
        tuning = settings.finetuning(task, seed, chosen, epochs)
        found = finetune(tuning, weights, *data.tasks[task], folder / task, processes)["metrics"]
        scores = {f"{task}_{name}": value for name, value in found.items()}
        if task in learnt and scores.items() <= result["metrics"].items():
            return
        # Other weights than those that later tasks started from.
        for later in [other for other in learnt if settings.start_of(other) == task]:
            del learnt[later], result["cpu_seconds"][later]
            result["metrics"] = {n: v for n, v in result["metrics"].items() if not n.startswith(f"{later}_")}
        result["metrics"] |= scores
        result["cpu_seconds"][task] = last_entry(folder / task / "metrics.jsonl", "cpu_seconds")["cpu_seconds"]
        learnt[task] = {
            "recipe": chosen,
            "starts_from": start,
            "settings": asdict(tuning),
            "files": data.files(task),
            "provenance": provenance(),
        }

    while missing := missing_tasks(result, tasks):
        learn(missing[0])
        yield result


def _check_borrowed(settings: StudySettings, left: list[tuple[str, list[str]]], results: Path) -> None:
    """A trial of fine-tuning is made with the weights of the model whose recipe it is: that one has to learn the task first.

    `left` are the runs to come, in their order: model and tasks to learn.
    """
    for place, (model, tasks) in enumerate(left):
        lender = settings.tuned_as.get(model, model)
        learnt = {task for other, several in left[: place + 1] if other == lender for task in several}
        untried = (task for task in tasks if task not in learnt and not _chosen(settings, lender, task, results))
        if task := next(untried, None):
            raise ProvenformerError(
                f"{model} takes the recipe of {lender} for {task}, whose trials are not complete; "
                f"run {lender} first, with a seed that is not finished"
            )


def _chosen(settings: StudySettings, model: str, task: str, results: Path) -> bool:
    """Whether all trials of a task, of recipes and of epochs, are there."""
    recipe = finetuning_search(settings, model, task, results).chosen()
    return recipe is not None and epochs_search(settings, model, task, recipe, results).chosen() is not None
