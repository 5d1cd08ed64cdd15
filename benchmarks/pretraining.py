"""Pre-training throughput: our loop and MixerBertForPreTraining against transformers' Trainer and BertForPreTraining.

The same sizes (attention in every layer), the same examples, batch and optimizer settings, float32, one thread. Both
mask on the fly, 15 % of the tokens: the Trainer with transformers' own collator. In one run, in turn; the ratio is the
median over rounds. CPU time, which includes data, masking and the optimizer.
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from benchmarks.corpus import sample_examples
from benchmarks.measuring import about, seconds
from provenformer.bert.data.examples import Examples
from provenformer.bert.model.models import MixerBertForPreTraining
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.training.loop import train
from provenformer.bert.training.pretrain import PretrainingTask, PretrainSettings, model_config

RESULTS = Path(__file__).parent / "results" / "pretraining.json"
SEED, ROUNDS, STEPS, BATCH, SEQ_LEN, VOCABULARY = 0, 5, 20, 32, 64, 4096
SIZES = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
LIMIT = 1.3


class Rows(torch.utils.data.Dataset[dict[str, list[int]]]):
    """The packed examples as the Trainer's collator takes them."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        foreign, first, length, *ids = self.examples.rows(np.array([index]))[0].tolist()
        return {
            "input_ids": ids,
            "attention_mask": [int(at < length) for at in range(SEQ_LEN)],
            "token_type_ids": [int(first <= at < length) for at in range(SEQ_LEN)],
            "next_sentence_label": foreign,
        }


def our_seconds(examples: Examples, folder: Path) -> float:
    settings = PretrainSettings(batch_size=BATCH, model=SIZES, log_every=STEPS)
    model = MixerBertForPreTraining(model_config(SIZES, examples.vocabulary, SEQ_LEN))
    alone = Processes(0, 1, torch.device("cpu"))
    task = PretrainingTask(examples, None, settings, alone)
    return seconds(lambda: train(model, task, settings, STEPS, folder, alone))


def trainer_seconds(examples: Examples, vocabulary: Path, folder: Path) -> float:
    config = BertConfig(**SIZES, vocab_size=VOCABULARY, max_position_embeddings=SEQ_LEN)
    tokenizer = BertTokenizer(vocab=str(vocabulary))
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-4,
        weight_decay=0.01,
        logging_steps=STEPS,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    collator = DataCollatorForLanguageModeling(tokenizer)
    trainer = Trainer(BertForPreTraining(config), arguments, data_collator=collator, train_dataset=Rows(examples))
    return seconds(trainer.train)


def main() -> bool:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        examples = sample_examples(folder, SEQ_LEN, VOCABULARY)
        for index in range(ROUNDS):
            trainer = trainer_seconds(examples, folder / "vocab.txt", folder / f"trainer-{index}")
            rounds.append({"ours": our_seconds(examples, folder / f"ours-{index}"), "trainer": trainer})
    positions = STEPS * BATCH * SEQ_LEN
    speeds = {who: positions / statistics.median(r[who] for r in rounds) for who in ("ours", "trainer")}
    ratio = statistics.median(r["trainer"] / r["ours"] for r in rounds)
    table = Table("", "positions a CPU-second", title=f"{SIZES}, batch {BATCH} x {SEQ_LEN}, {VOCABULARY} WordPieces")
    for who, speed in speeds.items():
        table.add_row(who, f"{speed:,.0f}")
    Console().print(table, f"ours / Trainer: {ratio:.2f} (at least {LIMIT})")
    sizes = {**SIZES, "batch": BATCH, "seq_len": SEQ_LEN, "vocabulary": VOCABULARY, "steps": STEPS}
    result = {**about("pretraining", SEED), "sizes": sizes, "rounds": rounds, "speeds": speeds, "ratio": ratio}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return ratio >= LIMIT
