"""Files and folders that are either whole or absent: written beside their place, then swapped in. One JSON reader, one digest.

A process may be killed at any moment: what it was writing lies beside the place under a name with a dot, and is swept by the
next one that writes there. Where the system can swap two folders in one step the place always holds the old or the new folder;
elsewhere the old one is set aside for a moment, `present` finds it there, and the next writer puts it back.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError

from provenformer.base.errors import BadFolder, ProvenformerError, one_line

HOST = platform.node()  # process ids mean nothing to another machine that writes to the same disk
PARTIAL, ASIDE = "partial", "aside"  # half-written, or replaced; the old folder on its way out
JSON_LIMIT = 1 << 26  # bytes
OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)
ROUNDS = 1000  # somebody who replaces a folder this often while it is read or replaced is not waited for

_Found = TypeVar("_Found")
_counter = count()
_mine: set[Path] = set()  # what this process is writing now
_LEFT = re.compile(
    rf"\.(?P<name>.+)\.{re.escape(HOST)}\.(?P<process>\d+)(-\d+)?\.(?P<kind>{PARTIAL}|{ASIDE})", re.DOTALL
)


@contextmanager
def atomic_path(path: Path, may_replace: Callable[[Path], object] | None = None) -> Iterator[Path]:
    """A temporary path for a file or a folder; it becomes `path` when the block ends well, and else is removed.

    A link is followed. A folder that is there already (and not empty) is replaced only if `may_replace` is given and,
    called with that folder before and after the block, does not raise.
    """
    path = _followed(path)
    temporary = _beside(path, PARTIAL)
    _mine.add(temporary)
    try:
        with clear_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path.parent)
            with suppress(FileNotFoundError):  # somebody has just set it aside; it is looked at again before it goes
                if may_replace is not None and path.exists() and not _is_empty_folder(path):
                    may_replace(path)
            yield temporary
            _share(temporary, _beside(path, PARTIAL))
            _flush(temporary)
            if temporary.is_dir():
                _take_the_place(temporary, path, may_replace)
            else:
                temporary.replace(path)
    finally:
        with suppress(OSError):  # the place itself was impossible: below a file
            _remove(temporary)
        _mine.discard(temporary)


def _share(temporary: Path, probe: Path) -> None:
    """Files that a library made private, as safetensors does whatever the umask, get the mode of any new file."""
    with probe.open("x") as made:
        mode = stat.S_IMODE(os.fstat(made.fileno()).st_mode)
    probe.unlink(missing_ok=True)
    for file in temporary.rglob("*") if temporary.is_dir() else [temporary]:
        if file.is_file():
            file.chmod(mode)


def read_steadily(path: Path, read: Callable[[Path], _Found]) -> _Found:
    """What `read` finds in a folder that others may replace meanwhile: it counts if the folder is the same one afterwards."""
    for attempt in range(ROUNDS):
        folder = present(path)
        with _held_open(folder) as is_still_there:
            try:
                found = read(folder)
            except ProvenformerError:
                # What was set aside may be on its way out: its folder is still there, its files no longer.
                if (folder == path and is_still_there()) or attempt == ROUNDS - 1:
                    raise
                continue
            if is_still_there():
                return found
    raise BadFolder(f"{path} is replaced all the time; read it when nobody writes to it.")


def present(path: Path) -> Path:
    """The path itself, or where a swap that was interrupted has set aside what belongs there."""
    with suppress(OSError, ValueError):
        if not path.exists():
            place = _followed(path)
            for left, match in _leftovers(place.parent):
                if match["kind"] == ASIDE and match["name"] == place.name:
                    return left
    return path


def parse_json(text: str | bytes, where: str) -> Any:
    """Strict JSON: no NaN, no key twice, no nesting beyond reason; what is wrong is one line that begins with `where`."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_doubles)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ProvenformerError(f"{where} is not valid JSON ({one_line(error)[:200]})") from error


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file, or one line with the remedy."""
    try:
        value = parse_json(_read_small(path), str(path))
    except ProvenformerError as error:
        raise BadFolder(f"{error}; {remedy}") from error
    if not isinstance(value, dict):
        raise BadFolder(f"{path} is not a JSON object; {remedy}")
    return value


def write_json(path: Path, content: Any) -> None:
    """JSON for people too: indented, with a final newline."""
    with atomic_path(path) as temporary:
        temporary.write_text(json_text(content))


def json_text(content: Any) -> str:
    """Indented JSON; numpy's numbers are numbers."""
    return json.dumps(content, indent=2, default=_plain) + "\n"


def file_digest(path: Path) -> str:
    """sha256 of a file."""
    try:
        _require_regular(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadFolder(f"cannot read {path} ({error.strerror}); is it a saved network?") from error


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
        reason = getattr(error, "strerror", None) or one_line(error)
        raise ProvenformerError(f"{path} cannot be written: {reason}; choose another folder") from None


def _followed(path: Path) -> Path:
    """Where a link leads, as an absolute path."""
    try:
        place = Path(os.path.realpath(path))
    except (OSError, ValueError) as error:  # a null byte in the name
        raise ProvenformerError(f"{str(path)!r} is not a path ({error}); choose another.") from error
    if not place.name:
        raise ProvenformerError(f"{place} cannot be written: it is a root; choose another folder")
    return place


def _beside(path: Path, kind: str) -> Path:
    """A name of our own in the same folder; `_LEFT` reads it."""
    return path.with_name(f".{path.name}.{HOST}.{os.getpid()}-{next(_counter)}.{kind}")


def _take_the_place(folder: Path, path: Path, may_replace: Callable[[Path], object] | None) -> None:
    """Move a finished folder to its place; one that was there is removed. Others may be doing the same."""
    for _ in range(ROUNDS):
        try:
            folder.rename(path)  # succeeds where nothing is, or an empty folder
            _sync(path.parent)
            return
        except OSError as error:
            if may_replace is None or error.errno not in OCCUPIED:
                raise
        with suppress(FileNotFoundError):  # somebody else has just set it aside: once more
            may_replace(path)
            if _exchange(folder, path) or _set_aside(folder, path):
                _sync(path.parent)
                return
    raise ProvenformerError(f"{path} cannot be written: others replace it all the time; choose another folder")


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, so that the old one has the temporary name; False where system or disk cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _set_aside(folder: Path, path: Path) -> bool:
    """Swap two folders in two steps; False if somebody else was faster at the second."""
    aside, placed = _beside(path, ASIDE), False
    _mine.add(aside)
    try:
        path.rename(aside)
        folder.rename(path)
        placed = True
    except OSError as error:
        if error.errno not in OCCUPIED:
            raise
    finally:
        if placed:
            _remove(aside)
        else:
            _settle(aside, path)
        _mine.discard(aside)
    return placed


def _settle(aside: Path, path: Path) -> None:
    """A folder that was set aside goes back if its place is free, and else away; others may fill the place at any moment."""
    try:
        aside.rename(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in OCCUPIED:
            raise
        _remove(aside)


def _leftovers(folder: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for entry in sorted(folder.iterdir()):
        if match := _LEFT.fullmatch(entry.name):
            yield entry, match


def _sweep(folder: Path) -> None:
    """Remove what processes of this machine that were killed left half-written; put back what they had set aside."""
    for left, match in _leftovers(folder):
        if left in _mine or _is_alive(int(match["process"])):
            continue
        with suppress(OSError):  # somebody else's, or another process sweeps, too
            if match["kind"] == ASIDE:
                _settle(left, left.with_name(match["name"]))
            else:
                _remove(left)


def _is_alive(process: int) -> bool:
    """Whether it may still be writing. This process writes only what is in `_mine`: the rest is of one that had its id."""
    if process == os.getpid():
        return False
    if os.name != "posix":  # signal 0 only asks on POSIX
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; not an id
        pass
    return True


def _flush(written: Path) -> None:
    """To the disk, not only to its cache: files first, then the folders that name them."""
    if not written.is_dir():
        _sync(written)
        return
    for folder, _, names in os.walk(written, topdown=False):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not (path.is_dir() and error.errno == errno.EINVAL):  # a disk that cannot do that for folders
            raise
    finally:
        os.close(handle)


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _held_open(folder: Path) -> Iterator[Callable[[], bool]]:
    """A question: is that still the folder of this name? While it is held open its number is not given to another one."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except FileNotFoundError:
        yield lambda: not present(folder).exists()
        return
    except (OSError, ValueError):  # what is there is no folder that could be read
        yield lambda: True
        return
    try:
        held = os.fstat(handle)

        def is_still_there() -> bool:
            try:
                now = os.stat(folder)
            except OSError:
                return False
            return (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino)

        yield is_still_there
    finally:
        os.close(handle)


def _require_regular(path: Path) -> None:
    """A pipe or a device would be read for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def _read_small(path: Path) -> bytes:
    try:
        _require_regular(path)
        size = path.stat().st_size
        content = path.read_bytes() if size <= JSON_LIMIT else b""
    except (OSError, ValueError) as error:  # a null byte in the name
        raise ProvenformerError(
            f"cannot read {path} ({getattr(error, 'strerror', None) or one_line(error)})"
        ) from error
    if size > JSON_LIMIT:
        raise ProvenformerError(f"{path} has {size:,} bytes (limit {JSON_LIMIT:,})")
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
