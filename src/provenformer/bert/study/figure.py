"""The figures of a study, from its results alone: Figure 1 with confidence intervals, and the learning curves."""

import math
from pathlib import Path
from typing import Any

from provenformer.base.extras import extra
from provenformer.base.files import atomic_path
from provenformer.bert.study.finished import finished
from provenformer.bert.study.settings import StudySettings
from provenformer.bert.study.table import Estimate, metrics_of, summary
from provenformer.bert.study.titles import title_of

MISSING = Estimate(math.nan, None, 0)


def draw(settings: StudySettings, results: Path, path: Path, only: list[str] | None = None) -> None:
    """A panel for each metric; for each model its seeds, their mean with its interval, and the paper's number.

    The first model's level is a dashed line. One seed has no interval; one so wide that seeds could not be told apart beside it
    leaves the panel. The paper's numbers have a scale of their own, on the right: as many points an inch, and the first model
    that has both numbers at one height.
    """
    estimates, results_of = summary(settings, results, only), finished(settings, results, only)
    models, metrics = list(estimates), metrics_of(settings, estimates.values())
    columns = min(3, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    figure = _figure(3.2 * columns, 2.8 * rows + 0.4)
    for place, metric in enumerate(metrics, start=1):
        axes = figure.add_subplot(rows, columns, place)
        found = [estimates[model].get(metric, MISSING) for model in models]
        means = [100 * value.mean for value in found]
        errors = [math.nan if value.half_width is None else 100 * value.half_width for value in found]
        seeds = [(at, 100 * r["metrics"].get(metric, math.nan)) for at, m in enumerate(models) for r in results_of[m]]
        paper = [settings.paper.get(model, {}).get(metric, math.nan) for model in models]
        axes.errorbar(range(len(models)), means, yerr=errors, fmt="_", markersize=12, capsize=3, label="mean, 95 %")
        axes.plot(*zip(*seeds, strict=True), "o", color="C0", markersize=4, alpha=0.7, label="a seed")
        axes.axhline(means[0], linestyle="--", linewidth=0.8, color="grey")
        axes.set_ylim(*_limits(axes.get_ylim(), [value for _, value in seeds if math.isfinite(value)]))
        axes.set_xlim(-0.5, len(models) - 0.5)  # the same in every panel, whichever models it has
        axes.set_xticks(range(len(models)), models, rotation=45, ha="right")
        axes.set_title(title_of(metric))
        axes.set_ylabel("%")
        apart = (theirs - ours for theirs, ours in zip(paper, means, strict=True) if math.isfinite(theirs - ours))
        if (shift := next(apart, None)) is not None:
            _draw_paper(axes, paper, shift)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(settings.title)
    _save(figure, path, settings)


def _limits(shown: tuple[float, float], seeds: list[float]) -> tuple[float, float]:
    """From 0 at least, and at most three times as high as the seeds are apart, if they are."""
    low, high = max(0.0, shown[0]), shown[1]
    if apart := max(seeds) - min(seeds):
        low, high = max(low, min(seeds) - apart), min(high, max(seeds) + apart)
    return low, high


def _draw_paper(axes: Any, numbers: list[float], shift: float) -> None:
    beside = axes.twinx()
    beside.plot(numbers, "D", markerfacecolor="none", color="C1", label="paper (BERT_BASE), right scale")
    beside.tick_params(axis="y", colors="C1")
    low = min(axes.get_ylim()[0], beside.get_ylim()[0] - shift)
    high = max(axes.get_ylim()[1], beside.get_ylim()[1] - shift)
    axes.set_ylim(low, high)
    beside.set_ylim(low + shift, high + shift)


def draw_curves(settings: StudySettings, results: Path, path: Path, only: list[str] | None = None) -> None:
    """[MASK]-only accuracy against tokens seen: one line for each seed, one colour for each model."""
    figure = _figure(6.4, 4)
    axes = figure.subplots()
    found = finished(settings, results, only)
    for index, model in enumerate(settings.only(only)):
        for seed, result in enumerate(found.get(model, ())):
            tokens = [point["tokens"] / 1e6 for point in result["curve"]]
            accuracy = [100 * point["mask_token_accuracy"] for point in result["curve"]]
            axes.plot(tokens, accuracy, color=f"C{index}", alpha=0.9, label=None if seed else model)
    axes.set_xlabel("million tokens seen")
    axes.set_ylabel("held-out accuracy on [MASK], %")
    axes.legend(frameon=False)
    axes.set_title(settings.title)
    _save(figure, path, settings)


def _figure(width: float, height: float) -> Any:
    with extra("report", "a figure"):
        from matplotlib.figure import Figure  # noqa: PLC0415
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path, settings: StudySettings) -> None:
    import matplotlib as mpl  # noqa: PLC0415

    # The same results give the same file.
    with mpl.rc_context({"svg.hashsalt": settings.title}), atomic_path(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
