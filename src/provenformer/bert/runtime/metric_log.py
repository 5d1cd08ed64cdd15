"""Metrics as JSON lines, and as TensorBoard events beside them; a resumed run goes on where its checkpoint was."""

import json
from pathlib import Path

from tensorboardX import SummaryWriter

from provenformer.base.files import atomic_path, clear_errors


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
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
