"""Next-sentence pairs, made as BERT makes them: within documents, half with a second segment from elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Sentences = list[list[int]]  # the ids of a document, sentence by sentence
SPECIAL_IN_PAIR = 3  # [CLS] first [SEP] second [SEP]
SHORT_FRACTION = 0.1  # so many pairs are cut to a random shorter length, for inputs shorter than full ones


@dataclass(frozen=True)
class Pair:
    """Two segments; `foreign` if the second is from another document."""

    first: list[int]
    second: list[int]
    foreign: bool


def make_pairs(documents: list[Sentences], seq_len: int, random: np.random.Generator) -> Iterator[Pair]:
    """Pairs that fill `seq_len` as well as whole sentences allow; every sentence is the start of some segment once."""
    for index, document in enumerate(documents):
        at = 0
        while at < len(document):
            room = seq_len - SPECIAL_IN_PAIR
            if random.random() < SHORT_FRACTION:
                room = int(random.integers(2, room + 1))
            end = _fill(document, at, room)
            split = at + int(random.integers(1, end - at)) if end - at > 1 else end
            foreign = split == end or bool(random.random() < 0.5)
            first = _joined(document[at:split])
            if foreign:
                other = documents[_another(len(documents), index, random)]
                start = int(random.integers(len(other)))
                # At least half the room, so that a long first segment leaves something to judge by.
                second = _joined(other[start : _fill(other, start, max(room - len(first), room // 2))])
                at = split  # the sentences not used are the next pair's
            else:
                second = _joined(document[split:end])
                at = end
            yield Pair(*_trim(first, second, room, random), foreign)


def _fill(document: Sentences, start: int, room: int) -> int:
    """The end of the shortest run of sentences from `start` that has `room` tokens, or of the document."""
    end, size = start, 0
    while end < len(document) and size < room:
        size += len(document[end])
        end += 1
    return end


def _joined(sentences: Sentences) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def _another(count: int, index: int, random: np.random.Generator) -> int:
    other = int(random.integers(count - 1))
    return other + (other >= index)


def _trim(first: list[int], second: list[int], room: int, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Cut the longer one, from a random mix of both ends, until the two fit."""
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    # Shrink the longer down to the other, then both alike.
    keep_first = min(len(first), max(room - len(second), (room + 1) // 2))
    return _cut(first, keep_first, random), _cut(second, room - keep_first, random)


def _cut(tokens: list[int], keep: int, random: np.random.Generator) -> list[int]:
    front = int(random.binomial(max(len(tokens) - keep, 0), 0.5))
    return tokens[front : front + keep]
