"""Figures of what was measured. Data in, Figure out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from provenformer.contextual.layers import LayerMeasure
from provenformer.contextual.measure import Measurement
from provenformer.contextual.reach import Reach, TwoSentences
from provenformer.contextual.senses import Senses
from provenformer.report.style import BLUE, FAINT, INK, ORANGE, new_figure, plain_numbers, styled, token_color

SHOWN_LAYERS = 6
MODE_TITLES = {"tokens": "all tokens", "words": "same word", "edits": "one-word edits", "swaps": "two words exchanged"}


@styled
def separation(found: Measurement) -> Figure:
    """Per mode, delta / r over the layers: smallest, median and the range from 5 to 95 %, trained beside random."""
    figure = new_figure(3.0, 2.6 * len(found.model.modes) + 0.4)
    all_axes = np.atleast_1d(figure.subplots(1, len(found.model.modes), sharey=True))
    for axes, mode in zip(all_axes, found.model.modes, strict=True):
        for part, color, name in ((found.model, BLUE, "the model"), (found.random, FAINT, "random weights")):
            if part is not None:
                _bands(axes, part.modes[mode], color, name)
        axes.set_yscale("log")
        axes.set_title(MODE_TITLES[mode])
        _layers_below(axes)
    all_axes[0].set_ylabel("distance / r")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _bands(axes: Axes, rows: list[LayerMeasure], color: str, name: str) -> None:
    layers = np.arange(len(rows))
    low, middle, high = (_drawn([row.quantile(q).value for row in rows]) for q in (0.05, 0.5, 0.95))
    axes.fill_between(layers, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(layers, middle, color=color, marker="o", markersize=3.5, label=f"{name}, median")
    axes.plot(layers, _drawn([row.ratio for row in rows]), color=color, linestyle=":", label="smallest")


def _layers_below(axes: Axes) -> None:
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _drawn(values: Sequence[float]) -> np.ndarray:
    """On a logarithmic scale: what is zero has no place there."""
    return np.array([value if value > 0 else np.nan for value in values])


@styled
def reach_profile(model: list[Reach], random: list[Reach] | None) -> Figure:
    """How far tokens move by their distance from the edit, one line per layer."""
    parts = [("the model", model)] + ([("random weights", random)] if random else [])
    figure = new_figure(3.2)
    all_axes = np.atleast_1d(figure.subplots(1, len(parts), sharey=True))
    for axes, (title, rows) in zip(all_axes, parts, strict=True):
        shown = np.unique(np.linspace(1, len(rows) - 1, min(SHOWN_LAYERS, len(rows) - 1)).round().astype(int))
        for k in shown:
            offsets = np.array(rows[k].offsets)
            near = np.abs(offsets) <= 24
            moved = _drawn(rows[k].median)
            axes.plot(offsets[near], moved[near], color=token_color(int(k) - 1), label=rows[k].layer)
        axes.set_yscale("log")
        axes.set_title(title)
        axes.set_xlabel("places from the edited word")
    all_axes[0].set_ylabel("median distance / r")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


@styled
def sense_curve(model: Senses, random: Senses) -> Figure:
    """The silhouette of senses over the layers, with intervals."""
    figure = new_figure(2.6)
    axes = figure.subplots()
    for part, color, name in ((model, BLUE, "the model"), (random, FAINT, "random weights")):
        layers = np.arange(len(part.layers))
        low, high = ([getattr(one, end) for one in part.layers] for end in ("low", "high"))
        axes.fill_between(layers, low, high, color=color, alpha=0.2, linewidth=0)
        axes.plot(layers, [one.silhouette for one in part.layers], color=color, marker="o", markersize=3.5, label=name)
    axes.axhline(0, color=INK, linewidth=0.6)
    _layers_below(axes)
    axes.set_ylabel("silhouette")
    axes.legend()
    return figure


@styled
def word_map(found: Senses, word: str) -> Figure:
    """The occurrences of one word in three layers, on their two principal axes, coloured by sense (as Coenen et al., Fig. 4)."""
    rows = [k for k, one in enumerate(found.occurrences) if one.word == word]
    kinds = sorted({found.occurrences[k].sense for k in rows})
    last = len(found.layers) - 1
    best = max(range(1, last + 1), key=lambda k: found.layers[k].words[word])
    chosen = list(dict.fromkeys([0, best, last]))
    figure = new_figure(2.9)
    all_axes = np.atleast_1d(figure.subplots(1, len(chosen)))
    for axes, layer in zip(all_axes, chosen, strict=True):
        points = principal_axes(found.vectors[layer][rows])
        for kind, color in zip(kinds, (BLUE, ORANGE, *(token_color(k) for k in range(2, 8))), strict=False):
            own = [i for i, k in enumerate(rows) if found.occurrences[k].sense == kind]
            axes.scatter(points[own, 0], points[own, 1], s=26, color=color, label=f"{word} ({kind})")
        axes.set_title(f"{found.layers[layer].layer}: {found.layers[layer].words[word]:.2f}")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.12)
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def principal_axes(x: np.ndarray) -> np.ndarray:
    """(count, 2): coordinates on the two axes of largest variance."""
    centred = x - x.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred @ axes[:2].T)


@styled
def example_lines(model: TwoSentences, random: TwoSentences) -> Figure:
    """How far the words that two sentences share are apart, over the layers."""
    figure = new_figure(2.6)
    axes = figure.subplots()
    for k, token in enumerate(model.tokens):
        axes.plot(
            [row[k] for row in model.distance], color=token_color(k), marker="o", markersize=3.5, label=f"“{token}”"
        )
        axes.plot(
            [row[k] for row in random.distance], color=token_color(k), linestyle=":", label=f"“{token}”, random weights"
        )
    _layers_below(axes)
    axes.set_ylabel("distance / r")
    plain_numbers(axes, "y")
    axes.legend(ncols=2)
    return figure
