"""Callbacks: delta / r of edits per layer while a model trains, for our pre-training loop and for the Trainer of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel, TrainerCallback

from provenformer.contextual.edits import edit, edit_distances
from provenformer.contextual.layers import radius
from provenformer.contextual.models import reader
from provenformer.contextual.reading import corpus_of
from provenformer.contextual.states import collect


class Probe:
    """A fixed set of edits; called with a model it gives, for every layer k >= 1, the median of delta / r over all pairs.

    `probe(model)` -> {"edit_ratio_1": 0.021, "edit_ratio_2": ..., "edit_smallest_1": ...}. The model is put into evaluation
    mode and back, and no random numbers are drawn, so training goes on as if nobody had looked.

        pretrain(settings, data, valid, output, watch=Probe(sentences, tokenizer))
        trainer.add_callback(ProbeCallback(trainer, Probe(sentences, tokenizer), every=500))
    """

    def __init__(
        self, sequences: Sequence[Any], tokenizer: Any = None, longest: int | None = 64, seed: int = 0
    ) -> None:
        self.sequences, self.tokenizer, self.longest, self.seed = list(sequences), tokenizer, longest, seed

    def __call__(self, model: PreTrainedModel) -> dict[str, float]:
        read = reader(model, self.tokenizer)
        corpus = corpus_of(read, self.sequences, False, self.longest)
        states = collect(read, corpus)
        found = edit_distances(read, corpus, states, edit(corpus, seed=self.seed), "nothing")
        ask = found.must_differ("nothing")
        out: dict[str, float] = {}
        for k in range(1, len(states.layers)):
            ratio = found.distance[k][ask] / (radius(states.layers[k]) or 1.0)
            out |= {f"edit_ratio_{k}": float(np.median(ratio)), f"edit_smallest_{k}": float(ratio.min())}
        return out


class ProbeCallback(TrainerCallback):
    """Logs a probe through the trainer, before the first step and after every `every` steps."""

    def __init__(self, trainer: Any, probe: Probe, every: int = 500) -> None:
        self.trainer, self.probe, self.every = trainer, probe, every

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        self.trainer.log(self.probe(given["model"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        if state.global_step % self.every == 0:
            self.trainer.log(self.probe(given["model"]))
