"""Text to shards of packed examples: deterministic, restartable, and never more than two chunks of text in memory.

A folder of prepared data holds
    prepare.json       what was asked for; a restart with anything else is refused
    vocab.txt          the WordPieces
    shard-00000.npy    (examples, HEADER + seq_len) uint16, or uint32 for vocabularies beyond 65,536 entries
    manifest.json      rows and checksum of each shard, totals; written last, so its presence means complete
    unfinished.json    the manifest so far, until then
A restart keeps what is as one of the last two says, and makes the rest again.
A row is [foreign, first, length] and then the ids: whether the second segment is from another document, how many
positions the first segment has with its [CLS] and [SEP], how many positions are not padding.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path, write_json
from provenformer.bert.data.documents import Document, chunks
from provenformer.bert.data.manifest import (
    FORMAT,
    HEADER,
    LONGEST,
    REMOVE,
    SHORTEST,
    Manifest,
    Shard,
    VocabularyMark,
    checksum,
    open_shard,
    read_manifest,
    shard_name,
)
from provenformer.bert.data.pairs import Pair, make_pairs
from provenformer.bert.data.records import digest
from provenformer.bert.data.sources import Source, find_sources
from provenformer.bert.data.vocabulary import Vocabulary, train_vocabulary
from provenformer.bert.settings import read_json


@dataclass(frozen=True)
class PrepareSettings:
    """What `prepare` is asked for.

    vocabulary_size   entries of a vocabulary trained on the text; a file given in its stead wins
    shard_characters  text of one shard, which is also where its foreign second segments come from
    """

    seq_len: int = 128
    vocabulary_size: int = 30522
    lowercase: bool = True
    seed: int = 0
    shard_characters: int = 16_000_000


def prepare(
    sources: list[Path], output: Path, settings: PrepareSettings, vocabulary_file: Path | None = None
) -> Manifest:
    """Write the folder `output` and return its manifest; finished parts of an earlier run are kept."""
    if settings.seq_len < SHORTEST:
        raise ProvenformerError(f"seq_len={settings.seq_len} is below {SHORTEST}; use at least {SHORTEST} positions")
    if settings.seq_len > LONGEST:
        raise ProvenformerError(f"seq_len={settings.seq_len} is above {LONGEST}; use fewer positions")
    if settings.seed < 0:
        raise ProvenformerError(f"seed={settings.seed} is negative; use 0 or more")
    found = find_sources(sources)
    given = Vocabulary.load(vocabulary_file, settings.lowercase) if vocabulary_file else None
    _claim(output, found, settings, vocabulary_file)
    manifest_path, journal = output / "manifest.json", output / "unfinished.json"
    complete = manifest_path.exists()
    earlier = read_manifest(manifest_path if complete else journal) if complete or journal.exists() else None
    vocabulary = _vocabulary(output, found, settings, given, earlier)
    manifest = Manifest(
        format=FORMAT,
        seq_len=settings.seq_len,
        lowercase=settings.lowercase,
        vocabulary=VocabularyMark.of(vocabulary),
        examples=0,
        shards=(),
    )
    if not earlier:
        write_json(journal, asdict(manifest))
    recorded = {shard.file: shard for shard in earlier.shards} if earlier else {}
    with Progress() as progress:
        known = all(source.size is not None for source in found)
        bar = progress.add_task("preparing", total=sum(source.size or 0 for source in found) if known else None)
        for index, chunk in enumerate(chunks(_counted(found, progress, bar), settings.shard_characters)):
            path = output / shard_name(index)
            kept = path.name in recorded and _is_whole(output, recorded[path.name], manifest)
            if not kept:
                _write_shard(path, chunk, vocabulary, settings, index)
            rows = len(np.load(path, mmap_mode="r", allow_pickle=False))
            shard = Shard(file=path.name, rows=rows, checksum=checksum(path))
            manifest = replace(manifest, examples=manifest.examples + rows, shards=(*manifest.shards, shard))
            if not kept and not complete:
                write_json(journal, asdict(manifest))
            progress.update(bar, description=f"{index + 1} shards")
    if not complete:
        write_json(manifest_path, asdict(manifest))
    elif manifest != earlier:
        raise ProvenformerError(f"{output} no longer comes out as its {manifest_path.name} says; {REMOVE}")
    journal.unlink(missing_ok=True)
    return manifest


def _is_whole(folder: Path, shard: Shard, manifest: Manifest) -> bool:
    """Whether a shard is as recorded."""
    try:
        open_shard(folder, shard, manifest)
    except ProvenformerError:
        return False
    return True


def pack(pairs: Iterable[Pair], vocabulary: Vocabulary, seq_len: int) -> NDArray[Any]:
    """(pairs, HEADER + seq_len): the rows of a shard."""
    dtype = np.uint16 if len(vocabulary) <= 1 << 16 else np.uint32
    pairs = list(pairs)
    rows = np.full((len(pairs), HEADER + seq_len), vocabulary.pad, dtype)
    for row, pair in zip(rows, pairs, strict=True):
        ids = [vocabulary.cls, *pair.first, vocabulary.sep, *pair.second, vocabulary.sep]
        row[:HEADER] = pair.foreign, len(pair.first) + 2, len(ids)
        row[HEADER : HEADER + len(ids)] = ids
    return rows


def _claim(output: Path, sources: list[Source], settings: PrepareSettings, vocabulary_file: Path | None) -> None:
    """Record what is asked for; a folder that was begun with something else must not be mixed with it."""
    asked = {
        "settings": asdict(settings),
        "files": [[source.name, source.mark] for source in sources],
        "vocabulary": digest(vocabulary_file) if vocabulary_file else "trained",
    }
    plan = output / "prepare.json"
    if plan.exists() and read_json(plan, REMOVE) != asked:
        raise ProvenformerError(f"{output} was begun with other settings or files; choose another folder or remove it")
    write_json(plan, asked)


def _vocabulary(
    output: Path,
    sources: list[Source],
    settings: PrepareSettings,
    given: Vocabulary | None,
    earlier: Manifest | None,
) -> Vocabulary:
    """The vocabulary on record; if the file is not that one, or nothing is on record yet, it is made (again)."""
    path = output / "vocab.txt"
    recorded = earlier.vocabulary.fingerprint if earlier else None
    with suppress(ProvenformerError):  # damaged or missing
        found = Vocabulary.load(path, settings.lowercase)
        if found.fingerprint == recorded:
            return found
    made = given or train_vocabulary(
        lambda: (sentence for source in sources for document in source.documents() for sentence in document),
        settings.vocabulary_size,
        settings.lowercase,
    )
    if recorded not in (None, made.fingerprint):
        raise ProvenformerError(f"{path} is not the one the data was made with and cannot be restored; {REMOVE}")
    made.save(path)
    return made


def _write_shard(
    path: Path, chunk: list[Document], vocabulary: Vocabulary, settings: PrepareSettings, index: int
) -> None:
    ids = vocabulary.encode(sentence for document in chunk for sentence in document)
    documents = [[tokens for _, tokens in zip(document, ids, strict=False) if tokens] for document in chunk]
    empty = next((document for document, kept in zip(chunk, documents, strict=True) if not kept), None)
    if empty is not None:
        raise ProvenformerError(f"the document that begins {empty[0][:40]!r} is empty once tokenised; remove it")
    random = np.random.default_rng([settings.seed, index])
    rows = pack(make_pairs(documents, settings.seq_len, random), vocabulary, settings.seq_len)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, rows, allow_pickle=False)


def _counted(sources: list[Source], progress: Progress, bar: Any) -> Iterator[Document]:
    for source in sources:
        yield from source.documents()
        progress.advance(bar, source.size or 0)
