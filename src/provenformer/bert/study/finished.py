"""The results that belong into a study's tables: of its settings, with the recipes that were chosen, all on the same data."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.settings import build_settings
from provenformer.bert.study.recipes import Asked, Search, epochs_search, finetuning_search, pretraining_search
from provenformer.bert.study.results import Result, read_result, result_path
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.training.finetune import FinetuneSettings


def finished(settings: StudySettings, results: Path, models: list[str] | None = None) -> dict[str, list[Result]]:
    """Model -> its results in the order of the seeds, of all models or of these; one without any is left out.

    A mean over seeds is of one recipe, and a difference between models is not one between texts: else they are refused.
    """
    found = {}
    for model in settings.only(models):
        if several := [r for seed in settings.seeds if (r := finished_one(settings, results, model, seed))]:
            _check_alike(results, several, "recipes", _recipes)
            found[model] = several
    _check_alike(results, (result for several in found.values() for result in several), "data", _data)
    return found


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
    for task in (task for task in settings.finetune if task not in asked["finetune"]):
        if any(name.startswith(f"{task}_") for name in result["metrics"]):
            raise ProvenformerError(f"{path} has a metric of {task}, but not how it was learnt; restore or remove it")
    return result


def missing_tasks(result: Result | None, tasks: list[str]) -> list[str]:
    """What is left to learn, whether or not there is a result."""
    return [task for task in tasks if result is None or task not in result["asked"]["finetune"]]


def check_data(results: Path, result: Result, data: StudyData, tasks: Iterable[str]) -> None:
    """Refuse a result that is not of this data; `tasks` are those whose files are known."""
    here = {"text": data.fingerprints(data.valid)} | {task: data.files(task) for task in tasks}
    if any(here.get(part, of) != of for part, of in _data(result).items()):
        path = result_path(results, result["model"], result["seed"])
        raise ProvenformerError(f"{path} is from other data; move it away to run it anew")


def _data(result: Result) -> dict[str, Any]:
    asked = result["asked"]
    return {"text": asked["data"]} | {task: learnt["files"] for task, learnt in asked["finetune"].items()}


def _recipes(result: Result) -> dict[str, Any]:
    learnt = result["asked"]["finetune"].items()
    return {"pretrain": result["recipe"]} | {
        task: (one["recipe"], one["settings"].get("epochs")) for task, one in learnt
    }


def _check_alike(
    results: Path, several: Iterable[Result], what: str, parts: Callable[[Result], dict[str, Any]]
) -> None:
    first: dict[str, tuple[Path, Any]] = {}
    for result in several:
        path = result_path(results, result["model"], result["seed"])
        for part, now in parts(result).items():
            other, before = first.setdefault(part, (path, now))
            if now != before:
                raise ProvenformerError(f"{other} and {path} are of different {what} ({part}); move one of them away")


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
