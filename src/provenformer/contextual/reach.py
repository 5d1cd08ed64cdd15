"""How far a change of one token reaches, layer by layer: the receptive field as it is, not as the diagram says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.contextual.corpus import Corpus
from provenformer.contextual.edits import EditDistances, edit, edit_distances
from provenformer.contextual.layers import radius
from provenformer.contextual.models import reader
from provenformer.contextual.reading import corpus_of
from provenformer.contextual.states import MEMORY, collect


@dataclass(frozen=True)
class Reach:
    """One layer. `share` and `median` are per offset: places to the right of the change (negative: to the left).

    left, right   the furthest token on that side that moved, in any sequence
    share         of the tokens at that offset, how many moved (by more than rounding)
    median        of their distances, over the radius
    everywhere    whether every token of every sequence moved
    """

    layer: str
    left: int
    right: int
    offsets: tuple[int, ...]
    share: tuple[float, ...]
    median: tuple[float, ...]
    everywhere: bool


def reach(
    model: Any, sequences: Sequence[Any] | Any, *, tokenizer: Any = None, special_tokens: bool = True, edits: int = 1,
    seed: int = 0, memory: int = MEMORY,
) -> list[Reach]:  # fmt: skip
    """Which places a change of one token reaches, with `edits` changes of every sequence; special tokens count."""
    read = reader(model, tokenizer)
    corpus = corpus_of(read, sequences, special_tokens, None)
    states = collect(read, corpus, memory)
    found = [
        edit_distances(read, corpus, states, edit(corpus, seed=seed + k), "nothing", False)
        for k in range(max(1, edits))
    ]
    return reach_of(states.names, [radius(x) for x in states.layers], _together(found))


def reach_of(names: list[str], radii: list[float], found: EditDistances) -> list[Reach]:
    """From distances of edits."""
    offsets = np.unique(found.offset)
    groups = [np.flatnonzero(found.offset == offset) for offset in offsets]
    out = []
    for name, r, distance in zip(names, radii, found.distance, strict=True):
        moved = distance > found.rounding * r
        shares = [float(moved[rows].mean()) for rows in groups]
        medians = [float(np.median(distance[rows])) / (r or 1.0) for rows in groups]
        reached = offsets[np.array(shares) > 0]
        left, right = (int(-reached.min(initial=0)), int(reached.max(initial=0)))
        out.append(Reach(name, left, right, tuple(offsets.tolist()), tuple(shares), tuple(medians), bool(moved.all())))
    return out


@dataclass(frozen=True)
class TwoSentences:
    """Two sentences that differ in one place or more: how far the tokens that they share are apart, over the radius.

    tokens     the shared ones, in their order
    distance   per layer, per shared token
    """

    sentences: tuple[str, str]
    tokens: tuple[str, ...]
    layers: tuple[str, ...]
    distance: tuple[tuple[float, ...], ...]


def two_sentences(model: Any, one: str, other: str, radii: list[float], *, tokenizer: Any = None) -> TwoSentences:
    """The example of Section 5.2: "I am happy" and "I am Bob". `radii` are the layers' radii on a text."""
    read = reader(model, tokenizer)
    corpus: Corpus = corpus_of(read, [one, other], False, None)
    states = collect(read, corpus)
    first, second = (np.flatnonzero(corpus.sequence_of == i) for i in (0, 1))
    length = min(len(first), len(second))
    shared = [k for k in range(length) if corpus.token_of[first[k]] == corpus.token_of[second[k]]]
    distance = [
        tuple(float(np.linalg.norm(x[first[k]].astype(np.float64) - x[second[k]])) / r for k in shared)
        for x, r in zip(states.layers, radii, strict=True)
    ]
    names = tuple(corpus.names[0][corpus.place_of[first[k]]] for k in shared)
    return TwoSentences((one, other), names, tuple(states.names), tuple(distance))


def _together(found: list[EditDistances]) -> EditDistances:
    distance = np.concatenate([one.distance for one in found], axis=1)
    sequence, place, offset = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("sequence", "place", "offset")
    )
    return EditDistances(sequence, place, offset, distance, found[0].rounding, found[0].equal)
