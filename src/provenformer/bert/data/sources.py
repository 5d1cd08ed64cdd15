"""What `prepare` reads: text files, and records whose text column is a document each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.documents import Document, read_documents, text_files
from provenformer.bert.data.records import JSON_LINES, TABLES, Records, digest, is_table
from provenformer.bert.data.sentences import sentences


@dataclass(frozen=True)
class Source:
    """A stream of documents that can be read again.

    mark  what tells its content apart when a run goes on: a digest of a text file, the fingerprint of records
    size  in bytes, for the progress bar, if it is known
    """

    name: str
    mark: str
    size: int | None
    documents: Callable[[], Iterator[Document]]


def find_sources(named: Iterable[Path]) -> list[Source]:
    """The text files and tables named, and the text files below folders, in a fixed order."""
    found = []
    for source in named:
        if is_table(source) or source.name.endswith(JSON_LINES):
            records = Records.parse(source)
            found.append(Source(records.name, records.fingerprint(), records.size(), partial(_of_records, records)))
        else:
            _refuse_tables_below(source)
            for path in text_files([source]):
                found.append(Source(path.name, digest(path), path.stat().st_size, partial(read_documents, [path])))
    return found


def _refuse_tables_below(folder: Path) -> None:
    """Only text is read below a folder; tables there would be left out without a word."""
    tables = sorted(path.name for path in folder.rglob("*") if path.name.endswith((*TABLES, *JSON_LINES)))
    if tables:
        names = ", ".join(tables[:3]) + (", ..." if len(tables) > 3 else "")
        remedy = f"name its text files and tables themselves, or hf:{folder} for its tables"
        raise ProvenformerError(f"{folder}: tables below a folder of text are not read ({names}); {remedy}")


def _of_records(records: Records) -> Iterator[Document]:
    """A document for every record that has a letter or a digit in its text."""
    empty = True
    for text in records.texts():
        if any(map(str.isalnum, text)):
            yield sentences(text)
            empty = False
    if empty:
        raise ProvenformerError(f"{records.name} holds no document; remove it from the sources")
