"""Locks on files, between processes: for as long as a training run takes, or for the moment that a file is changed.

The system drops a lock when its process ends, however it ends. The file itself stays.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import clear_errors

NAME = ".lock"


class Busy(ProvenformerError):  # noqa: N818  (what it is, in one word)
    """Another process is at it, or has to do something first."""


def lock_folder(folder: Path) -> BufferedRandom:
    """The folder's lock file, locked until it is closed; Busy if somebody else holds it."""
    path = folder / NAME
    with clear_errors(path):
        file = _opened(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if not isinstance(error, BlockingIOError):
                raise
            remedy = "wait for it or give another --output"
            raise Busy(f"another process is training in {folder}; {remedy}") from None
    return file


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until nobody else changes a file of this folder, and keep others waiting."""
    path = folder / NAME
    with clear_errors(path):
        file = _opened(path)
        fcntl.flock(file, fcntl.LOCK_EX)
    with file:
        yield


def _opened(path: Path) -> BufferedRandom:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a+b")
