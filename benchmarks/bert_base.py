"""One optimisation step of each BERT_BASE-size model at length 512: time, and memory at its highest.

Batch 4 in micro-batches of 2, float32, one thread; every mixer in a process of its own, so that the peak is its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import sample_examples
from benchmarks.measuring import about, seconds
from provenformer.bert import MIXERS, MixerBertForPreTraining
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.training.loop import training_step
from provenformer.bert.training.optimiser import build_optimizers
from provenformer.bert.training.pretrain import PretrainingTask, PretrainSettings, model_config

RESULTS = Path(__file__).parent / "results" / "bert_base.json"
SEED, BATCH, MICRO_BATCH, SEQ_LEN, VOCABULARY = 0, 4, 2, 512, 30522


def measure(mixer: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    settings = PretrainSettings(batch_size=BATCH, micro_batch=MICRO_BATCH, model={"mixers": mixer})
    alone = Processes(0, 1, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        examples = sample_examples(Path(folder), SEQ_LEN, VOCABULARY)
        task = PretrainingTask(examples, None, settings, alone)
        parts = [task.part(0, range(at, at + MICRO_BATCH)) for at in range(0, BATCH, MICRO_BATCH)]
    model = MixerBertForPreTraining(model_config(settings.model, examples.vocabulary, SEQ_LEN))
    optimizers = build_optimizers(model, settings)
    before = model.cls.predictions.bias.detach().clone()
    found: dict[str, float] = {}
    began = time.perf_counter()
    cpu = seconds(lambda: found.update(training_step(model, optimizers, task, parts, settings, 0, 1, alone)))
    return {
        "mixer": mixer,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss": found["loss"],
        "weights_moved": not torch.equal(before, model.cls.predictions.bias),
        "cpu_seconds": cpu,
        "seconds": time.perf_counter() - began,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> bool:
    rows = []
    for mixer in MIXERS:
        command = [sys.executable, "-m", "benchmarks.bert_base", mixer]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(said.splitlines()[-1]))
    table = Table("mixer", "parameters", "loss", "CPU seconds", "peak GB", title="BERT_BASE, one step, 4 x 512")
    for row in rows:
        numbers = f"{row['loss']:.2f}", f"{row['cpu_seconds']:.1f}", f"{row['peak_gigabytes']:.1f}"
        table.add_row(row["mixer"], f"{row['parameters']:,}", *numbers)
    Console().print(table)
    RESULTS.write_text(json.dumps({**about("bert_base", SEED), "threads": 1, "rows": rows}, indent=2) + "\n")
    return all(row["weights_moved"] for row in rows)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
