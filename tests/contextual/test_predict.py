"""What the experiment says of made-up runs: correlations that are there, and none where there are too few points."""

from typing import Any

import numpy as np
from experiments.contextual.predict import table, words


def run(model: str, study: str, slope: float, steps: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(len(model))
    points = []
    for step in range(1, steps + 1):
        layers = {f"{name}_{k}": slope * step + k for name in ("edit", "edit_smallest", "swap") for k in (1, 2)}
        senses = {f"sense_{k}": float(rng.standard_normal()) for k in (1, 2)}
        points.append({"step": step, "masked_accuracy": step / 100, "next_accuracy": 0.5, **layers, **senses})
    return {"model": model, "seed": 0, "study": study, "points": points}


def test_correlations_have_their_sign_and_interval() -> None:
    found = table([run("up", "one", 1.0), run("down", "one", -1.0), run("short", "two", 1.0, steps=3)])
    along = found["along training"]
    assert along["one up seed 0"]["masked_accuracy"]["edit, last layer"] == [1.0, 1.0, 1.0]
    assert along["one down seed 0"]["masked_accuracy"]["swap, mean of layers"] == [-1.0, -1.0, -1.0]
    value, low, high = along["one up seed 0"]["masked_accuracy"]["sense, last layer"]
    assert low < value < high
    assert low < 0 < high  # noise
    assert "two short seed 0" not in along
    assert found["across models"] == {}  # two models say nothing
    assert "| along training: one up seed 0 | 12 | 1.00 (1.00 to 1.00) |" in words(found)


def test_models_are_compared_at_the_same_step() -> None:
    found = table([run(name, "one", 1.0, steps=6 + k) for k, name in enumerate(("a", "bb", "ccc", "dddd", "eeeee"))])
    assert found["across models"]["one"]["step"] == 6
    assert found["across models"]["one"]["points"] == 5
