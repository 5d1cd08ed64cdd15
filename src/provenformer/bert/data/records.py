"""Records (rows of a table) from Hugging Face `datasets`: by name from the hub, or from files and folders.

    hf:NAME[,config=...][,split=...][,column=...][,revision=...]

NAME is a dataset of the hub or a path. Files .parquet, .arrow and .jsonl, and folders that `save_to_disk` of `datasets`
wrote, are known without `hf:` as well. Everything is streamed or memory-mapped, in its own order.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from provenformer.base.errors import ProvenformerError
from provenformer.base.extras import extra
from provenformer.bert.data.documents import read_json_lines

PREFIX = "hf:"
TABLES = {".parquet": "parquet", ".arrow": "arrow"}  # suffix -> its builder in `datasets`
JSON_LINES = (".jsonl", ".jsonl.gz")
SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves in a folder of splits, and in that of one

Record = dict[str, Any]


def is_table(source: Path) -> bool:
    """Whether this is for `datasets` to read: a name with `hf:`, a table, or a folder of `save_to_disk`."""
    return str(source).startswith(PREFIX) or source.suffix in TABLES or _is_saved(source)


@dataclass(frozen=True)
class Records:
    """A table and what of it is asked for."""

    name: str
    config: str | None = None
    split: str | None = None
    column: str | None = None
    revision: str | None = None

    @classmethod
    def parse(cls, source: Path) -> "Records":
        """From a path or from `hf:NAME,option=value,...`, which a Path holds as it is."""
        if not str(source).startswith(PREFIX):
            return cls(str(source))
        name, *options = str(source).removeprefix(PREFIX).split(",")
        known = [field.name for field in fields(cls) if field.name != "name"]
        values = {}
        for option in options:
            key, _, value = option.partition("=")
            if key not in known or not value:
                remedy = f"options are {', '.join(known)}, as in {PREFIX}{name},split=train"
                raise ProvenformerError(f"{source}: {option!r} is not an option with a value; {remedy}")
            values[key] = value
        return cls(name, **values)

    @property
    def path(self) -> Path | None:
        """The file or folder; None for a dataset of the hub."""
        path = Path(self.name)
        if path.exists():
            return path
        if path.is_absolute() or self.name.startswith(".") or self.name.endswith((*TABLES, *JSON_LINES)):
            raise ProvenformerError(f"{path} does not exist; check the path")
        return None

    def fingerprint(self) -> str:
        """Tells data apart: local files by their bytes, a dataset of the hub by its revision."""
        if self.path is None:
            content = [self.name, self._hub_revision()]
        else:
            content = [part for file in _files(self.path) for part in (file.name, digest(file))]
        asked = [self.config, self.split, self.column, content]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]

    def size(self) -> int | None:
        """Bytes of the local files; not known for the hub."""
        return None if self.path is None else sum(file.stat().st_size for file in _files(self.path))

    def read(self) -> Iterator[Record]:
        """Every record, in order. Labels come by name, since every dataset numbers them its own way; -1 is none."""
        if self.path and self.name.endswith(JSON_LINES):
            yield from (record for _, record in read_json_lines(self.path))
            return
        with _one_line(self.name):
            table = _chosen(self._load(), self.name, self.split)
            labels = {key: kind.names for key, kind in (table.features or {}).items() if hasattr(kind, "names")}
            for record in table:
                for key, names in labels.items():
                    if record[key] is not None and record[key] >= 0:
                        record[key] = names[record[key]]
                yield record

    def texts(self) -> Iterator[str]:
        """The text column of every record."""
        name = self.column or "text"
        remedy = f"add ,column=NAME to {PREFIX}{self.name}"
        for number, record in enumerate(self.read(), 1):
            if name not in record:
                raise ProvenformerError(f"{self.name} has no column {name!r}, it has {', '.join(record)}; {remedy}")
            text = record[name]
            if not isinstance(text, str | None):
                kind = type(text).__name__
                raise ProvenformerError(f"{self.name}, record {number}: {name!r} is of type {kind}, not text; {remedy}")
            yield text or ""

    def _load(self) -> Any:
        """All splits, or the only one; no record is read yet."""
        datasets = _datasets(self.name)
        if self.path is None:
            if datasets.config.HF_HUB_OFFLINE:  # only what an earlier download left; it is memory-mapped
                return datasets.load_dataset(self.name, self.config, revision=self.revision)
            return datasets.load_dataset(self.name, self.config, revision=self._hub_revision(), streaming=True)
        if _is_saved(self.path):
            return datasets.load_from_disk(self.name)
        if self.path.is_dir():
            return datasets.load_dataset(self.name, self.config, streaming=True)
        return datasets.load_dataset(TABLES[self.path.suffix], data_files=self.name, streaming=True)

    def _hub_revision(self) -> str:
        """The commit of the hub's dataset: it stands for the content, and reading it pins it."""
        datasets = _datasets(self.name)
        with _one_line(self.name):
            if datasets.config.HF_HUB_OFFLINE:
                cached = _chosen(self._load(), self.name, self.split).cache_files
                return Path(cached[0]["filename"]).parent.name  # where `datasets` keeps what it took from this commit
            return _commit(self.name, self.revision)


@cache
def _commit(name: str, revision: str | None) -> str:
    return str(HfApi().dataset_info(name, revision=revision).sha)


def _datasets(name: str) -> Any:
    with extra("hub", name):
        import datasets  # noqa: PLC0415
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # it logs what it then raises
    return datasets


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """`datasets`, its readers and the network fail in many ways; each is told in one line."""
    try:
        yield
    except ProvenformerError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        remedy = "check name, options and network, or name a local file or folder"
        raise ProvenformerError(f"{name} cannot be read ({reason}); {remedy}") from None


def _chosen(loaded: Any, name: str, split: str | None) -> Any:
    """The split asked for, which need not be named if there is one only."""
    splits = loaded if isinstance(loaded, dict) else {str(loaded.split or "train"): loaded}
    if split is None and len(splits) > 1:
        remedy = f"add one, as in {PREFIX}{name},split={next(iter(splits))}"
        raise ProvenformerError(f"{name} has the splits {', '.join(splits)}; {remedy}")
    if split is not None and split not in splits:
        raise ProvenformerError(f"{name} has no split {split!r}; choose among {', '.join(splits)}")
    return splits[split or next(iter(splits))]


def _is_saved(path: Path) -> bool:
    return any((path / name).exists() for name in SAVED)


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def digest(file: Path) -> str:
    """SHA-256 of a file's bytes."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ProvenformerError(f"{file} cannot be read ({error.strerror}); check the path") from None
