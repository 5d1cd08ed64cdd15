"""The five questions: every experiment runs in a tiny setting, its results feed the figure, and the committed ones are whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from experiments.questions.figures import FIGURES, RESULTS, draw_all

ROOT = Path(__file__).parents[2]


def keys(value: object) -> object:
    """The shape of a JSON document: keys, and of a list its first entry."""
    if isinstance(value, dict):
        return {key: keys(v) for key, v in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def questions(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "experiments.questions", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_quick_run_of_all_and_their_figures(tmp_path: Path) -> None:
    done = questions("--quick", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in FIGURES:
        ran, committed = (json.loads((folder / f"{name}.json").read_text()) for folder in (tmp_path, RESULTS))
        assert ran["command"].endswith("--quick")
        assert keys(ran) == keys(committed), f"{name}.json was made by another version of the script; run it again"
    draw_all(tmp_path, tmp_path)
    assert len(list(tmp_path.glob("question-*.svg"))) == 5


def test_committed_results_say_where_they_come_from() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == set(FIGURES)
    for path in RESULTS.glob("*.json"):
        data = json.loads(path.read_text())
        assert data["command"] == f"python -m experiments.questions {path.stem}"
        assert len(data["from"]["commit"]) == 40, "run from a tree without changes"


def test_committed_results_are_consistent() -> None:
    """What must hold whatever the seeds: floors, certificates, counts."""
    data = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    sort = data["sharing"]["tokens"][0]
    assert sort["floor"] == pytest.approx((2 / 12) ** 0.5, rel=1e-3)
    assert min(sort["learned_without_positions"]) > 0.999 * sort["floor"]
    stacking = data["stacking"]
    assert stacking["token_wise_floor"] == pytest.approx((2 / 108) ** 0.5, rel=5e-3)
    alone = next(t for t in stacking["training"] if t["kind"] == "feed-forward only")
    assert min(alone["errors"]) > 0.995 * stacking["token_wise_floor"]
    for task in data["training"]["tasks"]:
        assert all(row["error"] <= row["certified"] for row in task["constructed"])
    layer_norm = data["layer_norm"]
    assert layer_norm["with_layer_norm"] > layer_norm["best_constant"] > layer_norm["certified"] > layer_norm["without"]
    assert layer_norm["padded"][-1]["error"] == pytest.approx(layer_norm["without"], rel=1e-6)
    assert all(row["verified"] for grid in data["width"]["grids"] for row in grid["networks"])


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    unknown = questions("colour", "--output", str(tmp_path))
    assert unknown.returncode == 1
    assert unknown.stderr.strip() == (
        "error: unknown question 'colour'; choose one of: sharing, layer_norm, training, stacking, width."
    )
    assert "give --output" in questions("width", "--quick").stderr
