"""Figures of what a network does to the box: certificate, sizes, cubes, target against network. Data in, Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from provenformer.base.arrays import FloatArray
from provenformer.look.slices import Curve, Entry, Quantised, Surface
from provenformer.report.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    new_figure,
    plain_numbers,
    short,
    styled,
)

TERM_COLORS = {
    "piecewise": BLUE,
    "lost cubes": ORANGE,
    "ramps": GREEN,
    "softmax": PURPLE,
    "rounding": RED,
    "tables": BLUE,
    "attention": PURPLE,
}
MOST_EDGES = 40  # cells per axis; lines closer than that would hide the picture


@styled
def certificate_bar(
    contributions: Mapping[str, float], terms: Mapping[str, float], marks: Mapping[str, float] | None = None
) -> Figure:
    """The bound as one bar, split among its terms; `marks` are other distances to compare with (measured, asked)."""
    figure = new_figure(2.3)
    axes = figure.subplots()
    left = 0.0
    for name, part in contributions.items():
        label = f"{name} {terms[name]:.3g}" if terms[name] else f"{name} 0"
        axes.barh(0, part, left=left, height=0.5, color=TERM_COLORS.get(name, FAINT), label=label)
        left += part
    for (name, value), line in zip((marks or {}).items(), ("--", ":"), strict=False):
        axes.axvline(value, color=INK, linestyle=line, linewidth=1.4, label=f"{name} {value:.4g}")
    axes.set_xlim(0, 1.06 * max(left, *(marks or {"": 0.0}).values()))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("distance from the target")
    figure.legend(loc="outside upper left", ncols=4, columnspacing=1.2, handlelength=1.4)
    return figure


@styled
def stage_bars(stages: Mapping[str, int], unit: str = "layers") -> Figure:
    """Layers (or hidden units) per stage, in the order of the network, on a logarithmic scale."""
    figure = new_figure(0.8 + 0.32 * len(stages))
    axes = figure.subplots()
    names, counts = list(stages), [stages[name] for name in stages]
    places = np.arange(len(names))
    axes.barh(places, np.maximum(counts, 0.5), left=0.5, color=BLUE, height=0.62)
    for place, count in zip(places, counts, strict=True):
        axes.annotate(
            f"{count:,}", (count + 0.5, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_xscale("log")
    plain_numbers(axes, "x")
    axes.set_xlim(0.5, 4 * max(counts))
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    return figure


@styled
def cubes(data: Quantised) -> Figure:
    """Left: points of a plane and the corner of the cube they are moved to. Right: the staircase along one axis."""
    figure = new_figure(3.4)
    plane, stairs = figure.subplots(1, 2)
    _cell_edges(plane, *data.edges)
    change = data.corners - data.before
    plane.quiver(
        *data.before.T, *change.T, angles="xy", scale_units="xy", scale=1, width=0.004, color=FAINT, headwidth=4
    )
    plane.plot(*data.before.T, "o", color=BLUE, markersize=3, label="input")
    plane.plot(*data.corners.T, "s", color=ORANGE, markersize=4.5, label="quantised")
    for ends, limits in zip(data.edges, (plane.set_xlim, plane.set_ylim), strict=True):
        margin = 0.03 * (ends[-1] - ends[0])
        limits(ends[0] - margin, ends[-1] + margin)
    plane.set(xlabel=entry_name(data.moves[0]), ylabel=entry_name(data.moves[1]), title="cubes and their corners")
    stairs.plot(data.line, data.line, color=BLUE, linewidth=1.0, label="input")
    stairs.plot(data.line, data.stairs, color=ORANGE, label="quantised")
    _cell_edges(stairs, data.edges[0], None)
    stairs.set(xlabel=entry_name(data.moves[0]), ylabel="after quantising", title="one axis")
    stairs.legend(loc="upper left")
    return figure


@styled
def slice_curve(data: Curve) -> Figure:
    """Target and network while one entry of the sequence moves."""
    figure = new_figure(2.9)
    axes = figure.subplots()
    _cell_edges(axes, data.edges, None)
    if data.target is not None:
        axes.plot(data.at, data.target, color=BLUE, label="target")
        axes.fill_between(data.at, data.target, data.network, color=ORANGE, alpha=0.25, linewidth=0)
    axes.plot(data.at, data.network, color=ORANGE, label="network", linewidth=1.4)
    axes.set(xlabel=entry_name(data.moves), ylabel=f"output, {entry_name(data.shows)}")
    axes.set_xlim(data.edges[0], data.edges[-1])
    axes.legend(loc="best")
    return figure


@styled
def slice_maps(data: Surface) -> Figure:
    """Heat maps of target and network over two entries, with one colour scale."""
    shown = [("target", data.target)] if data.target is not None else []
    panels: list[tuple[str, FloatArray]] = [(n, v) for n, v in [*shown, ("network", data.network)] if v is not None]
    figure = new_figure(3.3)
    row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    low, high = (f([values for _, values in panels]) for f in (np.min, np.max))
    for axes, (name, values) in zip(row, panels, strict=True):
        picture = _picture(axes, data, values, "viridis", low, high)
        axes.set(title=name, xlabel=entry_name(data.moves[0]))
    row[0].set_ylabel(entry_name(data.moves[1]))
    bar = figure.colorbar(picture, ax=list(row), shrink=0.85, label=f"output, {entry_name(data.shows)}")
    bar.outline.set_visible(False)
    return figure


@styled
def error_map(data: Surface, error: FloatArray) -> Figure:
    """network - target over two entries, with the edges of the cubes."""
    figure = new_figure(3.9, width=5.2)
    axes = figure.subplots()
    largest = float(np.abs(error).max()) or 1.0
    picture = _picture(axes, data, error, "RdBu_r", -largest, largest)
    if max(map(len, data.edges)) <= MOST_EDGES + 1:
        for edges, line in zip(data.edges, (axes.axvline, axes.axhline), strict=True):
            for edge in edges:
                line(edge, color="black", linewidth=0.6, alpha=0.55)
    axes.set(xlabel=entry_name(data.moves[0]), ylabel=entry_name(data.moves[1]))
    bar = figure.colorbar(picture, ax=axes, shrink=0.85, label=f"network - target, {entry_name(data.shows)}")
    bar.outline.set_visible(False)
    return figure


@styled
def data_fit(wanted: FloatArray, got: FloatArray) -> Figure:
    """Memorised pairs: the network's output numbers against those that were given, and what is between them."""
    figure = new_figure(3.0)
    fit, rest = figure.subplots(1, 2)
    low, high = float(wanted.min()), float(wanted.max())
    fit.plot([low, high], [low, high], color=FAINT, linewidth=1)
    fit.plot(wanted.ravel(), got.ravel(), "o", color=BLUE, markersize=3.5, alpha=0.8)
    fit.set(xlabel="given output", ylabel="network", title="outputs")
    rest.axhline(0, color=FAINT, linewidth=1)
    rest.plot(wanted.ravel(), (got - wanted).ravel(), "o", color=ORANGE, markersize=3.5, alpha=0.8)
    rest.set(xlabel="given output", ylabel="network - given", title="errors")
    return figure


def entry_name(entry: Entry) -> str:
    """`token 2`, or with several rows `token 2, row 1`; counted from 1, as people do."""
    row, token = entry
    return f"token {token + 1}" + (f", row {row + 1}" if row else "")


def sequence_name(sequence: FloatArray) -> str:
    """A sequence in a caption: tokens in order, rows in brackets."""
    tokens: Sequence[str] = [", ".join(short(v) for v in token) for token in sequence.T]
    shown = tokens if len(tokens) <= 8 else [*tokens[:7], ".."]
    return ", ".join(f"({token})" if len(sequence) > 1 else token for token in shown)


def _picture(axes: Axes, data: Surface, values: FloatArray, colors: str, low: float, high: float) -> AxesImage:
    return axes.imshow(
        values, origin="lower", extent=data.extent, cmap=colors, vmin=low, vmax=high, interpolation="nearest",
        aspect="auto",
    )  # fmt: skip


def _cell_edges(axes: Axes, along_x: FloatArray, along_y: FloatArray | None) -> None:
    """Faint lines at cell edges, unless there are too many to see."""
    for edges, line in ((along_x, axes.axvline), (along_y, axes.axhline)):
        if edges is not None and len(edges) <= MOST_EDGES + 1:
            for edge in edges:
                line(edge, color=FAINT, linewidth=0.6, alpha=0.6, zorder=0)
