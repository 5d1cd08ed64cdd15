"""Does what the layers tell apart predict how well a model predicts? Rank correlations (Spearman), with intervals.

Two questions: along the training of one model, and across models after the same number of steps. What is drawn again for
an interval are kinds of models, each with all its seeds: neither points of one run nor seeds of one mixer are independent.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

MEASURES = ("edit", "edit_smallest", "swap", "sense")
TARGETS = ("masked_accuracy", "next_accuracy", "mnli_accuracy")
PLACES: dict[str, Callable[[list[float]], float]] = {
    "first layer": lambda row: row[0],
    "last layer": lambda row: row[-1],
    "mean of layers": lambda row: float(np.mean(row)),
}
SHOWN = [
    "edit, last layer",
    "edit, mean of layers",
    "swap, mean of layers",
    "sense, last layer",
    "sense, mean of layers",
]
RESAMPLES = 2000
FEWEST = (
    5  # points without which a rank correlation says nothing, and kinds of models without which an interval does not
)

Run = dict[str, Any]
Columns = dict[str, list[float]]
Floats = NDArray[np.float64]


def read(results: Path) -> list[Run]:
    """All runs, each with its points in the order of training."""
    return [json.loads(path.read_text()) for path in sorted(results.glob("*-seed-*.json"))]


def table(runs: list[Run]) -> dict[str, Any]:
    """Per study: along training, changes from point to point, and across models at the last step that all of them have."""
    found: dict[str, Any] = {"along training": {}, "changes from point to point": {}, "across models": {}}
    for study in sorted({run["study"] for run in runs}):
        of_study = [run for run in runs if run["study"] == study]
        if long := [run for run in of_study if len(run["points"]) > FEWEST]:
            along = [_columns(run["points"]) for run in long]
            found["along training"][study] = _along(long, along)
            found["changes from point to point"][study] = _along(long, [_changes(columns) for columns in along])
        if len(of_study) >= FEWEST:
            found["across models"][study] = _across(of_study)
    return found


def _along(runs: list[Run], columns: list[Columns]) -> dict[str, Any]:
    """The correlations of each run, and their mean."""
    names = [name for name in columns[0] if all(name in one for one in columns)]
    each = np.stack([_correlations(np.array([one[name] for name in names])) for one in columns])
    kinds = [run["model"] for run in runs]
    of_kind = {kind: _mean(each[[one == kind for one in kinds]]) for kind in sorted(set(kinds))}
    return {
        "runs": len(runs),
        "mean": _named(names, *_interval(lambda rows: _mean(each[rows]), kinds)),
        "models": {kind: _named(names, one) for kind, one in of_kind.items()},
    }


def _across(runs: list[Run]) -> dict[str, Any]:
    """The correlations over models after the same number of steps; with each target, over the runs that have it."""
    step = min(max(point["step"] for point in run["points"]) for run in runs)
    at_step = [(run["model"], point) for run in runs for point in run["points"] if point["step"] == step]
    found: dict[str, Any] = {"step": step, "runs": {}, "correlations": {}}
    for target in TARGETS:
        some = [(kind, point) for kind, point in at_step if target in point]
        if len(some) >= FEWEST:
            found["runs"][target] = len(some)
            found["correlations"] |= _over([kind for kind, _ in some], _columns([point for _, point in some]), target)
    return found


def _over(kinds: list[str], columns: Columns, target: str) -> dict[str, dict[str, list[float]]]:
    values = np.array(list(columns.values()))
    named = _named(list(columns), *_interval(lambda rows: _correlations(values[:, rows]), kinds))
    return {target: named[target]}


def _columns(points: list[dict[str, float]]) -> Columns:
    """The steps, every measure at every place, and every target that all points have."""
    columns: Columns = {"steps": [point["step"] for point in points]}
    for measure in MEASURES:
        rows = [[point[f"{measure}_{k}"] for k in range(1, _layers(point) + 1)] for point in points]
        columns |= {f"{measure}, {name}": [pick(row) for row in rows] for name, pick in PLACES.items()}
    return columns | {name: [p[name] for p in points] for name in TARGETS if all(name in p for p in points)}


def _changes(columns: Columns) -> Columns:
    """What both have in common because both grow with the steps is gone."""
    return {name: np.diff(values).tolist() for name, values in columns.items()}


def _layers(point: dict[str, float]) -> int:
    return sum(name.startswith("sense_") for name in point)


def _correlations(values: Floats) -> Floats:
    """(columns, columns): of the ranks of the rows of `values`; nan where all are equal."""
    ranks = rankdata(values, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    size = np.sqrt((ranks**2).sum(axis=1))
    both = np.outer(size, size)
    return np.asarray(np.divide(ranks @ ranks.T, both, out=np.full(both.shape, np.nan), where=both > 0))


def _mean(each: Floats) -> Floats:
    """Over runs, of those that have a correlation."""
    there = ~np.isnan(each)
    count = there.sum(axis=0)
    total = np.where(there, each, 0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0))


def _interval(statistic: Callable[[Any], Floats], kinds: list[str]) -> list[Floats]:
    """What the statistic is for all runs; and its percentile interval of 95 %, kinds drawn again, if there are enough."""
    rows = [np.flatnonzero([one == kind for one in kinds]) for kind in sorted(set(kinds))]
    value = statistic(np.arange(len(kinds)))
    if len(rows) < FEWEST:
        return [value]
    rng = np.random.default_rng(0)
    draws = rng.integers(len(rows), size=(RESAMPLES, len(rows)))
    drawn = np.stack([statistic(np.concatenate([rows[k] for k in draw])) for draw in draws])
    drawn = np.where(np.isnan(drawn), 0.0, drawn)  # one kind drawn every time: no correlation is seen
    return [value, *np.quantile(drawn, [0.025, 0.975], axis=0)]


def _named(names: list[str], *parts: Floats) -> dict[str, dict[str, list[float]]]:
    """Target -> what may predict it -> the correlation, and its interval if there is one. A constant has none."""
    return {
        target: {
            name: [round(float(part[i, j]), 3) for part in parts]
            for i, name in enumerate(names)
            if name != target and not np.isnan(parts[0][i, j])
        }
        for j, target in enumerate(names)
        if target in TARGETS
    }


def words(found: dict[str, Any]) -> str:
    """Tables in Markdown: along training with masked-word accuracy, across models with every target."""
    parts = []
    for what in ("along training", "changes from point to point"):
        rows: dict[str, dict[str, list[float]]] = {}
        for study, one in found[what].items():
            rows[f"{study}: mean of {one['runs']} runs"] = one["mean"]["masked_accuracy"]
            rows |= {f"{study}: {name}": each["masked_accuracy"] for name, each in one["models"].items()}
        parts.append(
            _markdown(
                f"{what}, with masked-word accuracy", ["steps", *SHOWN] if what == "along training" else SHOWN, rows
            )
        )
    for study, one in found["across models"].items():
        rows = {f"{name} ({one['runs'][name]} runs)": row for name, row in one["correlations"].items()}
        parts.append(
            _markdown(f"across models of {study} at step {one['step']:,}, with", [*SHOWN, "masked_accuracy"], rows)
        )
    return "\n".join(parts)


def _markdown(title: str, columns: list[str], rows: dict[str, dict[str, list[float]]]) -> str:
    lines = [f"| {title} | {' | '.join(name.replace('_', ' ') for name in columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [
        f"| {name.replace('_', ' ')} | {' | '.join(_cell(row.get(one)) for one in columns)} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines) + "\n"


def _cell(found: list[float] | None) -> str:
    if not found:
        return ""
    return f"{found[0]:.2f}" + (f" ({found[1]:.2f} to {found[2]:.2f})" if len(found) == 3 else "")
