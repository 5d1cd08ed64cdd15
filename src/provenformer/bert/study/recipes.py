"""The search for a recipe: every model tries the same list, with the same budget, on text that the table does not use.

What is tried is kept in `<results>/recipes/<model>.json`, which is enough to go on: no trial is made twice.
"""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.runtime.metric_log import read_log
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.settings import build_settings, read_json
from provenformer.bert.study.settings import StudyData, StudySettings
from provenformer.bert.training.loop import NotFinite
from provenformer.bert.training.pretrain import PretrainSettings, pretrain


def chosen_recipe(settings: StudySettings, model: str, results: Path) -> str | None:
    """The recipe with the lowest held-out loss on masked words, once all are tried."""
    if len(settings.recipes) == 1:
        return next(iter(settings.recipes))
    tuned = settings.tuned_as.get(model, model)
    losses = {name: trial["loss"] for name, trial in trials(settings, tuned, results).items()}
    if losses.keys() != settings.recipes.keys():
        return None
    finite = {name: loss for name, loss in losses.items() if loss is not None}
    if not finite:
        raise NotFinite(f"no recipe of {model} has a finite loss; lower learning_rate in the recipes")
    return min(finite, key=finite.__getitem__)


def trials(settings: StudySettings, model: str, results: Path) -> dict[str, dict[str, Any]]:
    """Recipe -> what its trial found; those of other settings are refused."""
    path = _path(results, model)
    found: dict[str, dict[str, Any]] = read_json(path)["trials"] if path.exists() else {}
    for name in found:
        if name in settings.recipes and _tried(found[name], path) != _trial(settings, model, name):
            raise ProvenformerError(f"{path}: the trial of {name!r} is from other settings; remove it to try again")
    return {name: found[name] for name in settings.recipes if name in found}


def try_recipes(
    settings: StudySettings, model: str, data: StudyData, runs: Path, results: Path, processes: Processes
) -> str:
    """Try those that are not tried yet, with the first seed, and return the best."""
    tuned = settings.tuned_as.get(model, model)
    if len(settings.recipes) > 1:
        if data.tuning is None:
            raise ProvenformerError(
                f"{len(settings.recipes)} recipes are chosen on text of their own; give it with --tuning"
            )
        done = trials(settings, tuned, results)
        asked = data.fingerprints(data.tuning)
        for name, earlier in done.items():
            if earlier["asked"]["data"] != asked:
                path = _path(results, tuned)
                raise ProvenformerError(f"{path}: the trial of {name!r} is from other data; remove it to try again")
        processes.wait()  # all have read before one writes
        for name in settings.recipes:
            if name not in done:
                trial = _trial(settings, tuned, name)
                done[name] = _try(trial, data, runs / tuned / f"recipe-{name}", processes) | {
                    "asked": {"pretrain": asdict(trial), "data": asked},
                    "provenance": provenance(),
                }
                if processes.first:
                    write_json(_path(results, tuned), {"trials": done})
                processes.wait()
    chosen = chosen_recipe(settings, model, results)
    if chosen is None:
        raise ProvenformerError(f"{_path(results, tuned)} lacks a recipe that was tried; run the study again")
    return chosen


def recipe_table(settings: StudySettings, results: Path, models: list[str] | None = None) -> str:
    """The search as Markdown: held-out loss of every trial, and in brackets [MASK]-only accuracy in percent."""
    lines = ["| model | " + " | ".join(settings.recipes) + " |", "|" + "---|" * (1 + len(settings.recipes))]
    for model in settings.only(models):
        found = trials(settings, model, results)
        if found:
            best = chosen_recipe(settings, model, results)
            cells = [_cell(found.get(name), name == best) for name in settings.recipes]
            lines.append("| " + " | ".join([model, *cells]) + " |")
    return "\n".join([*lines, ""])


def _cell(trial: dict[str, Any] | None, best: bool) -> str:
    if trial is None:
        return ""
    if trial["loss"] is None:
        return "not finite"
    text = f"{trial['loss']:.3f} ({100 * trial['mask_token_accuracy']:.1f})"
    return f"**{text}**" if best else text


def _try(trial: PretrainSettings, data: StudyData, run: Path, processes: Processes) -> dict[str, Any]:
    try:
        found = pretrain(trial, data.train, data.tuning, run, data.short, processes)["metrics"]
    except NotFinite:  # too high a rate, which is an answer
        return {"loss": None}
    spent = read_log(run / "metrics.jsonl")[-1]
    return {
        "loss": found["valid_masked_loss"] if math.isfinite(found["valid_masked_loss"]) else None,
        "mask_token_accuracy": found["mask_token_accuracy"],
        "tokens": spent["tokens"],
        "cpu_seconds": spent["cpu_seconds"],
    }


def _trial(settings: StudySettings, model: str, recipe: str) -> PretrainSettings:
    """A run in miniature: masking, length and decay change over it as they would over a long one."""
    return replace(
        settings.pretraining(model, settings.seeds[0], recipe), steps=settings.tuning_steps, evaluate_every=0
    )


def _tried(trial: dict[str, Any], path: Path) -> PretrainSettings:
    return build_settings(PretrainSettings, trial["asked"]["pretrain"], str(path))


def _path(results: Path, model: str) -> Path:
    return results / "recipes" / f"{model}.json"
