"""Files and folders that are either whole or absent: written beside their place, then renamed."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from provenformer.errors import ProvenformerError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path for a file or a folder; it becomes `path` when the block ends well, and else is removed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with clear_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            for written in [p for p in temporary.rglob("*") if p.is_file()] if temporary.is_dir() else [temporary]:
                with written.open("rb") as file:
                    os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            with suppress(NotADirectoryError):  # the place itself was impossible: below a file
                temporary.unlink(missing_ok=True)


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """A full disk, or a place that cannot be written to, as one line that says so."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors wraps the system's error, and only its text says which one it was.
        if getattr(error, "errno", None) == errno.ENOSPC or f"os error {errno.ENOSPC}" in str(error):
            remedy = "free some and run the same command again: what was finished is kept"
            raise ProvenformerError(f"no space left on the disk of {path}; {remedy}") from None
        if isinstance(error, OSError):
            raise ProvenformerError(f"{path} cannot be written: {error.strerror}; choose another folder") from None
        raise


def write_json(path: Path, content: Any) -> None:
    """JSON for people too: indented, with a final newline."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")
