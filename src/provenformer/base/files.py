"""Files and folders that are either whole or absent: written beside their place, then renamed."""

import errno
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from provenformer.base.errors import ProvenformerError

HOST = platform.node()  # process ids mean nothing to another machine that writes to the same disk


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path for a file or a folder; it becomes `path` when the block ends well, and else is removed."""
    temporary = path.with_name(f".{path.name}.{HOST}.{os.getpid()}.partial")
    try:
        with clear_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove(temporary)  # of a killed process that had this id
            _sweep(path.parent)
            yield temporary
            for written in [p for p in temporary.rglob("*") if p.is_file()] if temporary.is_dir() else [temporary]:
                with written.open("rb") as file:
                    os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        with suppress(NotADirectoryError):  # the place itself was impossible: below a file
            _remove(temporary)


def _sweep(folder: Path) -> None:
    """Remove what processes of this machine that were killed left half-written."""
    for left in folder.glob(f".*.{escape(HOST)}.*.partial"):
        process = left.name.split(".")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            with suppress(OSError):  # somebody else's, or another process sweeps, too
                _remove(left)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # signal 0 only asks on POSIX
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; not an id
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
