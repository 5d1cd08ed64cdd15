"""A circuit as an SVG: rows from input to output, boxes coloured by what makes them, text in the colour of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from provenformer.anatomy.boxes import Box, Boxes, boxes_of
from provenformer.anatomy.layout import Layout, layout
from provenformer.anatomy.nodes import Node

COLORS = {"heads": "#3a7bd5", "units": "#e07a2f", "blocks": "#9467bd", "input": "#8a919c", "output": "#2a9d74"}
LINE = "#8a919c"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
CHARACTER = 7.2  # about the width of one
TEXT, SMALL, STEP = 13, 12, 17.0  # font sizes and the distance of lines
WIDEST, PADDING, BETWEEN = 34, 10.0, 46.0  # characters of a line; inside boxes; between rows
LABEL = 84.0  # the column with the names of the rows
LONGEST = 3  # lines of words
INK, DARK_INK = "#22272e", "#e6e9ee"
STANDALONE = f"<style>svg{{color:{INK}}}@media (prefers-color-scheme:dark){{svg{{color:{DARK_INK}}}}}</style>"


@dataclass(frozen=True)
class _Sized:
    box: Box
    lines: tuple[str, ...]  # of words
    width: float
    height: float


def draw(nodes: Sequence[Node], label: str, standalone: bool = True) -> str:
    """An <svg>. For a file of its own it brings its colours for light and dark; inside a page it takes that page's."""
    found = boxes_of(nodes)
    sized = [_sized(box) for box in found.boxes]
    placed = layout([b.row for b in found.boxes], [s.width for s in sized], list(found.edges))
    tops, height = _tops(found, sized)
    width = placed.width + LABEL + 2 * PADDING
    parts = [*_rows(found, sized, tops, width), *_lines(found, sized, placed, tops), *_boxes(sized, placed, tops)]
    sizes = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="circuit" role="img" aria-label="{escape(label)}" {sizes} '
        f'font-family="{FONT}" font-size="{TEXT}">'
    )
    return "".join([opening, STANDALONE if standalone else "", *parts, "</svg>"])


def _sized(box: Box) -> _Sized:
    lines = tuple(wrapped(box.words, WIDEST, LONGEST))
    longest = max(len(box.title) * 1.08, *map(len, lines), len(box.facts))
    return _Sized(
        box, lines, longest * CHARACTER + 2 * PADDING, (len(lines) + 1 + bool(box.facts)) * STEP + 2 * PADDING - 4
    )


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Lines of at most `width` characters where words allow; what does not fit ends in dots."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    lines = [line if len(line) <= width + 6 else line[: width + 5] + "…" for line in lines]
    return lines if len(lines) <= most else [*lines[: most - 1], lines[most - 1].rstrip(" ,;") + " …"]


def _tops(found: Boxes, sized: list[_Sized]) -> tuple[list[float], float]:
    tops, at = [], PADDING
    for row in range(len(found.rows)):
        tops.append(at)
        at += max(s.height for s in sized if s.box.row == row) + BETWEEN
    return tops, at - BETWEEN + PADDING


def _rows(found: Boxes, sized: list[_Sized], tops: list[float], width: float) -> Iterator[str]:
    """Names at the left; a thin line between blocks."""
    for row, name in enumerate(found.rows):
        first, _, rest = name.partition(", ")
        middle = tops[row] + max(s.height for s in sized if s.box.row == row) / 2
        if row and not (rest and found.rows[row - 1].startswith(f"{first},")):
            y = tops[row] - BETWEEN / 2
            yield f'<line x1="0" x2="{width:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}" stroke-opacity="0.35"/>'
        for text, y in ((first, middle - 3 if rest else middle + 4), (rest, middle + 12)):
            if text:
                yield f'<text x="0" y="{y:.1f}" font-size="{SMALL}" fill="currentColor" fill-opacity="0.7">{escape(text)}</text>'


def _lines(found: Boxes, sized: list[_Sized], placed: Layout, tops: list[float]) -> Iterator[str]:
    """Smooth from the bottom of a box to the top of another; straight where a row is passed; dashed for queries and keys."""
    drawn = set()
    heights = [max(s.height for s in sized if s.box.row == row) for row in range(len(found.rows))]
    for line in placed.lines:
        row = found.boxes[line.source].row
        roles = found.edges[line.source, line.target]
        shift = LABEL + PADDING
        y = tops[row] + sized[line.source].height
        last = len(line.centres) - 2
        for k, (a, b) in enumerate(zip(line.centres, line.centres[1:], strict=False)):
            end = tops[row + k + 1]
            middle = (max(y, end - BETWEEN) + end) / 2
            path = f"M{a + shift:.1f} {y:.1f}V{end - BETWEEN:.1f}" if end - BETWEEN > y else f"M{a + shift:.1f} {y:.1f}"
            path += f"C{a + shift:.1f} {middle:.1f} {b + shift:.1f} {middle:.1f} {b + shift:.1f} {end:.1f}"
            y = end
            if k < last:
                y = end + heights[row + k + 1]
                path += f"V{y:.1f}"
            dashed = ' stroke-dasharray="4 3"' if k == last and "value" not in roles else ""
            if path not in drawn:
                drawn.add(path)
                yield f'<path d="{path}" fill="none" stroke="{LINE}" stroke-opacity="0.8" stroke-width="1.2"{dashed}/>'


def _boxes(sized: list[_Sized], placed: Layout, tops: list[float]) -> Iterator[str]:
    for one, centre in zip(sized, placed.centres, strict=True):
        box, color = one.box, COLORS[one.box.by]
        left, top = centre - one.width / 2 + LABEL + PADDING, tops[one.box.row]
        names = " ".join(map(str, box.nodes))
        yield f'<g class="box {box.by}" data-nodes="{names}"><title>{escape(f"{box.title}: {box.words}")}</title>'
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{one.width:.1f}" height="{one.height:.1f}" rx="6" fill="{color}" '
            f'fill-opacity="0.13" stroke="{color}" stroke-width="1.3"/>'
        )
        texts = [(box.title, 'font-weight="600"'), *((line, "") for line in one.lines)]
        if box.facts:
            texts.append((box.facts, f'class="facts" font-size="{SMALL}" fill-opacity="0.75"'))
        for k, (text, more) in enumerate(texts):
            y = top + PADDING + 8 + k * STEP
            yield f'<text x="{left + PADDING:.1f}" y="{y:.1f}" fill="currentColor" {more}>{escape(text)}</text>'
        yield "</g>"
