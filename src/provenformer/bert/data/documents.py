"""Text files (one sentence a line, blank line between documents) as a stream of documents and of chunks of them."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from provenformer.base.errors import ProvenformerError

Document = list[str]


def text_files(sources: Iterable[Path]) -> list[Path]:
    """The `.txt` and `.txt.gz` files named, or below the folders named, in a fixed order."""
    found: list[Path] = []
    for source in sources:
        if not source.exists():
            raise ProvenformerError(f"{source} does not exist; name a text file or a folder of .txt or .txt.gz files")
        below = [p for p in sorted(source.rglob("*")) if p.name.endswith((".txt", ".txt.gz")) and p.is_file()]
        found += below if source.is_dir() else [source]
    if not found:
        raise ProvenformerError("no .txt or .txt.gz file among the sources; name at least one file or folder of them")
    return found


def open_text(path: Path) -> IO[str]:
    """A UTF-8 text file for reading, unpacked on the way if its name ends in .gz."""
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file; what cannot be read is one clear error."""
    try:
        with open_text(path) as file:
            for line in file:
                yield line.strip()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ProvenformerError(f"{path} cannot be read as UTF-8 text ({error}); fetch or convert it again") from None


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the object of every line that is not blank."""
    for number, line in enumerate(read_lines(path), 1):
        if line:
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ProvenformerError(f"{path}, line {number} is not JSON ({error}); correct it") from None
            if not isinstance(record, dict):
                raise ProvenformerError(f"{path}, line {number} is no JSON object but {line:.40}; correct it")
            yield number, record


def read_documents(paths: Iterable[Path]) -> Iterator[Document]:
    """Documents in order; a file border ends a document, and several blank lines count as one."""
    for path in paths:
        document: Document = []
        empty = True
        for line in read_lines(path):
            if line:
                document.append(line)
                empty = False
            elif document:
                yield document
                document = []
        if document:
            yield document
        if empty:
            raise ProvenformerError(f"{path} holds no document; remove it from the sources")


def chunks(documents: Iterable[Document], characters: int) -> Iterator[list[Document]]:
    """Runs of whole documents of about so many characters, at least two each: a random next sentence needs another.

    One chunk is held back, so that a last document that stands alone can join it.
    """
    ready: list[Document] = []
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += sum(map(len, document))
        if size >= characters and len(chunk) >= 2:
            if ready:
                yield ready
            ready, chunk, size = chunk, [], 0
    if len(chunk) < 2:
        ready, chunk = ready + chunk, []
    if len(ready) == 1:
        raise ProvenformerError(
            "the text holds 1 document and next-sentence pairs need 2; separate them by blank lines"
        )
    yield from filter(None, (ready, chunk))
