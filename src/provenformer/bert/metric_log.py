"""Metrics as JSON lines: one object a line, `step` first; a resumed run goes on where its checkpoint was."""

import json
from pathlib import Path

from provenformer.bert.atomic import atomic_path


class MetricLog:
    """Appends to the file; lines of steps after `start`, which will be trained again, are dropped first."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        kept = [entry for entry in read_log(path) if entry["step"] <= start]
        with atomic_path(path) as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def write(self, step: int, **values: float) -> None:
        """Add a line."""
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def read_log(path: Path) -> list[dict[str, float]]:
    """All entries; a last line that a killed run left half-written is not one."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
