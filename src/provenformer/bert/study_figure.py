"""Figure 1: a panel for each metric, a point with its confidence interval for each model of a study."""

from pathlib import Path

from provenformer.bert.atomic import atomic_path
from provenformer.bert.study import StudySettings, summary
from provenformer.errors import ProvenformerError


def draw(settings: StudySettings, results: Path, path: Path) -> None:
    """Write the figure of what is finished as SVG; the first model's level is a dashed line."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        remedy = "install the extra: pip install 'provenformer[report]'"
        raise ProvenformerError(f"a figure needs matplotlib, which is not installed; {remedy}") from None
    mpl.rcParams["svg.hashsalt"] = settings.title  # the same results give the same file
    estimates = summary(settings, results)
    if not estimates:
        raise ProvenformerError(f"{results} holds no result of this study; run it first")
    models, metrics = list(estimates), list(next(iter(estimates.values())))
    figure = Figure(figsize=(3.2 * len(metrics), 3), layout="constrained")
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
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
