"""The search for a recipe: every model tries the same list, with the same budget, on text that the table does not use.

Pre-training first, then every task of fine-tuning on a part of its training file, then its epochs, if there is a choice.
What is tried is kept in `<results>/recipes/`, `<model>.json`, `<model>.<task>.json` and `<model>.<task>.epochs.json`, which
is enough to go on: no trial is made twice, unless its search stopped and its weights are lost.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.runtime.locks import Busy, alone_in
from provenformer.bert.runtime.metric_log import last_entry
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.settings import build_settings
from provenformer.bert.study.markdown import bold_if, markdown_table
from provenformer.bert.study.results import Trial, read_trials
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.study.titles import title_of
from provenformer.bert.training.finetune import FinetuneSettings, file_fingerprint, finetune
from provenformer.bert.training.loop import NotFinite
from provenformer.bert.training.pretrain import PretrainSettings, pretrain

HELD_OUT = 0.1  # of a task's training file
Asked = PretrainSettings | FinetuneSettings


@dataclass(frozen=True)
class Search:
    """What a model tries, and what came of it. The lowest `loss` is best; None is one that is not finite.

    asked    recipe -> the settings of its trial
    learnt   part -> its settings, with the first seed: what weights have learnt before a trial starts with them; None for
             what is not chosen
    """

    path: Path
    asked: dict[str, Asked]
    learnt: dict[str, Asked | None] = field(default_factory=dict)

    def done(self) -> dict[str, Trial]:
        """The trials there are; those of other settings are refused. A setting that they do not know has its default."""
        found = {name: trial for name, trial in read_trials(self.path).items() if name in self.asked}
        for name, trial in found.items():
            asked = trial["asked"]
            if not self._same(self.asked[name], asked["settings"]) or not self._same_start(asked.get("learnt")):
                raise ProvenformerError(
                    f"{self.path}: the trial of {name!r} is from other settings; remove it to try again"
                )
        return {name: found[name] for name in self.asked if name in found}

    def _same(self, now: Asked, then: dict[str, Any]) -> bool:
        return build_settings(type(now), then, str(self.path)) == now

    def _same_start(self, then: dict[str, Any] | None) -> bool:
        """Earlier versions did not tell what a trial started with."""
        return not then or (
            then.keys() == self.learnt.keys()
            and all(now is None or self._same(now, then[part]) for part, now in self.learnt.items())
        )

    def chosen(self) -> str | None:
        """The best recipe once all are tried, or the only one."""
        if len(self.asked) == 1:
            return next(iter(self.asked))
        losses = {name: trial["loss"] for name, trial in self.done().items()}
        if losses.keys() != self.asked.keys():
            return None
        finite = {name: loss for name, loss in losses.items() if loss is not None}
        if not finite:
            raise NotFinite(f"no recipe in {self.path} has a finite loss; lower learning_rate in the recipes")
        return min(finite, key=finite.__getitem__)

    def run(self, attempt: Callable[[str], Trial], data: Any, processes: Processes, weights: str = "") -> str:
        """Try what is not tried yet, and return the best. `data` tells the trials' data apart, `weights` what they start with.

        Recipes are compared from one start: a search that is not complete goes on only with the trials of these weights.
        Processes that run one search at a time share its trials; Busy says that others still have some.
        """
        done = self.done()
        for name, earlier in done.items():
            if earlier["asked"]["data"] != data:
                raise ProvenformerError(
                    f"{self.path}: the trial of {name!r} is from other data; remove it to try again"
                )
        chosen = self.chosen()
        processes.wait()  # all have read before one writes
        if chosen is not None:
            return chosen
        learnt = {part: asdict(one) for part, one in self.learnt.items() if one}
        busy = None
        for name in self.asked:
            tried = name in self._done_from(weights)
            processes.wait()
            if tried:
                continue
            asked = {"settings": asdict(self.asked[name]), "data": data, "learnt": learnt, "weights": weights}
            try:
                trial = attempt(name) | {"asked": asked, "provenance": provenance()}
            except Busy as other:  # the next one is free, perhaps
                busy = other
                continue
            if processes.first:
                with alone_in(self.path.parent):
                    if self.chosen() is None:  # what others have chosen meanwhile, with other weights, stays
                        write_json(self.path, {"trials": self._done_from(weights) | {name: trial}})
            processes.wait()
        if busy:
            raise busy
        chosen = self.chosen()
        if chosen is None:
            raise ProvenformerError(f"{self.path} lacks a recipe that was tried; run the study again")
        return chosen

    def _done_from(self, weights: str) -> dict[str, Trial]:
        return {name: trial for name, trial in self.done().items() if trial["asked"].get("weights", "") == weights}


def pretraining_search(settings: StudySettings, model: str, results: Path) -> Search:
    """A trial is a run in miniature: masking, length and decay change over it as they would over a long one."""
    tuned, seed = settings.tuned_as.get(model, model), settings.seeds[0]
    return Search(
        results / "recipes" / f"{tuned}.json",
        {
            name: replace(settings.pretraining(tuned, seed, name), steps=settings.tuning_steps or 1, evaluate_every=0)
            for name in settings.recipes
        },
    )


def finetuning_search(settings: StudySettings, model: str, task: str, results: Path) -> Search:
    """A trial is a full run, or one of `trial_epochs`, but for the held-out part of the training file."""
    tuned, task = settings.tuned_as.get(model, model), settings.tried_on(task)
    return Search(
        results / "recipes" / f"{tuned}.{task}.json",
        {
            name: replace(settings.trial(task, name), held_out_fraction=HELD_OUT)
            for name in settings.finetune_recipes(task)
        },
        _learnt(settings, tuned, "", results),
    )


def epochs_search(settings: StudySettings, model: str, task: str, recipe: str, results: Path) -> Search:
    """How long to fine-tune, with the recipe that was chosen. Each is a full run but for the held-out part."""
    tuned, seed = settings.tuned_as.get(model, model), settings.seeds[0]
    numbers: list[float | None] = [*settings.epochs_tried(task)] or [None]
    asked = [settings.finetuning(task, seed, recipe, epochs) for epochs in numbers]
    return Search(
        results / "recipes" / f"{tuned}.{task}.epochs.json",
        {f"{one.epochs:g}": replace(one, held_out_fraction=HELD_OUT) for one in asked},
        _learnt(settings, tuned, settings.start_of(task), results),
    )


def _learnt(settings: StudySettings, model: str, last: str, results: Path) -> dict[str, Asked | None]:
    """Settings of pre-training and of the tasks up to `last`, "" for none; with the first seed, None where nothing is chosen."""
    seed = settings.seeds[0]
    if not last:
        recipe = pretraining_search(settings, model, results).chosen()
        return {"pretrain": None if recipe is None else settings.pretraining(model, seed, recipe)}
    learnt = _learnt(settings, model, settings.start_of(last), results) | {last: None}
    if (recipe := finetuning_search(settings, model, last, results).chosen()) is not None:
        lengths = epochs_search(settings, model, last, recipe, results)
        if (epochs := lengths.chosen()) is not None:
            learnt[last] = settings.finetuning(last, seed, recipe, lengths.asked[epochs].epochs)  # type: ignore[union-attr]
    return learnt


def searches(settings: StudySettings, model: str, results: Path) -> Iterator[Search]:
    """All that a model tries; epochs only where the recipe before them is chosen."""
    yield pretraining_search(settings, model, results)
    for task in settings.finetune:
        search = finetuning_search(settings, model, task, results)
        if settings.tried_on(task) == task:
            yield search
        if (recipe := search.chosen()) is not None:
            yield epochs_search(settings, model, task, recipe, results)


def try_recipes(
    settings: StudySettings, model: str, data: StudyData, runs: Path, results: Path, processes: Processes
) -> str:
    """The recipe of a model's pre-training, with the first seed."""
    search = pretraining_search(settings, model, results)
    held_out = data.tuning
    if len(search.asked) > 1 and held_out is None:
        raise ProvenformerError(f"{len(search.asked)} recipes are chosen on text of their own; give it with --tuning")

    def attempt(name: str) -> Trial:
        run = runs / search.path.stem / f"recipe-{name}"
        return _outcome(
            lambda: pretrain(search.asked[name], data.train, held_out, run, data.short, processes),  # type: ignore[arg-type]
            run,
            lambda found: found["valid_masked_loss"],
            "mask_token_accuracy",
        )

    return search.run(attempt, data.fingerprints(held_out) if held_out else None, processes)


def try_finetuning(
    settings: StudySettings,
    model: str,
    task: str,
    pretrained: Path,
    data: StudyData,
    runs: Path,
    results: Path,
    processes: Processes,
) -> str:
    """The recipe of a model's fine-tuning, with the first weights that there are."""
    search, task = finetuning_search(settings, model, task, results), settings.tried_on(task)
    return _try_task(search, task, pretrained, data, runs / f"{task}-recipe", processes)


def try_epochs(
    settings: StudySettings,
    model: str,
    task: str,
    recipe: str,
    weights: Path,
    data: StudyData,
    runs: Path,
    results: Path,
    processes: Processes,
) -> float:
    """The epochs of a model's fine-tuning, with the first weights that there are."""
    search = epochs_search(settings, model, task, recipe, results)
    chosen = _try_task(search, task, weights, data, runs / f"{task}-epochs", processes)
    return search.asked[chosen].epochs  # type: ignore[union-attr]


def _try_task(search: Search, task: str, weights: Path, data: StudyData, prefix: Path, processes: Processes) -> str:
    metric = "f1" if task == "squad" else "accuracy"

    def attempt(name: str) -> Trial:
        run = prefix.with_name(f"{prefix.name}-{name}")
        return _outcome(
            lambda: finetune(search.asked[name], weights, *data.tasks[task], run, processes),  # type: ignore[arg-type]
            run,
            lambda found: 1 - found[metric],
            metric,
        )

    return search.run(attempt, data.files(task), processes, file_fingerprint(weights / "model.safetensors"))


def _outcome(
    training: Callable[[], dict[str, Any]], run: Path, loss: Callable[[dict[str, float]], float], metric: str
) -> Trial:
    try:
        found = training()["metrics"]
    except NotFinite:  # too high a rate, which is an answer
        return {"loss": None}
    spent = last_entry(run / "metrics.jsonl", "tokens", "cpu_seconds")
    return {"loss": loss(found), metric: found[metric], "tokens": spent["tokens"], "cpu_seconds": spent["cpu_seconds"]}


def recipe_table(settings: StudySettings, results: Path, models: list[str] | None = None) -> str:
    """The searches as Markdown. Pre-training: held-out loss and in brackets [MASK]-only accuracy; tasks: their metric.

    Percent; the chosen ones are bold.
    """
    chosen = [model for model in settings.only(models) if model not in settings.tuned_as]
    tables = [_rows("pre-training", {m: pretraining_search(settings, m, results) for m in chosen})]
    for task in settings.finetune:
        searches = {m: finetuning_search(settings, m, task, results) for m in chosen}
        if settings.tried_on(task) == task:
            tables.append(_rows(title_of(task), searches))
        recipes = {m: recipe for m, search in searches.items() if (recipe := search.chosen()) is not None}
        epochs = {m: epochs_search(settings, m, task, recipe, results) for m, recipe in recipes.items()}
        tables.append(_rows(f"{title_of(task)}, epochs", epochs))
    return "\n".join(text for text in tables if text)


def _rows(title: str, searches: dict[str, Search]) -> str:
    recipes = list(next(iter(searches.values())).asked) if searches else []
    rows = []
    for model, search in searches.items():
        if done := search.done():
            best = search.chosen()
            rows.append([model, *(_cell(done.get(name), name == best) for name in recipes)])
    return markdown_table([title, *recipes], rows) if rows else ""


def _cell(trial: Trial | None, best: bool) -> str:
    if trial is None:
        return ""
    if trial["loss"] is None:
        return "not finite"
    percent = {name: f"{100 * trial[name]:.1f}" for name in ("mask_token_accuracy", "accuracy", "f1") if name in trial}
    masked = percent.get("mask_token_accuracy")
    text = f"{trial['loss']:.3f} ({masked})" if masked else next(iter(percent.values()))
    return bold_if(best, text)
