"""The training loop that pre-training and fine-tuning share.

Step t depends on the weights and on (seed, t) only: data, masks and dropout are drawn from these numbers. So a run
that was killed and resumed ends with the same bits as one that was not. Every loss term is a sum divided by its count
over the whole batch of all processes, so neither micro-batches nor processes change the gradient.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.examples import Batch
from provenformer.bert.runtime.machine import require_bf16
from provenformer.bert.runtime.metric_log import MetricLog
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.sharding import gathered, shard, whole
from provenformer.bert.settings import MEASURED
from provenformer.bert.training.best import Best
from provenformer.bert.training.checkpoint import load_checkpoint, save_checkpoint
from provenformer.bert.training.optimiser import build_optimizers
from provenformer.bert.training.settings import TrainingSettings


class NotFinite(ProvenformerError):  # noqa: N818  (what happened, not whose fault)
    """The loss or its gradient is no number any more: the learning rate is too high for this model."""


class Watch(Protocol):
    """Looks at the model without changing it."""

    def __call__(self, model: Any, /) -> dict[str, float]:
        """Numbers for the log; the model is in evaluation mode."""


class Task(Protocol):
    """What there is to learn. A loss is the sum of its terms, each divided by its count."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Their names, for the log."""

    def rows(self, step: int, /) -> int:
        """How many rows the step's batch has."""

    def part(self, step: int, places: range) -> Batch:
        """These rows of the step's batch."""

    def counts(self, batch: Batch) -> Tensor:
        """(terms,): how many targets each term has."""

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """(terms,): each term summed over its targets."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on data that is not trained on; the model is in evaluation mode and every process takes part."""


def train(
    model: nn.Module,
    task: Task,
    settings: TrainingSettings,
    steps: int,
    run: Path,
    processes: Processes,
    best: Best | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Train up to `steps` steps, from the newest checkpoint in `run` if there is one; return the last evaluation.

    What `watch` sees at the start and with every evaluation is logged beside it. With `best` training may end earlier, and the
    model is what it was at its best evaluation, which is returned.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if processes.sharded:
        _check_even(settings.batch_size, processes)
        shard(model, processes)
    model.to(processes.device)
    optimizers = build_optimizers(model, settings)
    start = load_checkpoint(run / "checkpoints", model, optimizers)
    if start > steps:
        raise ProvenformerError(f"{run} has a checkpoint of step {start:,} of {steps:,}; remove it")
    if best:
        best.replay(run / "metrics.jsonl", start)
        processes.wait()  # everyone has read the log before the first one shortens it
    wrapped = DistributedDataParallel(model) if processes.count > 1 and not processes.sharded else model
    log = MetricLog(run / "metrics.jsonl", start) if processes.first else None
    spent = Spent.before(log)
    metrics: dict[str, float] = {}
    if watch and start == 0:
        seen = watched(model, watch)
        if log:
            log.write(0, **seen)
    with ThreadPoolExecutor(1) as ahead, _bar(start, steps, processes) as advance:
        parts = ahead.submit(_parts, task, settings, start, processes)
        for step in range(start, start if best and best.finished else steps):
            now, parts = parts, ahead.submit(_parts, task, settings, step + 1, processes)
            began = time.perf_counter()
            entry = training_step(wrapped, optimizers, task, now.result(), settings, step, steps, processes)
            done, last = step + 1, step + 1 == steps
            tokens = int(entry.pop("tokens"))
            spent.tokens += tokens
            advance(tokens, entry["loss"])
            saved = last or done % settings.checkpoint_every == 0
            if log and (saved or done % settings.log_every == 0):
                speed = tokens / (time.perf_counter() - began)
                log.write(done, **entry, tokens_per_second=speed, **spent.so_far())
            if last or (settings.evaluate_every and done % settings.evaluate_every == 0):
                metrics = evaluate(model, task)
                seen = watched(model, watch) if watch else {}
                if log:
                    log.write(done, **metrics, **seen, **spent.so_far())
                if best:
                    best.seen(metrics, model, processes)
            stopped = best is not None and best.finished
            if saved or stopped:
                save_checkpoint(run / "checkpoints", done, model, optimizers, processes)
                processes.wait()
            if stopped:
                break
    if log:
        log.close()
    if best:
        best.restore(model)
        return evaluate(model, task)
    # A run that was killed after its last checkpoint has nothing left to train.
    return metrics or evaluate(model, task)


@dataclass
class Spent:
    """Tokens seen and CPU seconds of this process since the run began, as its log tells them."""

    tokens: int
    cpu_seconds: float

    @classmethod
    def before(cls, log: MetricLog | None) -> "Spent":
        """What a run that resumes has spent up to its checkpoint."""
        last = log.last if log else {}
        return cls(int(last.get("tokens", 0)), last.get("cpu_seconds", 0.0) - time.process_time())

    def so_far(self) -> dict[str, float]:
        """For the log."""
        return {"tokens": self.tokens, "cpu_seconds": round(self.cpu_seconds + time.process_time(), 1)}


@torch.no_grad()
def evaluate(model: nn.Module, task: Task) -> dict[str, float]:
    """The task's metrics without dropout."""
    was_training = model.training
    model.eval()
    with gathered(model):
        metrics = task.evaluate(model)
    model.train(was_training)
    return metrics


@torch.no_grad()
def watched(model: nn.Module, watch: Watch) -> dict[str, float]:
    """What somebody sees who looks at the model as it is evaluated; every process takes part."""
    was_training = model.training
    model.eval()
    with gathered(model):
        seen = watch(model)
    model.train(was_training)
    for name, value in seen.items():
        if not MEASURED[1](value):  # a log with it could not be read again when the run resumes
            raise ProvenformerError(
                f"watch gives {name} = {value}; the log takes numbers {MEASURED[0]}: give another scale"
            )
    return seen


def _check_even(batch_size: int, processes: Processes) -> None:
    """Sharded processes run every layer together, so they need the same number of micro-batches."""
    if batch_size % processes.count:
        remedy = f"make batch_size a multiple of {processes.count}"
        raise ProvenformerError(f"batch_size={batch_size} is not even over {processes.count} processes; {remedy}")


def _parts(task: Task, settings: TrainingSettings, step: int, processes: Processes) -> list[Batch]:
    share = processes.share(task.rows(step))
    size = settings.micro_batch or len(share)
    places = (range(at, min(at + size, share.stop)) for at in range(share.start, share.stop, size))
    return [task.part(step, part) for part in places]


def training_step(
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
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
    share = settings.schedule(step, steps)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = share * group["peak"]
    means = (processes.sum(sums) / divisor).tolist()
    norm = float(whole(nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm or math.inf)))
    # Before the update: what is not finite must not reach weights that the next checkpoint holds.
    if not np.isfinite([*means, norm]).all():
        found = f"the loss is {sum(means)} and the gradient's norm {norm}"
        raise NotFinite(f"{found} at step {step + 1}; lower learning_rate or warm up longer")
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    rate = share * settings.learning_rate
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
    shown = (TextColumn("step"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    # On standard error: what is printed at the end may be read by a program.
    with Progress(
        *shown, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True), disable=not processes.first
    ) as progress:
        bar = progress.add_task("", total=steps, completed=start)
        began, seen = time.perf_counter(), 0

        def advance(tokens: int, loss: float) -> None:
            nonlocal seen
            seen += tokens
            speed = seen / (time.perf_counter() - began)
            progress.update(bar, advance=1, description=f"loss {loss:.3f}, {speed:,.0f} tokens/s")

        yield advance
