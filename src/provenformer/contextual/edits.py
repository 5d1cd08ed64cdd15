"""One-word edits: every sequence beside a copy in which one word is another one, or two words have changed places.

A contextual mapping gives every token of the copy another value than it had, however far the change is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.contextual.closest import Floats
from provenformer.contextual.corpus import Bools, Corpus, Identify, Ints
from provenformer.contextual.models import Array, Reader
from provenformer.contextual.rounding import FORMATS, equal_pairs
from provenformer.contextual.states import Collected, run

Kind = Literal["replace", "swap"]


@dataclass(frozen=True, eq=False)
class Edited:
    """A corpus with one change in every sequence: `places` (sequences, 1 or 2) are the measured places that changed."""

    corpus: Corpus
    places: Ints


@dataclass(frozen=True, eq=False)
class EditDistances:
    """How far each measured token has moved.

    sequence   (pairs,): its sequence
    place      (pairs,): its place
    offset     (pairs,): places from the nearest change to it, negative to the left; 0 is a changed token itself
    distance   (layers, pairs)
    rounding   of the states, relative: what moves by less than that has not moved
    equal      per layer and format, how many pairs that must differ are equal after rounding
    """

    sequence: Ints
    place: Ints
    offset: Ints
    distance: Floats
    rounding: float
    equal: list[dict[str, int]]

    def must_differ(self, identify: Identify) -> Bools:
        """Which pairs must differ: not the changed tokens, which differ anyway; with a causal model, only what follows."""
        return np.asarray(self.offset > 0 if identify == "pasts" else self.offset != 0)


def edit(corpus: Corpus, kind: Kind = "replace", seed: int = 0) -> Edited:
    """One change in every sequence. A new word is another one of the corpus, each as likely."""
    rng = np.random.default_rng(seed)
    pool = _pool(corpus)
    if len(pool) < 2:
        raise ProvenformerError("all measured tokens are the same one, so no word can be edited; give other sequences.")
    inputs, tokens, places = [], [], []
    for i in range(len(corpus)):
        new_input, new_tokens = corpus.inputs[i].copy(), corpus.tokens[i].copy()
        counted = np.flatnonzero(corpus.counted[i])
        if kind == "replace":
            at = int(rng.choice(counted))
            source, there = _another(rng, corpus, pool, int(new_tokens[at]))
            new_input[at], new_tokens[at] = corpus.inputs[source][there], corpus.tokens[source][there]
            changed = [at]
        else:
            changed = _two_different(rng, new_tokens, counted)
            if changed:
                back = changed[::-1]
                new_input[changed], new_tokens[changed] = new_input[back], new_tokens[back]
        inputs.append(new_input)
        tokens.append(new_tokens)
        places.append(changed or [-1, -1])
    return Edited(corpus.changed(inputs, tokens), np.array(places, dtype=np.int64))


def edit_distances(
    reader: Reader, corpus: Corpus, states: Collected, edited: Edited, identify: Identify, shown: bool = False
) -> EditDistances:
    """Run the edited copies and compare them with the states of the originals, which were run in batches of the same shapes."""
    starts = np.concatenate([[0], np.cumsum([int(mask.sum()) for mask in corpus.counted])])
    distance = np.zeros((len(states.layers), int(starts[-1])))
    equal = [dict.fromkeys(FORMATS, 0) for _ in states.layers]
    nearest = _offsets(corpus, edited)
    largest = [float(np.abs(layer).max()) for layer in states.layers]
    for chosen, found in run(reader, edited.corpus, shown, f"{reader.name}, edited"):
        for k, (_, now) in enumerate(found):
            rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in chosen])
            after = np.concatenate([now[b][corpus.counted[i]] for b, i in enumerate(chosen)])
            before = states.layers[k][rows]
            distance[k, rows] = np.linalg.norm(after.astype(np.float64) - before, axis=1)
            ask = nearest[rows] > 0 if identify == "pasts" else nearest[rows] != 0
            for form, count in equal_pairs(before[ask], after[ask], largest[k]).items():
                equal[k][form] += count
    return EditDistances(corpus.sequence_of, corpus.place_of, nearest, distance, rounding_of(states.layers), equal)


def rounding_of(layers: Sequence[Array]) -> float:
    """Of the coarsest layer, with room for a few operations."""
    return 8 * max(float(np.finfo(layer.dtype).eps) for layer in layers)


def _pool(corpus: Corpus) -> list[tuple[int, int]]:
    """Where each word of the corpus first stands: sequence and place."""
    _, first = np.unique(corpus.token_of, return_index=True)
    return list(zip(corpus.sequence_of[first].tolist(), corpus.place_of[first].tolist(), strict=True))


def _another(rng: np.random.Generator, corpus: Corpus, pool: list[tuple[int, int]], token: int) -> tuple[int, int]:
    one, other = (pool[k] for k in rng.choice(len(pool), 2, replace=False))
    return one if corpus.tokens[one[0]][one[1]] != token else other


def _two_different(rng: np.random.Generator, tokens: Ints, counted: Ints) -> list[int]:
    for _ in range(100):
        one, other = rng.choice(counted, 2, replace=False)
        if tokens[one] != tokens[other]:
            return [int(one), int(other)]
    return []  # all tokens are equal: nothing to swap


def _offsets(corpus: Corpus, edited: Edited) -> Ints:
    """Per measured token its distance in places from the nearest change. A sequence without one has offset 0: not asked."""
    places = edited.places[corpus.sequence_of]
    offset = corpus.place_of[:, None] - places
    nearest = offset[np.arange(len(offset)), np.abs(offset).argmin(axis=1)]
    return np.asarray(np.where(places[:, 0] < 0, 0, nearest))
