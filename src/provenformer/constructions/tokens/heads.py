"""Heads of a token circuit: known weights by position, and the one token of the highest score."""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.constructions.tokens.sheet import Reading, Sheet
from provenformer.symbols.tokens.graph import Ints, Pick

SHARP = 40.0  # how much lower a score lies, at least, of a token that is not to count: e^-40 = 4e-18

Dimension = tuple[Reading, dict[int, float]]  # what the query reads, and the key


def known_scores(sheet: Sheet, counts: Ints) -> list[Dimension]:
    """Scores with softmax weights counts / their sum."""
    n = counts.shape[1]
    if len(counts) == 1:
        if (counts == counts[0, 0]).all():
            return []
        return [(({}, 1.0), _vector(sheet, _logs(counts)[0], "weight of the token"))]
    if (np.sort(counts, axis=1)[:, :-1] == 0).all():  # one token each: -(k - source)^2
        source = sheet.vector_reading(counts.argmax(axis=1).astype(np.float64))
        k = np.arange(n, dtype=np.float64)
        return [
            (_scaled(source, 2 * SHARP), _vector(sheet, k, "position")),
            (({}, -SHARP), _vector(sheet, k * k, "position squared")),
        ]
    return _one_hot(sheet, _logs(counts))


def pick_scores(sheet: Sheet, pick: Pick) -> list[Dimension]:
    """SHARP times the score, up to what is the same for all keys."""
    found: list[Dimension] = []
    for query, key in zip(pick.queries, pick.keys, strict=True):
        found.append((_scaled(sheet.reading(query), SHARP), sheet.reading(key)[0]))
    if len(pick.bias) > 1:
        found += _one_hot(sheet, SHARP * pick.bias.astype(np.float64))
    elif (pick.bias != pick.bias[0, 0]).any():
        by_square = (pick.bias[0] == -np.square(np.arange(pick.bias.shape[1]))).all()
        name = "minus position squared" if by_square else "score of the position"
        found.append((({}, SHARP), _vector(sheet, pick.bias[0].astype(np.float64), name)))
    return found


def _one_hot(sheet: Sheet, scores: FloatArray) -> list[Dimension]:
    """scores[j, k], whatever they are: a dimension per key."""
    here = [sheet.of_vector(row, f"is at place {k}") for k, row in enumerate(np.eye(len(scores)))]
    return [
        (({here[j]: float(v) for j, v in enumerate(column) if v}, 0.0), {here[k]: 1.0})
        for k, column in enumerate(scores.T)
    ]


def _logs(counts: Ints) -> FloatArray:
    """Scores of these weights, the most frequent at 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(counts.astype(np.float64))
    top = logs.max(axis=1, keepdims=True)
    return np.asarray(np.maximum(logs - top, -SHARP - np.log(counts.sum(axis=1, keepdims=True))))


def _vector(sheet: Sheet, vector: FloatArray, name: str) -> dict[int, float]:
    """What a key reads to get these numbers, up to a constant."""
    steps = np.diff(vector)
    if (steps == steps[0]).all():
        return {sheet.of_vector(np.arange(len(vector), dtype=np.float64), "position"): float(steps[0])}
    return {sheet.of_vector(vector, name): 1.0}


def _scaled(reading: Reading, factor: float) -> Reading:
    weights, bias = reading
    return {channel: factor * w for channel, w in weights.items()}, factor * bias
