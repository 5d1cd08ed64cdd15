"""The paper's one-dimensional version: a direction u such that u.h is a contextual mapping on a set, and its margin.

Definition 5.1 asks for one number per token. Almost every direction gives different numbers; the question is how far apart.
The margin of u is the smallest gap between two values u.h with |u| = 1; no direction has a larger one than the smallest
distance between two states. It is searched for by ascent and then computed exactly, so what is reported is a lower bound of
the best margin that certainly holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from provenformer.contextual.closest import Floats, Vectors, equal_rows

STEPS = 150
STARTS = 3
RANDOM = 64
BITS = 40  # of the entries of u: it is rounded before it is checked, so that the check is about a vector one can write down


@dataclass(frozen=True)
class Line:
    """One layer. `margin` is the smallest gap over the radius of the layer, `evenness` over that of evenly spaced values.

    holds      whether all values differ, decided exactly
    direction  u, as a unit vector
    """

    layer: str
    tokens: int
    holds: bool
    margin: float
    evenness: float
    direction: tuple[float, ...]


def best_line(name: str, x: Vectors, r: float, directions: Any = None, seed: int = 0) -> Line:
    """The best direction found for states (count, d) that must all differ; `directions` (count, d) are tried as well.

    The margin is over `r`, the radius of the layer.
    """
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    given = np.zeros((0, x.shape[1])) if directions is None else np.atleast_2d(np.asarray(directions, dtype=np.float64))
    if given.shape[1] != x.shape[1]:  # meant for layers of another width
        given = np.zeros((0, x.shape[1]))
    rng = np.random.default_rng(seed)
    _, axes = np.linalg.eigh(centred.T @ centred)
    width = x.shape[1]
    used = [
        min(width, 2 ** (k % (width.bit_length() + 1))) for k in range(RANDOM)
    ]  # leading axes: 1, 2, 4, ... of them
    drawn = np.stack([axes[:, -count:] @ rng.standard_normal(count) for count in used])
    starts = np.concatenate([given, drawn])
    starts /= np.maximum(np.linalg.norm(starts, axis=1, keepdims=True), 1e-300)
    gaps = [_smallest_gap(centred @ u) for u in starts]
    order = np.argsort(gaps)[::-1]
    candidates = [starts[k] for k in order[:STARTS]] + [_ascended(centred, starts[k]) for k in order[:STARTS]]
    best = max(candidates, key=lambda u: _smallest_gap(centred @ u))
    return check_line(name, x, best, r)


def check_line(name: str, x: Vectors, direction: Any, r: float) -> Line:
    """The margin of one direction, exactly (the radius it is divided by is a float64)."""
    u = np.asarray(direction, dtype=np.float64)
    u = np.rint(u / np.abs(u).max() * 2.0**BITS) / 2.0**BITS
    gap, span = exact_gap(x, u)
    length = float(np.linalg.norm(u))
    even = span / (len(x) - 1)
    return Line(
        name, len(x), gap > 0, float(gap) / length / (r or 1.0), float(gap / even) if even else 0.0,
        tuple((u / length).tolist()),
    )  # fmt: skip


def exact_gap(x: Vectors, u: Floats) -> tuple[Fraction, Fraction]:
    """The smallest gap between two values u.h and their range, as fractions of the float entries.

    Floats order the values; a bound on their error says which gaps could be the smallest, and those are computed exactly.
    Where the order itself is in doubt, all values are.
    """
    wide = x.astype(np.float64)
    values = wide @ u
    error = 2 * (len(u) + 2) * np.finfo(np.float64).eps * float((np.abs(wide) @ np.abs(u)).max())
    order = np.argsort(values, kind="stable")
    gaps = np.diff(values[order])
    exact = {int(k): _exact(x[k], u) for k in (order[0], order[-1])}
    ends = exact[int(order[-1])] - exact[int(order[0])]
    if equal_rows(x) is not None:
        return Fraction(0), ends
    if gaps.min() <= 4 * error:
        exact = {k: _exact(x[k], u) for k in range(len(x))}
        ordered = sorted(exact.values())
        return min(b - a for a, b in pairwise(ordered)), ordered[-1] - ordered[0]
    smallest = None
    for k in np.flatnonzero(gaps <= gaps.min() + 4 * error):
        gap = _exact(x[order[k + 1]], u) - _exact(x[order[k]], u)
        smallest = gap if smallest is None else min(smallest, gap)
    if smallest is None:
        raise ValueError("a single vector has no gap")
    return smallest, ends


def _exact(row: Vectors, u: Floats) -> Fraction:
    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, u, strict=True)), Fraction(0))


def _smallest_gap(values: Floats) -> float:
    return float(np.diff(np.sort(values)).min())


def _ascended(x: Floats, u: Floats) -> Floats:
    """Uphill on a soft minimum of the gaps, ever harder; the best direction seen."""
    best, best_gap = u, _smallest_gap(x @ u)
    for step in range(STEPS):
        values = x @ u
        order = np.argsort(values, kind="stable")
        gaps = np.diff(values[order])
        sharp = 4.0 * (1 + step / 8)
        weight = np.exp(-sharp * (gaps - gaps.min()) / (gaps.mean() or 1.0))
        weight /= weight.sum()
        ordered = x[order]
        gradient = weight @ (ordered[1:] - ordered[:-1])
        gradient -= (gradient @ u) * u
        length = float(np.linalg.norm(gradient))
        if length == 0:
            break
        u = u + gradient / length * (0.2 / (1 + step / 4))
        u /= np.linalg.norm(u)
        gap = _smallest_gap(x @ u)
        if gap > best_gap:
            best, best_gap = u, gap
    return best
