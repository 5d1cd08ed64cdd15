"""What is measured of one layer in one mode, from states and distances to numbers with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from provenformer.contextual.bootstrap import quantile_intervals
from provenformer.contextual.closest import ClosestPair, Floats, Vectors, closest_pair, nearest
from provenformer.contextual.corpus import Corpus, Ints
from provenformer.contextual.edits import EditDistances, Edited
from provenformer.contextual.rounding import collisions

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
SMALL = 64  # tokens of one word that are compared without matrix products


@dataclass(frozen=True)
class Quantile:
    """A quantile of the distances over the radius, with its interval."""

    at: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Shape:
    """What is the same of a layer in every mode."""

    layer: str
    radius: float
    typical: float
    anisotropy: float


@dataclass(frozen=True)
class LayerMeasure:
    """One layer in one mode. Distances are those of tokens that must differ; `quantiles` and `ratio` are divided by the radius.

    compared     distances that there are: nearest neighbours, or pairs of an edit
    radius       r: root mean square distance of the measured tokens from their mean
    delta        the smallest distance between any two tokens that must differ
    ratio        delta / r
    bits         log2(r / delta): what a scale must resolve to tell all of them apart; None if two are equal
    collisions   per format, how many tokens (in edits: pairs) are no longer told apart after rounding
    typical      median distance from the mean, over r: far below 1 where a few tokens make the radius
    anisotropy   mean cosine of two measured tokens
    worst        the closest two, in their sequences
    """

    layer: str
    compared: int
    radius: float
    delta: float
    ratio: float
    bits: float | None
    quantiles: tuple[Quantile, ...]
    collisions: dict[str, int]
    typical: float
    anisotropy: float
    worst: tuple[str, str]

    def quantile(self, at: float) -> Quantile:
        """One of `QUANTILES`."""
        return next(one for one in self.quantiles if one.at == at)


def from_mean(x: Vectors) -> Floats:
    """(count,): distances from the mean."""
    mean = x.mean(axis=0, dtype=np.float64)
    parts = [np.linalg.norm(x[at : at + 4096].astype(np.float64) - mean, axis=1) for at in range(0, len(x), 4096)]
    return np.concatenate(parts)


def radius(x: Vectors) -> float:
    """Root mean square distance from the mean."""
    return math.sqrt(float(np.square(from_mean(x)).mean()))


def anisotropy(x: Vectors) -> float:
    """Mean cosine of two different rows: 0 in all directions alike, 1 all in one."""
    total, lengths = np.zeros(x.shape[1]), 0
    for at in range(0, len(x), 4096):
        part = x[at : at + 4096].astype(np.float64)
        norm = np.linalg.norm(part, axis=1)
        part = part[norm > 0] / norm[norm > 0][:, None]
        total += part.sum(axis=0)
        lengths += len(part)
    return float((total @ total - lengths) / (lengths * (lengths - 1))) if lengths > 1 else 0.0


def shape_of(name: str, x: Vectors) -> Shape:
    """Of one layer."""
    lengths = from_mean(x)
    r = math.sqrt(float(np.square(lengths).mean()))
    return Shape(name, r, float(np.median(lengths)) / (r or 1.0), anisotropy(x))


def all_tokens(
    shape: Shape, x: Vectors, corpus: Corpus, kept: Ints, queries: Ints, seed: int, shown: bool
) -> LayerMeasure:
    """All tokens against all: the closest pair of all, and the nearest neighbours of the tokens `queries`."""
    some = x if len(kept) == len(x) else x[kept]
    pair = closest_pair(some, shown)
    found = nearest(some, queries, shown)
    worst = ClosestPair(int(kept[pair.first]), int(kept[pair.second]), pair.distance)
    owner = corpus.sequence_of[kept[queries]]
    return _measure(shape, corpus, worst, found.distance, owner, collisions(some), seed)


def same_word(shape: Shape, x: Vectors, corpus: Corpus, kept: Ints, most: int, seed: int) -> LayerMeasure | None:
    """Each word against its other occurrences; of a word that occurs more often than `most`, so many ask for the nearest."""
    order = kept[np.argsort(corpus.token_of[kept], kind="stable")]
    token = corpus.token_of[order]
    bounds = np.flatnonzero(np.diff(token)) + 1
    rng = np.random.default_rng(seed)
    best: ClosestPair | None = None
    distances, owners = [], []
    for group in np.split(order, bounds):
        if len(group) < 2:
            continue
        some = x[group]
        if len(group) <= SMALL:
            between = cdist(some.astype(np.float64), some)
            np.fill_diagonal(between, np.inf)
            distance, asked = between.min(axis=1), group
            one = int(distance.argmin())
            pair = ClosestPair(one, int(between[one].argmin()), float(distance[one]))
        else:
            queries = (
                np.sort(rng.choice(len(group), most, replace=False)) if len(group) > most else np.arange(len(group))
            )
            found = nearest(some, queries)
            distance, asked = found.distance, group[queries]
            at = int(distance.argmin())
            pair = ClosestPair(int(queries[at]), int(found.index[at]), float(distance[at]))
            if len(queries) < len(group):
                pair = closest_pair(some)
        distances.append(distance)
        owners.append(corpus.sequence_of[asked])
        if best is None or pair.distance < best.distance:
            best = ClosestPair(int(group[pair.first]), int(group[pair.second]), pair.distance)
    if best is None:
        return None
    _, count = np.unique(token, return_counts=True)
    repeated = order[np.repeat(count, count) > 1]
    lost = collisions(x[repeated], corpus.token_of[repeated])
    return _measure(shape, corpus, best, np.concatenate(distances), np.concatenate(owners), lost, seed)


def one_edit(
    shape: Shape, corpus: Corpus, edited: Edited, found: EditDistances, ask: Ints, layer: int, seed: int
) -> LayerMeasure:
    """Every token against itself in the edited copy; `ask` are the pairs that must differ."""
    distance = found.distance[layer][ask]
    at = int(distance.argmin())
    i, j = int(found.sequence[ask[at]]), int(found.place[ask[at]])
    worst = (corpus.describe(i, j), edited.corpus.describe(i, j))
    return _filled(shape, float(distance[at]), distance, found.sequence[ask], found.equal[layer], worst, seed)


def _measure(
    shape: Shape,
    corpus: Corpus,
    worst: ClosestPair,
    distance: Floats,
    owner: Ints,
    lost: dict[str, int],
    seed: int,
) -> LayerMeasure:
    places = [(int(corpus.sequence_of[row]), int(corpus.place_of[row])) for row in (worst.first, worst.second)]
    named = (corpus.describe(*places[0]), corpus.describe(*places[1]))
    return _filled(shape, worst.distance, distance, owner, lost, named, seed)


def _filled(
    shape: Shape,
    delta: float,
    distance: Floats,
    owner: Ints,
    lost: dict[str, int],
    worst: tuple[str, str],
    seed: int,
) -> LayerMeasure:
    r = shape.radius
    scale = r if r > 0 else 1.0  # all tokens in one place: every distance is 0
    found = quantile_intervals(distance / scale, owner, QUANTILES, seed)
    quantiles = tuple(Quantile(at, *three) for at, three in zip(QUANTILES, found, strict=True))
    bits = math.log2(r / delta) if delta > 0 else None
    return LayerMeasure(
        shape.layer, len(distance), r, delta, delta / scale, bits, quantiles, lost, shape.typical, shape.anisotropy, worst
    )  # fmt: skip
