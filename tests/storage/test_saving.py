"""Saving: the old folder or the new one, whatever happens; only a folder that is wholly ours is replaced."""

import errno
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer import storage
from provenformer.base import files
from provenformer.storage import folder as folders

# How often the tests kill a saving process at random; with PROVENFORMER_KILLS=200 also before every single call of the system.
KILLS = int(os.environ.get("PROVENFORMER_KILLS", "20"))
posix = pytest.mark.skipif(os.name != "posix", reason="kill -9, links and modes")


def compiled(cells: int = 4, n: int = 2) -> pf.Compiled:
    return pf.compile(pf.targets.get("scaled-mean", 1, n), cells_per_axis=cells, kind="lipschitz")


OLD, NEW = compiled(4), compiled(5)


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def cells(folder: Path) -> int:
    found: int = pf.load(folder).manifest["cells_per_axis"]
    return found


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With a system call that swaps two folders, and without."""
    if request.param == "two renames":
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    return str(request.param)


# The disk is full, or the process killed.


def raising(error: OSError) -> Callable[..., None]:
    def full(*_: object) -> None:
        raise error

    return full


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), PermissionError(13, "no")])
@pytest.mark.parametrize("step", ["save_file", "_write"])
def test_a_full_disk_leaves_the_old_folder(
    error: OSError, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OLD.save(tmp_path / "net")
    before = everything_in(tmp_path / "net")
    with monkeypatch.context() as patch:
        patch.setattr(folders, step, raising(error))
        with pytest.raises(pf.ProvenformerError, match=r"no space left on the disk|cannot be written") as refusal:
            NEW.save(tmp_path / "net")
    assert "\n" not in str(refusal.value)
    assert everything_in(tmp_path / "net") == before
    assert [p.name for p in tmp_path.iterdir()] == ["net"]
    assert pf.verify(tmp_path / "net")


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_write", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(pf.ProvenformerError):
        NEW.save(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


CALLS = ("open", "mkdir", "rename", "replace", "fsync", "unlink", "rmdir", "close", "scandir", "stat")


def killed_at(k: int, save: Callable[[], None]) -> bool:
    """Save in a child that is killed before its k-th call of the system through Python; whether it lived to the end."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFEXITED(status)
    left = k

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def counting(*args: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return counting

    try:
        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        for module, name in ((files, "_exchange"), (folders, "save_file")):
            setattr(module, name, counted(getattr(module, name)))
        save()
    finally:
        os._exit(0)


@posix
def test_killed_before_every_call_of_the_system(way: str, tmp_path: Path) -> None:  # noqa: ARG001
    OLD.save(tmp_path / "net")
    before = everything_in(tmp_path / "net")
    counts = {"old": 0, "new": 0}
    for k in range(0, 1000, 1 if KILLS >= 200 else 4):
        finished = killed_at(k, lambda: NEW.save(tmp_path / "net"))
        counts["old" if cells(tmp_path / "net") == 4 else "new"] += 1
        assert pf.verify(tmp_path / "net")
        if finished:
            break
        OLD.save(tmp_path / "net")  # sweeps what is left
        assert [p.name for p in tmp_path.iterdir()] == ["net"]
        assert everything_in(tmp_path / "net") == before
    assert finished
    assert min(counts.values()) > 2
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


@posix
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_killed_at_system_calls_that_python_does_not_see(tmp_path: Path) -> None:
    """The same from outside: strace kills at the k-th rename, fsync, unlink, mkdir or write of a save."""
    OLD.save(tmp_path / "net")
    script = tmp_path / "save.py"
    script.write_text(
        "import sys\nimport provenformer as pf\n"
        "c = pf.compile(pf.targets.get('scaled-mean', 1, 2), cells_per_axis=5, kind='lipschitz')\n"
        "c.save(sys.argv[1])\n"
    )
    command = [sys.executable, str(script), str(tmp_path / "net")]
    names = "rename,renameat,renameat2,fsync,unlink,unlinkat,rmdir,mkdir,mkdirat"
    trace = tmp_path / "trace"
    traced = subprocess.run(["strace", "-f", "-o", trace, "-e", f"trace={names}", *command], check=False)
    if traced.returncode:
        pytest.skip("strace may not trace here")
    lines = [line for line in trace.read_text().splitlines() if str(tmp_path) in line or "fsync" in line]
    calls = [re.sub(r"^\d+ +", "", line).split("(")[0] for line in lines]
    assert "renameat2" in calls
    places = [(name, i + 1) for name in dict.fromkeys(calls) for i in range(calls.count(name))]
    for name, k in places if KILLS >= 200 else [p for p in places if p[0].startswith("rename")] + places[::5]:
        OLD.save(tmp_path / "net")
        inject = f"inject={name}:signal=KILL:when={k}"
        subprocess.run(["strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", inject, *command], check=False)
        assert cells(tmp_path / "net") in (4, 5), (name, k)
        assert pf.verify(tmp_path / "net")
    OLD.save(tmp_path / "net")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net", "save.py", "trace"]


@posix
def test_killed_at_random_moments(way: str, tmp_path: Path) -> None:  # noqa: ARG001
    rng = random.Random(0)
    OLD.save(tmp_path / "net")
    for _ in range(KILLS):
        child = os.fork()
        if not child:
            try:
                while True:
                    NEW.save(tmp_path / "net")
                    OLD.save(tmp_path / "net")
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert cells(tmp_path / "net") in (4, 5)
        assert pf.verify(tmp_path / "net")
    OLD.save(tmp_path / "net")
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


@contextmanager
def in_children(count: int, work: Callable[[], None]) -> Iterator[None]:
    """Run it in so many processes meanwhile; each must end well."""
    children = []
    for _ in range(count):
        if child := os.fork():
            children.append(child)
            continue
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    try:
        yield
    finally:
        results = [os.waitpid(child, 0)[1] for child in children]
    assert results == [0] * count


@posix
def test_savers_at_once_never_make_a_load_or_a_save_fail(way: str, tmp_path: Path) -> None:  # noqa: ARG001
    OLD.save(tmp_path / "net")
    seconds = 1.5

    def save_on() -> None:
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            NEW.save(tmp_path / "net")
            OLD.save(tmp_path / "net")

    with in_children(2, save_on):
        start, loads = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            saved = pf.load(tmp_path / "net")
            assert saved.certificate == {4: OLD, 5: NEW}[saved.manifest["cells_per_axis"]].certificate
            saved = pf.load(tmp_path / "net", check_hashes=False)  # no mixture of two, either
            assert saved.certificate == {4: OLD, 5: NEW}[saved.manifest["cells_per_axis"]].certificate
            loads += 1
    assert loads > 20
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


@posix
def test_a_place_that_is_filled_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another saver is faster than the one that puts the old folder back: the new one stays, the old one goes."""
    aside, path = tmp_path / "aside", tmp_path / "net"
    OLD.save(aside)
    NEW.save(path)
    monkeypatch.setattr(Path, "exists", lambda self: self != path)  # as it was a moment ago
    files._settle(aside, path)
    monkeypatch.undo()
    assert cells(path) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


@posix
def test_a_place_that_is_emptied_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another saver sets the old folder aside between two looks at it."""

    def gone(_: Path) -> bool:
        raise FileNotFoundError

    OLD.save(tmp_path / "net")
    monkeypatch.setattr(files, "_is_empty_folder", gone)
    NEW.save(tmp_path / "net")
    assert cells(tmp_path / "net") == 5


def test_threads_do_not_share_a_temporary_folder(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def save_on() -> None:
        try:
            for _ in range(10):
                NEW.save(tmp_path / "net")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert cells(tmp_path / "net") == 5
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


def test_what_was_set_aside_is_found_and_put_back(tmp_path: Path) -> None:
    """Without an exchange, a process killed between two renames: load reads the old folder, the next save restores it."""
    OLD.save(tmp_path / "net")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "net").rename(tmp_path / f".net.{files.HOST}.{dead.pid}-0.aside")
    assert cells(tmp_path / "net") == 4
    assert pf.verify(tmp_path / "net")
    NEW.save(tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net", "other"]
    assert cells(tmp_path / "net") == 4


# What may be replaced, and where it is.


def extension(folder: Path) -> None:
    """A browser extension under version control: it has a manifest.json."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "manifest.json").write_text(json.dumps({"manifest_version": 3, "name": "my extension"}))


def with_notes(folder: Path) -> None:
    OLD.save(folder)
    (folder / "notes.txt").write_text("three years of work")


def with_subfolder(folder: Path) -> None:
    OLD.save(folder)
    (folder / "empty").mkdir()


def with_a_link(folder: Path) -> None:
    OLD.save(folder)
    (folder / storage.CERTIFICATE).rename(folder.parent / "certificate")
    (folder / storage.CERTIFICATE).symlink_to(folder.parent / "certificate")


def edited(folder: Path) -> None:
    OLD.save(folder)
    (folder / storage.CERTIFICATE).write_text((folder / storage.CERTIFICATE).read_text().replace("box", "space"))


def of_another_format(folder: Path) -> None:
    OLD.save(folder)
    manifest = {**json.loads((folder / storage.MANIFEST).read_text()), "format": 2}
    manifest["manifest_sha256"] = storage.manifest_hash(manifest)
    (folder / storage.MANIFEST).write_text(json.dumps(manifest))


def incomplete(folder: Path) -> None:
    OLD.save(folder)
    (folder / storage.NETWORK).unlink()


def only_a_thesis(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("three years")


def a_file(folder: Path) -> None:
    folder.write_text("x")


@pytest.mark.parametrize(
    "make",
    [
        extension, with_notes, with_subfolder, with_a_link, edited, of_another_format, incomplete, only_a_thesis, a_file,
    ],
)  # fmt: skip
def test_only_a_folder_that_is_wholly_ours_is_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "precious")
    before = everything_in(tmp_path)
    with pytest.raises(pf.ProvenformerError, match="not a saved network") as refusal:
        NEW.save(tmp_path / "precious")
    assert "\n" not in str(refusal.value)
    assert everything_in(tmp_path) == before


def test_replacing_a_network_or_an_empty_folder(way: str, tmp_path: Path) -> None:  # noqa: ARG001
    for earlier in (lambda p: p.mkdir(), OLD.save):
        earlier(tmp_path / "net")
        NEW.save(tmp_path / "net")
        assert cells(tmp_path / "net") == 5
        assert [p.name for p in tmp_path.iterdir()] == ["net"]
        shutil.rmtree(tmp_path / "net")


@posix
def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    OLD.save(tmp_path / "disk" / "real")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    NEW.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert cells(tmp_path / "disk" / "real") == 5
    (tmp_path / "dangling").symlink_to(tmp_path / "disk" / "later")
    NEW.save(tmp_path / "dangling")
    assert cells(tmp_path / "disk" / "later") == 5
    assert sorted(p.name for p in (tmp_path / "disk").iterdir()) == ["later", "real"]


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_umask_is_honoured(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        OLD.save(tmp_path / "net")
        NEW.save(tmp_path / "net")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "net").stat().st_mode) == 0o777 & ~mask
    for file in (tmp_path / "net").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask, file


@pytest.mark.parametrize("place", ["/proc/net2", "file/net", "/dev/null", "a" * 300, "\0", "/", "loop"])
def test_places_that_cannot_be(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(pf.ProvenformerError) as refusal:
        NEW.save(place)
    assert "\n" not in str(refusal.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loop"]


# Numbers that are numpy's.


def test_sizes_of_numpy_can_be_saved(tmp_path: Path) -> None:
    sizes: Any = {"token_dim": np.int64(1), "seq_len": np.int32(2)}
    options: Any = {"cells_per_axis": np.int64(3), "norm_order": np.float32(2), "hidden_dim": np.int64(8)}
    f = pf.Target(np.tanh, **sizes, lipschitz=np.float64(1.0), support=(np.float32(0), np.int8(1)))
    c = pf.compile(f, **options)
    c.save(tmp_path / "net")
    assert pf.verify(tmp_path / "net", f)
    assert pf.load(tmp_path / "net").certificate == c.certificate


def test_an_onnx_model_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra 'onnx'")
    OLD.network.to_onnx(tmp_path / "x.onnx")
    before = (tmp_path / "x.onnx").read_bytes()
    real = onnx.save

    def full(model: object, path: Path) -> None:
        real(model, path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(onnx, "save", full)
    with pytest.raises(pf.ProvenformerError, match="no space left"):
        NEW.network.to_onnx(tmp_path / "x.onnx")
    with pytest.raises(pf.ProvenformerError, match="no space left"):
        NEW.network.to_onnx(tmp_path / "y.onnx")
    assert everything_in(tmp_path) == {"x.onnx": before}
