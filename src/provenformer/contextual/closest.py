"""Exact nearest neighbours and the exact closest pair among many vectors, within a bound on memory.

Matrix products compute |a|^2 + |b|^2 - 2ab, which loses all digits for vectors that are nearly equal, and those are the ones
that matter here. So products only sort out what cannot be nearest, with a bound on their error; whatever is left is
subtracted and measured in float64. The argument stands in docs/contextual.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from provenformer.contextual.corpus import Ints
from provenformer.contextual.progress import bar

Floats = NDArray[np.float64]
Vectors = NDArray[np.floating[Any]]

BLOCK = 1 << 22  # entries of the largest temporary arrays
AXES = (8, 24)  # principal axes that sort out pairs: few first, more if those leave too many
GRIDS = 48  # each twice as fine as the one before: the last is as fine as float64
MOST_CANDIDATES = 1 << 16  # pairs that are tried per grid
MOST_PAIRS = 4_000_000  # that a tree may hand back at a time
SLACK = 1e-9  # relative: far above what orthogonality and float64 sums can miss


@dataclass(frozen=True)
class Nearest:
    """Per query the distance to its nearest other vector, and which one that is."""

    distance: Floats
    index: Ints


@dataclass(frozen=True)
class ClosestPair:
    """The two vectors of a set that are closest."""

    first: int
    second: int
    distance: float


def nearest(x: Vectors, queries: Ints, shown: bool = False) -> Nearest:
    """For each of the rows `queries` of x (count, d) its nearest other row: the smallest distance, exactly.

    Time grows as len(queries) * count * d, in matrix products. Beside x: a centred copy and a few blocks.
    """
    count = len(x)
    if count < 2:
        raise ValueError("a single vector has no neighbour")
    centred, squares, unit = _prepared(x)
    distance, index = np.full(len(queries), np.inf), np.full(len(queries), -1, dtype=np.int64)
    width = min(count, 8192)
    height = max(1, BLOCK // width)
    with bar("nearest neighbours", len(queries), shown) as advance:
        for top in range(0, len(queries), height):
            rows = queries[top : top + height]
            for left in range(0, count, width):
                right = min(left + width, count)
                squared = _products(centred, squares, rows, slice(left, right))
                own = (rows >= left) & (rows < right)
                squared[np.flatnonzero(own), rows[own] - left] = np.inf
                error = _error_bound(unit, x.shape[1], squares[rows], squares[left:right].max())
                # A row may be nearest only if it is not further than the best one can be.
                limit = np.minimum(squared.min(axis=1) + error, distance[top : top + height] ** 2) + error
                limit = np.nextafter(limit.astype(squared.dtype), np.inf, dtype=squared.dtype)
                near, far = np.nonzero((squared <= limit[:, None]) & (squared < np.inf))
                found = _distances(x, rows[near], far + left)
                _keep_smallest(distance, index, near + top, far + left, found)
            advance(len(rows))
    return Nearest(distance, index)


def closest_pair(x: Vectors, shown: bool = False) -> ClosestPair:
    """The smallest distance between two rows of x (count, d), exactly, and a pair at that distance."""
    if len(x) < 2:
        raise ValueError("a single vector has no neighbour")
    if (same := equal_rows(x)) is not None:
        return ClosestPair(*same, 0.0)
    for axes in AXES:
        points = projections(x, axes)
        tree = cKDTree(points)
        best = _close_pair(x, points)
        radius = best.distance * (1 + SLACK) + 1e-12 * float(np.abs(points).max())
        if _pairs_within(tree, points, radius) <= MOST_PAIRS:
            return _best_of(x, tree.query_pairs(radius, output_type="ndarray"), best)
    found = nearest(x, np.arange(len(x)), shown)
    row = int(found.distance.argmin())
    return ClosestPair(row, int(found.index[row]), float(found.distance[row]))


def projections(x: Vectors, axes: int) -> Floats:
    """(count, axes + 1): coordinates on the leading principal axes, and the length of what they leave out.

    No two rows are further apart here than they are in x: coordinates on orthonormal axes lose the rest, and by the
    triangle inequality lengths of the rests differ by at most the length of their difference.
    """
    mean = x.mean(axis=0, dtype=np.float64)
    sample = x[:: max(1, len(x) // 4096)].astype(np.float64) - mean
    _, directions = np.linalg.eigh(sample.T @ sample)  # in order of growing variance
    basis = directions[:, -min(axes, x.shape[1]) :]
    out = np.empty((len(x), basis.shape[1] + 1))
    for at in range(0, len(x), _rows_at_once(x)):
        part = x[at : at + _rows_at_once(x)].astype(np.float64) - mean
        inside = part @ basis
        out[at : at + len(part), :-1] = inside
        out[at : at + len(part), -1] = np.linalg.norm(part - inside @ basis.T, axis=1)
    return out


def equal_rows(x: NDArray[Any]) -> tuple[int, int] | None:
    """Two equal rows, if there are any."""
    groups = rows_by_content(x)
    _, first, count = np.unique(groups, return_index=True, return_counts=True)
    if not (count > 1).any():
        return None
    one = int(first[count > 1].min())
    other = int(np.flatnonzero(groups == groups[one])[1])
    return one, other


def rows_by_content(x: NDArray[Any]) -> Ints:
    """(count,): equal numbers for rows of equal content, and only for those. Minus zero is zero."""
    plain = np.ascontiguousarray(x + 0.0 if x.dtype.kind == "f" else x)
    raw = plain.view(np.uint8).reshape(len(x), -1)
    if raw.shape[1] % 8:
        raw = np.pad(raw, ((0, 0), (0, -raw.shape[1] % 8)))
    raw = raw.view(np.uint64)
    odd = np.random.default_rng(0).integers(0, 1 << 63, raw.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashed = np.zeros(len(x), dtype=np.uint64)
    for column, factor in enumerate(odd):  # column by column: no temporary of the size of x
        hashed = (hashed ^ (hashed >> np.uint64(29))) + raw[:, column] * factor
    order = np.argsort(hashed, kind="stable")
    same = (hashed[order[1:]] == hashed[order[:-1]]).nonzero()[0]
    if not (raw[order[same]] == raw[order[same + 1]]).all():  # two contents with one hash
        _, groups = np.unique(raw, axis=0, return_inverse=True)
        return np.asarray(groups, dtype=np.int64).ravel()
    _, groups = np.unique(hashed, return_inverse=True)
    return np.asarray(groups, dtype=np.int64)


def _prepared(x: Vectors) -> tuple[Vectors, Floats, float]:
    """x around its mean in its own precision, squared lengths, and the unit roundoff of that precision."""
    mean = x.mean(axis=0, dtype=np.float64)
    centred = np.empty_like(x)
    for at in range(0, len(x), _rows_at_once(x)):
        centred[at : at + _rows_at_once(x)] = x[at : at + _rows_at_once(x)] - mean
    squares = np.einsum("nd,nd->n", centred, centred, dtype=np.float64)
    return centred, squares, float(np.finfo(x.dtype).eps) / 2


def _products(centred: Vectors, squares: Floats, rows: Ints, columns: slice) -> Vectors:
    """Squared distances from products, in the precision of x."""
    products = centred[rows] @ centred[columns].T
    products *= -2
    products += squares[rows].astype(products.dtype)[:, None]
    products += squares[columns].astype(products.dtype)
    return np.asarray(products)


def _error_bound(unit: float, dim: int, squares: Floats, largest: float) -> Floats:
    """How far a squared distance from products may be from the true one (docs/contextual.md)."""
    longest = np.sqrt(squares) + np.sqrt(largest)
    return np.asarray((2 * (dim + 16) * unit / (1 - dim * unit)) * longest**2)


def _distances(x: Vectors, one: Ints, other: Ints) -> Floats:
    """Distances of pairs of rows, by subtraction in float64."""
    out = np.empty(len(one))
    size = max(1, BLOCK // x.shape[1])
    for at in range(0, len(one), size):
        some = slice(at, at + size)
        difference = x[one[some]].astype(np.float64) - x[other[some]]
        out[some] = np.sqrt(np.einsum("nd,nd->n", difference, difference))
    return out


def _keep_smallest(distance: Floats, index: Ints, row: Ints, column: Ints, found: Floats) -> None:
    order = np.argsort(-found, kind="stable")  # the smallest is written last
    candidate = np.full(len(distance), np.inf)
    chosen = np.full(len(distance), -1, dtype=np.int64)
    candidate[row[order]], chosen[row[order]] = found[order], column[order]
    closer = candidate < distance
    distance[closer], index[closer] = candidate[closer], chosen[closer]


def _pairs_within(tree: Any, points: Floats, radius: float) -> float:
    """About how many pairs are within a radius, from a thousand of the points: a cluster that they miss has few pairs."""
    some = points[:: max(1, len(points) // 1000)]
    around = tree.query_ball_point(some, radius, return_length=True) - 1
    return float(around.mean()) * len(points) / 2


def _close_pair(x: Vectors, points: Floats) -> ClosestPair:
    """A pair that is close, if not the closest: the best of those that share a cell of ever finer grids over the points.

    Cells are halved, so whoever is alone in a cell is alone in all finer ones and leaves: what is left shrinks quickly.
    """
    start, left = points.min(axis=0), np.arange(len(points))
    width = max(float(np.ptp(points, axis=0).max()) * 1.01, np.finfo(float).tiny)  # the first cell holds all
    best: ClosestPair | None = None
    for level in range(GRIDS):
        cells = rows_by_content(np.floor((points[left] - start) * (2.0**level / width)))
        order = np.argsort(cells, kind="stable")
        same = cells[order[1:]] == cells[order[:-1]]
        if not same.any():
            break
        pairs = left[np.stack([order[:-1][same], order[1:][same]], axis=1)]
        best = _best_of(x, pairs[:: max(1, len(pairs) // MOST_CANDIDATES)], best)
        left = left[order[np.append(same, False) | np.append(False, same)]]
    if best is None:
        raise ArithmeticError("the first cell holds all points")
    return best


def _best_of(x: Vectors, pairs: Ints, known: ClosestPair | None) -> ClosestPair:
    found = _distances(x, pairs[:, 0], pairs[:, 1])
    at = int(found.argmin()) if len(found) else -1
    if known is not None and (at < 0 or known.distance <= found[at]):
        return known
    return ClosestPair(int(pairs[at, 0]), int(pairs[at, 1]), float(found[at]))


def _rows_at_once(x: Vectors) -> int:
    return max(1, BLOCK // (4 * int(x.shape[1])))
