"""The files of a study: one JSON for each model and seed, one for each search. Every entry is checked when it is read."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.settings import MEASURED, build_settings, needed, ranged, read_json, shown

Result = dict[str, Any]
Trial = dict[str, Any]
REMEDY = "restore it, or move it away to run it anew"


@dataclass(frozen=True, kw_only=True)
class TaskAsked:
    """How a task was learnt; `starts_from` is "" for the pre-trained weights."""

    recipe: str
    starts_from: str = ""
    settings: dict[str, Any]
    files: tuple[str, ...]
    provenance: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ResultAsked:
    """What a result is of."""

    pretrain: dict[str, Any]
    data: dict[str, str]
    finetune: dict[str, TaskAsked]


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """`MODEL-seed-N.json`."""

    model: str
    seed: int = needed(MEASURED)
    recipe: str
    parameters: int = needed(MEASURED)
    metrics: dict[str, float]
    tokens: int = needed(MEASURED)
    cpu_seconds: dict[str, float]
    curve: tuple[dict[str, float], ...]
    asked: ResultAsked
    provenance: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class TrialAsked:
    """What was tried, on which data, with weights of which fingerprint that had learnt what; earlier versions did not tell."""

    settings: dict[str, Any]
    data: Any
    learnt: dict[str, dict[str, Any]] = field(default_factory=dict)
    weights: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialEntry:
    """A trial; one whose loss did not stay finite has none, and no metric."""

    loss: float | None = needed(MEASURED)
    mask_token_accuracy: float | None = ranged(None, MEASURED)
    accuracy: float | None = ranged(None, MEASURED)
    f1: float | None = ranged(None, MEASURED)
    tokens: int = ranged(0, MEASURED)
    cpu_seconds: float = ranged(0.0, MEASURED)
    asked: TrialAsked
    provenance: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class TrialsFile:
    """`recipes/MODEL.json` and `recipes/MODEL.TASK.json`: recipe -> its trial."""

    trials: dict[str, TrialEntry]


def result_path(results: Path, model: str, seed: int) -> Path:
    """Where the result of a model and a seed is."""
    return results / f"{model}-seed-{seed}.json"


def read_result(results: Path, model: str, seed: int) -> Result | None:
    """The result of a model and a seed, if there is one."""
    path = result_path(results, model, seed)
    if not path.exists():
        return None
    result = read_json(path, REMEDY)
    build_settings(ResultFile, result, str(path), REMEDY)
    if (result["model"], result["seed"]) != (model, seed):
        found = f"{shown(result['model'])}, seed {result['seed']}"
        raise ProvenformerError(f"{path} is of {found}, not of {model!r}, seed {seed}; {REMEDY}")
    if not all(type(point.get("step")) is int for point in result["curve"]):
        raise ProvenformerError(f"{path}: every point of curve must have a step; {REMEDY}")
    return result


def read_trials(path: Path) -> dict[str, Trial]:
    """The trials of a search, if there are any."""
    if not path.exists():
        return {}
    content = read_json(path, REMEDY)
    build_settings(TrialsFile, content, str(path), REMEDY)
    return dict(content["trials"])
