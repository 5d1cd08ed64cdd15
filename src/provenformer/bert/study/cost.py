"""What a study cost, from its results alone."""

from pathlib import Path
from statistics import mean

from provenformer.bert.study.finished import finished
from provenformer.bert.study.markdown import markdown_table
from provenformer.bert.study.recipes import searches
from provenformer.bert.study.settings import StudySettings
from provenformer.bert.study.titles import title_of

PRETRAINING = "pretrain"


def cost_table(settings: StudySettings, results: Path, models: list[str] | None = None) -> str:
    """CPU hours as Markdown: of one run of each part, the mean over seeds; of a model's trials; and of all that is there."""
    parts, rows, total = [PRETRAINING, *settings.finetune], [], 0.0
    found = finished(settings, results, models)
    for model in settings.only(models):
        spent = [result["cpu_seconds"] for result in found.get(model, ())]
        tried = 0.0 if model in settings.tuned_as else _trials(settings, model, results)
        of_model = sum(sum(one.values()) for one in spent) + tried
        total += of_model
        if of_model:
            a_run = [[one[part] for one in spent if part in one] for part in parts]
            cells = [f"{_hours(mean(seeds))} x {len(seeds)}" if seeds else "" for seeds in a_run]
            rows.append([model, *cells, _hours(tried) if tried else "", _hours(of_model)])
    return markdown_table(
        ["CPU hours a run", *map(title_of, parts), "trials", "all"],
        [*rows, ["all", *[""] * len(parts), "", _hours(total)]],
    )


def _trials(settings: StudySettings, model: str, results: Path) -> float:
    return sum(
        trial.get("cpu_seconds", 0.0)
        for search in searches(settings, model, results)
        for trial in search.done().values()
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"
