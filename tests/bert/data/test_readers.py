"""MNLI and SQuAD files: every format gives the same pairs; windows of long contexts and spans of characters."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.mnli import SentencePair, read_mnli
from provenformer.bert.data.squad import LONGEST_ANSWER, Question, best_span, question_windows, read_squad
from provenformer.bert.data.vocabulary import train_vocabulary

PAIRS = [SentencePair("A b.", "C d.", 0), SentencePair('Quote " here.', "No.", 2)]
CONTEXT = " ".join(f"In {1500 + i} the Café of town number {i} was sold for {7 * i} pounds." for i in range(40))


def mnli_files(folder: Path) -> list[Path]:
    ours = [
        {"premise": p.premise, "hypothesis": p.hypothesis, "label": ("entailment", "", "contradiction")[p.label]}
        for p in PAIRS
    ]
    official = [{"sentence1": r["premise"], "sentence2": r["hypothesis"], "gold_label": r["label"]} for r in ours]
    official.insert(1, {"sentence1": "x", "sentence2": "y", "gold_label": "-"})
    numbers = [{"premise": p.premise, "hypothesis": p.hypothesis, "label": p.label} for p in PAIRS]
    table = "index\tsentence1\tsentence2\tlabel1\tgold_label\n" + "".join(
        f"{i}\t{r['sentence1']}\t{r['sentence2']}\tneutral\t{r['gold_label']}\n" for i, r in enumerate(official)
    )
    contents = {
        "ours.jsonl": _lines(ours),
        "official.jsonl": _lines(official),
        "hub.jsonl": _lines(numbers),
        "dev_matched.tsv": table,
        "multinli_1.0_dev_matched.txt": table,
    }
    for name, text in contents.items():
        (folder / name).write_text(text)
    (folder / "ours.jsonl.gz").write_bytes(gzip.compress(contents["ours.jsonl"].encode()))
    return sorted(folder.iterdir())


def _lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_mnli_formats_agree(tmp_path: Path) -> None:
    files = mnli_files(tmp_path)
    assert len(files) == 6
    for path in files:
        assert read_mnli(path) == PAIRS, path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"premise": "a", "hypothesis": "b", "label": "maybe"}\n', "line 1: unknown label 'maybe'"),
        ('{"premise": "a", "label": 0}\n', "no field hypothesis or sentence2"),
        ('{"premise": "a"', "line 1 is not JSON"),
        ('\n["a", "b", 0]\n', r'line 2 is no JSON object but \["a", "b", 0\]'),
        ('{"premise": 1, "hypothesis": "b", "label": 0}\n', "line 1: premise is of type int, not text"),
        ('{"premise": "a", "hypothesis": null, "label": 0}\n', "line 1: hypothesis is of type NoneType, not text"),
        ("", "holds no labelled pair"),
    ],
)
def test_bad_mnli(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ProvenformerError, match=message):
        read_mnli(tmp_path / "a.jsonl")


def squad_file(path: Path, answer: str, start: int) -> Path:
    asked = {"id": "q", "question": "Who?", "answers": [{"text": answer, "answer_start": start}]}
    content = {"data": [{"title": "t", "paragraphs": [{"context": "Anna is here.", "qas": [asked]}]}]}
    path.write_text(json.dumps(content))
    return path


def test_squad(tmp_path: Path) -> None:
    assert read_squad(squad_file(tmp_path / "a.json", "Anna", 0)) == [
        Question("q", "Who?", "Anna is here.", ((0, "Anna"),))
    ]
    with pytest.raises(ProvenformerError, match="'Anna' is not at 3"):
        read_squad(squad_file(tmp_path / "b.json", "Anna", 3))
    (tmp_path / "c.json").write_text('{"data": [{}]}')
    with pytest.raises(ProvenformerError, match="not a SQuAD"):
        read_squad(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, "holds no question; give a file with at least one"),
        ({"data": [{"paragraphs": []}]}, "holds no question"),
        ([], "is not a SQuAD v1.1 file"),
        ({"data": [{"paragraphs": [{"context": ["a"], "qas": [{"id": "q", "question": "a"}]}]}]}, "q or its context"),
        ({"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "q", "question": 1}]}]}]}, "q or its context"),
    ],
)
def test_bad_squad(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(ProvenformerError, match=message):
        read_squad(tmp_path / "a.json")


def test_bad_squad_records(tmp_path: Path) -> None:
    record = {"id": "q", "question": "Who?", "context": "Anna."}
    for answers in ("Anna", {"answer_start": [0, 0], "text": ["Anna"]}):
        (tmp_path / "a.jsonl").write_text(json.dumps(record | {"answers": answers}))
        with pytest.raises(ProvenformerError, match=r"is not a SQuAD v1.1 file \((Type|Value)Error"):
            read_squad(Path(f"hf:{tmp_path}/a.jsonl"))


@pytest.mark.parametrize("read", [read_mnli, read_squad])
def test_a_damaged_gz(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"")[:10] + b"\xff" * 20)
    with pytest.raises(ProvenformerError, match="Error -3 while decompressing"):
        read(tmp_path / "a.json.gz")


def test_windows_cover_the_context_and_spans_come_back() -> None:
    """Every answer, wherever it is, lies whole in some window, and its token span is its characters again."""
    vocabulary = train_vocabulary(lambda: [CONTEXT], 120)
    answers = [f"Café of town number {i}" for i in range(40)]
    questions = [
        Question(str(i), "Which café? " * (1 + 20 * (i == 7)), CONTEXT, ((CONTEXT.index(answer + " "), answer),))
        for i, answer in enumerate(answers)
    ]
    found = question_windows(questions, vocabulary, seq_len=128, stride=48)
    assert found.windows.ids.shape[1] == 128
    right = set()
    for row, owner in enumerate(found.question):
        spans = found.spans[row]
        covered = spans[spans[:, 0] >= 0]
        assert covered[0, 0] < covered[-1, 1]
        if found.end[row]:
            assert CONTEXT[spans[found.start[row], 0] : spans[found.end[row], 1]] == answers[owner]
            right.add(owner)
    assert right == set(range(40))
    first = found.question == 0
    assert first.sum() > 5
    assert found.spans[first].max() == len(CONTEXT)
    with pytest.raises(ProvenformerError, match="lower stride"):
        question_windows(questions, vocabulary, seq_len=64, stride=32)


def test_the_best_span_goes_forward_and_is_short() -> None:
    length = 80
    spans = np.stack([np.arange(length) * 5, np.arange(length) * 5 + 4], axis=1).astype(np.int32)
    spans[:10] = -1
    start, end = np.zeros(length, np.float32), np.zeros(length, np.float32)
    start[3], end[12] = 99, 3  # 3 is not in the context
    start[50], end[20] = 5, 5  # backwards
    start[15], end[15 + LONGEST_ANSWER] = 6, 6  # one token too long
    assert best_span(start, end, spans) == (11.0, 15 * 5, 20 * 5 + 4)
