"""Half-written files: those of killed processes are swept, those of living ones never."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from provenformer.base.files import HOST, atomic_path, write_json

KILLED = """
import os, signal, sys
from pathlib import Path
from provenformer.base.files import atomic_path

with atomic_path(Path(sys.argv[1]) / "file") as file, atomic_path(Path(sys.argv[1]) / "folder") as folder:
    file.write_text("half")
    folder.mkdir()
    (folder / "part").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_that_a_library_made_private_get_the_usual_mode(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        with atomic_path(tmp_path / "file") as file:
            save_file({"a": np.zeros(1)}, file)
        with atomic_path(tmp_path / "folder") as folder:
            (folder / "deep").mkdir(parents=True)
            save_file({"a": np.zeros(1)}, folder / "deep" / "file")
    finally:
        os.umask(before)
    assert names(tmp_path) == ["file", "folder"]
    for path in (tmp_path / "file", tmp_path / "folder" / "deep" / "file"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert killed.returncode == -9
    assert len(names(tmp_path)) == 2
    write_json(tmp_path / "other", {})
    assert names(tmp_path) == ["other"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    """Our parent lives, process 1 is another user's, and who lives on another machine is not known here."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    kept = [f".a.{HOST}.{os.getppid()}.partial", f".a.{HOST}.1.partial", f".a.elsewhere{HOST}.{dead.pid}.partial"]
    others = [f".a.{HOST}.x.partial", f".a.{HOST}.{10**30}.partial", f"a.{HOST}.{dead.pid}.partial"]
    for name in (*kept, *others, f".a.{HOST}.{dead.pid}.partial"):
        (tmp_path / name).touch()
    with atomic_path(tmp_path / "one") as one:
        one.write_text("1")
        write_json(tmp_path / "two", {})
    assert names(tmp_path) == sorted([*kept, *others, "one", "two"])


def test_a_folder_begins_empty(tmp_path: Path) -> None:
    """A killed process may have had the same id, as the first one of a container always has."""
    left = tmp_path / f".new.{HOST}.{os.getpid()}.partial"
    left.mkdir()
    (left / "old").touch()
    with atomic_path(tmp_path / "new") as temporary:
        temporary.mkdir()
    assert names(tmp_path / "new") == []
