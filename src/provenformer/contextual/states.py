"""Hidden states of a whole corpus, one array per layer, within a bound on memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.contextual.corpus import Corpus, Ints
from provenformer.contextual.models import Reader, States
from provenformer.contextual.progress import bar

BATCH = 4096  # tokens that a model reads at a time
MEMORY = 4 << 30  # bytes of states, unless said otherwise


@dataclass(frozen=True, eq=False)
class Collected:
    """States of the measured tokens of a corpus, layer by layer: (tokens, width), in the order of the corpus."""

    names: list[str]
    layers: list[np.ndarray]


def run(reader: Reader, corpus: Corpus, shown: bool = False, what: str = "") -> Iterator[tuple[Ints, States]]:
    """Batch by batch: which sequences, and their checked states."""
    with bar(what or reader.name, sum(len(one) for one in corpus.inputs), shown) as advance:
        for chosen in corpus.batches(BATCH):
            batch = np.stack([corpus.inputs[i] for i in chosen])
            found = reader.run(batch)
            for name, states in found:
                finite = np.isfinite(states).all(axis=2)
                if not finite.all():
                    i, j = np.argwhere(~finite)[0]
                    where = corpus.describe(int(chosen[i]), int(j))
                    raise ProvenformerError(
                        f"{reader.name}, {name}: a state is not finite at {where!r}; check its weights."
                    )
            yield chosen, found
            advance(batch.shape[0] * batch.shape[1])


def collect(reader: Reader, corpus: Corpus, memory: int = MEMORY, shown: bool = False) -> Collected:
    """All states of the measured tokens."""
    starts = np.concatenate([[0], np.cumsum([int(mask.sum()) for mask in corpus.counted])])
    names: list[str] = []
    layers: list[np.ndarray] = []
    for chosen, found in run(reader, corpus, shown):
        if not layers:
            names = [name for name, _ in found]
            _check_memory(int(starts[-1]), found, memory)
            layers = [np.empty((int(starts[-1]), one.shape[2]), dtype=one.dtype) for _, one in found]
        for layer, (_, states) in zip(layers, found, strict=True):
            for i, sequence in enumerate(chosen):
                layer[starts[sequence] : starts[sequence + 1]] = states[i][corpus.counted[sequence]]
    return Collected(names, layers)


def _check_memory(tokens: int, found: States, memory: int) -> None:
    needed = tokens * sum(one.shape[2] * one.dtype.itemsize for _, one in found)
    if needed > memory:
        sizes = f"{tokens:,} tokens x {len(found)} layers need {needed / 2**30:.1f} GiB of states"
        raise ProvenformerError(f"{sizes} (limit {memory / 2**30:.1f}); give less text, or raise memory= (bytes).")
