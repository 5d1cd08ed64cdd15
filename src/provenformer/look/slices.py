"""Target against network over slices of the box: one token moves (curve) or two do (surface), all others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.functions.grid import Grid
from provenformer.look.states import after, column_ids
from provenformer.look.subject import Subject
from provenformer.networks.stages import QUANTISE

CURVE_POINTS = 701
SURFACE_POINTS = 112  # per axis: finer than the eye resolves in a printed heat map of cubes
ARROWS = 70

Entry = tuple[int, int]  # row and token of a number in a sequence, both from 0


@dataclass(frozen=True)
class Curve:
    """An output entry while one input entry moves over its range."""

    moves: Entry
    shows: Entry
    base: FloatArray  # (d, n): the other entries
    at: FloatArray  # (points,)
    target: FloatArray | None
    network: FloatArray
    edges: FloatArray  # of the cells


@dataclass(frozen=True)
class Surface:
    """An output entry while two input entries move; arrays are indexed [second, first]."""

    moves: tuple[Entry, Entry]
    shows: Entry
    base: FloatArray
    at: tuple[FloatArray, FloatArray]  # sample points along the first and the second entry
    extent: tuple[float, float, float, float]  # of the picture: left, right, bottom, top
    target: FloatArray | None
    network: FloatArray
    edges: tuple[FloatArray, FloatArray]

    @property
    def error(self) -> FloatArray | None:
        """network - target."""
        return None if self.target is None else self.network - self.target


@dataclass(frozen=True)
class Quantised:
    """Points of the plane of two input entries, and the corner of the cube that the network's quantiser moves them to."""

    moves: tuple[Entry, Entry]
    before: FloatArray  # (points, 2)
    corners: FloatArray  # (points, 2)
    line: FloatArray  # (points,): along the first entry,
    stairs: FloatArray  # and what it is quantised to
    edges: tuple[FloatArray, FloatArray]


def cell_edges(subject: Subject, row: int) -> FloatArray:
    """The N + 1 edges of the cells along a row; only the two ends of the box when there is no grid."""
    cells = 1 if subject.grid is None else subject.grid.cells_per_axis
    return np.linspace(subject.support[0][row], subject.support[1][row], cells + 1)


def between(subject: Subject, row: int, count: int) -> FloatArray:
    """The midpoints of `count` equal parts of a row's range: they lie on no cell edge's ramp."""
    low, high = subject.support[0][row], subject.support[1][row]
    return np.asarray(low + (np.arange(count) + 0.5) / count * (high - low))


def moved(base: FloatArray, entries: Sequence[Entry], at: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """Copies (.., d, n) of a sequence in which entries have the numbers `at`, one array (..) for each, broadcast."""
    x = np.broadcast_to(base, (*np.broadcast_shapes(*(np.shape(along) for along in at)), *base.shape)).copy()
    for (row, token), along in zip(entries, at, strict=True):
        x[..., row, token] = along
    return x


def curve(subject: Subject, moves: Entry = (0, 0), base: FloatArray | None = None) -> Curve:
    """Target and network along one entry, shown at the output entry that changes most."""
    base = subject.example() if base is None else base
    at = between(subject, moves[0], min(CURVE_POINTS, subject.affordable()))
    target, network, shows = _outputs(subject, moved(base, [moves], [at]))
    return Curve(moves, shows, base, at, target, network, cell_edges(subject, moves[0]))


def surface(subject: Subject, moves: tuple[Entry, Entry] = ((0, 0), (0, 1)), base: FloatArray | None = None) -> Surface:
    """Target and network over two entries, shown at the output entry that changes most."""
    base = subject.example() if base is None else base
    points = _points_per_axis(subject)
    at = (between(subject, moves[0][0], points), between(subject, moves[1][0], points))
    target, network, shows = _outputs(subject, moved(base, moves, [at[0], at[1][:, None]]))
    edges = (cell_edges(subject, moves[0][0]), cell_edges(subject, moves[1][0]))
    extent = (edges[0][0], edges[0][-1], edges[1][0], edges[1][-1])
    return Surface(moves, shows, base, at, extent, target, network, edges)


def quantised(subject: Subject, moves: tuple[Entry, Entry] = ((0, 0), (0, 1)), count: int = ARROWS) -> Quantised:
    """Random points of a plane, run through the quantiser's layers. Needs a grid."""
    low, high = (subject.support[i][[row for row, _ in moves]] for i in (0, 1))
    before = low + np.random.default_rng(7).random((count, 2)) * (high - low)
    line = np.linspace(low[0], high[0], 601)[:-1]
    on_line = np.stack([line, np.full(len(line), before[0, 1])], axis=1)
    edges = (cell_edges(subject, moves[0][0]), cell_edges(subject, moves[1][0]))
    corners = _corners(subject, moves, np.concatenate([before, on_line]), edges)
    return Quantised(moves, before, corners[:count], line, corners[count:, 0], edges)


def _corners(
    subject: Subject, moves: tuple[Entry, Entry], points: FloatArray, edges: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """The lower corners, in the box, of the cells that the quantiser's layers find for points of a plane."""
    grid = _grid(subject)
    state = after(subject, moved(subject.example(), moves, points.T), QUANTISE)
    ids = np.round(column_ids(subject, state)).astype(np.int64)
    if subject.positional:  # token j lies j boxes further, in every row
        ids -= np.arange(grid.seq_len) * grid.cells_per_axis * sum(grid.id_vector)
    cells = grid.columns(ids)  # (points, n, d)
    return np.stack([edge[cells[:, token, row]] for (row, token), edge in zip(moves, edges, strict=True)], axis=1)


def _points_per_axis(subject: Subject) -> int:
    """A multiple of the number of cells if it can be paid for, so that every cell shows alike."""
    cells = 1 if subject.grid is None else subject.grid.cells_per_axis
    most = min(max(SURFACE_POINTS, cells), isqrt(subject.affordable()))
    return most // cells * cells or most


def _outputs(subject: Subject, x: FloatArray) -> tuple[FloatArray | None, FloatArray, Entry]:
    """Target and network at the output entry (row, token) that changes most over the sequences `x` (.., d, n)."""
    network = subject.network(x)
    target = None if subject.target is None else subject.target(x)
    judged = network if target is None else target
    spread = judged.reshape(-1, *x.shape[-2:]).std(axis=0)
    row, token = divmod(int(np.argmax(spread > 0.999 * spread.max())), x.shape[-1])  # the first of equals
    picked = None if target is None else target[..., row, token]
    return picked, network[..., row, token], (row, token)


def _grid(subject: Subject) -> Grid:
    if subject.grid is None:
        raise ValueError("a memorised data set has no grid to quantise to")
    return subject.grid
