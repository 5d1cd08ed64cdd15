"""Gadgets of attention heads: means, permutations, mixtures, maxima, softmax (docs/circuits.md, Lemmas 6 to 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.circuit.errors import Errors, Weights, as_plain, together
from provenformer.constructions.circuit.gadgets import Gadget, source_of
from provenformer.constructions.circuit.parts import Local, Part
from provenformer.constructions.circuit.sheet import Row, Sheet

MARGIN = 64.0  # a score this far below the best weighs less than e^-64, a billionth of what float64 can see


@dataclass(frozen=True, eq=False)
class MeanHead(Gadget):
    """No queries, no keys: every token weighs 1/n (Lemma 6)."""

    part: Part

    def error(self, errors: Errors) -> float | FloatArray:
        source = source_of(self.part)
        error = errors.of_part[source.index]
        rounding = errors.gamma(self._length + 12) * (source.size + error)
        return (errors.profiles[source.index] if errors.signs[source.index] else error) + rounding

    @property
    def _length(self) -> int:
        return int(rows_of(self.part).shape[1])

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        source = source_of(self.part).index
        return {source: weight if errors.signs[source] else as_plain(weight)}

    def emit(self, sheet: Sheet) -> None:
        _carry(sheet, self.part, ("mean",), [], [])


@dataclass(frozen=True, eq=False)
class GatherHead(Gadget):
    """One token's value at every token: n times the mean of what a gate let through there alone (Lemma 11)."""

    part: Part

    def error(self, errors: Errors) -> float:
        gate = source_of(self.part)
        error = errors.of_part[gate.index]
        return error + errors.gamma(32) * (gate.size + error)

    def back(self, errors: Errors, weight: FloatArray) -> Weights:  # noqa: ARG002
        return {source_of(self.part).index: as_plain(weight)}

    def emit(self, sheet: Sheet) -> None:
        head = sheet.head(self.part, ("mean",), [], [])
        count = float(rows_of(self.part).shape[1])
        head.values.append((Row({sheet.channel_of(source_of(self.part)): 1.0}), sheet.channel_of(self.part), count))


@dataclass(frozen=True, eq=False)
class PickHead(Gadget):
    """Each token looks at one other: keys on a circle, the query points at the chosen one (Lemma 7)."""

    part: Part

    @property
    def _choice(self) -> NDArray[np.int64]:
        if self.part.choice is None:
            raise ValueError("a pick has a choice")
        return self.part.choice

    @cached_property
    def _temperature(self) -> float:
        n = len(self._choice)
        return float((MARGIN + np.log(n)) / (1 - np.cos(2 * np.pi / n)))

    @cached_property
    def _gap(self) -> float:
        """How far the chosen key is ahead of every other, in exact arithmetic on the stored numbers, up to float64 noise."""
        keys, queries = self._circle, self._query_matrix @ self._query_circle
        scores = queries.T @ keys  # (query, key)
        at = np.arange(len(scores))
        chosen = scores[at, self._choice]
        scores[at, self._choice] = -np.inf
        return float((chosen - scores.max(axis=1)).min()) - 16 * 2.0**-53 * self._temperature

    @property
    def _circle(self) -> FloatArray:
        angle = 2 * np.pi * np.arange(len(self._choice)) / len(self._choice)
        return np.stack([np.cos(angle), np.sin(angle)])

    @cached_property
    def _turn(self) -> tuple[float, bool] | None:
        """(angle, mirrored) when the choice is a rotation or a reflection of the circle: then queries need no positions."""
        n, at = len(self._choice), np.arange(len(self._choice))
        for mirrored, offset in ((False, (self._choice - at) % n), (True, (self._choice + at) % n)):
            if (offset == offset[0]).all():
                return 2 * np.pi * int(offset[0]) / n, mirrored
        return None

    @property
    def _query_circle(self) -> FloatArray:
        return self._circle if self._turn else self._circle[:, self._choice]

    @property
    def _query_matrix(self) -> FloatArray:
        if self._turn is None:
            return self._temperature * np.eye(2)
        angle, mirrored = self._turn
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([[cos, sin], [sin, -cos]]) if mirrored else np.array([[cos, -sin], [sin, cos]])
        return self._temperature * turn

    def error(self, errors: Errors) -> float:
        source = source_of(self.part)
        error, n = errors.of_part[source.index], len(self._choice)
        noise = 2 * errors.gamma(16) * 2 * self._temperature
        tail = n * float(np.exp(min(0.0, noise - self._gap)))
        return error + (2 * tail + errors.gamma(24)) * (source.size + error)

    def back(self, errors: Errors, weight: FloatArray) -> Weights:  # noqa: ARG002
        return {source_of(self.part).index: as_plain(weight)}

    def emit(self, sheet: Sheet) -> None:
        keys = [sheet.position(row) for row in self._circle]
        reads = [sheet.position(row) for row in self._query_circle]
        queries = [_combined(weights, reads) for weights in self._query_matrix]
        _carry(sheet, self.part, ("pick", self._choice.tobytes()), queries, keys)


@dataclass(frozen=True, eq=False)
class RowsHead(Gadget):
    """Weights by position: the scores are their logarithms, read off one-hot positions (Lemma 8)."""

    part: Part

    @cached_property
    def _scores(self) -> FloatArray:
        return logarithms(rows_of(self.part))

    @cached_property
    def _distance(self) -> float:
        """sum over keys |softmax(scores) - rows|, in the worst row."""
        weights = np.exp(self._scores - self._scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        distance = float(np.abs(weights - rows_of(self.part)).sum(axis=1).max())
        return distance + 2.0**-53 * int(weights.shape[1] + 256)

    def error(self, errors: Errors) -> float:
        source = source_of(self.part)
        error, n = errors.of_part[source.index], self._scores.shape[1]
        noise = float(np.expm1(2 * errors.gamma(8) * (float(np.abs(self._scores).max()) + 1)))
        return error + (self._distance + noise + errors.gamma(2 * n + 24)) * (source.size + error)

    def back(self, errors: Errors, weight: FloatArray) -> Weights:  # noqa: ARG002
        return {source_of(self.part).index: as_plain(weight)}

    def emit(self, sheet: Sheet) -> None:
        queries, keys = positional_scores(sheet, self._scores)
        _carry(sheet, self.part, ("rows", self._scores.tobytes()), queries, keys)


@dataclass(frozen=True, eq=False)
class MaxHead(Gadget):
    """max over tokens: softmax at temperature 1/sharpness, of the values themselves (Lemma 9)."""

    part: Part
    of: Local
    length: int
    sharpness: float

    @property
    def own(self) -> float:
        """W((n - 1)/e) / sharpness."""
        return lambert(self.length) / self.sharpness

    def error(self, errors: Errors) -> float:
        size = errors.size(self.of)
        read = (errors.reading(self.of) + errors.gamma(8)) * 2 * size
        return errors.of(self.of) + self.own + 2 * read + errors.gamma(2 * self.length + 32) * size

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        return errors.back(self.of, as_plain(weight))

    def emit(self, sheet: Sheet) -> None:
        row = sheet.row(self.of)
        key = Row(row.weights)  # a number added to all scores changes nothing
        head = sheet.head(self.part, ("max", self.part.index), [Row({}, self.sharpness)], [key])
        head.values.append((_without_bias(sheet, row), sheet.channel_of(self.part), 1.0))


def lambert(length: int) -> float:
    """W((n - 1)/e): softmax of n values at temperature t stays at most t times this below their maximum."""
    from scipy.special import lambertw  # noqa: PLC0415  (takes longer to load than everything else)

    return float(lambertw((length - 1) / np.e).real * (1 + 1e-12))


@dataclass(frozen=True, eq=False)
class SoftmaxHead(Gadget):
    """A softmax of the formula is a softmax of the network (Lemma 10)."""

    part: Part
    queries: tuple[Local, ...]
    keys: tuple[Local, ...]
    bias: FloatArray | None  # (1, n) or (n, n)
    values: Local
    length: int
    score_key: object

    def error(self, errors: Errors) -> float:
        moved, count = 0.0, len(self.queries)
        for q, k in zip(self.queries, self.keys, strict=True):
            eq, ek, sq, sk = errors.of(q), errors.of(k), errors.size(q), errors.size(k)
            moved += q.largest * ek + k.largest * eq + eq * ek
            moved += (errors.reading(q) + errors.reading(k) + errors.gamma(count + 8)) * sq * sk
        if self.bias is not None:
            moved += errors.gamma(count + 8) * float(np.abs(self.bias).max())
        error, size = errors.of(self.values), errors.size(self.values)
        spread = self.values.high - self.values.low + 2 * error
        rounding = (errors.gamma(2 * self.length + 32) + errors.reading(self.values)) * size
        return error + float(np.tanh(moved / 2)) * spread + rounding

    def back(self, errors: Errors, weight: FloatArray) -> Weights:
        weight = as_plain(weight)
        half = (self.values.high - self.values.low) / 2
        found = [errors.back(self.values, weight)]
        for q, k in zip(self.queries, self.keys, strict=True):
            found += [errors.back(q, half * k.largest * weight), errors.back(k, half * q.largest * weight)]
        return together(*found)

    def emit(self, sheet: Sheet) -> None:
        queries = [sheet.row(q) for q in self.queries]
        keys = [Row(sheet.row(k).weights) for k in self.keys]  # its constant is the same for all keys: it cancels
        if self.bias is not None:
            more_queries, more_keys = positional_scores(sheet, self.bias)
            queries, keys = queries + more_queries, keys + more_keys
        head = sheet.head(self.part, ("softmax", self.score_key), queries, keys)
        head.values.append((_without_bias(sheet, sheet.row(self.values)), sheet.channel_of(self.part), 1.0))


def rows_of(part: Part) -> FloatArray:
    """The matrix of a mixture."""
    if part.rows is None:
        raise ValueError(f"{part.name} is no mixture")
    return part.rows


def logarithms(rows: FloatArray) -> FloatArray:
    """Scores whose softmax is `rows`; what is 0 lies MARGIN + 2 log n below the best."""
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    return np.asarray(np.maximum(logs, logs.max(axis=1, keepdims=True) - MARGIN - 2 * np.log(rows.shape[1])))


def positional_scores(sheet: Sheet, scores: FloatArray) -> tuple[list[Row], list[Row]]:
    """Queries and keys with these scores (query, key): one row for all queries, or one-hot positions."""
    n = scores.shape[1]
    if len(scores) == 1:
        return [Row({}, 1.0)], [sheet.position(scores[0])]
    one_hot = [sheet.position(row) for row in np.eye(n)]
    return [_combined(scores[:, k], one_hot) for k in range(n)], one_hot


def _combined(weights: Sequence[float] | FloatArray, rows: Sequence[Row]) -> Row:
    found: dict[int, float] = {}
    values = np.asarray(weights, dtype=np.float64)
    for i in np.flatnonzero(values).tolist():
        for channel, value in rows[i].weights.items():
            found[channel] = found.get(channel, 0.0) + float(values[i]) * value
    return Row(found)


def _carry(sheet: Sheet, part: Part, key: object, queries: Sequence[Row], keys: Sequence[Row]) -> None:
    """A head that carries the source of a part to its channel."""
    head = sheet.head(part, key, queries, keys)
    head.values.append((Row({sheet.channel_of(source_of(part)): 1.0}), sheet.channel_of(part), 1.0))


def _without_bias(sheet: Sheet, row: Row) -> Row:
    """Values have no bias: a constant comes from a position channel."""
    if row.bias == 0:
        return row
    return Row(row.weights).plus(sheet.position(np.full(sheet.lowered.graph.seq_len, row.bias)))
