"""What `retrofit.toml` says."""

from dataclasses import dataclass
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.settings import FROM_1, ranged
from provenformer.bert.training.finetune import FinetuneSettings
from provenformer.bert.training.settings import TrainingSettings


@dataclass(frozen=True)
class RecoverySettings(TrainingSettings):
    """How the new layers learn to give the hidden states of those they replace.

    positions          of text, padding included, that they see; the same whatever their number
    seq_len            positions of an example
    evaluate_examples  of held-out text, evenly spaced
    """

    positions: int = ranged(1_000_000, FROM_1)
    seq_len: int = ranged(64, FROM_1)
    evaluate_examples: int = ranged(500, FROM_1)

    @property
    def steps(self) -> int:
        """Of optimisation, at least one."""
        return max(1, self.positions // (self.batch_size * self.seq_len))


@dataclass(frozen=True)
class RetrofitSettings:
    """The experiment.

    swapped      how many of the lowest layers are replaced, one result for each
    mixer        options of SepConv
    timed_pairs  of the dev file, evenly spaced, for the time a pair takes
    """

    swapped: tuple[int, ...]
    mixer: dict[str, Any]
    recovery: RecoverySettings
    mnli: FinetuneSettings
    timed_pairs: int = ranged(320, FROM_1)

    def __post_init__(self) -> None:
        if not self.swapped or min(self.swapped) < 0 or len(set(self.swapped)) < len(self.swapped):
            raise ProvenformerError(f"swapped={list(self.swapped)} must be different numbers of layers; correct it")
