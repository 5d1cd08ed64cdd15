"""Figures of a circuit: attention patterns, units as functions, errors of nodes, the error along a line. Data in, Figure out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from provenformer.anatomy.drawing import wrapped
from provenformer.anatomy.nodes import Node
from provenformer.anatomy.words import number
from provenformer.base.arrays import FloatArray
from provenformer.look.patterns import Pattern
from provenformer.look.unit_tables import UnitTable
from provenformer.report.circuit_findings import Along
from provenformer.report.figures import entry_name
from provenformer.report.style import BLUE, FAINT, GREEN, INK, ORANGE, WIDTH, new_figure, plain_numbers, styled

PER_ROW = 3
MOST_NAMED = 24  # tokens whose names stand beside rows and columns
MOST_LOOKS = 27  # characters of a line that says what a head looks at
UNIFORM = 3.0  # times the weight of a uniform pattern are full colour at least, so that one is seen to be even
LOWEST = 1e-17  # what is below is drawn there


@styled
def attention_patterns(found: Sequence[Pattern]) -> Figure:
    """One square per head: queries down, keys across; the fullest blue is its largest weight, or three times an even one."""
    columns = min(PER_ROW, len(found))
    rows = -(-len(found) // columns)
    high = 2.9 if any(one.looks for one in found) else 2.55
    figure = new_figure(high * rows + 0.25, width=max(3.2, WIDTH * columns / PER_ROW))
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in every[len(found) :]:
        axes.set_visible(False)
    for axes, one in zip(every, found, strict=False):
        top = max(float(one.weights.max()), min(1.0, UNIFORM / len(one.weights)))
        axes.imshow(_shaded(one.weights / top), interpolation="nearest", aspect="equal")
        makes = ", ".join(one.makes[:3]) + (" …" if len(one.makes) > 3 else "")
        title = f"block {one.block}, head {one.head}: {makes}"
        axes.set_title("\n".join([title, *wrapped(one.looks, MOST_LOOKS, 2)]) if one.looks else title, fontsize=9)
        named = one.tokens if len(one.tokens) <= MOST_NAMED else ()
        for ticks in (axes.set_xticks, axes.set_yticks):
            ticks(range(len(named)), [escaped(token) for token in named], fontsize=7.5)
        axes.tick_params(length=0)
        axes.set_xlabel(f"key (largest weight {number(one.largest)})", fontsize=8.5)
        axes.set_ylabel("query", fontsize=8.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
    return figure


def escaped(name: str) -> str:
    """A token's name as text, whatever signs of mathematics it has; a long one is cut."""
    return (name if len(name) <= 6 else f"{name[:5]}…").replace("$", r"\$")


def _shaded(share: FloatArray) -> FloatArray:
    """One colour, as dense as the weight is large: 0 lets the page show through, be it light or dark."""
    return np.concatenate([np.broadcast_to(to_rgb(BLUE), (*share.shape, 3)), share[..., None]], axis=-1)


@styled
def unit_curves(found: Sequence[UnitTable]) -> Figure:
    """Two panels per function: the function and what units give with its corners; and the difference."""
    columns = min(PER_ROW, len(found))
    rows = -(-len(found) // columns)
    figure = new_figure(2.9 * rows + 0.4, width=max(4.0, WIDTH * columns / PER_ROW))
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[2, 1] * rows)
    for axes in grid.ravel():
        axes.set_visible(False)
    for i, table in enumerate(found):
        row, column = divmod(i, columns)
        curve, error = grid[2 * row, column], grid[2 * row + 1, column]
        _curve(curve, table)
        _difference(error, table)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    return figure


def _curve(axes: Axes, table: UnitTable) -> None:
    axes.set_visible(True)
    axes.plot(table.argument, table.wanted, color=BLUE, linewidth=2.6, alpha=0.55, label="function")
    axes.plot(table.argument, table.held, color=ORANGE, linewidth=1.1, label="units")
    corners = np.interp(table.corners, table.argument, table.held)
    if len(corners) <= 60:
        axes.plot(table.corners, corners, "o", color=ORANGE, markersize=2.6, label="corners")
    axes.set_title(f"{table.node.name}, {table.node.units:,} units", fontsize=9)
    axes.set_xticklabels([])
    axes.locator_params(nbins=4)
    plain_numbers(axes, "y")


def _difference(axes: Axes, table: UnitTable) -> None:
    axes.set_visible(True)
    axes.axhline(0.0, color=FAINT, linewidth=0.8)
    axes.plot(table.argument, table.held - table.wanted, color=GREEN, linewidth=0.9)
    axes.set_xlabel("argument z", fontsize=8.5)
    axes.set_ylabel("error", fontsize=8.5)
    axes.set_xlim(table.argument[0], table.argument[-1])
    axes.locator_params(nbins=4)
    for which in "xy":
        plain_numbers(axes, which)


@styled
def node_errors(nodes: Sequence[Node], measured: Sequence[float]) -> Figure:
    """Per node the bounds for float64 and float32, and what was measured, on a logarithmic scale."""
    figure = new_figure(0.9 + 0.26 * len(nodes))
    axes = figure.subplots()
    places = np.arange(len(nodes))
    for place, node in zip(places, nodes, strict=True):
        if node.error is not None:
            axes.hlines(place, LOWEST, max(node.error.float64, LOWEST), color=BLUE, linewidth=7, alpha=0.28)
    bounds = [(node.error.float64, node.error.float32) if node.error else (np.nan, np.nan) for node in nodes]
    double, single = (np.maximum([pair[i] for pair in bounds], LOWEST) for i in (0, 1))
    axes.plot(double, places, "|", color=BLUE, markersize=11, markeredgewidth=2.2, label="bound, float64")
    axes.plot(single, places, "|", color=FAINT, markersize=11, markeredgewidth=2.2, label="bound, float32")
    axes.plot(np.maximum(measured, LOWEST), places, "o", color=ORANGE, markersize=4.5, label="measured, float64")
    axes.set_xscale("log")
    axes.set_yticks(places, [f"{node.name} ({node.by})" for node in nodes])
    axes.set_ylim(len(nodes) - 0.4, -0.6)
    axes.set_xlim(left=LOWEST)
    axes.set_xlabel("distance of a channel from its value")
    plain_numbers(axes, "x", lambda value: f"{value:.0e}".replace("e-0", "e-"))
    figure.legend(loc="outside upper left", ncols=3)
    return figure


@styled
def error_along(data: Along, bound: float | None) -> Figure:
    """Target and network along a line, and their difference between the bounds."""
    figure = new_figure(3.9)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    top.plot(data.at, data.target, color=BLUE, linewidth=2.8, alpha=0.55, label="target f")
    top.plot(data.at, data.network, color=ORANGE, linewidth=1.1, label="network g")
    top.set_ylabel(f"output, {entry_name(data.entry)}")
    top.legend(loc="best")
    bottom.plot(data.at, data.network - data.target, color=GREEN, linewidth=1.0, label="g - f")
    if bound is not None:
        for sign in (1, -1):
            bottom.axhline(sign * bound, color=INK, linestyle="--", linewidth=1.0, label="bound" if sign > 0 else None)
    bottom.set(xlabel=entry_name((0, 0)), ylabel="g - f")
    bottom.set_xlim(data.at[0], data.at[-1])
    bottom.legend(loc="upper right", ncols=2)
    for axes in (top, bottom):
        plain_numbers(axes, "y")
    return figure
