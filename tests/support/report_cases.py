"""Which networks get a page, and what tests ask of one."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

import provenformer as pf
from provenformer.look.subject import Subject

PAGES = [
    "sum",
    "paper",
    "wide rows",
    "positional",
    "nothing distinct",
    "opaque",
    "data",
]  # a page takes a second or two


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
