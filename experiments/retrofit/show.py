"""Table and figure of the retrofit, from its results alone."""

from pathlib import Path

from experiments.retrofit.run import Result

from provenformer.base.files import atomic_path

COLUMNS = (
    "swapped layers",
    "parameters",
    "unrecovered, %",
    "MNLI, %",
    "ms a pair",
    "time against the original",
    "CPU minutes",
)


def table(results: list[Result]) -> str:
    """Markdown, a row for each number of swapped layers."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for one in results:
        times, metrics = one.milliseconds, one.metrics
        cells = (
            f"{one.swapped}",
            f"{one.parameters:,}",
            f"{100 * metrics['unrecovered']:.1f}",
            f"{100 * metrics['mnli_accuracy']:.1f}",
            f"{times['model']:.1f}",
            f"{times['model'] / times['original']:.2f}",
            f"{sum(one.cpu_seconds.values()) / 60:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def draw(results: list[Result], path: Path) -> None:
    """Accuracy and time against the number of swapped layers; readable on light and dark pages."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    swapped = [one.swapped for one in results]
    panels = {
        "MNLI dev-matched accuracy, %": [100 * one.metrics["mnli_accuracy"] for one in results],
        "CPU time a pair, of the original's": [
            one.milliseconds["model"] / one.milliseconds["original"] for one in results
        ],
    }
    figure = Figure(figsize=(6.4, 3), layout="constrained")
    left, right = figure.subplots(1, len(panels))
    for axes, (title, values) in zip((left, right), panels.items(), strict=True):
        axes.plot(swapped, values, "o-")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("lowest layers that are SepConv")
        axes.set_xticks(swapped)
    right.set_ylim(0, 1.1 * right.get_ylim()[1])  # from zero, or a few percent of noise look like a gain
    # The same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "retrofit"}), atomic_path(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
