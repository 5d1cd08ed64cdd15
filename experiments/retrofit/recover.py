"""New layers learn the hidden states of the layers they replace: embeddings and the layers above stay as they are."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiments.retrofit.settings import RecoverySettings
from torch import Tensor, nn

from provenformer.bert.data.examples import Batch, Examples, evenly_spaced
from provenformer.bert.data.manifest import HEADER
from provenformer.bert.data.order import rows_of_step
from provenformer.bert.model.models import MixerBertModel
from provenformer.bert.model.slot import encoder_layers
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.run_folder import RunFolder
from provenformer.bert.runtime.saved_models import load_vocabulary, save_vocabulary
from provenformer.bert.training.finetune import file_fingerprint
from provenformer.bert.training.loop import train
from provenformer.bert.training.pretrain import data_fingerprint

EVALUATION_BATCH = 50


def retrofitted(original: Path, swapped: int, mixer: dict[str, Any], **overrides: Any) -> MixerBertModel:
    """The original with fresh SepConv in its lowest layers.

    W_O is the original's, and so is W_V, as the part of SepConv's GLU that passes when its gate is half open: what is
    new is which tokens are added up.
    """
    stock, _ = MixerBertModel.from_bert(original, **overrides)
    depth = stock.config.num_hidden_layers
    mixers = ["sepconv"] * swapped + ["attention"] * (depth - swapped)
    model, _ = MixerBertModel.from_bert(original, mixers=mixers, mixer_options={"sepconv": mixer}, **overrides)
    with torch.no_grad():
        for new, old in zip(encoder_layers(model)[:swapped], encoder_layers(stock), strict=False):
            gate, value = new.attention.self.mixer.gate, old.attention.self.value
            half = value.out_features
            gate.weight[:half], gate.bias[:half] = 2 * value.weight, 2 * value.bias
    return model


class RecoveryTask:
    """After every new layer the squared distance to the original's states, averaged over dimensions."""

    terms = ("hidden_loss",)

    def __init__(
        self, original: MixerBertModel, text: Examples, held_out: Examples, settings: RecoverySettings
    ) -> None:
        self.original = original.eval()
        self.text, self.held_out, self.settings = text, held_out, settings

    def rows(self, _step: int) -> int:
        return self.settings.batch_size

    def part(self, step: int, places: range) -> Batch:
        rows = rows_of_step(self.settings.seed, step, self.settings.batch_size, len(self.text))
        return _batch(self.text, rows[places.start : places.stop])

    def counts(self, batch: Batch) -> Tensor:
        return batch["attention_mask"].sum()[None]

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._distances(model, batch).sum()[None]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The share of the states' variance that is not recovered, after the last new layer."""
        chosen = evenly_spaced(len(self.held_out), self.settings.evaluate_examples)
        missed, states = 0.0, []
        for at in range(0, len(chosen), EVALUATION_BATCH):
            batch = _batch(self.held_out, torch.tensor(chosen[at : at + EVALUATION_BATCH]).numpy())
            missed += float(self._distances(model, batch)[-1])
            states.append(self.original(**batch).last_hidden_state[batch["attention_mask"].bool()])
        return {"unrecovered": missed / float(torch.cat(states).var(dim=0).mean()) / sum(map(len, states))}

    def _distances(self, model: nn.Module, batch: Batch) -> Tensor:
        """(layers,): summed over tokens."""
        with torch.no_grad():
            wanted = self.original(**batch, output_hidden_states=True).hidden_states[1:]
        found = model(**batch, output_hidden_states=True).hidden_states[1:]
        real = batch["attention_mask"].bool()
        return torch.stack([(a - b)[real].square().mean(dim=1).sum() for a, b in zip(found, wanted, strict=True)])


def _batch(examples: Examples, rows: Any) -> Batch:
    packed = torch.from_numpy(examples.rows(rows))
    _, first, length = packed[:, :HEADER].T
    positions = torch.arange(examples.seq_len)
    real = positions < length[:, None]
    second = real & (positions >= first[:, None])
    return {"input_ids": packed[:, HEADER:], "attention_mask": real.long(), "token_type_ids": second.long()}


def recover(
    settings: RecoverySettings,
    original: Path,
    swapped: int,
    mixer: dict[str, Any],
    text: Path,
    held_out: Path,
    output: Path,
    processes: Processes,
) -> dict[str, Any]:
    """Train in the folder `output`, resuming if it was begun; its `model` is the whole, ready for fine-tuning."""
    asked = {
        "settings": asdict(settings),
        "swapped": swapped,
        "mixer": mixer,
        "original": file_fingerprint(original / "model.safetensors"),
        "text": [data_fingerprint(text), data_fingerprint(held_out)],
    }
    with RunFolder(output, asked, processes) as run:
        if run.result:
            return run.result
        torch.manual_seed(settings.seed)
        whole = retrofitted(original, swapped, mixer)
        metrics = {"unrecovered": 0.0}
        if swapped:
            # Only the new layers are run, and without dropout: the original's states are what they are.
            still = {"num_hidden_layers": swapped, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
            lower = retrofitted(original, swapped, mixer, **still)
            lower.embeddings.requires_grad_(False)
            lower.pooler = None
            teacher, _ = MixerBertModel.from_bert(original, **still)
            task = RecoveryTask(teacher, Examples(text), Examples(held_out), settings)
            metrics = train(lower, task, settings, settings.steps, output, processes)
            for new, learnt in zip(encoder_layers(whole), encoder_layers(lower), strict=False):
                new.load_state_dict(learnt.state_dict())
        return run.finish(whole, partial(save_vocabulary, load_vocabulary(original)), metrics)
