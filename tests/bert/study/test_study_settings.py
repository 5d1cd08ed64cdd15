"""A study that makes no sense is refused in one line; those that are shipped do."""

import dataclasses
from pathlib import Path

import pytest

from provenformer.base.errors import ProvenformerError
from provenformer.bert.settings import read_settings
from provenformer.bert.study import StudySettings, table

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


def test_errors(settings: StudySettings, tmp_path: Path) -> None:
    with pytest.raises(ProvenformerError, match="no result"):
        table(settings, tmp_path)
    with pytest.raises(ProvenformerError, match="at least one model"):
        dataclasses.replace(settings, seeds=())
    with pytest.raises(ProvenformerError, match="one twice"):
        dataclasses.replace(settings, seeds=(0, 0))
    with pytest.raises(ProvenformerError, match="need tuning_steps"):
        dataclasses.replace(settings, tuning_steps=0)
    with pytest.raises(ProvenformerError, match="name 'other'"):
        dataclasses.replace(settings, paper={"other": {}})
    with pytest.raises(ProvenformerError, match="tuned_as name 'other'"):
        dataclasses.replace(settings, tuned_as={"average": "other"})
    with pytest.raises(ProvenformerError, match=r"recipes\.bad: unknown setting 'rate'"):
        dataclasses.replace(settings, recipes={"bad": {"rate": 1}})
    with pytest.raises(ProvenformerError, match="at least one model, seed and recipe"):
        dataclasses.replace(settings, recipes={})
    with pytest.raises(ProvenformerError, match="unknown setting 'epoch'"):
        dataclasses.replace(settings, finetune={"mnli": {"epoch": 1}})
    for wrong in ("mnli", "glue", ["mnli"], "squad"):
        with pytest.raises(ProvenformerError, match=r"finetune\.squad: recipe_of = .*; name a task that has recipes"):
            dataclasses.replace(settings, finetune={"mnli": {}, "squad": {"recipe_of": wrong}})
    with pytest.raises(ProvenformerError, match="leave recipes and trial_epochs out"):
        dataclasses.replace(
            settings, finetune=settings.finetune | {"squad": {"recipe_of": "mnli", "trial_epochs": 1.0}}
        )


def test_what_would_make_the_table_unfair(settings: StudySettings) -> None:
    with pytest.raises(ProvenformerError, match="tuned_as: 'attention' lends its recipe and takes another's"):
        dataclasses.replace(settings, tuned_as={"hybrid": "attention", "attention": "average"})
    with pytest.raises(ProvenformerError, match="tuned_as: 'hybrid' lends its recipe"):
        dataclasses.replace(settings, tuned_as={"hybrid": "hybrid"})
    for name, value in (("steps", 60), ("batch_size", 9), ("evaluate_masked_fraction", 0.5), ("whole_word", True)):
        with pytest.raises(
            ProvenformerError, match=rf"recipes\.good: {name} is one for all recipes; set it in pretrain"
        ):
            dataclasses.replace(settings, recipes={"good": {name: value}})
    mnli = settings.finetune["mnli"]
    for wrong in ({"held_out_fraction": 0.1}, {"recipes": {"good": {"held_out_fraction": 0.1}}}):
        with pytest.raises(ProvenformerError, match=r"finetune\.mnli: held_out_fraction is set by the study itself"):
            dataclasses.replace(settings, finetune={"mnli": mnli | wrong})


def test_wrong_epochs(settings: StudySettings) -> None:
    def tried(numbers: object, **more: object) -> None:
        dataclasses.replace(settings, finetune={"mnli": {"epochs_tried": numbers, **more}})

    for wrong in (1.0, [], [1.0], [1.0, 1], "12", [1.0, "2"], [1.0, [2]]):
        with pytest.raises(ProvenformerError, match=r"mnli: epochs_tried = .*; list at least two different numbers"):
            tried(wrong)
    with pytest.raises(ProvenformerError, match=r"epochs=0\.0 must be above 0"):
        tried([1.0, 0])
    for twice in ({"epochs": 1.0}, {"recipes": {"long": {"epochs": 4}}, "trial_epochs": 1.0}):
        with pytest.raises(ProvenformerError, match="epochs_tried stands in place of epochs; leave epochs out"):
            tried([1, 2], **twice)
    rates = {"low": {"learning_rate": 1e-3}, "high": {"learning_rate": 1e-2}}
    with pytest.raises(ProvenformerError, match="the recipes come before epochs_tried; set trial_epochs"):
        tried([1, 2], recipes=rates)
    tried([1, 2], recipes=rates, trial_epochs=1.0)


def test_a_task_starts_from_one_before_it(settings: StudySettings) -> None:
    for wrong in ("squad", "mnli", "", 3):
        with pytest.raises(
            ProvenformerError, match=r"mnli: starts_from = .*; name a task that stands before it \(snli\)"
        ):
            dataclasses.replace(settings, finetune={"snli": {}, "mnli": {"starts_from": wrong}, "squad": {}})


@pytest.mark.parametrize(
    "path",
    [path for name in ("paper", "study") for path in sorted(EXPERIMENTS.glob(f"*/{name}.toml"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_shipped_studies_are_valid(path: Path) -> None:
    shipped = read_settings(StudySettings, path)
    batch, steps = shipped.pretrain.batch_size, shipped.pretrain.steps
    if path.stem == "paper":
        assert (batch, steps) == {"table1": (8192, 60_000), "figure1": (1024, 250_000)}[path.parent.name]
        assert shipped.pretrain.model == {"hidden_dropout_prob": 0.01, "attention_probs_dropout_prob": 0.01}
        assert shipped.pretrain.weight_decay == 0.01
    else:
        assert len(shipped.seeds) >= 2
