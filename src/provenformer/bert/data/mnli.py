"""MNLI (and SNLI): JSON lines, the official tab-separated tables, or Hugging Face datasets."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.documents import read_json_lines, read_lines
from provenformer.bert.data.records import Records, is_table

LABELS = ("entailment", "neutral", "contradiction")
NO_GOLD = "-"  # annotators did not agree; such pairs are left out, as usual
UNLABELLED = -1  # the same in Hugging Face's copies
# Names of the fields, first ours and Hugging Face's, then the official ones.
PREMISE, HYPOTHESIS, LABEL = ("premise", "sentence1"), ("hypothesis", "sentence2"), ("label", "gold_label")


@dataclass(frozen=True)
class SentencePair:
    """A premise, a hypothesis and the number of its label."""

    premise: str
    hypothesis: str
    label: int


def read_mnli(path: Path) -> list[SentencePair]:
    """Every pair with a gold label.

    `.tsv` and `.txt` are the official tables; what `records.is_table` knows is for `datasets`; everything else is JSON
    lines. `.gz` is unpacked.
    """
    pairs = []
    for number, record in _records(path):
        where = f"{path}, record {number}" if is_table(path) else f"{path}, line {number}"
        label = _field(record, LABEL, where)
        if label in (NO_GOLD, UNLABELLED):
            continue
        if label not in LABELS and label not in range(len(LABELS)):
            raise ProvenformerError(f"{where}: unknown label {label!r}; it must be one of {', '.join(LABELS)}")
        index = LABELS.index(label) if isinstance(label, str) else int(label)
        pairs.append(SentencePair(_text(record, PREMISE, where), _text(record, HYPOTHESIS, where), index))
    if not pairs:
        raise ProvenformerError(f"{path} holds no labelled pair; give a file with at least one")
    return pairs


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if is_table(path):
        return enumerate(Records.parse(path).read(), 1)
    return _table(path) if path.name.removesuffix(".gz").endswith((".tsv", ".txt")) else read_json_lines(path)


def _table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = read_lines(path)
    names = next(lines, "").split("\t")
    for number, line in enumerate(lines, 2):
        values = line.split("\t")  # the official tables do not quote
        record = dict(zip(names, values, strict=False))
        # GLUE's dev tables end with the gold label, after the labels of single annotators.
        yield (
            number,
            {key: value for key, value in record.items() if key != "label"} if "gold_label" in record else record,
        )


def _field(record: dict[str, Any], names: tuple[str, str], where: str) -> Any:
    for name in names:
        if name in record:
            return record[name]
    raise ProvenformerError(f"{where}: no field {names[0]} or {names[1]}, it has {', '.join(record)}; add it")


def _text(record: dict[str, Any], names: tuple[str, str], where: str) -> str:
    text = _field(record, names, where)
    if not isinstance(text, str):
        raise ProvenformerError(f"{where}: {names[0]} is of type {type(text).__name__}, not text; correct it")
    return text
