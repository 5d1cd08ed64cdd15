"""The table of a study, from its results alone."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from provenformer.base.errors import ProvenformerError
from provenformer.bert.study.finished import finished
from provenformer.bert.study.markdown import markdown_table
from provenformer.bert.study.settings import StudySettings
from provenformer.bert.study.titles import title_of

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over so many seeds and half the width of its confidence interval, which one seed does not have."""

    mean: float
    half_width: float | None
    seeds: int

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {100 * self.half_width:.1f}"
        return f"{100 * self.mean:.1f}{spread}"

    def of(self, seeds: int) -> str:
        """For a row that has so many seeds; fewer are told."""
        return str(self) if self.seeds == seeds else f"{self}, {self.seeds} seed{'s' * (self.seeds > 1)}"

    @property
    def decided(self) -> bool:
        """Whether the interval is there and does not hold 0: of a difference, whether the seeds tell its sign."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student's interval of one model's seeds.

    Wide with two seeds, but no other model is asked: whether and when a model leaves the context-free plateau differs
    so much between models that a variance pooled over them would be wrong for most.
    """
    seeds = len(values)
    if seeds == 1:
        return Estimate(values[0], None, seeds)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1))
    return Estimate(statistics.mean(values), reach * statistics.stdev(values) / math.sqrt(seeds), seeds)


def summary(settings: StudySettings, results: Path, models: list[str] | None = None) -> dict[str, dict[str, Estimate]]:
    """Model -> metric -> estimate, over the seeds that are finished."""
    found = {}
    for model, several in finished(settings, results, models).items():
        seeds = [result["metrics"] for result in several]
        names = [name for name in dict.fromkeys(n for m in seeds for n in m) if not name.endswith("loss")]
        found[model] = {name: estimate([m[name] for m in seeds if name in m]) for name in names}
    if not found:
        raise ProvenformerError(f"{results} holds no result of this study; run it without --table-only first")
    return found


def metrics_of(settings: StudySettings, found: Iterable[dict[str, Estimate]]) -> list[str]:
    """All metrics that one of them has: those of pre-training, then each task's, whichever was learnt first."""
    names = dict.fromkeys(metric for row in found for metric in row)
    of_tasks = [name for task in settings.finetune for name in names if name.startswith(f"{task}_")]
    return [name for name in names if name not in of_tasks] + of_tasks


def table(settings: StudySettings, results: Path, models: list[str] | None = None) -> str:
    """The study as Markdown: percent, mean ± half a 95 % interval, the paper's numbers in brackets."""
    found = summary(settings, results, models)
    metrics = metrics_of(settings, found.values())
    head = ["model", "seeds", "recipe", "parameters", *map(title_of, metrics)]
    rows = []
    for model, several in finished(settings, results, models).items():
        row, paper = found[model], settings.paper.get(model, {})
        ours = [row[metric].of(len(several)) if metric in row else "" for metric in metrics]
        cells = [f"{cell}{_bracketed(paper.get(metric))}" for cell, metric in zip(ours, metrics, strict=True)]
        size = f"{several[0]['parameters']:,}{_bracketed(paper.get('parameters'))}"
        rows.append([model, str(len(several)), several[0]["recipe"], size, *cells])
    return f"# {settings.title}\n\n{markdown_table(head, rows)}"


def _bracketed(number: Any) -> str:
    return "" if number is None else f" ({number})"
