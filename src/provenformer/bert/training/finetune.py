"""Fine-tuning and evaluation on MNLI or SNLI (accuracy) and SQuAD (exact match, F1), from a settings file."""

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.examples import Batch
from provenformer.bert.data.mnli import LABELS, SentencePair, read_mnli
from provenformer.bert.data.order import balanced, permutation, rows_in_order
from provenformer.bert.data.records import Records, digest, is_table
from provenformer.bert.data.squad import Question, QuestionWindows, best_span, question_windows, read_squad
from provenformer.bert.data.vocabulary import Vocabulary
from provenformer.bert.data.windows import Windows
from provenformer.bert.model.config import MixerBertConfig
from provenformer.bert.model.models import MixerBertForQuestionAnswering, MixerBertForSequenceClassification
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.run_folder import RunFolder
from provenformer.bert.runtime.saved_models import load_saved, load_vocabulary, save_vocabulary
from provenformer.bert.settings import ABOVE_0, BELOW_1, FROM_0, Range, choice, ranged
from provenformer.bert.training.label_task import LabelTask, dev_batches, held_out, order_of
from provenformer.bert.training.loop import autocast, evaluate, train
from provenformer.bert.training.metrics import exact_match, f1
from provenformer.bert.training.settings import TrainingSettings

NLI_TASKS = ("mnli", "snli")  # the same three labels for pairs of other sentences
PAIR: Range = ("at least 5: [CLS], [SEP], [SEP] and a token of each text", lambda value: value >= 5)


@dataclass(frozen=True)
class FinetuneSettings(TrainingSettings):
    """A fine-tuning run.

    seq_len  positions of an input; longer pairs lose the end of the longer text, longer contexts are cut into windows
    stride   tokens that neighbouring windows of a context share (SQuAD)
    by_length  batches are of inputs of about one length, which need less padding
    dropout    of hidden states and attention weights while fine-tuning; left out, the model's own
    balanced   an epoch is every question once, half of them in a window with the answer, half without (SQuAD); else all windows
    held_out_fraction  share of the premises or contexts of the training file that is not trained on but evaluated on,
                       in place of the dev file: for choosing settings
    """

    task: str = choice(*NLI_TASKS, "squad")
    seq_len: int = ranged(128, PAIR)
    stride: int = ranged(32, FROM_0)
    epochs: float = ranged(3.0, ABOVE_0)
    dropout: float | None = ranged(None, BELOW_1)
    by_length: bool = False
    balanced: bool = False
    held_out_fraction: float = ranged(0.0, BELOW_1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balanced and self.task != "squad":
            raise ProvenformerError(f"balanced=True is about windows of SQuAD, not task={self.task!r}; leave it out")


class NliTask(LabelTask):
    """Three labels."""

    def __init__(
        self,
        train_pairs: list[SentencePair],
        dev_pairs: list[SentencePair],
        vocabulary: Vocabulary,
        settings: FinetuneSettings,
        processes: Processes,
    ) -> None:
        train, dev = (_encoded(pairs, vocabulary, settings.seq_len) for pairs in (train_pairs, dev_pairs))
        super().__init__(*train, *dev, settings, processes)


class SquadTask:
    """The first and the last token of the answer."""

    terms = ("span_loss",)

    def __init__(
        self,
        train_set: QuestionWindows,
        dev_questions: list[Question],
        dev_set: QuestionWindows,
        settings: FinetuneSettings,
        processes: Processes,
    ) -> None:
        self.settings, self.processes, self.questions = settings, processes, dev_questions
        self.train = train_set.windows
        self.places = torch.from_numpy(np.stack([train_set.start, train_set.end], axis=1))
        self.dev = dev_set
        order = partial(permutation, settings.seed, examples=len(self.train))
        if settings.balanced:
            order = partial(balanced, train_set.question, train_set.end > 0, settings.seed)
        self.order = order_of(settings, self.train.lengths, order)
        self.examples = len(self.order(0))

    def __len__(self) -> int:
        """Windows of an epoch."""
        return self.examples

    def rows(self, _step: int) -> int:
        return self.settings.batch_size

    def part(self, step: int, places: range) -> Batch:
        rows = rows_in_order(self.order, step, self.settings.batch_size, len(self))[places.start : places.stop]
        return {**self.train.batch(rows), "places": self.places[rows]}

    def counts(self, batch: Batch) -> Tensor:
        return torch.tensor([2 * len(batch["places"])])  # a start and an end each

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        places = batch.pop("places")
        output = model(**batch)
        start = cross_entropy(output.start_logits.float(), places[:, 0], reduction="sum")
        return (start + cross_entropy(output.end_logits.float(), places[:, 1], reduction="sum"))[None]

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        # All windows of a question go to one process, so that it can choose among them.
        share = self.processes.share(len(self.questions))
        answers = self.answers(model, share)
        sums = torch.zeros(2, dtype=torch.float64)
        for index, answer in answers.items():
            known = [text for _, text in self.questions[index].answers]
            sums += torch.tensor([exact_match(answer, known), f1(answer, known)], dtype=torch.float64)
        exact, overlap = (self.processes.sum(sums) / len(self.questions)).tolist()
        return {"exact_match": exact, "f1": overlap}

    def answers(self, model: nn.Module, questions: range) -> dict[int, str]:
        """The best span over all windows of each question, as text of its context."""
        windows = range(*np.searchsorted(self.dev.question, [questions.start, questions.stop]).tolist())
        best: dict[int, tuple[float, str]] = {}
        for rows, batch in dev_batches(self.dev.windows, windows, self.processes):
            with autocast(self.processes.device, self.settings.bf16):
                output = model(**batch)
            starts, ends = output.start_logits.float().cpu().numpy(), output.end_logits.float().cpu().numpy()
            for row, start, end in zip(rows, starts, ends, strict=True):
                index = int(self.dev.question[row])
                score, first, last = best_span(start, end, self.dev.spans[row, : len(start)])
                if index not in best or score > best[index][0]:
                    best[index] = score, self.questions[index].context[first:last]
        return {index: text for index, (_, text) in best.items()}


def finetune(
    settings: FinetuneSettings,
    model_folder: Path,
    train_file: Path,
    dev_file: Path,
    output: Path,
    processes: Processes | None = None,
) -> dict[str, Any]:
    """Fine-tune a pre-trained model in the folder `output`, resuming if it was begun, and return its result.

    `processes` is the group that the caller has joined.
    """
    with joined(processes) as processes:
        vocabulary = load_vocabulary(model_folder)
        check_model(model_folder, vocabulary, settings.seq_len)
        asked = {
            "settings": asdict(settings),
            "model": file_fingerprint(model_folder / "model.safetensors"),
            "train": file_fingerprint(train_file),
            "dev": file_fingerprint(dev_file),
        }
        with RunFolder(output, asked, processes) as run:
            if run.result:
                return run.result
            task = finetuning_task(settings, train_file, dev_file, vocabulary, processes)
            torch.manual_seed(settings.seed)  # the new head
            model = load_model(settings.task, model_folder, settings.dropout)
            steps = math.ceil(settings.epochs * len(task) / settings.batch_size)
            metrics = train(model, task, settings, steps, output, processes)
            return run.finish(model, partial(save_vocabulary, vocabulary), metrics)


def evaluate_finetuned(
    settings: FinetuneSettings, model_folder: Path, dev_file: Path, processes: Processes | None = None
) -> dict[str, float]:
    """The task's metrics of a fine-tuned model."""
    with joined(processes) as processes:
        vocabulary = load_vocabulary(model_folder)
        check_model(model_folder, vocabulary, settings.seq_len)
        model = load_model(settings.task, model_folder).to(processes.device)
        asked = replace(settings, held_out_fraction=0.0)  # of a training file; this is another one
        return evaluate(model, finetuning_task(asked, dev_file, dev_file, vocabulary, processes))


def check_model(folder: Path, vocabulary: Vocabulary, seq_len: int) -> None:
    """Refuse inputs that the model cannot take."""
    config = load_saved(MixerBertConfig, folder)
    if config.vocab_size != len(vocabulary):
        sizes = f"{config.vocab_size} WordPieces and its vocab.txt {len(vocabulary)}"
        raise ProvenformerError(f"the model in {folder} has {sizes}; restore the file it was trained with")
    if config.max_position_embeddings < seq_len:
        limit = config.max_position_embeddings
        raise ProvenformerError(f"seq_len={seq_len} is above the model's {limit} positions; lower seq_len")


def load_model(task: str, folder: Path, dropout: float | None = None) -> Any:
    """The pre-trained or fine-tuned model with the task's head, which is new if the folder has none."""
    names = () if dropout is None else ("hidden_dropout_prob", "attention_probs_dropout_prob")
    overrides = dict.fromkeys(names, dropout)
    if task in NLI_TASKS:
        return load_saved(MixerBertForSequenceClassification, folder, num_labels=len(LABELS), **overrides)
    # Two scores a token, the answer's first and last: a model that has learnt labels would bring their number along.
    return load_saved(MixerBertForQuestionAnswering, folder, num_labels=2, **overrides)


def finetuning_task(
    settings: FinetuneSettings, train_file: Path, dev_file: Path, vocabulary: Vocabulary, processes: Processes
) -> NliTask | SquadTask:
    """What there is to learn and to evaluate in these files."""
    share = settings.held_out_fraction
    dev_file = train_file if share else dev_file
    if settings.task in NLI_TASKS:
        train_pairs = [pair for pair in read_mnli(train_file) if not held_out(pair.premise, share)]
        dev_pairs = [pair for pair in read_mnli(dev_file) if not share or held_out(pair.premise, share)]
        return NliTask(train_pairs, dev_pairs, vocabulary, settings, processes)
    (_, train_set), (questions, dev_set) = (
        _questions(path, file_fingerprint(path), vocabulary, settings.seq_len, settings.stride, share, other_side)
        for path, other_side in ((train_file, False), (dev_file, share > 0))
    )
    return SquadTask(train_set, questions, dev_set, settings, processes)


@lru_cache(
    maxsize=4
)  # a study fine-tunes many models on the same two files, whole and in parts; cutting takes a minute
def _questions(
    path: Path,
    _fingerprint: str,
    vocabulary: Vocabulary,
    seq_len: int,
    stride: int,
    share: float,
    other_side: bool,
) -> tuple[list[Question], QuestionWindows]:
    questions = [one for one in read_squad(path) if held_out(one.context, share) == other_side]
    return questions, question_windows(questions, vocabulary, seq_len, stride)


def _encoded(pairs: list[SentencePair], vocabulary: Vocabulary, seq_len: int) -> tuple[Windows, Tensor]:
    texts = [(pair.premise, pair.hypothesis) for pair in pairs]
    windows = Windows.of(vocabulary.encode_pairs(texts, seq_len), vocabulary.pad, seq_len)
    return windows, torch.tensor([pair.label for pair in pairs])


def file_fingerprint(path: Path) -> str:
    """Tells files and datasets apart by their content."""
    return Records.parse(path).fingerprint() if is_table(path) else digest(path)[:16]
