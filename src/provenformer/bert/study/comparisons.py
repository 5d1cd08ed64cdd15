"""Which differences between two models their seeds decide, and where learning curves that approach each other would meet.

Runs of one seed see the same batches and are measured on the same masked words, so models are compared seed by seed: what the
seeds have in common cancels.
"""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from provenformer.bert.study.finished import finished
from provenformer.bert.study.markdown import bold_if, markdown_table
from provenformer.bert.study.results import Result
from provenformer.bert.study.settings import StudySettings
from provenformer.bert.study.table import Estimate, estimate, metrics_of
from provenformer.bert.study.titles import title_of

FEWEST_POINTS = 3  # of a curve, for a line through them
FURTHEST_DOUBLINGS = 4  # of the tokens seen; a line is not believed beyond
LOSS = "valid_masked_loss"


@dataclass(frozen=True)
class Trend:
    """How far the first model is ahead in the held-out loss on masked words, while rate and length stay the same.

    per_doubling  what is added to that when the number of tokens doubles, by a least-squares line for each seed
    meeting       tokens after which that would be 0 if the lines went on; None where it does not come nearer to 0, where
                  seeds do not decide that it does, or beyond 16 times the tokens seen
    """

    per_doubling: Estimate
    meeting: float | None


def differences(first: list[Result], second: list[Result]) -> dict[str, Estimate]:
    """Metric -> first minus second, over the seeds that both have; losses are left out."""
    pairs = _paired(first, second)
    names = dict.fromkeys(name for one, other in pairs for name in one["metrics"] if name in other["metrics"])
    return {
        name: estimate(
            [a["metrics"][name] - b["metrics"][name] for a, b in pairs if name in a["metrics"] and name in b["metrics"]]
        )
        for name in names
        if not name.endswith("loss")
    }


def trend(settings: StudySettings, first: list[Result], second: list[Result]) -> Trend | None:
    """The trend of the gap, or None where the runs have too few evaluations for it."""
    lines = []
    for one, other in _paired(first, second):
        steady = _steady_steps(settings, one) & _steady_steps(settings, other)
        points = [(a["tokens"], b[LOSS] - a[LOSS]) for a, b in _same_steps(one, other) if a["step"] in steady]
        if len(points) >= FEWEST_POINTS:
            tokens, gaps = np.array(points).T
            lines.append(np.polyfit(np.log2(tokens), gaps, 1))
    if not lines:
        return None
    per_doubling = estimate([float(slope) for slope, _ in lines])
    if not per_doubling.decided:
        return Trend(per_doubling, None)
    slope, start = np.mean(lines, axis=0)
    seen = max(result["tokens"] for result in (*first, *second))
    doublings = -start / slope - np.log2(seen)
    return Trend(per_doubling, seen * 2.0**doublings if 0 < doublings <= FURTHEST_DOUBLINGS else None)


def comparison_table(settings: StudySettings, results: Path, models: list[str] | None = None) -> str:
    """Every two models as Markdown: percentage points with 95 % intervals, bold where the interval does not hold 0."""
    found = finished(settings, results, models)
    compared = {(a, b): differences(found[a], found[b]) for a, b in combinations(found, 2)}
    metrics = metrics_of(settings, compared.values())
    rows = [
        [
            f"{a} - {b}",
            str(seeds := len(_paired(found[a], found[b]))),
            *(bold_if(row[metric].decided, _signed(row[metric], seeds)) if metric in row else "" for metric in metrics),
            *_trend_cells(trend(settings, found[a], found[b])),
        ]
        for (a, b), row in compared.items()
        if row
    ]
    head = ["models", "seeds", *map(title_of, metrics), "lead per doubling", "would meet at"]
    return markdown_table(head, rows) if rows else ""


def _paired(first: list[Result], second: list[Result]) -> list[tuple[Result, Result]]:
    by_seed = {result["seed"]: result for result in second}
    return [(result, by_seed[result["seed"]]) for result in first if result["seed"] in by_seed]


def _same_steps(one: Result, other: Result) -> list[tuple[dict[str, float], dict[str, float]]]:
    by_step = {point["step"]: point for point in other["curve"]}
    return [(point, by_step[point["step"]]) for point in one["curve"] if point["step"] in by_step]


def _steady_steps(settings: StudySettings, result: Result) -> set[float]:
    """Evaluations on the final length, at the full rate: neither's change is then taken for learning."""
    asked = settings.pretraining(result["model"], result["seed"], result["recipe"])
    begun = max(asked.short_steps, asked.warmup_steps)
    return {
        point["step"]
        for point in result["curve"]
        if point["step"] > begun and asked.schedule(int(point["step"]) - 1, asked.steps) == 1.0
    }


def _trend_cells(found: Trend | None) -> list[str]:
    if found is None:
        return ["", ""]
    change = found.per_doubling
    spread = "" if change.half_width is None else f" ± {change.half_width:.3f}"
    meeting = "" if found.meeting is None else f"{found.meeting / 1e6:,.0f} million tokens"
    return [bold_if(change.decided, f"{change.mean:+.3f}{spread}"), meeting]


def _signed(value: Estimate, seeds: int) -> str:
    return f"{'+' if value.mean >= 0 else ''}{value.of(seeds)}"
