"""A study: the same training for several models and seeds, then a table. Table 1 and Figure 1 are made from one.

First every model finds its recipe (`recipes.py`). Then, for each seed: pre-train, fine-tune, evaluate. What is finished
is not run again, and what stopped resumes. A result is written when pre-training is done and again after every task.

Several processes may run one study: each goes through the list and takes what no other one is at. Run folders are locked while
somebody trains in them, and what is known stands in files alone, so a process that ends takes nothing with it.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.data.examples import Examples
from provenformer.bert.model.parameters import count_parameters
from provenformer.bert.runtime.locks import Busy, alone_in
from provenformer.bert.runtime.metric_log import last_entry, read_log
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.study.finished import check_data, finished, finished_one, missing_tasks
from provenformer.bert.study.recipes import epochs_search, finetuning_search, try_epochs, try_finetuning, try_recipes
from provenformer.bert.study.results import Result, read_result, result_path
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.training.finetune import finetune
from provenformer.bert.training.pretrain import model_config, pretrain

LONGEST_PAUSE = 60.0  # seconds between two looks for something to do


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
    is pre-trained again if a task is missing from it. What other processes are at is waited for.
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
    with joined(processes) as processes:
        study = _Study(settings, data, runs, results, tasks, todo, processes)
        _check_borrowed(settings, [(model, study.needed(model, seed)) for model, seed in todo], results)
        if processes.first:
            with alone_in(results):  # a disk without locks, too, is told now
                pass
        pause = 1.0
        while busy := study.run_what_is_free():
            reason = str(busy).partition(";")[0]  # without the remedy of somebody who does not wait
            study.tell(f"waiting: {reason}")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        for model in settings.only(only):
            for task in tasks:
                if model not in settings.tuned_as and not _chosen(settings, model, task, results):
                    remedy = "move a result away to make them with its next run"
                    study.tell(f"{model}: trials of {task} are not complete, and its runs are; {remedy}")


@dataclass(frozen=True)
class _Study:
    """What a process, or a group of them, has to run, in this order, and where everything is."""

    settings: StudySettings
    data: StudyData
    runs: Path
    results: Path
    tasks: list[str]
    todo: list[tuple[str, int]]
    processes: Processes
    told: set[str] = field(default_factory=set)
    pretrained: set[tuple[str, int]] = field(default_factory=set)

    def tell(self, line: str) -> None:
        """Once, by the first process."""
        if self.processes.first and line not in self.told:
            print(line)
        self.told.add(line)

    def run_what_is_free(self) -> Busy | None:
        """Run all that no other process is at; returns what is left then, if anything is."""
        busy = None
        for model, seed in self.todo:
            try:
                self._run(model, seed)
            except Busy as other:
                busy = busy or other
        return busy

    def _run(self, model: str, seed: int) -> None:
        # First, since a recipe that was added to the list may be a better one.
        recipe = try_recipes(self.settings, model, self.data, self.runs, self.results, self.processes)
        found = finished_one(self.settings, self.results, model, seed)
        self.processes.wait()  # all have read before one writes
        if found and not missing_tasks(found, self.tasks):
            return
        self.tell(f"{self.settings.title}: {model}, seed {seed}")
        if (model, seed) not in self.pretrained:  # who waits looks often
            self._pretrain(model, seed, recipe)
            self.pretrained.add((model, seed))
        while missing := missing_tasks(read_result(self.results, model, seed), self.tasks):
            busy = None
            for task in missing:
                try:
                    self._learn(model, seed, task)
                except Busy as other:  # another task is free, perhaps
                    busy = other
            if busy:
                raise busy

    def _folder(self, model: str, seed: int) -> Path:
        return self.runs / model / f"seed-{seed}"

    def _pretrain(self, model: str, seed: int, recipe: str) -> None:
        asked, folder = self.settings.pretraining(model, seed, recipe), self._folder(model, seed) / "pretrain"
        data = self.data
        found = pretrain(asked, data.train, data.valid, folder, data.short, self.processes)
        log, spent = read_log(folder / "metrics.jsonl"), last_entry(folder / "metrics.jsonl", "tokens", "cpu_seconds")
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

        def unless_it_is_there(earlier: Result | None) -> Result:
            # Weights that were lost come back only on a processor that rounds alike. A result is of one set of weights.
            if earlier is not None and result["metrics"].items() <= earlier["metrics"].items():
                return earlier
            return result

        self._record(model, seed, unless_it_is_there)

    def _learn(self, model: str, seed: int, task: str) -> None:
        """A task, after the one that it starts from, which is learnt again if its weights are lost."""
        settings, data, folder = self.settings, self.data, self._folder(model, seed)
        if start := settings.start_of(task):
            self._learn(model, seed, start)
        self._require_trials(model, seed, task)
        where = (data, folder, self.results, self.processes)
        chosen = try_finetuning(settings, model, task, folder / "pretrain/model", *where)
        weights = folder / (start or "pretrain") / "model"
        epochs = try_epochs(settings, model, task, chosen, weights, *where)
        tuning = settings.finetuning(task, seed, chosen, epochs)
        found = finetune(tuning, weights, *data.tasks[task], folder / task, self.processes)["metrics"]
        scores = {f"{task}_{name}": value for name, value in found.items()}
        spent = last_entry(folder / task / "metrics.jsonl", "cpu_seconds")["cpu_seconds"]
        asked = {
            "recipe": chosen,
            "starts_from": start,
            "settings": asdict(tuning),
            "files": data.files(task),
            "provenance": provenance(),
        }

        def with_the_task(result: Result | None) -> Result:
            if result is None:
                path = result_path(self.results, model, seed)
                raise ProvenformerError(f"{path} was removed while {task} was learnt; run the study again")
            metrics, cpu_seconds, learnt = result["metrics"], result["cpu_seconds"], result["asked"]["finetune"]
            if task in learnt and scores.items() <= metrics.items():
                return result
            # Other weights than those that later tasks started from.
            later = [other for other in learnt if settings.start_of(other) == task]
            kept = {n: v for n, v in metrics.items() if not n.startswith(tuple(f"{other}_" for other in later))}
            changed = {
                "metrics": kept | scores,
                "cpu_seconds": {part: s for part, s in cpu_seconds.items() if part not in later} | {task: spent},
                "asked": result["asked"]
                | {"finetune": {other: one for other, one in learnt.items() if other not in later} | {task: asked}},
            }
            return result | changed

        self._record(model, seed, with_the_task)

    def needed(self, model: str, seed: int) -> list[str]:
        """What a run has to learn: the tasks that it lacks, and those that they start from, whose weights may be lost."""
        missing = missing_tasks(finished_one(self.settings, self.results, model, seed), self.tasks)
        return self.settings.with_starts(missing)

    def _require_trials(self, model: str, seed: int, task: str) -> None:
        """All trials of a search start from one set of weights: those of the first run that needs it."""
        lender = self.settings.tuned_as.get(model, model)
        maker = self._maker(lender)  # asked first: the last trial may be written meanwhile
        if _chosen(self.settings, lender, task, self.results) or (model, seed) == maker:
            return
        if maker is None:
            raise _no_maker(model, lender, task)
        raise Busy(f"{model}, seed {seed}, has to know first what {lender} chooses for {task}")

    def _maker(self, lender: str) -> tuple[str, int] | None:
        for model, seed in self.todo:
            if model == lender and not all(
                _chosen(self.settings, lender, task, self.results) for task in self.needed(model, seed)
            ):
                return model, seed
        return None

    def _record(self, model: str, seed: int, change: Callable[[Result | None], Result]) -> None:
        """Change a result in its file, from what it is now: other processes may have changed it meanwhile."""
        if self.processes.first:
            with alone_in(self.results):
                before = read_result(self.results, model, seed)
                if (after := change(before)) != before:
                    write_json(result_path(self.results, model, seed), after)
        self.processes.wait()


def _check_borrowed(settings: StudySettings, left: list[tuple[str, list[str]]], results: Path) -> None:
    """A trial of fine-tuning is made with the weights of the model whose recipe it is: that one has to learn the task first.

    `left` are the runs to come, in their order: model and tasks to learn.
    """
    for place, (model, tasks) in enumerate(left):
        lender = settings.tuned_as.get(model, model)
        learnt = {task for other, several in left[: place + 1] if other == lender for task in several}
        untried = (task for task in tasks if task not in learnt and not _chosen(settings, lender, task, results))
        if task := next(untried, None):
            raise _no_maker(model, lender, task)


def _no_maker(model: str, lender: str, task: str) -> ProvenformerError:
    remedy = f"run {lender} first, with a seed that is not finished"
    return ProvenformerError(
        f"{model} takes the recipe of {lender} for {task}, whose trials are not complete; {remedy}"
    )


def _chosen(settings: StudySettings, model: str, task: str, results: Path) -> bool:
    """Whether all trials of a task, of recipes and of epochs, are there."""
    recipe = finetuning_search(settings, model, task, results).chosen()
    return recipe is not None and epochs_search(settings, model, task, recipe, results).chosen() is not None
