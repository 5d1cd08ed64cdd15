"""Where boxes and lines of a layered drawing go: rows from top to bottom, few crossings, no line through a box.

A line that passes rows gets a narrow place in each of them, shared by all lines from the same box. The order within rows comes
from the mean place of neighbours, swept down and up; places then follow neighbours as closely as order and gaps allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 24
GAP, LANE = 22.0, 6.0  # between boxes; a line's own width


@dataclass(frozen=True)
class Line:
    """From a box to a box by the places (row, centre) between them."""

    source: int
    target: int
    centres: tuple[float, ...]  # of the source, of each row that is passed, of the target


@dataclass(frozen=True)
class Layout:
    """The centre of every box, the lines, and the width of all."""

    centres: tuple[float, ...]
    lines: tuple[Line, ...]
    width: float


def layout(rows: Sequence[int], widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Boxes have a row and a width; an edge leads from a box to one in a later row."""
    count = len(rows)
    place_of: dict[tuple[int, int], int] = {}  # (source, row) -> its place there
    row_of, width_of = list(rows), list(widths)
    chains = []
    links: set[tuple[int, int]] = set()
    for source, target in sorted(edges, key=lambda e: (rows[e[0]], e)):
        chain = [source]
        for row in range(rows[source] + 1, rows[target]):
            if (source, row) not in place_of:
                place_of[source, row] = len(row_of)
                row_of.append(row)
                width_of.append(LANE)
            chain.append(place_of[source, row])
        chain.append(target)
        chains.append((source, target, chain))
        links |= set(pairwise(chain))
    above: list[list[int]] = [[] for _ in row_of]
    below: list[list[int]] = [[] for _ in row_of]
    for a, b in sorted(links):
        above[b].append(a)
        below[a].append(b)
    order = [[i for i, r in enumerate(row_of) if r == row] for row in range(max(rows, default=-1) + 1)]
    centre = _ordered(order, width_of, above, below)
    left = min((centre[i] - width_of[i] / 2 for i in range(len(row_of))), default=0.0)
    right = max((centre[i] + width_of[i] / 2 for i in range(len(row_of))), default=0.0)
    centre = [c - left for c in centre]
    lines = [Line(a, b, tuple(centre[i] for i in chain)) for a, b, chain in chains]
    return Layout(tuple(centre[:count]), tuple(lines), right - left)


def _ordered(
    order: list[list[int]], widths: Sequence[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    centre = [0.0] * len(widths)
    for row in order:
        _spread(row, [0.0] * len(row), widths, centre)
    best, fewest = [list(row) for row in order], _crossings(order, below)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in order if down else reversed(order):
            wish = {i: _mean(neighbours[i], centre, centre[i]) for i in row}
            row.sort(key=lambda i: wish[i])
            _spread(row, [wish[i] for i in row], widths, centre)
        if (now := _crossings(order, below)) < fewest:
            best, fewest = [list(row) for row in order], now
    for _ in range(SWEEPS):
        for row in best:
            wish = {i: _mean([*above[i], *below[i]], centre, centre[i]) for i in row}
            _spread(row, [wish[i] for i in row], widths, centre)
    return centre


def _mean(others: Sequence[int], centre: Sequence[float], default: float) -> float:
    return sum(centre[i] for i in others) / len(others) if others else default


def _spread(row: Sequence[int], wishes: Sequence[float], widths: Sequence[float], centre: list[float]) -> None:
    """Centres next to the wishes, in the order of the row, with gaps: neighbours that would overlap move together."""
    offsets, total = [], 0.0
    for k, i in enumerate(row):
        if k:
            total += (widths[row[k - 1]] + widths[i]) / 2 + GAP
        offsets.append(total)
    groups: list[list[float]] = []  # sum of (wish - offset), count: all members of a group share that mean
    for wish, offset in zip(wishes, offsets, strict=True):
        groups.append([wish - offset, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            last = groups.pop()
            groups[-1] = [groups[-1][0] + last[0], groups[-1][1] + last[1]]
    starts = [group[0] / group[1] for group in groups for _ in range(int(group[1]))]
    for i, start, offset in zip(row, starts, offsets, strict=True):
        centre[i] = start + offset


def _crossings(order: Sequence[Sequence[int]], below: list[list[int]]) -> int:
    found = 0
    for upper, lower in pairwise(order):
        at = {i: k for k, i in enumerate(lower)}
        ends = [at[j] for i in upper for j in sorted(below[i], key=lambda j: at[j])]
        found += sum(a > b for k, a in enumerate(ends) for b in ends[k + 1 :])
    return found
