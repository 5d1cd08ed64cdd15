"""Models are compared seed by seed, and a meeting of their curves is told only where seeds decide that they approach."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from provenformer.bert.study import StudySettings, comparison_table
from provenformer.bert.study.comparisons import LOSS, differences, trend
from provenformer.bert.study.results import result_path
from provenformer.bert.training.pretrain import PretrainSettings

MILLION = 10**6


@pytest.fixture
def settings() -> StudySettings:
    pretrain = PretrainSettings(steps=100, short_fraction=0.2, warmup_steps=5, decay="stable", decay_fraction=0.3)
    models = {"attention": {"mixers": "attention"}, "sepconv": {"mixers": "sepconv"}, "average": {"mixers": "average"}}
    return StudySettings("Made up", models, (0, 1, 2), pretrain, {"only": {}})


def result(model: str, seed: int, metrics: dict[str, float], losses: dict[int, float] | None = None) -> dict[str, Any]:
    """A run of 100 steps, a million tokens each."""
    curve = [{"step": step, "tokens": MILLION * step, LOSS: loss} for step, loss in (losses or {}).items()]
    return {
        "model": model,
        "seed": seed,
        "recipe": "only",
        "metrics": metrics,
        "tokens": 100 * MILLION,
        "curve": curve,
    }


def along(gap: float, per_doubling: float, wiggle: float = 0.0) -> dict[int, float]:
    """A curve that is `gap` above 3 at 32 million tokens."""
    return {step: 3 + gap + (per_doubling + wiggle) * np.log2(step / 32) for step in range(10, 101, 10)}


def flat(model: str, seed: int) -> dict[str, Any]:
    return result(model, seed, {}, along(0, 0))


def test_what_seeds_share_cancels() -> None:
    # The seeds of one model differ by far more than the models do.
    first = [result("attention", seed, {"f1": 0.3 + seed / 10}) for seed in range(3)]
    second = [result("sepconv", seed, {"f1": 0.29 + seed / 10 + 0.001 * (seed == 1)}) for seed in range(3)]
    found = differences(first, second)["f1"]
    assert found.mean == pytest.approx(0.01 - 0.001 / 3)
    assert found.half_width == pytest.approx(4.3027 * 0.001 / 3, rel=1e-4)  # t(0.975, 2), deviation 0.001 / sqrt(3)
    assert found.decided
    # The same values under other seeds do not pair off.
    moved = [{**one, "seed": (one["seed"] + 1) % 3} for one in second]
    assert differences(first, moved)["f1"].mean == pytest.approx(found.mean)
    assert not differences(first, moved)["f1"].decided


def test_only_seeds_and_metrics_that_both_have() -> None:
    first = [result("attention", 0, {"f1": 0.5, "mnli": 0.6}), result("attention", 1, {"f1": 0.9})]
    second = [result("sepconv", 1, {"f1": 0.8, "mnli": 0.1, "valid_loss": 1.0}), result("sepconv", 2, {"f1": 0.1})]
    found = differences(first, second)
    assert found.keys() == {"f1"}
    assert found["f1"].mean == pytest.approx(0.1)
    assert not found["f1"].decided  # one seed has no interval
    assert differences(first, second[1:]) == {}


def test_where_approaching_curves_meet(settings: StudySettings) -> None:
    # Attention is behind by 0.2 at 32 million tokens, and by 0.1 less after each doubling: at 128 million they meet.
    behind = [result("attention", s, {}, along(0.2, -0.1, 0.001 * s)) for s in range(3)]
    found = trend(settings, behind, [flat("sepconv", s) for s in range(3)])
    assert found is not None
    assert found.per_doubling.mean == pytest.approx(0.099)
    assert found.meeting is not None
    assert found.meeting / MILLION == pytest.approx(128, rel=0.03)
    # Whoever is named first.
    other = trend(settings, [flat("sepconv", s) for s in range(3)], behind)
    assert other is not None
    assert other.per_doubling.mean == pytest.approx(-0.099)
    assert other.meeting == pytest.approx(found.meeting)


@pytest.mark.parametrize(
    ("gap", "per_doubling", "wiggle"),
    [
        pytest.param(0.2, 0.1, 0.001, id="they part"),
        pytest.param(-0.2, -0.1, 0.001, id="they part, the other way round"),
        pytest.param(0.2, -0.3, 0.2, id="seeds disagree"),
        pytest.param(0.2, 0.0, 0.0, id="no trend"),
        pytest.param(0.05, -0.1, 0.001, id="met before the end"),
        pytest.param(0.2, -0.02, 0.0001, id="further than a line is believed"),
    ],
)
def test_no_meeting(settings: StudySettings, gap: float, per_doubling: float, wiggle: float) -> None:
    behind = [result("attention", s, {}, along(gap, per_doubling, wiggle * s)) for s in range(3)]
    found = trend(settings, behind, [flat("sepconv", s) for s in range(3)])
    assert found is not None
    assert found.meeting is None


def test_a_change_of_length_or_rate_is_no_trend(settings: StudySettings) -> None:
    # Steps 30 to 70 are on the final length and at the full rate; what happens before and after them does not count.
    def disturbed(seed: int) -> dict[str, Any]:
        steady = along(0.2, -0.1)
        return result("attention", seed, {}, {step: loss + (step < 30 or step > 70) for step, loss in steady.items()})

    sepconv = [flat("sepconv", s) for s in range(2)]
    found = trend(settings, [disturbed(s) for s in range(2)], sepconv)
    assert found is not None
    assert found.per_doubling.mean == pytest.approx(0.1)
    few = dataclasses.replace(settings, pretrain=dataclasses.replace(settings.pretrain, decay_fraction=0.6))
    assert trend(few, [disturbed(s) for s in range(2)], sepconv) is None  # two points are left


def test_table(settings: StudySettings, tmp_path: Path) -> None:
    for model, score in (("attention", 0.30), ("sepconv", 0.32)):
        for seed in range(3):
            made = result(model, seed, {"f1": score + 0.0001 * seed * (model == "sepconv")}, along(0, 0))
            asked = dataclasses.asdict(settings.pretraining(model, seed, "only"))
            rest = {"parameters": 1, "cpu_seconds": {"pretrain": 1.0}, "provenance": {}}
            made |= {**rest, "asked": {"pretrain": asked, "data": {}, "finetune": {}}}
            result_path(tmp_path, model, seed).write_text(json.dumps(made))
    shown = comparison_table(settings, tmp_path)
    assert shown.splitlines()[2] == "| attention - sepconv | 3 | **-2.0 ± 0.0** | +0.000 ± 0.000 |  |"
    assert len(shown.splitlines()) == 3  # average has no result
    assert comparison_table(settings, tmp_path, ["attention"]) == ""
