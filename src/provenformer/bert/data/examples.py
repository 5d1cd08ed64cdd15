"""Prepared data, memory-mapped: examples by number, and the masked batch of any step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.manifest import HEADER, REMOVE, VocabularyMark, manifest_of, open_shard, read_manifest
from provenformer.bert.data.masking import Masking
from provenformer.bert.data.order import rows_of_step, uniform_draws
from provenformer.bert.data.vocabulary import Vocabulary

Batch = dict[str, Tensor]
DRAWS = 3  # uniform numbers that masking needs for a position


class Examples:
    """A folder that `prepare` wrote. Opening it checks every shard against the manifest."""

    def __init__(self, folder: Path) -> None:
        path = manifest_of(folder)
        manifest = read_manifest(path)
        if not manifest.examples:
            raise ProvenformerError(f"{path}: examples = 0 must be at least 1; {REMOVE}")
        self.seq_len = manifest.seq_len
        self.vocabulary = Vocabulary.load(folder / "vocab.txt", manifest.lowercase)
        if VocabularyMark.of(self.vocabulary) != manifest.vocabulary:
            remedy = "run the same `provenformer bert prepare` again, which restores it"
            raise ProvenformerError(f"{folder / 'vocab.txt'} is not the one the data was made with; {remedy}")
        self._shards = [open_shard(folder, shard, manifest) for shard in manifest.shards]
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """(numbers, HEADER + seq_len): the packed rows, in the order asked for."""
        shards = np.searchsorted(self._ends, numbers, side="right")
        found = np.empty((len(numbers), HEADER + self.seq_len), np.int64)
        for index in np.unique(shards):
            here = shards == index
            found[here] = self._shards[index][numbers[here] - (self._ends[index] - len(self._shards[index]))]
        return found


@dataclass(frozen=True)
class MaskedBatches:
    """The batch of every step, as the model takes it: a function of (seed, step) and of nothing else."""

    examples: Examples
    seed: int
    batch_size: int

    def part(self, step: int, places: range, masking: Masking) -> Batch:
        """The rows at these places of the step's batch: a process or a micro-batch takes its own."""
        numbers = rows_of_step(self.seed, step, self.batch_size, len(self.examples))[places.start : places.stop]
        return self._masked(numbers, uniform_draws(self.seed, step, places, self._shape), masking)

    def in_order(self, numbers: Sequence[int], masking: Masking) -> Batch:
        """Examples by number with masks that depend on the seed alone: what evaluation compares models on."""
        return self._masked(np.array(numbers), uniform_draws(self.seed, 0, numbers, self._shape), masking)

    @property
    def _shape(self) -> tuple[int, int]:
        return DRAWS, self.examples.seq_len

    def _masked(self, numbers: NDArray[np.int64], draws: NDArray[np.float64], masking: Masking) -> Batch:
        rows = self.examples.rows(numbers)
        foreign, first, length = rows[:, :HEADER].T
        ids, labels = masking.apply(rows[:, HEADER:], draws)
        positions = np.arange(self.examples.seq_len)
        real = positions < length[:, None]
        arrays: dict[str, NDArray[Any]] = {
            "input_ids": ids,
            "attention_mask": real.astype(np.int64),
            "token_type_ids": (real & (positions >= first[:, None])).astype(np.int64),
            "labels": labels,
            "next_sentence_label": foreign,
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def evenly_spaced(total: int, count: int) -> list[int]:
    """`count` of the numbers below `total`, from all parts of the data alike; all of them for 0, or if there are fewer."""
    count = min(count, total) or total
    return [place * total // count for place in range(count)]
