"""SQuAD's exact match and F1, as its official evaluation script defines them."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """Lower case, without punctuation and articles, single blanks."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> float:
    """1 if the prediction equals one of the answers once normalised."""
    return float(any(normalized(prediction) == normalized(answer) for answer in answers))


def f1(prediction: str, answers: Iterable[str]) -> float:
    """The best F1 of the words that prediction and answer share, over the answers."""
    return max(_f1(normalized(prediction).split(), normalized(answer).split()) for answer in answers)


def _f1(prediction: list[str], answer: list[str]) -> float:
    shared = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * shared / (len(prediction) + len(answer)) if shared else 0.0
