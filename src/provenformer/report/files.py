"""Files that are written together: first all of them beside their places, then into them, so an error leaves none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write every file or none; a place that cannot be written to is one line."""
    with ExitStack() as places:
        for path, content in files.items():
            if path.is_dir():
                raise ProvenformerError(f"{path} is a folder; give the name of a file.")
            places.enter_context(atomic_path(path)).write_bytes(content)
