"""The figures of a study, from its results alone: Figure 1 with confidence intervals, and the learning curves."""

from pathlib import Path
from typing import Any

from provenformer.atomic import atomic_path
from provenformer.bert.study import StudySettings, finished, summary
from provenformer.errors import ProvenformerError


def draw(settings: StudySettings, results: Path, path: Path) -> None:
    """A panel for each metric, a point with its interval for each model; the first model's level is a dashed line."""
    estimates = summary(settings, results)
    if not estimates:
        raise ProvenformerError(f"{results} holds no result of this study; run it first")
    models, metrics = list(estimates), list(next(iter(estimates.values())))
    figure = _figure(3.2 * len(metrics), 3)
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        found = [estimates[model][metric] for model in models]
        means = [100 * value.mean for value in found]
        errors = [100 * (value.half_width or 0.0) for value in found]
        axes.errorbar(range(len(models)), means, yerr=errors, fmt="o-", capsize=3)
        axes.axhline(means[0], linestyle="--", linewidth=0.8, color="grey")
        axes.set_xticks(range(len(models)), models, rotation=45, ha="right")
        axes.set_title(metric.replace("_", " "))
        axes.set_ylabel("%")
    figure.suptitle(settings.title)
    _save(figure, path, settings)


def draw_curves(settings: StudySettings, results: Path, path: Path) -> None:
    """[MASK]-only accuracy against examples seen: one line for each seed, one colour for each model."""
    figure = _figure(6.4, 4)
    axes = figure.subplots()
    for index, model in enumerate(settings.models):
        for seed, result in enumerate(finished(settings, results, model)):
            examples = [settings.pretrain.batch_size * point["step"] for point in result["curve"]]
            accuracy = [100 * point["mask_token_accuracy"] for point in result["curve"]]
            axes.plot(examples, accuracy, color=f"C{index}", alpha=0.9, label=None if seed else model)
    axes.set_xlabel("examples seen")
    axes.set_ylabel("held-out accuracy on [MASK], %")
    axes.legend(frameon=False)
    axes.set_title(settings.title)
    _save(figure, path, settings)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        remedy = "install the extra: pip install 'provenformer[report]'"
        raise ProvenformerError(f"a figure needs matplotlib, which is not installed; {remedy}") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path, settings: StudySettings) -> None:
    import matplotlib as mpl

    # The same results give the same file.
    with mpl.rc_context({"svg.hashsalt": settings.title}), atomic_path(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
