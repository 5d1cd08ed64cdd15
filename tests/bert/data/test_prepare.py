"""`prepare`: pairs within documents, deterministic and restartable shards, and clear errors."""

import errno
import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data import prepare as preparing
from provenformer.bert.data.documents import chunks, read_documents
from provenformer.bert.data.examples import Examples
from provenformer.bert.data.manifest import HEADER
from provenformer.bert.data.pairs import make_pairs
from provenformer.bert.data.prepare import PrepareSettings, prepare
from provenformer.bert.data.sample import write_sample
from provenformer.bert.data.vocabulary import SPECIAL, Vocabulary
from provenformer.cli.bert import app

SMALL = PrepareSettings(seq_len=32, vocabulary_size=300, shard_characters=20_000)


def prepared(folder: Path, settings: PrepareSettings = SMALL) -> Path:
    write_sample(folder)
    prepare([folder / "text"], folder / "data", settings)
    return folder / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    one, other = contents(prepared(tmp_path / "a")), contents(prepared(tmp_path / "b"))
    assert one == other
    assert len([name for name in one if name.startswith("shard")]) > 2


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, bytes]]:
    """A run that stopped before its third shard, and what a whole run writes."""
    whole = contents(prepared(tmp_path))
    original = preparing._write_shard

    def interrupted(*arguments: Any) -> None:
        if arguments[-1] == 2:
            raise KeyboardInterrupt
        original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "_write_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare([tmp_path / "text"], tmp_path / "stopped", SMALL)
    return tmp_path / "stopped", whole


def times(folder: Path) -> list[int]:
    """When the vocabulary and the first two shards were written."""
    return [(folder / name).stat().st_mtime_ns for name in ("vocab.txt", "shard-00000.npy", "shard-00001.npy")]


def test_a_stopped_run_goes_on_where_it_was(stopped: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    data, whole = stopped
    with pytest.raises(ProvenformerError, match="holds no complete data"):
        Examples(data)
    before = times(data)
    prepare([tmp_path / "text"], data, SMALL)
    assert contents(data) == whole
    assert times(data) == before


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-9], lambda content: content[:-1] + b"\7"], ids=["truncated", "one byte"]
)
@pytest.mark.parametrize("name", ["shard-00000.npy", "vocab.txt"])
def test_what_was_damaged_while_it_stood_still_is_made_again(
    stopped: tuple[Path, dict[str, bytes]], tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    data, whole = stopped
    (data / name).write_bytes(damage((data / name).read_bytes()))
    before = times(data)
    prepare([tmp_path / "text"], data, SMALL)
    assert contents(data) == whole
    assert times(data)[2] == before[2]


def test_shards_that_nothing_vouches_for_are_made_again(stopped: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    data, whole = stopped
    (data / "unfinished.json").unlink()
    (data / "shard-00000.npy").write_bytes(b"not a shard")
    prepare([tmp_path / "text"], data, SMALL)
    assert contents(data) == whole


def test_other_settings_do_not_mix(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    with pytest.raises(ProvenformerError, match="begun with other settings"):
        prepare([tmp_path / "text"], data, PrepareSettings(seq_len=64, vocabulary_size=300))


def test_other_text_of_the_same_size_is_refused(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    text = tmp_path / "text/people.txt"
    text.write_text(text.read_text().replace("a", "e", 1))
    with pytest.raises(ProvenformerError, match="begun with other settings or files"):
        prepare([tmp_path / "text"], data, SMALL)


def test_tables_in_a_folder_of_text_are_not_left_out_silently(tmp_path: Path) -> None:
    write_sample(tmp_path)
    for name in ("a.jsonl", "b.parquet", "c.jsonl.gz", "d.arrow"):
        (tmp_path / "text" / name).touch()
    message = r"text: tables below a folder of text are not read \(a.jsonl, b.parquet, c.jsonl.gz, ...\); name its text"
    with pytest.raises(ProvenformerError, match=message):
        prepare([tmp_path / "text"], tmp_path / "data", SMALL)


def test_a_damaged_shard_is_told_and_made_again(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    whole = contents(data)
    shard = data / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-9])
    for missing in (False, True):
        if missing:
            shard.unlink()
        with pytest.raises(ProvenformerError, match=r"shard-00000.npy is damaged or missing"):
            Examples(data)
    prepare([tmp_path / "text"], data, SMALL)
    assert contents(data) == whole


@pytest.mark.parametrize("given", [False, True], ids=["trained", "given"])
@pytest.mark.parametrize("text", ["extra\n", None], ids=["longer", "not a vocabulary"])
def test_another_vocabulary_is_told_and_restored(tmp_path: Path, given: bool, text: str | None) -> None:
    data = prepared(tmp_path)
    file = tmp_path / "given.txt" if given else None
    if file:
        shutil.copy(data / "vocab.txt", file)
        data = tmp_path / "other"
        prepare([tmp_path / "valid"], data, SMALL, file)
    whole = contents(data)
    (data / "vocab.txt").write_text((data / "vocab.txt").read_text() + text if text else "")
    with pytest.raises(ProvenformerError, match="not the one the data was made with" if text else "lacks"):
        Examples(data)
    prepare([tmp_path / "valid" if given else tmp_path / "text"], data, SMALL, file)
    assert contents(data) == whole


def test_a_vocabulary_that_cannot_be_restored_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepared(tmp_path)
    (data / "vocab.txt").write_text("[PAD]\n")
    before = contents(data)
    # As another version of the trainer might.
    monkeypatch.setattr(preparing, "train_vocabulary", lambda *_: Vocabulary([*SPECIAL, "a", "##a"]))
    with pytest.raises(ProvenformerError, match=r"cannot be restored; remove the folder and prepare the data again$"):
        prepare([tmp_path / "text"], data, SMALL)
    assert contents(data) == before


def test_a_manifest_that_no_longer_comes_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepared(tmp_path)
    manifest = (data / "manifest.json").read_bytes()
    (data / "shard-00000.npy").unlink()
    monkeypatch.setattr(preparing, "make_pairs", lambda *rest: list(make_pairs(*rest))[1:])
    with pytest.raises(ProvenformerError, match=r"no longer comes out as its manifest.json says; remove the folder"):
        prepare([tmp_path / "text"], data, SMALL)
    assert (data / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": 2}'])
def test_another_format_is_told(tmp_path: Path, content: str) -> None:
    data = prepared(tmp_path)
    (data / "manifest.json").write_text(content)
    for use in (lambda: Examples(data), lambda: prepare([tmp_path / "text"], data, SMALL)):
        with pytest.raises(
            ProvenformerError, match=r"(has format (None|2), not 1|is not a JSON object); remove the folder"
        ):
            use()


def test_a_missing_vocabulary_is_told_before_anything_is_written(tmp_path: Path) -> None:
    write_sample(tmp_path)
    with pytest.raises(ProvenformerError, match=r"none.txt is not a vocabulary .*No such file"):
        prepare([tmp_path / "text"], tmp_path / "data", SMALL, tmp_path / "none.txt")
    assert not (tmp_path / "data").exists()


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_sample(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProvenformerError, match="no space left"):
        prepare([tmp_path / "text"], tmp_path / "data", SMALL)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no document"),
        ("\n\n\n", "holds no document"),
        ("One sentence.\nAnother.\n", "holds 1 document"),
        ("One.\n\n\u200d\n\nTwo.\n", "is empty once tokenised"),
    ],
)
def test_text_without_documents(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(ProvenformerError, match=message):
        prepare([tmp_path / "a.txt"], tmp_path / "data", PrepareSettings(seq_len=16, vocabulary_size=100))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt.gz", gzip.compress(b"A b.\n\nC d.\n" * 99, mtime=0)[:-20]),
        ("a.txt.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 20),
        ("a.txt", b"\xff\xfe\xfa"),
    ],
    ids=["truncated", "damaged", "not UTF-8"],
)
def test_unreadable_text(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ProvenformerError, match="cannot be read"):
        list(read_documents([tmp_path / name]))


def test_the_vocabulary_must_hold_the_special_pieces(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nword\n")
    with pytest.raises(ProvenformerError, match=r"lacks \[CLS\] \[SEP\] \[MASK\]"):
        Vocabulary.load(tmp_path / "vocab.txt")
    write_sample(tmp_path)
    with pytest.raises(ProvenformerError, match="too small"):
        prepare([tmp_path / "text"], tmp_path / "data", PrepareSettings(vocabulary_size=20))


def test_every_chunk_has_two_documents_and_none_is_lost() -> None:
    for count in range(2, 9):
        documents = [["x" * size] for size in np.random.default_rng(count).integers(1, 30, count)]
        found = list(chunks(iter(documents), 20))
        assert [document for chunk in found for document in chunk] == documents
        assert min(map(len, found)) >= 2


def test_pairs_keep_to_their_documents() -> None:
    """Token = 1000 * document + sentence: every segment is from one document, half the seconds from another."""
    lengths = np.random.default_rng(0).integers(1, 12, (60, 15))
    documents = [[[1000 * d + s] * int(n) for s, n in enumerate(row)] for d, row in enumerate(lengths)]
    pairs = list(make_pairs(documents, 40, np.random.default_rng(1)))
    seen = set()
    for pair in pairs:
        assert 1 <= len(pair.first) + len(pair.second) <= 37
        assert pair.first
        assert pair.second
        (first,), (second,) = ({token // 1000 for token in part} for part in (pair.first, pair.second))
        assert pair.foreign == (first != second)
        assert pair.first == sorted(pair.first)
        if not pair.foreign:
            assert pair.first[-1] < pair.second[0]
        seen |= {*pair.first, *pair.second}
    assert 0.4 < np.mean([pair.foreign for pair in pairs]) < 0.65
    assert np.mean([len(pair.first) + len(pair.second) for pair in pairs]) > 30
    assert len(seen) > 0.95 * 60 * 15  # the rest was trimmed


def test_rows_say_where_the_segments_are(tmp_path: Path) -> None:
    examples = Examples(prepared(tmp_path))
    vocabulary = examples.vocabulary
    for foreign, first, length, *ids in examples.rows(np.arange(len(examples))).tolist():
        assert foreign in (0, 1)
        assert ids[0] == vocabulary.cls
        assert ids[first - 1] == ids[length - 1] == vocabulary.sep
        assert ids.count(vocabulary.sep) == 2
        assert set(ids[length:]) <= {vocabulary.pad}


def test_large_vocabularies_get_wider_numbers(tmp_path: Path) -> None:
    write_sample(tmp_path)
    letters = [chr(c) for c in range(97, 123)]
    pieces = [*SPECIAL, ".", *(f"w{i}" for i in range(1 << 16)), *letters, *(f"##{c}" for c in letters)]
    Vocabulary(pieces).save(tmp_path / "vocab.txt")
    prepare([tmp_path / "valid"], tmp_path / "data", SMALL, tmp_path / "vocab.txt")
    assert np.load(tmp_path / "data/shard-00000.npy").dtype == np.uint32
    assert Examples(tmp_path / "data").rows(np.arange(1))[0, HEADER + 1] > 1 << 16


def test_command_line(tmp_path: Path) -> None:
    def run(*arguments: Any) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.output

    run("sample", tmp_path)
    out = tmp_path / "data"
    said = run("prepare", tmp_path / "text", "--output", out, "--vocabulary-size", 300, "--seq-len", 32)
    assert f"{json.loads((out / 'manifest.json').read_text())['examples']:,} examples of 32 positions" in said
