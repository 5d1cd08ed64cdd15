"""What MKL's AVX-512 kernels give a step of pre-training on an AMD processor: `python -m benchmarks mkl`.

The MKL inside torch chooses by the processor's maker and runs its AVX2 kernels on AMD's. A preloaded library of one line
lets it go by what the processor can do. Needs `cc`. In turn, a fresh process each, CPU time; the ratio is the median over
rounds, and 1 on other processors.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.corpus import sample_examples
from benchmarks.measuring import about, seconds
from provenformer.bert.data.examples import Examples
from provenformer.bert.model.models import MixerBertForPreTraining
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.training.loop import train
from provenformer.bert.training.pretrain import PretrainingTask, PretrainSettings, model_config

RESULTS = Path(__file__).parent / "results" / "mkl.json"
ONE_LINE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
SEED, ROUNDS, STEPS, BATCH, SEQ_LEN, VOCABULARY = 0, 3, 60, 16, 128, 4096
SIZES = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def step_seconds(data: Path) -> float:
    """A step of the small study's attention model, optimizer included, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    examples, alone = Examples(data), Processes(0, 1, torch.device("cpu"))
    settings = PretrainSettings(batch_size=BATCH, model=SIZES | NO_DROPOUT, optimizer="muon", log_every=STEPS)
    model = MixerBertForPreTraining(model_config(settings.model, examples.vocabulary, SEQ_LEN))
    task = PretrainingTask(examples, None, settings, alone)
    with tempfile.TemporaryDirectory() as folder:
        return seconds(lambda: train(model, task, settings, STEPS, Path(folder), alone)) / STEPS


def in_a_fresh_process(data: Path, environment: dict[str, str]) -> float:
    command = [sys.executable, "-c", f"from benchmarks.mkl import *; print(step_seconds(Path({str(data)!r})))"]
    return float(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> bool:
    """Measure, print, save; there is no limit to meet."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        sample_examples(Path(name), SEQ_LEN, VOCABULARY)
        library = Path(name, "mkl.so")
        subprocess.run(["cc", "-shared", "-o", str(library), "-x", "c", "-"], input=ONE_LINE, text=True, check=True)
        plain = dict(os.environ)
        ways = {"as it is": plain, "preloaded": plain | {"LD_PRELOAD": str(library)}}
        rounds = [{way: in_a_fresh_process(Path(name, "data"), e) for way, e in ways.items()} for _ in range(ROUNDS)]
    medians = {way: statistics.median(one[way] for one in rounds) for way in ways}
    ratio = statistics.median(one["as it is"] / one["preloaded"] for one in rounds)
    shown = ", ".join(f"{way} {1000 * median:.0f}" for way, median in medians.items())
    Console().print(f"CPU ms a step of {BATCH} x {SEQ_LEN}: {shown}; ratio {ratio:.2f}")
    result = {**about("mkl", SEED), "sizes": {**SIZES, "batch": BATCH, "seq_len": SEQ_LEN}, "rounds": rounds}
    RESULTS.write_text(json.dumps({**result, "medians": medians, "ratio": ratio}, indent=2) + "\n")
    return True
