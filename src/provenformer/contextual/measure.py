"""`measure`: is it a contextual mapping on these sequences, and with how much room? Layer by layer, beside random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.contextual.corpus import IDENTIFY_WORDS, Corpus, Identify, Ints
from provenformer.contextual.edits import EditDistances, Kind, edit, edit_distances, rounding_of
from provenformer.contextual.layers import LayerMeasure, all_tokens, one_edit, same_word, shape_of
from provenformer.contextual.line import Line, best_line
from provenformer.contextual.models import Reader, reader
from provenformer.contextual.reach import Reach, reach_of
from provenformer.contextual.reading import corpus_of
from provenformer.contextual.states import MEMORY, Collected, collect

Mode = Literal["tokens", "words", "edits", "swaps"]
MODES: tuple[Mode, ...] = get_args(Mode)
USUAL: tuple[Mode, ...] = ("tokens", "words", "edits")
MODE_WORDS: dict[Mode, str] = {
    "tokens": "all tokens against all: the nearest other token",
    "words": "the same word in other contexts: its nearest other occurrence",
    "edits": "one word replaced by another: how far every other token moves",
    "swaps": "two words exchanged: how far every other token moves",
}
KINDS: dict[Mode, Kind] = {"edits": "replace", "swaps": "swap"}
QUERIES = 1024  # tokens whose nearest neighbour gives the quantiles; the smallest distance is always that of all


@dataclass(frozen=True)
class Measured:
    """One model: per mode one entry per layer. `line` is the one-dimensional version, `reach` how far a change goes."""

    model: str
    modes: dict[Mode, list[LayerMeasure]]
    line: list[Line]
    reach: list[Reach]


@dataclass(frozen=True)
class Measurement:
    """What `measure` found, of the model and of its twin with random weights."""

    model: Measured
    random: Measured | None
    why_no_random: str | None
    sequences: int
    tokens: int
    repeated: int
    identify: Identify
    special_tokens: str
    queries: int
    seed: int

    @property
    def layers(self) -> list[str]:
        """Their names."""
        return [one.layer for one in next(iter(self.model.modes.values()))]

    @property
    def must_differ(self) -> str:
        """What was asked, in words."""
        return IDENTIFY_WORDS[self.identify]

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain numbers, texts and lists."""
        return asdict(self)


def measure(
    model: Any,
    sequences: Sequence[Any] | Any,
    *,
    tokenizer: Any = None,
    modes: Sequence[Mode] = USUAL,
    identify: Identify | None = None,
    special_tokens: bool = False,
    longest: int | None = None,
    queries: int = QUERIES,
    line_tokens: int = 256,
    directions: Any = None,
    memory: int = MEMORY,
    seed: int = 0,
    progress: bool = False,
) -> Measurement:
    """How well a model tells apart what a contextual mapping must, layer by layer.

    - `model`: a folder or hub name, a model of transformers, a mixer or list of mixers, what `compile` returns, or a
      function from a batch (batch, n) of ids to one array (batch, n, width) per layer
    - `sequences`: texts, lists of token ids, or an array (count, token_dim, seq_len)
    - `identify`: which tokens need not differ; without it: what the model cannot tell apart for a known reason (order
      for an equivariant network, the future for one that reads left to right)
    - `special_tokens`: measure [CLS], [SEP], ... like all others; the model reads them in any case
    - `longest`: cut texts after so many tokens
    - `queries`: tokens whose nearest neighbours give the quantiles; the smallest distance is always that of all tokens
    - `line_tokens`: tokens for the one-dimensional version, 0 to leave it out; `directions` (count, width) are tried first
    - `memory`: bytes of hidden states; more text than that is refused

    Raises ProvenformerError for sequences that are empty, a single token, padded or too long, for states that are not
    finite, and for models without states.
    """
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ProvenformerError(f"unknown mode {unknown[0] if unknown else ''!r}; choose from: {', '.join(MODES)}.")
    read = reader(model, tokenizer)
    corpus = corpus_of(read, sequences, special_tokens, longest)
    chosen = identify or _what_it_cannot_tell(read, corpus)
    asked = Asked(tuple(modes), chosen, queries, line_tokens, directions, memory, seed, progress)
    own = _measured(read, corpus, asked)
    twin = None if read.random is None else _measured(read.random(seed), corpus, asked)
    why = None if twin else f"{read.name} has no weights to draw at random"
    return Measurement(
        own, twin, why, len(corpus), len(corpus.sequence_of), corpus.repeated, chosen, corpus.special_tokens, queries, seed
    )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is to be measured, of the model and of its twin alike."""

    modes: tuple[Mode, ...]
    identify: Identify
    queries: int
    line_tokens: int
    directions: Any
    memory: int
    seed: int
    progress: bool


def _measured(read: Reader, corpus: Corpus, asked: Asked) -> Measured:
    states = collect(read, corpus, asked.memory, asked.progress)
    shapes = [shape_of(name, x) for name, x in zip(states.names, states.layers, strict=True)]
    kept = corpus.first_of_each(asked.identify)
    rng = np.random.default_rng(asked.seed)
    queries = np.sort(rng.choice(len(kept), min(asked.queries, len(kept)), replace=False))
    found: dict[Mode, list[LayerMeasure]] = {}
    edits: EditDistances | None = None
    for mode in asked.modes:
        if mode in KINDS:
            edited = edit(corpus, KINDS[mode], asked.seed)
            moved = edit_distances(read, corpus, states, edited, asked.identify, asked.progress)
            edits = edits or moved
            ask = np.flatnonzero(moved.must_differ(asked.identify))
            found[mode] = [one_edit(shape, corpus, edited, moved, ask, k, asked.seed) for k, shape in enumerate(shapes)]
            continue
        rows = [
            all_tokens(shape, x, corpus, kept, queries, asked.seed, asked.progress)
            if mode == "tokens"
            else same_word(shape, x, corpus, kept, asked.queries, asked.seed)
            for shape, x in zip(shapes, states.layers, strict=True)
        ]
        if any(row is None for row in rows):
            raise ProvenformerError(
                "no word occurs in two contexts, so mode 'words' has nothing to compare; give more text."
            )
        found[mode] = [row for row in rows if row is not None]
    radii = [shape.radius for shape in shapes]
    lines = _lines(states, radii, kept, asked)
    return Measured(read.name, found, lines, [] if edits is None else reach_of(states.names, radii, edits))


def _lines(states: Collected, radii: list[float], kept: Ints, asked: Asked) -> list[Line]:
    """The one-dimensional version, on the first so many tokens."""
    if not asked.line_tokens:
        return []
    some = kept[: asked.line_tokens]
    return [
        best_line(name, x[some], r, asked.directions, asked.seed)
        for name, x, r in zip(states.names, states.layers, radii, strict=True)
    ]


def _what_it_cannot_tell(read: Reader, corpus: Corpus) -> Identify:
    """Order, for a network that says so; the future, if a change of the last token moves nothing and one of the first does."""
    if read.equivariant:
        return "permutations"
    longest = max(range(len(corpus)), key=lambda i: int(corpus.counted[i].sum()))
    places = np.flatnonzero(corpus.counted[longest])
    last, first = (
        _moves_others(read, corpus, longest, int(at), places[places != at]) for at in (places[-1], places[0])
    )
    return "pasts" if first and not last else "nothing"


def _moves_others(read: Reader, corpus: Corpus, sequence: int, at: int, others: Ints) -> bool:
    """Whether another token at one place of a sequence moves any of the others in the last layer."""
    one, token = corpus.inputs[sequence], corpus.tokens[sequence][at]
    other = one.copy()
    for i, tokens in enumerate(corpus.tokens):
        different = np.flatnonzero((tokens != token) & corpus.counted[i])
        if len(different):
            other[at] = corpus.inputs[i][different[0]]
            break
    _, states = read.run(np.stack([one, other]))[-1]
    return bool((np.abs(states[0] - states[1])[others] > rounding_of([states]) * np.abs(states).max()).any())
