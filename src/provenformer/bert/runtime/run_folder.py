"""The folder of a training run.

.lock            locked while a process trains here; the file itself stays
run.json         settings, data and provenance; a resume with other settings or data is refused
checkpoints/     training state, the last two
metrics.jsonl    the curves
model/           the trained model as transformers saves it, with vocab.txt and checksums.json
result.json      the last evaluation, with all of run.json; its presence means finished
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Any, Self

import torch

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path, write_json
from provenformer.bert.runtime.locks import Busy, lock_folder
from provenformer.bert.runtime.metric_log import REMEDY
from provenformer.bert.runtime.processes import Processes
from provenformer.bert.runtime.provenance import provenance
from provenformer.bert.runtime.saved_models import save_checksums
from provenformer.bert.runtime.sharding import whole_weights
from provenformer.bert.settings import between, needed, read_record

BEGUN = ("checkpoints", "metrics.jsonl", "model", "result.json")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """run.json."""

    asked: dict[str, Any]
    processes: int = needed(between(1, 10**6))
    provenance: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ResultRecord(RunRecord):
    """result.json."""

    metrics: dict[str, float]


def read_result(folder: Path) -> dict[str, Any]:
    """result.json of a finished run, after a check of every entry."""
    return asdict(read_record(ResultRecord, folder / "result.json", REMEDY))


class RunFolder:
    """Claimed for one set of settings and data, and while open for one group of processes."""

    def __init__(self, path: Path, asked: dict[str, Any], processes: Processes) -> None:
        self.path = path
        self._processes = processes
        self._asked = json.loads(json.dumps(asked))  # as run.json gives it back
        self._lock: BufferedRandom | None = None

    def __enter__(self) -> Self:
        self._take_lock()
        try:
            self._claim()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _take_lock(self) -> None:
        """By the first process, for all of them; the system drops it when that process ends, however it ends."""
        refused: ProvenformerError | None = None
        if self._processes.first:
            try:
                self._lock = lock_folder(self.path)
            except ProvenformerError as error:
                refused = error
        # The others learn of it here: they must not wait for a process that has given up.
        if self._processes.sum(torch.tensor(int(refused is not None))):
            # Only a process on its own may look for other work: a group has to give up as one.
            if isinstance(refused, Busy) and self._processes.count > 1:
                refused = ProvenformerError(str(refused))
            raise refused or ProvenformerError(f"the first process cannot train in {self.path}; see its message")

    def _release(self) -> None:
        if self._lock:
            self._lock.close()

    def _claim(self) -> None:
        plan = self.path / "run.json"
        earlier = read_record(RunRecord, plan, REMEDY).asked if plan.exists() else self._asked
        # What was refused before its first step holds nothing.
        begun = any((self.path / name).exists() for name in BEGUN)
        if begun and earlier != self._asked:
            name, before, now = _difference(earlier, self._asked)
            found = f"{name} = {before!r}, not {now!r}"
            raise ProvenformerError(f"{self.path} holds a run with {found}; choose another --output or remove it")
        self._processes.wait()  # everyone has looked before the first one writes
        if self._processes.first:
            count = self._processes.count
            write_json(plan, {"asked": self._asked, "processes": count, "provenance": provenance()})

    @property
    def result(self) -> dict[str, Any] | None:
        """What a finished run found."""
        return read_result(self.path) if (self.path / "result.json").exists() else None

    def finish(self, model: Any, save_words: Callable[[Path], None], metrics: dict[str, float]) -> dict[str, Any]:
        """Save the model and then, as the sign that all is there, the result, which is returned to every process.

        `save_words` writes the vocabulary or tokenizer beside it.
        """
        first = self._processes.first
        if odd := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise ProvenformerError(f"{odd[0]} is {metrics[odd[0]]} at the end of {self.path}; lower learning_rate")
        # A model in one piece is left to transformers.
        state = whole_weights(model, keep=first) if self._processes.sharded else None
        if first and not (self.path / "model").exists():
            with atomic_path(self.path / "model") as temporary:
                model.save_pretrained(temporary, state_dict=state)
                save_words(temporary)
                save_checksums(temporary)
        if first:
            plan = read_record(RunRecord, self.path / "run.json", REMEDY)
            write_json(self.path / "result.json", {"metrics": metrics, **asdict(plan)})
        self._processes.wait()
        return self.result or {}


def _difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any]:
    """The first entry that differs, as `table.key`, with both values; None for one that is missing."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in now | before:
            if before.get(key) != now.get(key):
                return _difference(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    return name, before, now
