"""Fine-tuning on a table of one's own: texts or pairs of texts, with classes or numbers, for any BERT-family model."""

import inspect
import math
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.bert.data.examples import Batch
from provenformer.bert.data.labelled import Labelled, label_names, label_numbers, read_labelled
from provenformer.bert.data.windows import Windows
from provenformer.bert.model.replacing import replace_attention
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.run_folder import RunFolder
from provenformer.bert.runtime.saved_models import WEIGHTS, load_saved
from provenformer.bert.settings import ABOVE_0, BELOW_1, FROM_0, choice, ranged
from provenformer.bert.training.best import Best
from provenformer.bert.training.finetune import PAIR, file_fingerprint
from provenformer.bert.training.label_task import LabelTask, held_out
from provenformer.bert.training.loop import evaluate, train
from provenformer.bert.training.settings import TrainingSettings


@dataclass(frozen=True)
class TextSettings(TrainingSettings):
    """A fine-tuning run on a table of one's own.

    text_columns       of the text, or of both texts of a pair; () for a usual name
    label_column       "" for a usual name
    regression         labels are numbers to predict, not classes
    mixer, layers      put this mixer in place of self-attention in these layers before training; mixer_options are its own
    seq_len            positions of an input; longer ones lose the end of the longer text
    by_length          batches are of inputs of about one length, which need less padding
    held_out_fraction  share of the rows (by their first text) that is evaluated on when there is no file for that
    patience           stop after so many evaluations without a better one, and keep the best weights; 0 for all epochs and
                       the last weights. With it, evaluate_every = 0 means once an epoch
    """

    task: str = choice("text")
    text_columns: tuple[str, ...] = ()
    label_column: str = ""
    regression: bool = False
    mixer: str = ""
    layers: tuple[int, ...] = ()
    mixer_options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = ranged(5e-5, ABOVE_0)
    seq_len: int = ranged(128, PAIR)
    epochs: float = ranged(3.0, ABOVE_0)
    by_length: bool = True
    held_out_fraction: float = ranged(0.1, BELOW_1)
    patience: int = ranged(0, FROM_0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.mixer) != bool(self.layers):
            raise ProvenformerError(
                "a mixer needs its layers, and layers a mixer; give both, as in --mixer sepconv --layers 0,1"
            )


class TextTask(LabelTask):
    """Classes (accuracy, macro F1) or numbers (root mean square and mean error, squared correlation).

    Beside them stands what the best constant answer reaches on the same rows: `constant_accuracy`, `constant_rmse`.

    classes   how many; 0 for numbers
    segments  whether the model is told which text of a pair a token is of
    cut       share of the training inputs that are longer than seq_len
    scale     mean and deviation of the training numbers: the model learns them standardised
    """

    def __init__(
        self, *parts: Any, classes: int, segments: bool, scale: tuple[float, float] | None, cut: float
    ) -> None:
        super().__init__(*parts)
        self.classes, self.segments, self.scale, self.cut = classes, segments, scale, cut

    def inputs(self, batch: Batch) -> Batch:
        return batch if self.segments else {name: v for name, v in batch.items() if name != "token_type_ids"}

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        if self.scale is None:
            return super().losses(model, batch)
        mean, deviation = self.scale
        wanted = (batch.pop("labels") - mean) / deviation
        return mse_loss(model(**batch).logits[:, 0].float(), wanted, reduction="sum")[None]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return self._classes(model) if self.scale is None else self._numbers(model, *self.scale)

    def _classes(self, model: nn.Module) -> dict[str, float]:
        loss, counted = torch.zeros(1, dtype=torch.float64), torch.zeros(self.classes**2, dtype=torch.int64)
        for scores, labels in self.scored(model):
            loss += cross_entropy(scores, labels, reduction="sum").double()
            counted += torch.bincount(labels * self.classes + scores.argmax(dim=1), minlength=self.classes**2)
        loss, table = self.processes.sum(loss), self.processes.sum(counted).reshape(self.classes, -1).double()
        right = table.diagonal()
        # Of the classes that occur or are said; 2 right / (occur + said) is F1.
        either = table.sum(0) + table.sum(1)
        f1 = (2 * right[either > 0] / either[either > 0]).mean()
        return {
            "accuracy": float(right.sum() / len(self.dev)),
            "macro_f1": float(f1),
            "constant_accuracy": float(table.sum(1).max() / len(self.dev)),
            "valid_loss": float(loss) / len(self.dev),
        }

    def _numbers(self, model: nn.Module, mean: float, deviation: float) -> dict[str, float]:
        sums = torch.zeros(7, dtype=torch.float64)
        for scores, labels in self.scored(model):
            # Standardised, so that sums of squares lose no digits.
            found, wanted = scores[:, 0].double(), (labels.double() - mean) / deviation
            off = found - wanted
            parts = (off.abs(), off**2, found, wanted, found**2, wanted**2, found * wanted)
            sums += torch.stack([part.sum() for part in parts])
        means = (self.processes.sum(sums) / len(self.dev)).tolist()
        absolute, square, found, wanted, found2, wanted2, product = means
        variance = max(0.0, wanted2 - wanted**2)
        spread = (found2 - found**2) * variance
        correlation = (product - found * wanted) ** 2 / spread if spread > 1e-30 else 0.0
        return {
            "rmse": math.sqrt(square) * deviation,
            "mean_error": absolute * deviation,
            "squared_correlation": min(correlation, 1.0),
            "constant_rmse": math.sqrt(variance) * deviation,
            "valid_loss": square,
        }


def finetune_texts(
    settings: TextSettings,
    model_folder: Path,
    train_file: Path,
    dev_file: Path | None,
    output: Path,
    processes: Processes | None = None,
) -> dict[str, Any]:
    """Fine-tune in the folder `output`, resuming if it was begun, and return the result.

    Without `dev_file` a part of the rows is held out.
    """
    with joined(processes) as processes:
        if settings.patience and processes.sharded:
            raise ProvenformerError("patience keeps the best weights whole, --shard splits them; leave one out")
        tokenizer = load_tokenizer(model_folder)
        asked = {
            "settings": asdict(settings),
            "model": file_fingerprint(model_folder / WEIGHTS),
            "train": file_fingerprint(train_file),
            "dev": "" if dev_file is None else file_fingerprint(dev_file),
        }
        rows, held = _both_sides(settings, train_file, dev_file)
        names = [] if settings.regression else label_names(train_file, rows.labels)
        with RunFolder(output, asked, processes) as run:
            if run.result:
                return run.result
            torch.manual_seed(settings.seed)  # the new head
            model = load_saved(AutoModelForSequenceClassification, model_folder, **_head(names))
            check_length(model, model_folder, tokenizer, settings.seq_len)
            if settings.mixer:
                replace_attention(model, settings.layers, settings.mixer, **settings.mixer_options)
            numbers = np.array(rows.labels, np.float64) if settings.regression else np.zeros(1)
            scale = (float(numbers.mean()), float(numbers.std()) or 1.0) if settings.regression else None
            task = _task(
                settings, model, tokenizer, names, (rows, train_file), (held, dev_file or train_file), scale, processes
            )
            if processes.first and task.cut:
                limit = f"the model takes up to {positions_of(model)}"
                found = f"{task.cut:.1%} of the training inputs have more than {settings.seq_len} tokens and are cut"
                print(f"{found}; raise --seq-len, {limit}", file=sys.stderr)
            an_epoch = math.ceil(len(task) / settings.batch_size)
            steps = math.ceil(settings.epochs * len(task) / settings.batch_size)
            best = None
            if settings.patience:
                sign, metric = (-1, "valid_loss") if settings.regression else (1, "accuracy")
                best = Best(output / "best.safetensors", metric, sign, settings.patience)
                settings = replace(settings, evaluate_every=settings.evaluate_every or an_epoch)
            settings = replace(settings, checkpoint_every=min(settings.checkpoint_every, an_epoch))
            metrics = train(model, task, settings, steps, output, processes, best)
            if scale:
                _unscale(model, *scale)
            tokenizer.model_max_length = settings.seq_len  # so that `truncation=True` cuts where training did
            return run.finish(model, tokenizer.save_pretrained, metrics)


def evaluate_texts(
    settings: TextSettings, model_folder: Path, data: Path, processes: Processes | None = None
) -> dict[str, float]:
    """The metrics of a fine-tuned model on another table."""
    with joined(processes) as processes:
        tokenizer = load_tokenizer(model_folder)
        model = load_saved(AutoModelForSequenceClassification, model_folder).to(processes.device)
        check_length(model, model_folder, tokenizer, settings.seq_len)
        rows = read_labelled(data, settings.text_columns, settings.label_column, settings.regression)
        names = (
            [] if settings.regression else [model.config.id2label[place] for place in range(model.config.num_labels)]
        )
        scale = (0.0, 1.0) if settings.regression else None
        task = _task(settings, model, tokenizer, names, (rows, data), (rows, data), scale, processes)
        return evaluate(model, task)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a saved model, as transformers finds it."""
    if not folder.is_dir():
        raise ProvenformerError(f"{folder} is no folder; give that of a saved model")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # its files may be anything
        reason = one_line(error)[:200]
        raise ProvenformerError(f"{folder} has no tokenizer ({reason}); save it there: save_pretrained") from None
    if not tokenizer.is_fast or tokenizer.pad_token_id is None:
        raise ProvenformerError(f"the tokenizer in {folder} has no padding or is not a fast one; convert it")
    return tokenizer


def check_length(model: Any, folder: Path, tokenizer: Any, seq_len: int) -> None:
    """Refuse inputs that the model cannot take."""
    if len(tokenizer) > model.config.vocab_size:
        sizes = f"{model.config.vocab_size:,} words and its tokenizer {len(tokenizer):,}"
        raise ProvenformerError(f"the model in {folder} has {sizes}; restore the tokenizer it was trained with")
    if seq_len > (limit := positions_of(model)):
        raise ProvenformerError(f"seq_len={seq_len} is above the model's {limit} positions; lower it with --seq-len")


def positions_of(model: Any) -> int:
    """How many tokens a model takes. RoBERTa counts positions from behind that of padding."""
    before = getattr(model.base_model.embeddings, "padding_idx", None)
    return int(model.config.max_position_embeddings - (0 if before is None else before + 1))


def _both_sides(settings: TextSettings, train_file: Path, dev_file: Path | None) -> tuple[Labelled, Labelled]:
    columns = settings.text_columns, settings.label_column, settings.regression
    rows = read_labelled(train_file, *columns)
    if dev_file is not None:
        return rows, read_labelled(dev_file, *columns)
    sides = [held_out(texts[0], settings.held_out_fraction) for texts in rows.texts]
    kept, held = (
        Labelled(
            [texts for texts, other in zip(rows.texts, sides, strict=True) if other == side],
            [label for label, other in zip(rows.labels, sides, strict=True) if other == side],
        )
        for side in (False, True)
    )
    if not len(kept) or not len(held):
        found = f"{train_file} has {len(rows):,} rows, of which {len(held):,} would be held out"
        raise ProvenformerError(f"{found}; give a file to evaluate on with --dev")
    return kept, held


def _head(names: list[str]) -> dict[str, Any]:
    """Fields of the configuration that `pipeline()` reads."""
    if not names:
        return {"num_labels": 1, "problem_type": "regression"}
    numbered = dict(enumerate(names))
    return {
        "num_labels": len(names),
        "id2label": numbered,
        "label2id": {name: place for place, name in numbered.items()},
        "problem_type": "single_label_classification",
    }


def _task(
    settings: TextSettings,
    model: Any,
    tokenizer: Any,
    names: list[str],
    train_rows: tuple[Labelled, Path],
    dev_rows: tuple[Labelled, Path],
    scale: tuple[float, float] | None,
    processes: Processes,
) -> TextTask:
    sides: list[Any] = []
    shares: list[float] = []
    for rows, path in (train_rows, dev_rows):
        labels = rows.labels if scale else label_numbers(path, rows.labels, names)
        windows, cut = _windows(rows, tokenizer, settings.seq_len)
        sides += [windows, torch.tensor(labels)]
        shares.append(cut)
    segments = "token_type_ids" in inspect.signature(model.forward).parameters
    segments = segments and getattr(model.config, "type_vocab_size", 2) > 1
    return TextTask(*sides, settings, processes, classes=len(names), segments=segments, scale=scale, cut=shares[0])


def _windows(rows: Labelled, tokenizer: Any, seq_len: int) -> tuple[Windows, float]:
    """The inputs, and the share of them that is cut."""
    columns = [list(column) for column in zip(*rows.texts, strict=True)]
    encoded = tokenizer(*columns, truncation="longest_first", max_length=seq_len)
    cut = sum(bool(encoding.overflowing) for encoding in encoded.encodings) / len(rows)
    return Windows.of(encoded.encodings, tokenizer.pad_token_id, seq_len), cut


@torch.no_grad()
def _unscale(model: nn.Module, mean: float, deviation: float) -> None:
    """Fold the scale of the numbers into the last layer, so that the saved model gives them as they are in the table."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear) and module.out_features == 1][-1]
    last.weight *= deviation
    last.bias.mul_(deviation).add_(mean)
