"""Pre-training: masked words and next sentences (Section 6), from a settings file to a saved model."""

from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.examples import Batch, Examples, MaskedBatches, evenly_spaced
from provenformer.bert.data.manifest import manifest_of
from provenformer.bert.data.masking import NO_TARGET, Masking
from provenformer.bert.data.records import digest
from provenformer.bert.data.vocabulary import Vocabulary
from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.models import MixerBertForPreTraining
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.run_folder import RunFolder
from provenformer.bert.runtime.saved_models import load_saved, load_vocabulary, save_vocabulary
from provenformer.bert.settings import BELOW_1, FROM_0, FROM_1, Range, ranged
from provenformer.bert.training.loop import Watch, autocast, evaluate, train
from provenformer.bert.training.settings import TrainingSettings

EVALUATION_BATCH = 64
SHARE: Range = ("above 0 and at most 1", lambda value: 0 < value <= 1)


@dataclass(frozen=True)
class PretrainSettings(TrainingSettings):
    """A pre-training run.

    model                     fields of MixerBertConfig; sizes of vocabulary and positions follow from the data
    masked_fraction           share of the tokens that are targets; a pair changes linearly from the first to the last step
    short_fraction            share of the steps, at the beginning, on shorter sequences: more of them in a batch, so that
                              it has as many positions
    evaluate_examples         of the held-out data, evenly spaced; 0 for all
    evaluate_masked_fraction  the same for every model that is to be compared, whatever it was trained with
    """

    steps: int = ranged(1000, FROM_1)
    model: dict[str, Any] = field(default_factory=dict)
    masked_fraction: float | tuple[float, float] = ranged(0.15, SHARE)
    whole_word: bool = False
    short_fraction: float = ranged(0.0, BELOW_1)
    evaluate_examples: int = ranged(0, FROM_0)
    evaluate_masked_fraction: float = ranged(0.15, SHARE)

    @property
    def short_steps(self) -> int:
        """How many steps are on shorter sequences."""
        return round(self.short_fraction * self.steps)

    def masked(self, step: int) -> float:
        """The share of the tokens that are targets in a step."""
        if not isinstance(self.masked_fraction, tuple):
            return self.masked_fraction
        first, last = self.masked_fraction
        return first + (last - first) * step / max(self.steps - 1, 1)


class PretrainingTask:
    """Masked words and next sentences; with a gathered head, only masked positions meet the vocabulary."""

    terms = ("masked_loss", "next_loss")

    def __init__(
        self,
        examples: Examples,
        held_out: Examples | None,
        settings: PretrainSettings,
        processes: Processes,
        short: Examples | None = None,
    ) -> None:
        self.settings, self.processes = settings, processes
        self.long = MaskedBatches(examples, settings.seed, settings.batch_size)
        more = examples.seq_len // short.seq_len if short else 1
        self.short = MaskedBatches(short or examples, settings.seed, more * settings.batch_size)
        self.held_out = MaskedBatches(held_out, settings.seed, EVALUATION_BATCH) if held_out else None
        if self.held_out:
            self._require_masked_words(self.held_out)

    def _require_masked_words(self, held_out: MaskedBatches) -> None:
        """Masks depend on the seed alone, so that text without any is known before training, from its first batch as a rule."""
        masking = self._masking(held_out.examples, self.settings.evaluate_masked_fraction)
        chosen = evenly_spaced(len(held_out.examples), self.settings.evaluate_examples)
        for at in range(0, len(chosen), EVALUATION_BATCH):
            batch = held_out.in_order(chosen[at : at + EVALUATION_BATCH], masking)
            if ((batch["labels"] != NO_TARGET) & (batch["input_ids"] == masking.vocabulary.mask)).any():
                return
        share = f"evaluate_masked_fraction={self.settings.evaluate_masked_fraction}"
        raise ProvenformerError(
            f"no word of the {len(chosen)} held-out examples is masked ({share}); prepare more text or raise the fraction"
        )

    def _batches(self, step: int) -> MaskedBatches:
        return self.short if step < self.settings.short_steps else self.long

    def rows(self, step: int) -> int:
        return self._batches(step).batch_size

    def part(self, step: int, places: range) -> Batch:
        batches = self._batches(step)
        return batches.part(step, places, self._masking(batches.examples, self.settings.masked(step)))

    def _masking(self, examples: Examples, fraction: float) -> Masking:
        return Masking(examples.vocabulary, fraction, self.settings.whole_word)

    def counts(self, batch: Batch) -> Tensor:
        targets = batch["labels"] != NO_TARGET
        return torch.stack([targets.sum(), torch.tensor(len(targets))])

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        words, next_sentence, targets = _scores(model, batch)
        masked_loss = cross_entropy(words.float(), targets, reduction="sum")
        next_loss = cross_entropy(next_sentence.float(), batch["next_sentence_label"], reduction="sum")
        return torch.stack([masked_loss, next_loss])

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if self.held_out is None:
            return {}
        chosen = evenly_spaced(len(self.held_out.examples), self.settings.evaluate_examples)
        share = self.processes.share(len(chosen))
        masking = self._masking(self.held_out.examples, self.settings.evaluate_masked_fraction)
        sums = torch.zeros(8, dtype=torch.float64)
        for at in range(share.start, share.stop, EVALUATION_BATCH):
            batch = self.held_out.in_order(chosen[at : min(at + EVALUATION_BATCH, share.stop)], masking)
            batch = {name: value.to(self.processes.device) for name, value in batch.items()}
            with autocast(self.processes.device, self.settings.bf16):
                words, next_sentence, targets = _scores(model, batch)
            right = words.argmax(dim=1) == targets
            hidden = batch["input_ids"][batch["labels"] != NO_TARGET] == masking.vocabulary.mask
            label = batch["next_sentence_label"]
            found = [
                cross_entropy(words.float(), targets, reduction="sum"),
                right.sum(),
                (right & hidden).sum(),
                cross_entropy(next_sentence.float(), label, reduction="sum"),
                (next_sentence.argmax(dim=1) == label).sum(),
                torch.tensor(len(targets)),
                hidden.sum(),
                torch.tensor(len(label)),
            ]
            sums += torch.tensor([float(value) for value in found], dtype=torch.float64)
        word_loss, right_all, right_hidden, sentence_loss, right_next, words_all, words_hidden, sentences = (
            self.processes.sum(sums).tolist()
        )
        return {
            "valid_masked_loss": word_loss / words_all,
            "masked_accuracy": right_all / words_all,
            "mask_token_accuracy": right_hidden / words_hidden,
            "valid_next_loss": sentence_loss / sentences,
            "next_accuracy": right_next / sentences,
        }


def pretrain(
    settings: PretrainSettings,
    data: Path,
    valid: Path | None,
    output: Path,
    short: Path | None = None,
    processes: Processes | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Train in the folder `output`, resuming if it was begun, and return its result.

    `short` is the same kind of data in shorter sequences, for the first `short_fraction` of the steps; `processes` is
    the group that the caller has joined; what `watch` sees with every evaluation is logged beside it.
    """
    with joined(processes) as processes:
        examples = Examples(data)
        config = model_config(settings.model, examples.vocabulary, examples.seq_len)
        held_out, shorter = (Examples(folder) if folder else None for folder in (valid, short))
        if valid and held_out:
            _check_fits(valid, held_out, data, examples.vocabulary, config)
        if (settings.short_fraction > 0) != (short is not None):
            given = "no data is" if short is None else "data of them is"
            remedy = "give both or neither: the setting short_fraction and --short"
            raise ProvenformerError(
                f"short_fraction={settings.short_fraction} of the steps are on short sequences, but {given} given; {remedy}"
            )
        if short and shorter:
            _check_fits(short, shorter, data, examples.vocabulary, config)
            if shorter.seq_len >= examples.seq_len or examples.seq_len % shorter.seq_len:
                lengths = f"seq_len={shorter.seq_len}, which is not a proper part of {examples.seq_len}"
                raise ProvenformerError(f"{short} has {lengths}; prepare it with --seq-len {examples.seq_len // 2}")
        folders = {"data": data, "valid": valid, "short": short}
        asked = {"settings": asdict(settings)} | {
            name: data_fingerprint(folder) for name, folder in folders.items() if folder
        }
        with RunFolder(output, asked, processes) as run:
            if run.result:
                return run.result
            torch.manual_seed(settings.seed)
            model = MixerBertForPreTraining(config)
            task = PretrainingTask(examples, held_out, settings, processes, shorter)
            metrics = train(model, task, settings, settings.steps, output, processes, watch=watch)
            return run.finish(model, partial(save_vocabulary, examples.vocabulary), metrics)


def evaluate_pretrained(
    model_folder: Path, data: Path, settings: PretrainSettings, processes: Processes | None = None
) -> dict[str, float]:
    """Masked-word and next-sentence metrics of a saved model on prepared data, with the masks training would use."""
    examples = Examples(data)
    vocabulary, config = load_vocabulary(model_folder), load_saved(MixerBertConfig, model_folder)
    _check_fits(data, examples, model_folder, vocabulary, config)
    with joined(processes) as processes:
        model = load_saved(MixerBertForPreTraining, model_folder).to(processes.device)
        return evaluate(model, PretrainingTask(examples, examples, settings, processes))


def _check_fits(data: Path, examples: Examples, origin: Path, vocabulary: Vocabulary, config: MixerBertConfig) -> None:
    """Refuse to evaluate on data that the model, whose vocabulary is in the folder `origin`, cannot take."""
    if examples.vocabulary.fingerprint != vocabulary.fingerprint:
        remedy = f"prepare it with --vocabulary {origin / 'vocab.txt'}"
        raise ProvenformerError(f"{data} was made with another vocabulary than {origin}; {remedy}")
    positions = config.max_position_embeddings
    if examples.seq_len > positions:
        sizes = f"seq_len={examples.seq_len}, above the model's {positions} positions"
        raise ProvenformerError(f"{data} has {sizes}; prepare it with --seq-len {positions}")


def model_config(asked: dict[str, Any], vocabulary: Vocabulary, seq_len: int) -> MixerBertConfig:
    """The configuration that fits the data; a field that contradicts it, or that there is not, is refused."""
    known = [field.name for field in fields(MixerBertConfig)]  # transformers keeps any other name, unused
    decided = {"vocab_size": len(vocabulary), "pad_token_id": vocabulary.pad, "predict_masked_only": True}
    for name, value in asked.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "it takes the fields of MixerBertConfig"
            raise ProvenformerError(f"[model] has no field {name!r}; {remedy}")
        if decided.get(name, value) != value:
            raise ProvenformerError(f"{name}={value}, but data and training need {decided[name]}; leave {name} out")
    try:
        config = MixerBertConfig(**({"max_position_embeddings": seq_len} | asked | decided))
    except StrictDataclassError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix("TypeError: ")
        raise ProvenformerError(f"[model]: {reason}; correct it") from None
    for name, least in (("max_position_embeddings", seq_len), ("type_vocab_size", 2)):
        if getattr(config, name) < least:
            raise ProvenformerError(f"{name}={getattr(config, name)} is below the data's {least}; leave it out")
    return config


def data_fingerprint(folder: Path) -> str:
    """Tells prepared data apart: the manifest holds the checksums of all shards."""
    return digest(manifest_of(folder))[:16]


def _scores(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Word scores at the masked positions, next-sentence scores, and the words that were masked."""
    inputs = {name: value for name, value in batch.items() if name != "next_sentence_label"}
    output = model(**inputs)
    return output.prediction_logits, output.seq_relationship_logits, batch["labels"][batch["labels"] != NO_TARGET]
