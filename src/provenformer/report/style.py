"""How figures look: one ink that the page replaces by its own text colour, data colours that read on white and on black."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, SymmetricalLogLocator

P = ParamSpec("P")

INK = "#22272e"  # all text and axes; nothing else has this colour
FAINT = "#8a919c"
BLUE, ORANGE, GREEN, PURPLE, RED = "#3a7bd5", "#e07a2f", "#2a9d74", "#9467bd", "#d6455d"
TOKENS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#0fa3b1", "#b5842b", "#7f8c8d")  # one colour per token, then again
WIDTH = 7.0  # inches: a text column of a page, and 672 CSS pixels

STYLE: Any = {  # matplotlib types the keys as one long list of literals
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.labelcolor": INK,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """A drawing function whose figure has this style, whatever the caller's settings are."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure without pyplot: nothing global, nothing to close."""
    return Figure(figsize=(width, height), layout="constrained")


def symlog(axes: Axes, which: str, linear_part: float = 0.6) -> None:
    """A scale for numbers from cells to ids: linear up to 1 (as long as `linear_part` decades), then logarithmic."""
    getattr(axes, f"set_{which}scale")("symlog", linthresh=1.0, linscale=linear_part)
    locator = SymmetricalLogLocator(base=10, linthresh=1.0)
    locator.set_params(numticks=7)
    getattr(axes, f"{which}axis").set_major_locator(locator)
    plain_numbers(axes, which, _power)


def plain_numbers(axes: Axes, which: str, label: Callable[[float], str] | None = None) -> None:
    """Tick labels as plain text: a formula per label would take most of the drawing time."""
    getattr(axes, f"{which}axis").set_major_formatter(FuncFormatter(lambda value, _: (label or short)(float(value))))
    getattr(axes, f"{which}axis").set_minor_formatter(NullFormatter())


def token_color(token: int) -> str:
    """The colour of a token in every figure."""
    return TOKENS[token % len(TOKENS)]


def short(value: float) -> str:
    """A number for a label: whole ones with separators, large ones by their size."""
    if abs(value - round(value)) <= 1e-9 * abs(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


def _power(value: float) -> str:
    """A power of ten, short from 10^4 on, so that neighbours do not touch."""
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e") if abs(value) >= 1e4 else short(value)
