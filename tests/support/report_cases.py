"""One small network of every kind, and what tests ask of a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np

import provenformer as pf
from provenformer.report.subject import Subject


def keep_positive(x: Any) -> Any:
    return np.maximum(x - np.mean(x, axis=-1, keepdims=True), 0.0)


def memorized() -> pf.Memorized:
    rng = np.random.default_rng(3)
    return pf.memorize(rng.random((5, 2, 3)).round(2), rng.normal(size=(5, 2, 3)).round(2))


NETWORKS: dict[str, Callable[[], pf.Compiled | pf.Memorized]] = {
    "sum": lambda: pf.compile(pf.targets.get("softmax-mean", 1, 3), tolerance=0.15),
    "paper": lambda: pf.compile(pf.targets.get("softmax-mean", 1, 3), cells_per_axis=4, construction="paper"),
    "wide": lambda: pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=3, construction="wide"),
    "merged": lambda: pf.compile(pf.targets.get("centered", 1, 2, (-1, 2)), cells_per_axis=4, hidden_dim=8),
    "rows": lambda: pf.compile(pf.targets.get("scaled-mean", 2, 2), cells_per_axis=2),
    "wide rows": lambda: pf.compile(pf.targets.get("sort", 2, 2), cells_per_axis=2, construction="wide"),
    "positional": lambda: pf.compile(pf.targets.get("sort", 1, 2), cells_per_axis=3),
    "positional paper": lambda: pf.compile(pf.targets.get("reverse", 1, 2), cells_per_axis=3, construction="paper"),
    "nothing distinct": lambda: pf.compile(pf.targets.get("rank", 1, 3), cells_per_axis=2, construction="paper"),
    "opaque": lambda: pf.compile(pf.Target(lambda x: keep_positive(x), 1, 2), cells_per_axis=3),
    "data": memorized,
}
KINDS = list(NETWORKS)
PAGES = [
    "sum",
    "paper",
    "wide rows",
    "positional",
    "nothing distinct",
    "opaque",
    "data",
]  # a page takes a second or two


@cache
def made(kind: str) -> pf.Compiled | pf.Memorized:
    return NETWORKS[kind]()


class Page(HTMLParser):
    """What a test asks of a page: elements with their attributes, rows of tables, exact numbers, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[tuple[str, list[float]]]] = []  # per cell its text and its exact numbers
        self.styles = ""
        self._in_cell = self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append(("", []))
            self._in_cell = True
        if tag == "data" and self._in_cell:
            self.rows[-1][-1][1].append(float(dict(attrs)["value"] or "nan"))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.styles += data
        if self._in_cell:
            text, numbers = self.rows[-1][-1]
            self.rows[-1][-1] = (text + data, numbers)

    def row(self, name: str, cells: int | None = None) -> list[list[float]]:
        """The exact numbers of the last row with this name (and so many cells), cell by cell."""
        found = [r for r in self.rows if r and r[0][0] == name and cells in (None, len(r))]
        assert found, f"no row '{name}'"
        return [numbers for _, numbers in found[-1][1:]]


@dataclass(frozen=True)
class Reported:
    made: pf.Compiled | pf.Memorized
    subject: Subject
    page: Page
