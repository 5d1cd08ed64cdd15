"""The figures of docs/questions.md, drawn from results/*.json and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from provenformer.report.style import BLUE, FAINT, GREEN, ORANGE, PURPLE, RED, new_figure, plain_numbers, styled

RESULTS = Path(__file__).parent / "results"


@styled
def sharing(data: dict[str, Any]) -> Figure:
    """Across tokens: errors against the floor of equivariant networks. Across layers: one block again and again."""
    figure = new_figure(3.2)
    tokens, layers = figure.subplots(1, 2)
    row = data["tokens"][0]
    groups = {
        "trained,\nno positions": row["learned_without_positions"],
        "trained,\npositions": row["learned_with_positions"],
        f"constructed,\npositions\n({row['positions_blocks']:,} blocks)": [row["positions_measured"]],
    }
    _dots(tokens, groups, BLUE)
    tokens.axhline(row["floor"], color=RED, linestyle="--")
    tokens.annotate(
        "no equivariant function is below",
        (2.4, row["floor"]),
        xytext=(0, 4),
        textcoords="offset points",
        color=RED,
        fontsize=9,
        ha="right",
    )
    tokens.set(title=f"{row['target']}: tokens share weights", ylabel="d_2", ylim=(0, 1.35 * row["floor"]))
    rows = data["layers"]["training"]
    _dots(layers, {f"{r['shape']},\n{r['parameters']} weights": r["errors"] for r in rows}, ORANGE)
    layers.set(title="32 random pairs: layers share weights", ylabel="d_2", ylim=(0, None))
    return figure


@styled
def layer_norm(data: dict[str, Any]) -> Figure:
    """Error of the compiled network with layer norm after every layer, against the constant in its spare channels."""
    figure = new_figure(3.0)
    axes = figure.subplots()
    axes.plot(
        [r["log2_constant"] for r in data["padded"]],
        [r["error"] for r in data["padded"]],
        "o-",
        color=BLUE,
        label="layer norm, channels (x, -x, C, -C)",
    )
    axes.axhline(data["with_layer_norm"], color=RED, linestyle="--", label="layer norm, no spare channels")
    axes.axhline(data["without"], color=GREEN, linestyle=":", label="no layer norm")
    axes.set(xlabel="log2 of the constant C", ylabel="d_2", ylim=(0, None))
    figure.legend(loc="outside upper left", ncols=3, columnspacing=1.0, handlelength=1.6)
    return figure


@styled
def training(data: dict[str, Any]) -> Figure:
    """Learned against constructed, one panel per task, error over number of parameters."""
    figure = new_figure(3.9)
    panels = figure.subplots(1, len(data["tasks"]))
    for axes, task in zip(panels, data["tasks"], strict=True):
        for hidden, marker, color in ((4, "o", BLUE), (32, "s", PURPLE)):
            rows = [r for r in task["learned"] if r["hidden_dim"] == hidden]
            at = [r["parameters"] for r in rows for _ in r["errors"]]
            axes.plot(
                at,
                [e for r in rows for e in r["errors"]],
                marker,
                color=color,
                markersize=4.5,
                alpha=0.75,
                label=f"trained, (2, 1, {hidden})",
            )
        rows = task["constructed"]
        sizes = [r["parameters"] for r in rows]
        axes.plot(sizes, [r["error"] for r in rows], "D-", color=ORANGE, markersize=4.5, label="constructed, measured")
        axes.plot(sizes, [r["certified"] for r in rows], "_", color=RED, markersize=10, label="constructed, certified")
        axes.set(xscale="log", yscale="log", title=task["task"], xlabel="parameters")
        plain_numbers(axes, "x", lambda size: f"{size:g}" if size < 1000 else f"{size / 1000:g}k")
        plain_numbers(axes, "y")
        low, high = axes.get_ylim()
        if high < 100 * low:  # whole decades alone would label a single line
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0].set_ylabel("d_2")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2)
    return figure


@styled
def stacking(data: dict[str, Any]) -> Figure:
    """Which half of each block is on, and what each kind reaches alone."""
    figure = new_figure(3.4)
    runs, alone = figure.subplots(1, 2, width_ratios=(3, 2))
    for place, network in enumerate(data["networks"]):
        left = 0
        for kind, _, layers in network["runs"]:
            runs.barh(place, layers, left=left, height=0.5, color=ORANGE if kind == "attention" else BLUE, linewidth=0)
            left += layers
    runs.set_yticks(range(len(data["networks"])), [n["construction"] for n in data["networks"]])
    runs.set(xlabel="layers, in order", title="runs of one kind", ylim=(-0.6, 2.0))
    for color, name in ((BLUE, "feed-forward"), (ORANGE, "attention")):
        runs.bar(0, 0, color=color, label=name)
    runs.legend(loc="upper right")
    _dots(alone, {t["kind"].replace(" only", "\nonly"): t["errors"] for t in data["training"]}, GREEN)
    alone.axhline(data["token_wise_floor"], color=RED, linestyle="--")
    alone.annotate(
        "floor of token-wise functions",
        (2.4, data["token_wise_floor"]),
        xytext=(0, 4),
        textcoords="offset points",
        color=RED,
        fontsize=8,
        ha="right",
    )
    alone.set(title=f"trained on {data['target']}", ylabel="d_2", ylim=(0, 1.25 * data["token_wise_floor"]))
    return figure


@styled
def width(data: dict[str, Any]) -> Figure:
    """Blocks and parameters against hidden units, for each grid; hollow where rounding has spoilt the certificate."""
    figure = new_figure(3.2)
    blocks, parameters = figure.subplots(1, 2)
    for grid, color in zip(data["grids"], (BLUE, ORANGE, GREEN), strict=False):
        for axes, what in ((blocks, "blocks"), (parameters, "parameters")):
            thin = [r for r in grid["networks"] if r["construction"] == "sum"]
            wide = [r for r in grid["networks"] if r["construction"] == "wide"]
            axes.plot(
                [r["hidden_dim"] for r in thin], [r[what] for r in thin], "-", color=color, label=f"N = {grid['cells']}"
            )
            for r in thin:
                spoilt = r["certified"] > 1.5 * thin[0]["certified"]
                axes.plot(
                    r["hidden_dim"], r[what], "o", color=color, markersize=5, fillstyle="none" if spoilt else "full"
                )
            axes.plot([r["hidden_dim"] for r in wide], [r[what] for r in wide], "*", color=color, markersize=10)
    for axes, what in ((blocks, "blocks"), (parameters, "parameters")):
        axes.set(xscale="log", yscale="log", xlabel="hidden units r", ylabel=what)
        plain_numbers(axes, "x")
        plain_numbers(axes, "y")
    blocks.plot([], [], "*", color=FAINT, markersize=10, label="wide")
    blocks.legend()
    return figure


def _dots(axes: Axes, groups: dict[str, list[float]], color: str) -> None:
    """One dot per seed above each name; a seed beyond the picture is not hidden, the axis grows."""
    for place, errors in enumerate(groups.values()):
        spread = np.linspace(-0.12, 0.12, len(errors)) if len(errors) > 1 else [0.0]
        axes.plot(place + np.array(spread), errors, "o", color=color, markersize=5)
    axes.set_xticks(range(len(groups)), list(groups), fontsize=8)
    axes.set_xlim(-0.5, len(groups) - 0.5)


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "sharing": sharing,
    "layer_norm": layer_norm,
    "training": training,
    "stacking": stacking,
    "width": width,
}


def draw_all(folder: Path, results: Path = RESULTS) -> None:
    """One SVG per question."""
    for name, draw in FIGURES.items():
        data = json.loads((results / f"{name}.json").read_text())
        draw(data).savefig(folder / f"question-{name}.svg", metadata={"Date": None})
