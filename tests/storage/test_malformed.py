"""A folder may come from anybody: every malformed part is one line, nothing hangs, and what loads can be verified or refused."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import forge

import provenformer as pf
from provenformer import storage
from provenformer.storage import schema

WEIRD: list[Any] = [
    None, True, 0, -1, 2, 3.5, float("nan"), 10**400, "x", "", [], {}, [[1]], {"a": 1}, "\ud800", "\x1b[8m", 2**31, 10**18,
    "a" * 2000, [None] * 3,
]  # fmt: skip


def save_all(folder: Path) -> dict[str, Path]:
    """One folder of every kind."""
    made: dict[str, Any] = {
        how: pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=2, construction=how, kind="lipschitz")
        for how in ("sum", "wide", "paper")
    }
    made["positions"] = pf.compile(pf.targets.get("sort", 1, 2), cells_per_axis=2, kind="lipschitz")
    x, y = np.random.default_rng(0).random((2, 3, 1, 2))
    made["data"] = pf.memorize(x, y)
    for name, each in made.items():
        each.save(folder / name)
    return {name: folder / name for name in made}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_all(tmp_path_factory.mktemp("saved"))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every entry of a JSON value."""
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(entry, dict | list):
            yield from places(entry, (*path, key))


def with_entry(value: Any, path: tuple[Any, ...], entry: Any) -> Any:
    value = json.loads(json.dumps(value))
    at = value
    for key in path[:-1]:
        at = at[key]
    if entry is WEIRD:  # leave it out
        del at[path[-1]]
    else:
        at[path[-1]] = entry
    return value


def outcome(folder: Path) -> str:
    """What load and verify make of it; anything but an answer or one line escapes."""
    said = []
    for read in (lambda: pf.load(folder, check_hashes=False), lambda: pf.verify(folder)):
        try:
            answer = str(bool(read()))
        except pf.ProvenformerError as error:
            answer = "refused" if str(error).isprintable() and len(str(error)) < 700 else f"not one line: {error!r}"
        assert answer in ("True", "False", "refused")
        said.append(answer)
    return " ".join(said)


@pytest.mark.parametrize("kind", ["sum", "wide", "paper", "positions", "data"])
@pytest.mark.parametrize("file", [storage.MANIFEST, storage.CERTIFICATE])
def test_every_entry_replaced_by_something_weird(
    kind: str, file: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Each entry gets a few of the values, in turn, and is left out once."""
    folder = shutil.copytree(folders[kind], tmp_path / "net")
    content = json.loads((folder / file).read_text())
    said: set[str] = set()
    for i, path in enumerate(places(content)):
        for entry in (WEIRD, *WEIRD[i % 4 :: 4]):
            (folder / file).write_text(json.dumps(with_entry(content, path, entry)))
            said.add(outcome(folder))
    assert "refused refused" in said


TEXTS = [
    "[" * 200_000,
    '{"a":' * 200_000,
    "",
    "null",
    "[]",
    "{}",
    "9" * 5000,
    '{"format": 1',
    "NaN",
    '{"format":1,"format":2}',
    "\0",
]


@pytest.mark.parametrize("file", [storage.MANIFEST, storage.CERTIFICATE, storage.NETWORK])
@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t[:12])
def test_files_that_are_something_else(file: str, text: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["sum"], tmp_path / "net")
    (folder / file).write_text(text)
    assert outcome(folder) == "refused refused"


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
@pytest.mark.parametrize("file", [storage.MANIFEST, storage.CERTIFICATE, storage.NETWORK])
def test_a_pipe_or_a_device_is_not_read_for_ever(file: str, folders: dict[str, Path], tmp_path: Path) -> None:
    make: tuple[Callable[[Path], object], ...] = (os.mkfifo, lambda p: p.symlink_to("/dev/zero"), Path.mkdir)
    for i, each in enumerate(make):
        folder = shutil.copytree(folders["sum"], tmp_path / f"net{i}")
        (folder / file).unlink()
        each(folder / file)
        assert outcome(folder) == "refused refused"
    os.mkfifo(tmp_path / "pipe")
    assert outcome(tmp_path / "pipe") == "refused refused"


@pytest.mark.parametrize(
    "manifest",
    [
        {"cells_per_axis": 10**6}, {"cells_per_axis": 10**5}, {"cells_per_axis": 10**300},
        {"seq_len": 2**16}, {"token_dim": 2**16}, {"seq_len": 10**9},
    ],
)  # fmt: skip
def test_sizes_beyond_this_machine_are_refused_at_once(
    manifest: dict, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["sum"], tmp_path / "net")
    spec = json.loads((folder / storage.MANIFEST).read_text())["target"]
    sizes = {k: v for k, v in manifest.items() if k != "cells_per_axis"}
    forge(folder, manifest={**manifest, "target": {**spec, **sizes}})
    assert outcome(folder).endswith(("refused", "False"))


def test_a_long_run_of_the_same_weights_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """A few bytes must not stand for a billion layers."""
    folder = shutil.copytree(folders["sum"], tmp_path / "net")
    saved = pf.load(folder)
    runs = [dict(r) for r in saved.manifest["runs"]]
    single = next(i for i, r in enumerate(runs) if r["layers"] == 1)
    runs[single]["layers"] = 10**9
    forge(folder, manifest={"runs": runs})
    with pytest.raises(pf.ProvenformerError, match="of the same weights"):
        pf.load(folder)


@pytest.mark.parametrize("change", [{"blocks": 1}, {"parameters": 5}, {"model_dim": 1}, {"wide_blocks": []}])
def test_numbers_that_are_not_the_networks(change: dict, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["wide"], tmp_path / "net")
    forge(folder, manifest=change)
    assert outcome(folder) == "refused refused"


def test_what_is_saved_passes_the_schema_or_is_not_saved(tmp_path: Path) -> None:
    from dataclasses import replace

    c = pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=2)
    facts = {"construction": "sum", "cells_per_axis": 2, "target": storage.target_spec(c.target)}
    for change in ({"bound": float("nan")}, {"basis": "x\x1b[8m"}, {"details": {"x": float("inf")}}):
        with pytest.raises(pf.ProvenformerError) as refusal:
            storage.save(tmp_path / "net", c.network, replace(c.certificate, **change), facts)
        assert "\n" not in str(refusal.value)
    with pytest.raises(pf.ProvenformerError, match="no entry 'target'"):
        storage.save(tmp_path / "net", c.network, c.certificate, {"construction": "sum"})
    assert list(tmp_path.iterdir()) == []


def test_the_schema_names_place_value_and_expectation() -> None:
    with pytest.raises(pf.ProvenformerError, match=r"^m: runs\[0\]: layers is -1, not a whole number from 0 to"):
        schema.RUN("m: runs[0]", {"kind": "attention", "stage": "x", "layers": -1})
