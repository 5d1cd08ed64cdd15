"""SQuAD v1.1: questions, the overlapping windows of their contexts, and spans of tokens as spans of characters."""

import json
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError
from provenformer.bert.data.documents import open_text
from provenformer.bert.data.records import Record, Records, is_table
from provenformer.bert.data.vocabulary import Vocabulary
from provenformer.bert.data.windows import Windows

LONGEST_QUESTION = 64  # tokens; the rest of a longer one is cut off, as in BERT
LONGEST_ANSWER = 30  # tokens of a predicted answer, as in BERT
BATCH = 500  # questions tokenised at once


@dataclass(frozen=True)
class Question:
    """A question about a context; every answer is a (first character, text) of the context."""

    id: str
    text: str
    context: str
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class QuestionWindows:
    """Every question once or, if its context is long, in several overlapping windows.

    question    (windows,): which question
    start, end  (windows,): token positions of the first answer; both 0, which is [CLS], where it is not in the window
    spans       (windows, positions, 2): characters of the context that a token stands for; -1 outside the context
    """

    windows: Windows
    question: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    spans: NDArray[np.int32]


def read_squad(path: Path) -> list[Question]:
    """The questions of an official JSON file, unpacked on the way if its name ends in .gz, or of a dataset's records."""
    try:
        questions = _of_records(path) if is_table(path) else _of_file(path)
    except ProvenformerError:
        raise
    except (OSError, EOFError, LookupError, TypeError, ValueError, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ProvenformerError(f"{path} is not a SQuAD v1.1 file ({reason}); give the official JSON") from None
    if not questions:
        raise ProvenformerError(f"{path} holds no question; give a file with at least one")
    return questions


def _of_file(path: Path) -> list[Question]:
    with open_text(path) as file:
        content = json.load(file)
    return [
        _question(paragraph["context"], asked, path)
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]


def _of_records(path: Path) -> list[Question]:
    return [_from_record(record, path) for record in Records.parse(path).read()]


def _from_record(record: Record, source: Path) -> Question:
    """Hugging Face keeps the answers to a question as two lists."""
    if missing := [name for name in ("id", "question", "context", "answers") if name not in record]:
        raise ProvenformerError(f"{source} has no column {missing[0]!r}, it has {', '.join(record)}; give SQuAD v1.1")
    answers = record["answers"]
    both = zip(answers["answer_start"], answers["text"], strict=True)
    asked = record | {"answers": [{"answer_start": start, "text": text} for start, text in both]}
    return _question(record["context"], asked, source)


def _question(context: Any, asked: dict[str, Any], path: Path) -> Question:
    if not isinstance(context, str) or not isinstance(asked["question"], str):
        raise ProvenformerError(f"{path}: question {asked['id']} or its context is not text; correct it")
    answers = tuple((answer["answer_start"], answer["text"]) for answer in asked["answers"])
    if not answers:
        raise ProvenformerError(f"{path}: question {asked['id']} has no answer; version 1.1 has one for each")
    for start, text in answers:
        if context[start : start + len(text)] != text:
            raise ProvenformerError(f"{path}: question {asked['id']}: {text!r} is not at {start}; correct answer_start")
    return Question(asked["id"], asked["question"], context, answers)


def question_windows(questions: list[Question], vocabulary: Vocabulary, seq_len: int, stride: int) -> QuestionWindows:
    """Windows of `seq_len` positions; neighbours share `stride` tokens of the context."""
    room = min(LONGEST_QUESTION, seq_len - 3 - 2 * stride)
    if stride < 0 or room < 4:
        remedy = "lower stride or raise seq_len"
        raise ProvenformerError(f"stride={stride} leaves {room} of {seq_len} positions for the question; {remedy}")
    # Encodings with their offsets are large: each batch becomes arrays before the next is made.
    parts = [
        _windows_of(questions[at : at + BATCH], at, vocabulary, seq_len, stride, room)
        for at in range(0, len(questions), BATCH)
    ]
    ids, second, lengths, *rest = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return QuestionWindows(Windows(ids, second, lengths), *rest)


def _windows_of(
    questions: list[Question], first: int, vocabulary: Vocabulary, seq_len: int, stride: int, room: int
) -> tuple[NDArray[Any], ...]:
    """The arrays of `QuestionWindows` for some questions, of which the first has this number."""
    texts = _shortened([question.text for question in questions], vocabulary, room)
    pairs = [(text, question.context) for text, question in zip(texts, questions, strict=True)]
    found = [
        (owner, encoding)
        for owner, whole in enumerate(vocabulary.encode_pairs(pairs, seq_len, stride))
        for encoding in (whole, *whole.overflowing)
    ]
    windows = Windows.of([encoding for _, encoding in found], vocabulary.pad, seq_len)
    spans = np.full((*windows.ids.shape, 2), -1, np.int32)
    for row, (_, encoding) in zip(spans, found, strict=True):
        context = np.array([sequence == 1 for sequence in encoding.sequence_ids])
        row[: len(encoding)][context] = np.array(encoding.offsets)[context]
    answers = [questions[owner].answers[0] for owner, _ in found]
    places = np.array([_token_span(span, at, at + len(text)) for span, (at, text) in zip(spans, answers, strict=True)])
    owners = np.array([first + owner for owner, _ in found])
    return windows.ids, windows.second, windows.lengths, owners, places[:, 0], places[:, 1], spans


def _shortened(texts: list[str], vocabulary: Vocabulary, tokens: int) -> list[str]:
    encodings = vocabulary.tokenizer.encode_batch(texts, add_special_tokens=False)
    return [
        text if len(encoding) <= tokens else text[: encoding.offsets[tokens - 1][1]]
        for text, encoding in zip(texts, encodings, strict=True)
    ]


def _token_span(spans: NDArray[np.int32], start: int, end: int) -> tuple[int, int]:
    """The tokens that cover these characters, or (0, 0) if the window does not hold all of them."""
    inside = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > start))
    whole = len(inside) > 0 and spans[inside[0], 0] <= start and spans[inside[-1], 1] >= end
    return (int(inside[0]), int(inside[-1])) if whole else (0, 0)


def best_span(
    start_scores: NDArray[np.float32], end_scores: NDArray[np.float32], spans: NDArray[np.int32]
) -> tuple[float, int, int]:
    """The score and the characters of the best answer in one window: start + end, at most `LONGEST_ANSWER` tokens."""
    allowed = spans[:, 0] >= 0
    start = np.where(allowed, start_scores, -np.inf)
    end = np.where(allowed, end_scores, -np.inf)
    scores = start[:, None] + end[None, :]
    best = int(np.argmax(np.where(_answer_band(len(scores)), scores, -np.inf)))
    first, last = divmod(best, scores.shape[1])
    return float(scores[first, last]), int(spans[first, 0]), int(spans[last, 1])


@lru_cache(maxsize=512)  # one for each length of a batch
def _answer_band(length: int) -> NDArray[np.bool_]:
    """(start, end): spans that go forward and are short enough, a band above the diagonal."""
    ahead = np.arange(length)[None, :] - np.arange(length)[:, None]
    return (ahead >= 0) & (ahead < LONGEST_ANSWER)
