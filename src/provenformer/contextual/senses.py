"""Senses: does a layer put the contexts in which a word means one thing together, and apart from the others?

The closing discussion of the paper points to this (after Coenen et al. 2019). Per word the silhouette of its occurrences,
labelled by sense: for each, (b - a) / max(a, b), a the mean distance to its own sense and b to the nearest other sense. It is
1 where senses are far apart and tight, 0 where they do not show, below 0 where they are mixed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.contextual.bootstrap import mean_interval
from provenformer.contextual.closest import Floats
from provenformer.contextual.corpus import Corpus, Ints
from provenformer.contextual.models import Reader, reader
from provenformer.contextual.reading import corpus_of
from provenformer.contextual.samples import sense_lines
from provenformer.contextual.states import collect


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence, and which of its senses it has there."""

    word: str
    sense: str
    sentence: str


@dataclass(frozen=True)
class SenseLayer:
    """One layer: the mean silhouette over all occurrences with its interval (sentences drawn again), and per word."""

    layer: str
    silhouette: float
    low: float
    high: float
    words: dict[str, float]


@dataclass(frozen=True, eq=False)
class Senses:
    """Per layer the silhouettes; `vectors` are the states of all occurrences, (layers, occurrences, width)."""

    model: str
    occurrences: tuple[Occurrence, ...]
    layers: tuple[SenseLayer, ...]
    vectors: tuple[Floats, ...]


def sample() -> list[Occurrence]:
    """The sample that comes with the library: eight words with two senses, six sentences each."""
    return parse(sense_lines(), "the sample")


def read_senses(path: Path) -> list[Occurrence]:
    """A file with lines `word | sense | sentence`."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ProvenformerError(
            f"cannot read {path} ({one_line(error)[:100]}); give lines 'word | sense | sentence'."
        ) from None


def parse(text: str, where: str) -> list[Occurrence]:
    """Lines `word | sense | sentence`; a line that begins with # is a comment."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or not all(parts):
            said = f"{where}, line {number}: {one_line(line)[:60]!r} is not 'word | sense | sentence'"
            raise ProvenformerError(f"{said}; correct it.")
        found.append(Occurrence(*parts))
        if _spans(found[-1]) is None:
            said = f"{where}, line {number}: the word {parts[0]!r} must stand in its sentence exactly once"
            raise ProvenformerError(f"{said}; correct it.")
    for word in {one.word for one in found}:
        counts = [sum(one.sense == sense for one in found if one.word == word) for sense in _senses(found, word)]
        if len(counts) < 2 or min(counts) < 2:
            raise ProvenformerError(f"{where}: {word!r} needs two senses with two sentences each; add some.")
    if not found:
        raise ProvenformerError(f"{where} has no line 'word | sense | sentence'; add some.")
    return found


def senses(
    model: Any, occurrences: Sequence[Occurrence] | None = None, *, tokenizer: Any = None, seed: int = 0
) -> Senses:
    """Silhouettes of senses, layer by layer. A word of several tokens has their mean as its state."""
    given = list(occurrences) if occurrences is not None else sample()
    read = reader(model, tokenizer)
    if read.tokenizer is None:
        raise ProvenformerError("senses are about words in texts; give a model with a tokenizer, or tokenizer=.")
    corpus = corpus_of(read, [one.sentence for one in given], False, None)
    if len(corpus) < len(given):
        raise ProvenformerError("a sentence of the senses occurs twice; leave one out.")
    rows = _rows_of_words(read, corpus, given)
    states = collect(read, corpus)
    vectors = [np.stack([x[some].astype(np.float64).mean(axis=0) for some in rows]) for x in states.layers]
    layers = [_layer(name, x, given, seed) for name, x in zip(states.names, vectors, strict=True)]
    return Senses(read.name, tuple(given), tuple(layers), tuple(vectors))


def silhouettes(x: Floats, labels: Ints) -> Floats:
    """(count,): of every row; 0 for all rows in one place."""
    distance = cdist(x, x)
    kinds = np.unique(labels)
    means = np.stack([distance[:, labels == kind].mean(axis=1) for kind in kinds], axis=1)
    own = np.searchsorted(kinds, labels)
    size = np.bincount(own)[own]
    rows = np.arange(len(x))
    inside = means[rows, own] * size / (size - 1)  # without itself
    means[rows, own] = np.inf
    outside = means.min(axis=1)
    larger = np.maximum(inside, outside)
    return np.asarray(np.divide(outside - inside, larger, out=np.zeros(len(x)), where=larger > 0))


def _layer(name: str, x: Floats, given: list[Occurrence], seed: int) -> SenseLayer:
    words = list(dict.fromkeys(one.word for one in given))
    values = np.empty(len(given))
    for word in words:
        rows = np.array([k for k, one in enumerate(given) if one.word == word])
        kinds = _senses(given, word)
        values[rows] = silhouettes(x[rows], np.array([kinds.index(given[k].sense) for k in rows]))
    per_word = {
        word: float(np.mean([v for v, one in zip(values, given, strict=True) if one.word == word])) for word in words
    }
    return SenseLayer(name, *mean_interval(values, np.arange(len(values)), seed), per_word)


def _senses(given: Sequence[Occurrence], word: str) -> list[str]:
    return sorted({one.sense for one in given if one.word == word})


def _spans(one: Occurrence) -> tuple[int, int] | None:
    """Where the word stands, as a word of its own; None unless exactly once."""
    text, word = one.sentence.lower(), one.word.lower()
    found = []
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            found.append((at, end))
        at = text.find(word, at + 1)
    return found[0] if len(found) == 1 else None


def _rows_of_words(read: Reader, corpus: Corpus, given: list[Occurrence]) -> list[Ints]:
    """Per occurrence, the rows of the collected states that are tokens of its word."""
    starts = np.concatenate([[0], np.cumsum([int(mask.sum()) for mask in corpus.counted])])
    out = []
    for i, one in enumerate(given):
        span = _spans(one)
        if span is None:
            raise ProvenformerError(f"the word {one.word!r} must stand in {one.sentence!r} exactly once; correct it.")
        places = read.tokenizer(one.sentence, return_offsets_mapping=True)["offset_mapping"]
        inside = [j for j, (a, b) in enumerate(places) if a < span[1] and b > span[0] and corpus.counted[i][j]]
        rank = np.cumsum(corpus.counted[i]) - 1
        out.append(np.array([starts[i] + rank[j] for j in inside], dtype=np.int64))
    return out
