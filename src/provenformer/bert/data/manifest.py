"""manifest.json of prepared data: what a folder holds, entry by entry, and the shards that must be as it says."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.vocabulary import SPECIAL, Vocabulary
from provenformer.bert.settings import Range, between, build_settings, needed, read_json, shown

FORMAT = 1
HEADER = 3  # foreign, first, length
SHORTEST = 8  # positions: the three special tokens and a few words
LONGEST = 2**16 - 1  # positions: lengths are kept in 16 bits
REMOVE = "remove the folder and prepare the data again"
AGAIN = "run the same `provenformer bert prepare` again, which makes only what is missing"
SHARD_TYPES = (np.dtype(np.uint16), np.dtype(np.uint32))
ROWS: Range = between(0, 2**40)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file of packed rows and its CRC-32."""

    file: str
    rows: int = needed(ROWS)
    checksum: int = needed(between(0, 2**32 - 1))


@dataclass(frozen=True, kw_only=True)
class VocabularyMark:
    """Which vocabulary the ids are of."""

    size: int = needed(between(len(SPECIAL), 2**31 - 1))
    fingerprint: str

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "VocabularyMark":
        return cls(size=len(vocabulary), fingerprint=vocabulary.fingerprint)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All there is to say of a folder; `examples` is the sum over the shards."""

    format: int = needed(between(FORMAT, FORMAT))
    seq_len: int = needed(between(SHORTEST, LONGEST))
    lowercase: bool
    vocabulary: VocabularyMark
    examples: int = needed(ROWS)
    shards: tuple[Shard, ...]


def shard_name(index: int) -> str:
    """The file of a shard: no manifest may name another."""
    return f"shard-{index:05d}.npy"


def manifest_of(folder: Path) -> Path:
    """manifest.json of a folder, which is written last: without it the data is not complete."""
    path = folder / "manifest.json"
    if not path.exists():
        raise ProvenformerError(f"{folder} holds no complete data; run `provenformer bert prepare` into it")
    return path


def read_manifest(path: Path) -> Manifest:
    """What a folder holds, or one line that says which entry is wrong."""
    content = read_json(path, REMOVE)
    if content.get("format") != FORMAT:
        raise ProvenformerError(f"{path} has format {shown(content.get('format'))}, not {FORMAT}; {REMOVE}")
    manifest = build_settings(Manifest, content, str(path), REMOVE)
    for index, shard in enumerate(manifest.shards):
        if shard.file != shard_name(index):
            place = f"{path}: shards[{index}]: file = {shown(shard.file)}"
            raise ProvenformerError(f"{place} must be {shard_name(index)!r}; {REMOVE}")
    if manifest.examples != (rows := sum(shard.rows for shard in manifest.shards)):
        raise ProvenformerError(f"{path}: examples = {manifest.examples} must be the shards' {rows}; {REMOVE}")
    return manifest


def open_shard(folder: Path, shard: Shard, manifest: Manifest) -> NDArray[Any]:
    """(rows, HEADER + seq_len), memory-mapped, after a check of every number in it."""
    path = folder / shard.file
    if not path.is_file() or checksum(path) != shard.checksum:
        raise ProvenformerError(f"{path} is damaged or missing: it does not match manifest.json; {AGAIN}")
    try:
        rows: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise ProvenformerError(f"{path} is no array ({shown(str(error))}); {REMOVE}") from None
    expected = shard.rows, HEADER + manifest.seq_len
    if rows.shape != expected or rows.dtype not in SHARD_TYPES:
        found = f"{rows.dtype} of shape {rows.shape}"
        raise ProvenformerError(f"{path} is {found}, not uint16 or uint32 of shape {expected}; {REMOVE}")
    if len(rows):
        _check_rows(path, rows, manifest)
    return rows


def _check_rows(path: Path, rows: NDArray[Any], manifest: Manifest) -> None:
    """A folder may come from anybody: lengths and ids that do not fit would end somewhere in the middle of training."""
    foreign, first, length = rows[:, :HEADER].T
    limits = {
        "foreign (0 or 1)": foreign <= 1,
        "the first segment's length": (first >= 2) & (first <= length),
        f"a length of at most {manifest.seq_len}": length <= manifest.seq_len,
        f"ids below {manifest.vocabulary.size}": rows[:, HEADER:].max(axis=1) < manifest.vocabulary.size,
    }
    for what, fits in limits.items():
        if not fits.all():
            raise ProvenformerError(f"{path}: row {int(np.argmin(fits))} does not have {what}; {REMOVE}")


def checksum(path: Path) -> int:
    """CRC-32 of a file, in pieces that fit into memory."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            value = zlib.crc32(piece, value)
    return value
