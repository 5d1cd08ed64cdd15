"""The linear baseline sees the overlap of premise and hypothesis when it may, and only then."""

import random

import pytest
from experiments.small.linear_baseline import accuracy, words

from provenformer.bert.data.mnli import SentencePair

NOUNS = ["dog", "cat", "tree", "house", "river", "stone", "bird", "fish", "road", "wind"]


def pairs(count: int, seed: int) -> list[SentencePair]:
    """The label is how many words of the hypothesis are new: none, one or both."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        label, nouns = chance.randrange(3), chance.sample(NOUNS, 6)
        hypothesis = nouns[1 + label : 3 + label]
        made.append(SentencePair(" ".join(nouns[:3]), " ".join(hypothesis), label))
    return made


def test_overlap_decides() -> None:
    train, dev = pairs(600, 0), pairs(300, 1)
    assert accuracy(train, dev, overlap=True) == 1.0
    assert accuracy(train, dev, overlap=False) == pytest.approx(1 / 3, abs=0.1)


def test_words() -> None:
    assert words("He didn't go, did he?") == ["he", "did", "n't", "go", ",", "did", "he", "?"]
