"""Figures of the ids: how they leap in the selective shifts, where they end, how bumps turn them into values."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from provenformer.look.bumps import Bumps
from provenformer.look.context_ids import OUTSIDE, REPEATED, VALID, IdTable, Leaps, Moment
from provenformer.report.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    RED,
    new_figure,
    plain_numbers,
    short,
    styled,
    symlog,
    token_color,
)

KIND_STYLE = {VALID: (BLUE, "o"), REPEATED: (ORANGE, "x"), OUTSIDE: (RED, "v")}
MOST_TOKENS = 8  # lines of one sequence that can be told apart


@styled
def id_journeys(table: IdTable) -> Figure:
    """The ids of all sequences at every moment, top to bottom; the range that carries values is shaded at the end."""
    moments = len(table.moments)
    figure = new_figure(1.3 + 0.5 * moments)
    axes = figure.subplots()
    rows = np.arange(moments)
    last = moments - 1
    axes.fill_between([table.low, table.high], last - 0.32, last + 0.32, color=GREEN, alpha=0.22, linewidth=0)
    for edge in (table.low, table.high):
        axes.plot([edge, edge], [last - 0.32, last + 0.32], color=GREEN, linewidth=1.2)
    present = [kind for kind in KIND_STYLE if kind in table.kinds]
    for kind in present:
        color, marker = KIND_STYLE[kind]
        of_kind = table.ids[:, [k == kind for k in table.kinds]].reshape(moments, -1)  # one column per token
        gap = np.full((1, of_kind.shape[1]), np.nan)  # one line for all tokens, with gaps between them
        across = np.concatenate([of_kind, gap]).T.ravel()
        down = np.tile(np.append(rows, np.nan), of_kind.shape[1])
        axes.plot(across, down, color=color, linewidth=0.5, alpha=0.4)
        axes.plot(across, down, marker, color=color, markersize=3.5, alpha=0.8)
    symlog(axes, "x")
    axes.set_yticks(rows, table.moments)
    axes.set_ylim(moments - 0.5, -0.5)
    axes.set_xlabel("id of a token (code, where recoded)")
    handles = [
        Line2D([], [], color=KIND_STYLE[kind][0], marker=KIND_STYLE[kind][1], markersize=4, linestyle="", label=kind)
        for kind in present
    ]
    handles.append(Line2D([], [], color=GREEN, linewidth=6, alpha=0.4, label="[id_low, id_high)"))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


@styled
def context_intervals(table: IdTable) -> Figure:
    """One line per context, from its smallest to its largest final id: the intervals do not meet."""
    final = table.ids[-1][table.valid]
    final = final[np.argsort(final.min(axis=1))]
    figure = new_figure(min(5.0, 1.5 + 0.11 * len(final)))
    axes = figure.subplots()
    axes.axvspan(table.low, table.high, color=GREEN, alpha=0.13, linewidth=0)
    rows = np.arange(len(final))
    axes.hlines(rows, final.min(axis=1), final.max(axis=1), color=BLUE, linewidth=2.2)
    axes.plot(final.ravel(), np.repeat(rows, final.shape[1]), "o", color=BLUE, markersize=3)
    margin = 0.03 * (table.high - table.low)
    axes.set_xlim(table.low - margin, table.high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    plain_numbers(axes, "x")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set(xlabel=f"final id; shaded: from {short(table.low)} to {short(table.high)}", ylabel="context, by its ids")
    return figure


@styled
def id_leaps(leaps: Leaps) -> Figure:
    """Paper's construction: the ids of one sequence over the layers of the sweep, with the sweep's window as a line."""
    layers, n = leaps.ids.shape
    figure = new_figure(3.3)
    axes = figure.subplots()
    at, ids = np.arange(layers), leaps.ids
    axes.plot(at[1:-1], leaps.windows, color=FAINT, linestyle=":", label="window of the shift")
    for token in range(min(n, MOST_TOKENS)):
        axes.step(at, ids[:, token], where="mid", color=token_color(token), label=f"token {token + 1}")
        moved = np.flatnonzero(np.diff(ids[:, token])) + 1
        axes.plot(moved, ids[moved, token], "o", color=token_color(token), markersize=4)
    symlog(axes, "y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="attention layers applied after quantising", ylabel="id")
    figure.legend(loc="outside upper left", ncols=5)
    return figure


@styled
def sequence_path(moments: list[Moment]) -> Figure:
    """One sequence through the stages: the id of each token where it has one, else its first row."""
    series = np.stack([m.values[0] if m.ids is None else m.ids for m in moments])
    figure = new_figure(3.6)
    axes = figure.subplots()
    at = np.arange(len(moments))
    for token in range(min(series.shape[1], MOST_TOKENS)):
        axes.plot(at, series[:, token], "o-", color=token_color(token), markersize=4, label=f"token {token + 1}")
    symlog(axes, "y", linear_part=2.0)
    axes.axhline(0, color=FAINT, linewidth=0.6, zorder=0)
    axes.set_xticks(at, [m.label.removeprefix("contextual map: ") for m in moments], rotation=35, ha="right")
    axes.set_ylabel("id or first row")
    figure.legend(loc="outside upper left", ncols=8, columnspacing=1.0, handlelength=1.2)
    return figure


@styled
def value_bumps(data: Bumps) -> Figure:
    """Top: what is added close to single ids. Bottom: the output of every id, in the order of the ids."""
    figure = new_figure(4.4)
    top = figure.add_subfigure(figure.add_gridspec(2, 1)[0])
    bottom = figure.add_subfigure(figure.add_gridspec(2, 1)[1])
    row = top.subplots(1, len(data.ids), squeeze=False, sharey=True)[0]
    for axes, name, added in zip(row, data.ids, data.added, strict=True):
        axes.axvspan(-0.5, 0.5, color=GREEN, alpha=0.18, linewidth=0)
        axes.plot(data.offsets, added, color=ORANGE)
        axes.set(title=f"id {short(name)}", xticks=(-1, 0, 1))
        axes.title.set_fontweight("normal")
    row[0].set_ylabel("share added")
    top.supxlabel("distance from the id", fontsize=10, color=INK)
    axes = bottom.subplots()
    axes.vlines(np.arange(len(data.heights)), 0.0, data.heights, color=BLUE, linewidth=1.2)
    axes.plot(data.heights, "o", color=BLUE, markersize=2.5)
    axes.set(xlabel="ids in increasing order", ylabel="output")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
