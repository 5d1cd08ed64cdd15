"""Metrics as JSON lines, and as TensorBoard events beside them; a resumed run goes on where its checkpoint was."""

import json
from pathlib import Path

from tensorboardX import SummaryWriter

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.files import atomic_path, clear_errors, parse_json
from provenformer.bert.settings import MEASURED, shown

REMEDY = "remove the run's folder and run it again"


class MetricLog:
    """Appends to the file; lines of steps after `start`, which will be trained again, are dropped first.

    last  the line before them
    """

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        kept = [entry for entry in read_log(path) if entry["step"] <= start]
        self.last = kept[-1] if kept else {}
        with atomic_path(path) as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
        # TensorBoard hides what an earlier event file says of the steps from `purge_step` on.
        self._events = SummaryWriter(str(path.parent / "tensorboard"), purge_step=start + 1)

    def write(self, step: int, **values: float) -> None:
        """Add a line: `step` first, then the values."""
        with clear_errors(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what TensorBoard's writer still holds."""
        self._events.close()


def read_log(path: Path) -> list[dict[str, float]]:
    """All entries; a last line that a killed run left half-written is not one."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise ProvenformerError(f"{path} cannot be read ({one_line(error)[:200]}); {REMEDY}") from None
    return [_entry(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _entry(line: str, where: str) -> dict[str, float]:
    """A step and finite numbers."""
    entry = parse_json(line, where)
    if not isinstance(entry, dict) or type(entry.get("step")) is not int:
        raise ProvenformerError(f"{where} = {shown(entry)} must be an object with a step; {REMEDY}")
    for name, value in entry.items():
        if type(value) not in (int, float) or not MEASURED[1](value):
            raise ProvenformerError(f"{where}: {shown(name)} = {shown(value)} must be {MEASURED[0]}; {REMEDY}")
    return entry


def last_entry(path: Path, *names: str) -> dict[str, float]:
    """The end of a finished run's log, which must have these numbers."""
    last = (read_log(path) or [{}])[-1]
    if missing := [name for name in names if name not in last]:
        raise ProvenformerError(f"{path}: the last line has no {missing[0]}; {REMEDY}")
    return last
