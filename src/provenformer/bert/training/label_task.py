"""One label for each text or pair: what MNLI and tables of one's own have in common."""

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from provenformer.bert.data.examples import Batch
from provenformer.bert.data.order import grouped, permutation, rows_in_order
from provenformer.bert.data.windows import Windows
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.training.loop import autocast

EVALUATION_BATCH = 64


class OrderSettings(Protocol):
    """What the order of examples depends on, and how they are run."""

    @property
    def seed(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def by_length(self) -> bool: ...
    @property
    def bf16(self) -> bool: ...


class LabelTask:
    """Classes, cross entropy, accuracy."""

    terms: tuple[str, ...] = ("label_loss",)

    def __init__(
        self,
        train: Windows,
        labels: Tensor,
        dev: Windows,
        dev_labels: Tensor,
        settings: OrderSettings,
        processes: Processes,
    ) -> None:
        self.settings, self.processes = settings, processes
        self.train, self.labels = train, labels
        self.dev, self.dev_labels = dev, dev_labels
        self.order = order_of(settings, train.lengths, partial(permutation, settings.seed, examples=len(train)))

    def __len__(self) -> int:
        return len(self.train)

    def rows(self, _step: int) -> int:
        return self.settings.batch_size

    def part(self, step: int, places: range) -> Batch:
        rows = rows_in_order(self.order, step, self.settings.batch_size, len(self))[places.start : places.stop]
        return {**self.inputs(self.train.batch(rows)), "labels": self.labels[rows]}

    def inputs(self, batch: Batch) -> Batch:
        """What of a batch the model takes."""
        return batch

    def counts(self, batch: Batch) -> Tensor:
        return torch.tensor([len(batch["labels"])])

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        labels = batch.pop("labels")
        return cross_entropy(model(**batch).logits.float(), labels, reduction="sum")[None]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        sums = torch.zeros(2, dtype=torch.float64)
        for scores, labels in self.scored(model):
            right = (scores.argmax(dim=1) == labels).sum()
            sums += torch.stack([right, cross_entropy(scores, labels, reduction="sum")]).double()
        right, loss = (self.processes.sum(sums) / len(self.dev)).tolist()
        return {"accuracy": right, "valid_loss": loss}

    def scored(self, model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores and labels of this process's share of the held-out rows, batch by batch."""
        for rows, batch in dev_batches(self.dev, self.processes.share(len(self.dev)), self.processes):
            with autocast(self.processes.device, self.settings.bf16):
                scores = model(**self.inputs(batch)).logits.float().cpu()
            yield scores, self.dev_labels[rows]


def order_of(
    settings: OrderSettings, lengths: NDArray[np.int32], rows: Callable[[int], NDArray[np.int64]]
) -> Callable[[int], NDArray[np.int64]]:
    """Epoch -> its rows, of which the last two are kept: a batch may span two epochs."""

    def order(epoch: int) -> NDArray[np.int64]:
        found = rows(epoch)
        return grouped(found, lengths, settings.seed, epoch, settings.batch_size) if settings.by_length else found

    return lru_cache(maxsize=2)(order)


def dev_batches(windows: Windows, share: range, processes: Processes) -> Iterator[tuple[Any, Batch]]:
    """The rows of a share, in order, and their batches."""
    for at in range(share.start, share.stop, EVALUATION_BATCH):
        rows = np.arange(at, min(at + EVALUATION_BATCH, share.stop))
        yield rows, {name: value.to(processes.device) for name, value in windows.batch(rows).items()}


def held_out(text: str, share: float) -> bool:
    """Whether a text is in the held-out part; all pairs and questions about it are on the same side."""
    return zlib.crc32(text.encode()) < share * 2**32
