"""Does what the layers tell apart predict how well a model predicts? Rank correlations with bootstrap intervals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

MEASURES = ("edit", "edit_smallest", "swap", "sense")
TARGETS = ("masked_accuracy", "next_accuracy", "mnli_accuracy")
PLACES: dict[str, Callable[[list[float]], float]] = {
    "first layer": lambda row: row[0],
    "last layer": lambda row: row[-1],
    "mean of layers": lambda row: float(np.mean(row)),
}
RESAMPLES = 2000
FEWEST = 5  # points without which a rank correlation says nothing


def read(results: Path) -> list[dict[str, Any]]:
    """All runs, each with its points in the order of training."""
    return [json.loads(path.read_text()) for path in sorted(results.glob("*-seed-*.json"))]


def table(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Along training, run by run; and across models of a study, at the last step that all of them have."""
    long = {
        f"{run['study']} {run['model']} seed {run['seed']}": _columns(run["points"])
        for run in runs
        if len(run["points"]) > FEWEST
    }
    found: dict[str, Any] = {
        "along training": {name: _correlations(columns) for name, columns in long.items()},
        "changes from point to point": {name: _correlations(_changes(columns)) for name, columns in long.items()},
        "across models": {},
    }
    for study in sorted({run["study"] for run in runs}):
        of_study = [run for run in runs if run["study"] == study]
        step = min(max(point["step"] for point in run["points"]) for run in of_study)
        same = [point for run in of_study for point in run["points"] if point["step"] == step]
        if len(same) == len(of_study) >= FEWEST:
            names = [f"{run['model']} seed {run['seed']}" for run in of_study]
            found["across models"][study] = {"step": step, "models": names, **_correlations(_columns(same))}
    return found


def _columns(points: list[dict[str, float]]) -> dict[str, list[float]]:
    """Every measure at every place, and every target that all points have."""
    columns: dict[str, list[float]] = {}
    for measure in MEASURES:
        rows = [[point[f"{measure}_{k}"] for k in range(1, _layers(point) + 1)] for point in points]
        columns |= {f"{measure}, {name}": [pick(row) for row in rows] for name, pick in PLACES.items()}
    return columns | {name: [p[name] for p in points] for name in TARGETS if all(name in p for p in points)}


def _changes(columns: dict[str, list[float]]) -> dict[str, list[float]]:
    """What both have in common because both grow with the steps is gone."""
    return {name: np.diff(values).tolist() for name, values in columns.items()}


def _layers(point: dict[str, float]) -> int:
    return sum(name.startswith("sense_") for name in point)


def _correlations(columns: dict[str, list[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"points": len(next(iter(columns.values())))}
    columns = {name: values for name, values in columns.items() if np.ptp(values) > 0}  # a constant has no ranks
    targets = [name for name in TARGETS if name in columns]
    for target in targets:
        found[target] = {
            name: _interval(np.array(values), np.array(columns[target]))
            for name, values in columns.items()
            if name not in TARGETS
        }
    return found


def _interval(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Spearman's correlation and a percentile interval of 95 %, points drawn again."""
    rows = np.random.default_rng(0).integers(len(x), size=(RESAMPLES, len(x)))
    drawn = _spearman(x[rows], y[rows])
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return [round(float(value), 3) for value in (_spearman(x[None], y[None])[0], low, high)]


def _spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Row by row: the correlation of the ranks; nan where all values are equal."""
    one, other = (rankdata(values, axis=1) for values in (x, y))
    one, other = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (one, other))
    size = np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1))
    return np.asarray(np.divide((one * other).sum(axis=1), size, out=np.full(len(x), np.nan), where=size > 0))


def words(found: dict[str, Any]) -> str:
    """The correlations with masked-word accuracy as a table in Markdown."""
    places = [
        f"{measure}, {name}"
        for measure in MEASURES
        if measure != "edit_smallest"
        for name in ("last layer", "mean of layers")
    ]
    lines = [f"| | points | {' | '.join(places)} |", f"|---|---|{'---|' * len(places)}"]
    rows = {f"{what}: {name}": one for what, part in found.items() for name, one in part.items()}
    for name, one in rows.items():
        cells = [one.get("masked_accuracy", {}).get(place) for place in places]
        shown = [f"{cell[0]:.2f} ({cell[1]:.2f} to {cell[2]:.2f})" if cell else "constant" for cell in cells]
        lines.append(f"| {name} | {one['points']} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"
