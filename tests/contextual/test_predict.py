"""What the experiment says of made-up runs: correlations that are there, and no interval where there are too few models."""

from typing import Any

import numpy as np
import pytest
from experiments.contextual import predict
from experiments.contextual.predict import table, words

MODELS = ("a", "bb", "ccc", "dddd", "eeeee", "ffffff")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "RESAMPLES", 200)


def run(model: str, study: str = "one", slope: float = 1.0, steps: int = 12, seed: int = 0) -> dict[str, Any]:
    """Accuracy grows with the steps and with the length of the name; edits with the steps times `slope`; senses are noise."""
    rng = np.random.default_rng(100 * seed + len(model))
    points = []
    for step in range(1, steps + 1):
        layers = {f"{name}_{k}": slope * step + k for name in ("edit", "edit_smallest", "swap") for k in (1, 2)}
        senses = {f"sense_{k}": float(rng.standard_normal()) for k in (1, 2)}
        accuracy = (step + len(model)) / 100
        points.append({"step": step, "masked_accuracy": accuracy, "next_accuracy": 0.5, **layers, **senses})
    return {"model": model, "seed": seed, "study": study, "points": points}


def test_along_training_runs_have_their_sign_and_models_are_drawn_again() -> None:
    runs = [run(name, slope=-1.0 if name == "a" else 1.0, seed=seed) for name in MODELS for seed in (0, 1)]
    along = table([*runs, run("short", "two", steps=3)])["along training"]
    assert along["one"]["models"]["a"]["masked_accuracy"]["edit, last layer"] == [-1.0]
    assert along["one"]["models"]["bb"]["masked_accuracy"]["edit, last layer"] == [1.0]
    assert along["one"]["mean"]["masked_accuracy"]["steps"] == [1.0, 1.0, 1.0]
    value, low, high = along["one"]["mean"]["masked_accuracy"]["edit, last layer"]
    assert value == pytest.approx(4 / 6, abs=1e-3)
    assert low <= 0 < high == 1  # one of six models may be drawn three times, and never
    value, low, high = along["one"]["mean"]["masked_accuracy"]["sense, last layer"]
    assert low < value < high
    assert low < 0 < high  # noise
    assert "two" not in along


def test_changes_leave_nothing_of_what_only_grows_with_the_steps() -> None:
    found = table([run(name) for name in MODELS])["changes from point to point"]["one"]["mean"]["masked_accuracy"]
    assert "edit, last layer" not in found  # the same change every time: it has no ranks


def test_models_are_compared_at_the_same_step() -> None:
    runs = [run(name, slope=len(name), steps=6 + len(name)) for name in MODELS]
    for one in runs[1:]:
        one["points"][6]["mnli_accuracy"] = -len(one["model"])
    found = table(runs)
    across = found["across models"]["one"]
    assert (across["step"], across["runs"]) == (7, {"masked_accuracy": 6, "next_accuracy": 6, "mnli_accuracy": 5})
    assert across["correlations"]["masked_accuracy"]["edit, last layer"][0] == 1.0
    assert across["correlations"]["mnli_accuracy"]["edit, last layer"][0] == -1.0
    assert "| mnli accuracy (5 runs) | -1.00 (-1.00 to " in words(found)


def test_seeds_are_no_models() -> None:
    """Ten runs of two mixers: no interval, however many runs there are."""
    found = table([run(name, seed=seed) for name in MODELS[:2] for seed in range(5)])
    assert len(found["along training"]["one"]["mean"]["masked_accuracy"]["edit, last layer"]) == 1
    assert len(found["across models"]["one"]["correlations"]["masked_accuracy"]["sense, last layer"]) == 1
