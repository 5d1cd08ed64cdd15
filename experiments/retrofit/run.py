"""One result for each number of swapped layers: recover, fine-tune, measure. What is finished is not run again."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from experiments.retrofit.recover import recover
from experiments.retrofit.settings import RetrofitSettings
from transformers import AutoModelForSequenceClassification

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import write_json
from provenformer.bert.data.examples import Batch, evenly_spaced
from provenformer.bert.data.mnli import LABELS, read_mnli
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.windows import Windows
from provenformer.bert.runtime.metric_log import last_entry
from provenformer.bert.runtime.processes import Processes, joined
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.runtime.saved_models import load_saved, load_vocabulary
from provenformer.bert.settings import MEASURED, needed, read_record
from provenformer.bert.training.finetune import file_fingerprint, finetune, load_model

TEXT, HELD_OUT = ("wiki/train-00.txt.gz", "books/train-00.txt.gz"), ("wiki/valid.txt.gz", "books/valid.txt.gz")
MNLI = ("mnli/train.jsonl.gz", "mnli/dev_matched.jsonl.gz")
ROUNDS, TIMED_BATCH = 5, 32
REMEDY = "restore it, or move it away to run it anew"


@dataclass(frozen=True, kw_only=True)
class Result:
    """`swapped-K.json`."""

    swapped: int = needed(MEASURED)
    parameters: int = needed(MEASURED)
    metrics: dict[str, float]
    milliseconds: dict[str, float]
    cpu_seconds: dict[str, float]
    asked: dict[str, Any]
    text: list[str]
    provenance: dict[str, str]


def run_one(settings: RetrofitSettings, swapped: int, original: Path, data: Path, runs: Path, results: Path) -> None:
    """Write the result of one number of swapped layers, unless it is there."""
    path = result_path(results, swapped)
    train_file, dev_file = (data / name for name in MNLI)
    asked = asked_for(settings, swapped) | {
        "original": file_fingerprint(original / "model.safetensors"),
        "mnli_files": [file_fingerprint(train_file), file_fingerprint(dev_file)],
    }
    if path.exists():
        if read_record(Result, path, REMEDY).asked != asked:
            raise ProvenformerError(f"{path} is from other settings or data; move it away to run it anew")
        return
    # The text's fingerprint is in the run folder of the recovery.
    text, held_out = (
        _prepared([data / name for name in names], runs / place, original, settings.recovery.seq_len)
        for names, place in ((TEXT, "text"), (HELD_OUT, "held-out"))
    )
    with joined() as processes:
        run = runs / f"swapped-{swapped}"
        recovered = recover(
            settings.recovery, original, swapped, settings.mixer, text, held_out, run / "recover", processes
        )
        model = run / "recover/model"
        scores = finetune(settings.mnli, model, train_file, dev_file, run / "mnli", processes)["metrics"]
        spent = {"mnli": last_entry(run / "mnli/metrics.jsonl", "cpu_seconds")["cpu_seconds"]}
        if swapped:
            spent["recover"] = last_entry(run / "recover/metrics.jsonl", "cpu_seconds")["cpu_seconds"]
        result = Result(
            swapped=swapped,
            parameters=sum(p.numel() for p in load_model("mnli", run / "mnli/model").parameters()),
            metrics={**recovered["metrics"], **{f"mnli_{name}": value for name, value in scores.items()}},
            milliseconds=time_a_pair(settings, run / "mnli/model", original, dev_file, processes),
            cpu_seconds=spent,
            asked=asked,
            text=recovered["asked"]["text"],
            provenance=provenance(),
        )
        write_json(path, asdict(result))


def asked_for(settings: RetrofitSettings, swapped: int) -> dict[str, Any]:
    """What a result depends on, as JSON gives it back; the recovery only if there is something to recover."""
    recovery = {"recovery": asdict(settings.recovery), "mixer": settings.mixer} if swapped else {}
    return {**recovery, "mnli": asdict(settings.mnli), "timed_pairs": settings.timed_pairs}


def finished(settings: RetrofitSettings, results: Path) -> list[Result]:
    """The results of these settings, fewest swapped layers first."""
    found = []
    for swapped in sorted(settings.swapped):
        path = result_path(results, swapped)
        if not path.exists():
            continue
        result, asked = read_record(Result, path, REMEDY), asked_for(settings, swapped)
        if result.swapped != swapped or {name: result.asked.get(name) for name in asked} != asked:
            raise ProvenformerError(f"{path} is from other settings; move it away or restore them")
        found.append(result)
    if not found:
        raise ProvenformerError(f"{results} holds no result of these settings; run without --table-only first")
    return found


def result_path(results: Path, swapped: int) -> Path:
    """Where a result is."""
    return results / f"swapped-{swapped}.json"


def _prepared(sources: list[Path], folder: Path, original: Path, seq_len: int) -> Path:
    prepare(sources, folder, PrepareSettings(seq_len=seq_len), original / "vocab.txt")
    return folder


@torch.no_grad()
def time_a_pair(
    settings: RetrofitSettings, retrofitted: Path, original: Path, dev_file: Path, processes: Processes
) -> dict[str, float]:
    """CPU milliseconds a pair takes, of this model and of the original.

    They take turns, so that both meet the same machine, and the fastest of several rounds counts. Batches are of pairs
    of about the same length.
    """
    torch.set_num_threads(settings.mnli.threads or torch.get_num_threads())
    vocabulary, pairs = load_vocabulary(original), read_mnli(dev_file)
    chosen = [pairs[i] for i in evenly_spaced(len(pairs), settings.timed_pairs)]
    texts = [(pair.premise, pair.hypothesis) for pair in chosen]
    windows = Windows.of(vocabulary.encode_pairs(texts, settings.mnli.seq_len), vocabulary.pad, settings.mnli.seq_len)
    order = windows.lengths.argsort(kind="stable")
    batches = [windows.batch(order[at : at + TIMED_BATCH]) for at in range(0, len(order), TIMED_BATCH)]
    models = {
        name: load_saved(AutoModelForSequenceClassification, folder, num_labels=len(LABELS)).eval().to(processes.device)
        for name, folder in (("model", retrofitted), ("original", original))
    }
    rounds = [{name: _seconds(model, batches) for name, model in models.items()} for _ in range(ROUNDS)]
    return {name: 1000 * min(one[name] for one in rounds) / len(texts) for name in models}


def _seconds(model: Any, batches: list[Batch]) -> float:
    began = time.process_time()
    for batch in batches:
        model(**batch)
    return time.process_time() - began
