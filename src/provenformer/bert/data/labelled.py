"""Texts with labels, one's own: CSV, TSV, JSON lines, Parquet or Hugging Face datasets, a row each."""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.documents import read_json_lines
from provenformer.bert.data.records import JSON_LINES, Records, is_table
from provenformer.bert.settings import shown

# Tried in this order when no column is named.
TEXTS = (("text",), ("sentence",), ("sentence1", "sentence2"), ("text1", "text2"), ("premise", "hypothesis"))
LABELS = ("label", "labels", "score")
SEPARATED = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
MOST_LABELS = 1000
LONGEST_FIELD = 1 << 24  # characters


@dataclass(frozen=True)
class Labelled:
    """Rows: one text or two, and the label as it stands in the file."""

    texts: list[tuple[str, ...]]
    labels: list[str | float]

    def __len__(self) -> int:
        return len(self.labels)


def read_labelled(path: Path, text_columns: tuple[str, ...], label_column: str, regression: bool) -> Labelled:
    """Every row; columns that are not named are found if they have a usual name."""
    if len(text_columns) > 2:
        raise ProvenformerError(f"{len(text_columns)} text columns are more than a pair; name one with --text, or two")
    texts: list[tuple[str, ...]] = []
    labels: list[str | float] = []
    columns, label = text_columns, label_column
    for number, row in _rows(path):
        if not texts:
            columns, label = _columns(path, row, text_columns, label_column)
        where = f"{path}, row {number}"
        texts.append(tuple(_text(row, name, where) for name in columns))
        labels.append(_number(row, label, where) if regression else _name(row, label, where))
    if not texts:
        raise ProvenformerError(f"{path} holds no row; give a table with at least one")
    return Labelled(texts, labels)


def label_names(path: Path, labels: list[str | float]) -> list[str]:
    """The classes in a fixed order: numbers by value, names by the alphabet."""
    names = {str(label) for label in labels}
    if len(names) < 2:
        raise ProvenformerError(f"{path} has one label only, {shown(labels[0])}; a classifier needs two")
    if len(names) > MOST_LABELS or all("." in name and _is_number(name) for name in names):
        found = f"{path} has {len(names):,} labels such as {shown(min(names))}"
        raise ProvenformerError(f"{found} (limit {MOST_LABELS:,}, no fractions); use --regression for numbers")
    return sorted(names, key=lambda name: (0, float(name), name) if _is_number(name) else (1, 0.0, name))


def label_numbers(path: Path, labels: list[str | float], names: list[str]) -> list[int]:
    """Which class each row is of."""
    places = {name: place for place, name in enumerate(names)}
    for number, label in enumerate(labels, 1):
        if label not in places:
            remedy = "use --regression for numbers, or correct it" if _is_number(str(label)) else "correct it"
            known = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            raise ProvenformerError(f"{path}, row {number}: label {shown(label)} is not among {known}; {remedy}")
    return [places[str(label)] for label in labels]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if is_table(path):
        return enumerate(Records.parse(path).read(), 1)
    if path.name.endswith(SEPARATED):
        return _separated(path)
    if path.name.endswith(JSON_LINES):
        return read_json_lines(path)
    known = ".csv, .tsv, .jsonl (all also .gz), .parquet, .arrow"
    raise ProvenformerError(f"{path} is not a kind of table that is known by its name; give {known}, or hf:NAME")


def _separated(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """With a header, quoted as usual; separated by what occurs most in the header: comma, semicolon or tabulator."""
    csv.field_size_limit(LONGEST_FIELD)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:  # Excel begins with a mark
            header = file.readline()
            separator = max(",;\t", key=header.count)
            names = next(csv.reader([header], delimiter=separator), [])
            for number, values in enumerate(csv.reader(file, delimiter=separator, strict=True), 1):
                if not values:
                    continue
                if len(values) != len(names):
                    found = f"{path}, row {number} has {len(values)} fields and the header {len(names)}"
                    raise ProvenformerError(f"{found}; quote texts that hold a separator")
                yield number, dict(zip(names, values, strict=True))
    except csv.Error as error:
        raise ProvenformerError(
            f"{path} is not quoted as CSV is ({error}); close every quote, double those inside"
        ) from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ProvenformerError(f"{path} cannot be read as UTF-8 table ({error}); convert it") from None


def _columns(path: Path, row: dict[str, Any], texts: tuple[str, ...], label: str) -> tuple[tuple[str, ...], str]:
    """Those named, or those with a usual name."""
    found = texts or next((names for names in TEXTS if all(name in row for name in names)), ())
    target = label or next((name for name in LABELS if name in row), "")
    has = f"{path} has the columns {', '.join(map(str, row))[:200]}"
    if not found or any(name not in row for name in found):
        missing = f"no {found[0]!r}" if len(found) == 1 else "not those of the texts"
        raise ProvenformerError(f"{has}, {missing if found else 'none with a usual name'}; name the texts with --text")
    if target not in row:
        raise ProvenformerError(f"{has}, no {target or 'label'!r}; name that of the labels with --label, or rename it")
    return found, target


def _text(row: dict[str, Any], name: str, where: str) -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise ProvenformerError(f"{where}: {name} = {shown(text)} is not text; correct it")
    return text


def _name(row: dict[str, Any], column: str, where: str) -> str:
    label = row.get(column)
    if not isinstance(label, str | int | float) or not str(label).strip():
        raise ProvenformerError(f"{where}: {column} = {shown(label)} is no label; remove or correct the row")
    return str(label).strip()


def _number(row: dict[str, Any], column: str, where: str) -> float:
    label = row.get(column)
    if not isinstance(label, str | int | float) or isinstance(label, bool) or not _is_number(str(label)):
        raise ProvenformerError(
            f"{where}: {column} = {shown(label)} is not a finite number; correct the row, or leave out --regression"
        )
    return float(label)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
