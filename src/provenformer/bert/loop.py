"""The training loop that pre-training and fine-tuning share.

Step t depends on the weights and on (seed, t) only: data, masks and dropout are drawn from these numbers. So a run
that was killed and resumed ends with the same bits as one that was not. Every loss term is a sum divided by its count
over the whole batch of all processes, so neither micro-batches nor processes change the gradient.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from provenformer.base.errors import ProvenformerError
from provenformer.bert.checkpoint import load_checkpoint, save_checkpoint
from provenformer.bert.data.examples import Batch
from provenformer.bert.machine import require_bf16
from provenformer.bert.metric_log import MetricLog
from provenformer.bert.processes import Processes
from provenformer.bert.sharding import gathered, shard, whole

Range = tuple[str, Callable[[float], bool]]
FROM_0: Range = ("at least 0", lambda value: value >= 0)
FROM_1: Range = ("at least 1", lambda value: value >= 1)
ABOVE_0: Range = ("above 0 and finite", lambda value: 0 < value < math.inf)
BELOW_1: Range = ("at least 0 and below 1", lambda value: 0 <= value < 1)
RANGES: dict[str, Range] = {
    "seed": ("from 0 to 2^64 - 1", lambda value: 0 <= value < 2**64),
    "batch_size": FROM_1,
    "micro_batch": FROM_0,
    "learning_rate": ABOVE_0,
    "warmup_steps": FROM_0,
    "weight_decay": ("at least 0 and finite", lambda value: 0 <= value < math.inf),
    "beta1": BELOW_1,
    "beta2": BELOW_1,
    "clip_norm": FROM_0,
    "log_every": FROM_1,
    "evaluate_every": FROM_0,
    "checkpoint_every": FROM_1,
    "threads": FROM_0,
    # pre-training
    "steps": FROM_1,
    "masked_fraction": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "evaluate_examples": FROM_0,
    # fine-tuning
    "seq_len": ("at least 5: [CLS], [SEP], [SEP] and a token of each text", lambda value: value >= 5),
    "stride": FROM_0,
    "epochs": ABOVE_0,
}


class NotFinite(ProvenformerError):  # noqa: N818  (what happened, not whose fault)
    """The loss or its gradient is no number any more: the learning rate is too high for this model."""


@dataclass(frozen=True)
class TrainingSettings:
    """What every kind of training is asked for.

    batch_size      examples a step, over all processes and micro-batches
    micro_batch     examples a process takes at once, to save memory; 0 for its whole share
    decay           learning rate after warm-up: "linear" to zero, or "constant"
    clip_norm       largest norm of the gradient, which is scaled down to it; 0 for no limit
    evaluate_every  steps; 0 for the end only
    threads         of the CPU; 0 for torch's choice. Bit-identical runs need the same number
    """

    seed: int = 0
    batch_size: int = 32
    micro_batch: int = 0
    learning_rate: float = 1e-4
    warmup_steps: int = 0
    decay: str = "linear"
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    clip_norm: float = 1.0
    bf16: bool = False
    log_every: int = 10
    evaluate_every: int = 0
    checkpoint_every: int = 1000
    threads: int = 0

    def __post_init__(self) -> None:
        if self.decay not in ("linear", "constant"):
            raise ProvenformerError(f"unknown decay {self.decay!r}; choose one of linear, constant")
        for name in (field.name for field in fields(self) if field.name in RANGES):
            value, (limit, inside) = getattr(self, name), RANGES[name]
            if not inside(value):
                raise ProvenformerError(f"{name}={value} must be {limit}; correct the settings")

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        left = (steps - step) / max(steps - self.warmup_steps, 1)
        return self.learning_rate * (left if self.decay == "linear" else 1.0)


class Task(Protocol):
    """What there is to learn. A loss is the sum of its terms, each divided by its count."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Their names, for the log."""

    def part(self, step: int, places: range) -> Batch:
        """These rows of the step's batch."""

    def counts(self, batch: Batch) -> Tensor:
        """(terms,): how many targets each term has."""

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """(terms,): each term summed over its targets."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on data that is not trained on; the model is in evaluation mode and every process takes part."""


def train(
    model: nn.Module, task: Task, settings: TrainingSettings, steps: int, run: Path, processes: Processes
) -> dict[str, float]:
    """Train up to `steps` steps, from the newest checkpoint in `run` if there is one; return the last evaluation."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if processes.sharded:
        _check_even(settings.batch_size, processes)
        shard(model, processes)
    model.to(processes.device)
    optimizer = build_optimizer(model, settings)
    start = load_checkpoint(run / "checkpoints", model, optimizer)
    wrapped = DistributedDataParallel(model) if processes.count > 1 and not processes.sharded else model
    log = MetricLog(run / "metrics.jsonl", start) if processes.first else None
    metrics: dict[str, float] = {}
    with ThreadPoolExecutor(1) as ahead, _bar(start, steps, processes) as advance:
        parts = ahead.submit(_parts, task, settings, start, processes)
        for step in range(start, steps):
            now, parts = parts, ahead.submit(_parts, task, settings, step + 1, processes)
            began = time.perf_counter()
            entry = training_step(wrapped, optimizer, task, now.result(), settings, step, steps, processes)
            done, last = step + 1, step + 1 == steps
            tokens = entry.pop("tokens")
            advance(tokens, entry["loss"])
            if log and (done % settings.log_every == 0 or last):
                log.write(done, **entry, tokens_per_second=tokens / (time.perf_counter() - began))
            if last or (settings.evaluate_every and done % settings.evaluate_every == 0):
                metrics = evaluate(model, task)
                if log:
                    log.write(done, **metrics)
            if done % settings.checkpoint_every == 0 or last:
                save_checkpoint(run / "checkpoints", done, model, optimizer, processes)
                processes.wait()
    if log:
        log.close()
    # A run that was killed after its last checkpoint has nothing left to train.
    return metrics or evaluate(model, task)


def build_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW; biases and LayerNorms do not decay, as in BERT."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(settings.beta1, settings.beta2))


@torch.no_grad()
def evaluate(model: nn.Module, task: Task) -> dict[str, float]:
    """The task's metrics without dropout."""
    was_training = model.training
    model.eval()
    with gathered(model):
        metrics = task.evaluate(model)
    model.train(was_training)
    return metrics


def _check_even(batch_size: int, processes: Processes) -> None:
    """Sharded processes run every layer together, so they need the same number of micro-batches."""
    if batch_size % processes.count:
        remedy = f"make batch_size a multiple of {processes.count}"
        raise ProvenformerError(f"batch_size={batch_size} is not even over {processes.count} processes; {remedy}")


def _parts(task: Task, settings: TrainingSettings, step: int, processes: Processes) -> list[Batch]:
    share = processes.share(settings.batch_size)
    size = settings.micro_batch or len(share)
    places = (range(at, min(at + size, share.stop)) for at in range(share.start, share.stop, size))
    return [task.part(step, part) for part in places]


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    task: Task,
    parts: list[Batch],
    settings: TrainingSettings,
    step: int,
    steps: int,
    processes: Processes,
) -> dict[str, float]:
    """One update; returns the loss, its terms and the number of tokens, over all processes."""
    model.train()
    torch.manual_seed(int(np.random.SeedSequence([settings.seed, step, processes.rank]).generate_state(1)[0]))
    tokens = sum(part["attention_mask"].sum() for part in parts)
    known = torch.stack([*sum(task.counts(part) for part in parts), torch.as_tensor(tokens)])  # type: ignore[misc]
    *counts, tokens = processes.sum(known)
    divisor = torch.stack(counts).clamp(min=1)
    sums = torch.zeros(len(task.terms), device=processes.device)
    for index, part in enumerate(parts):
        with _synchronised(model, index == len(parts) - 1), autocast(processes.device, settings.bf16):
            losses = task.losses(model, {name: value.to(processes.device) for name, value in part.items()})
        with _synchronised(model, index == len(parts) - 1):
            # Gradients are averaged over processes, sharded or not; the divisor already counts all of them.
            ((losses / divisor).sum() * processes.count).backward()
        sums += losses.detach()
    rate = settings.rate(step, steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
    means = (processes.sum(sums) / divisor).tolist()
    norm = float(whole(nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm or math.inf)))
    # Before the update: what is not finite must not reach weights that the next checkpoint holds.
    if not np.isfinite([*means, norm]).all():
        found = f"the loss is {sum(means)} and the gradient's norm {norm}"
        raise NotFinite(f"{found} at step {step + 1}; lower learning_rate or warm up longer")
    optimizer.step()
    optimizer.zero_grad()
    return {"loss": sum(means), **dict(zip(task.terms, means, strict=True)), "rate": rate, "tokens": int(tokens)}


def autocast(device: torch.device, bf16: bool) -> torch.autocast:
    """bfloat16 where torch thinks it safe; weights and optimizer stay float32."""
    if bf16 and device.type == "cpu":
        require_bf16()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16)


def _synchronised(model: nn.Module, now: bool) -> Any:
    """Gradients are exchanged once a step, with the last micro-batch; sharded ones each time, to stay small."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) and not now else nullcontext()


@contextmanager
def _bar(start: int, steps: int, processes: Processes) -> Iterator[Any]:
    columns = (TextColumn("step"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), disable=not processes.first) as progress:
        bar = progress.add_task("", total=steps, completed=start)
        began, seen = time.perf_counter(), 0

        def advance(tokens: int, loss: float) -> None:
            nonlocal seen
            seen += tokens
            speed = seen / (time.perf_counter() - began)
            progress.update(bar, advance=1, description=f"loss {loss:.3f}, {speed:,.0f} tokens/s")

        yield advance
