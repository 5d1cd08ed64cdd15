"""What needs no network: logistic regression on words, for pairs of MNLI and SNLI.

python -m experiments.small.linear_baseline --dev mnli/dev_matched.jsonl.gz mnli/train.jsonl.gz [snli/train.jsonl.gz]

Twice: on words and pairs of words of the hypothesis alone, and with features of how it overlaps with the premise.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from provenformer.bert.data.mnli import LABELS, SentencePair, read_mnli

RAREST = 3  # training pairs that a feature must be in
PENALTY = 1.0  # times half the squared weights, beside the summed loss
STEPS = 300
NEGATIONS = {"no", "not", "never", "nothing", "nobody", "none", "neither", "nor", "n't", "without", "cannot"}


def words(text: str) -> list[str]:
    """Lower case; punctuation apart, and n't."""
    return re.findall(r"n't|\w+(?=n't)|\w+|[^\w\s]", text.lower())


def hypothesis_features(pair: SentencePair) -> Iterator[str]:
    """Words and pairs of words."""
    found = words(pair.hypothesis)
    yield from found
    yield from (f"{a} {b}" for a, b in pairwise(["<", *found, ">"]))


def overlap_features(pair: SentencePair) -> Iterator[str]:
    """How many words are new, which, and whether one side only is negated; numbers in steps."""
    premise, hypothesis = words(pair.premise), words(pair.hypothesis)
    known, bigrams = set(premise), set(pairwise(premise))
    new = [word for word in hypothesis if word not in known]
    yield from (f"new: {word}" for word in new)
    yield from (f"known: {word}" for word in hypothesis if word in known)
    yield f"share new: {round(10 * len(new) / max(1, len(hypothesis)))}"
    yield f"number new: {min(len(new), 10)}"
    new_pairs = sum(two not in bigrams for two in pairwise(hypothesis))
    yield f"share of new pairs: {round(10 * new_pairs / max(1, len(hypothesis) - 1))}"
    yield f"lengths: {min(5, len(premise) // 8)} {min(5, len(hypothesis) // 4)}"
    yield f"negated: {bool(NEGATIONS & known)} {not NEGATIONS.isdisjoint(hypothesis)}"


def accuracy(train: list[SentencePair], dev: list[SentencePair], overlap: bool) -> float:
    """On `dev`, of weights with the lowest penalised loss on `train`."""

    def features(pair: SentencePair) -> set[str]:
        return {*hypothesis_features(pair), *(overlap_features(pair) if overlap else ())}

    found = [features(pair) for pair in train]
    counts = Counter(name for names in found for name in names)
    column = {name: at for at, name in enumerate(sorted(name for name, count in counts.items() if count >= RAREST))}

    def matrix(rows: list[set[str]]) -> sparse.csr_array:
        kept = [[column[name] for name in sorted(names) if name in column] for names in rows]
        ends = np.cumsum([0, *map(len, kept)])
        return sparse.csr_array((np.ones(ends[-1]), np.concatenate(kept), ends), (len(rows), len(column)))

    x, labels = matrix(found), np.eye(len(LABELS))[[pair.label for pair in train]]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(len(column), len(LABELS))
        scores = x @ weights
        value = -(labels * log_softmax(scores, axis=1)).sum() + PENALTY / 2 * (flat @ flat)
        return float(value), (x.T @ (softmax(scores, axis=1) - labels)).ravel() + PENALTY * flat

    start = np.zeros(len(column) * len(LABELS))
    weights = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    said = (matrix([features(pair) for pair in dev]) @ weights.reshape(len(column), -1)).argmax(axis=1)
    return float(np.mean(said == [pair.label for pair in dev]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.small.linear_baseline", description=__doc__)
    parser.add_argument("train", type=Path, nargs="+", help="files of pairs")
    parser.add_argument("--dev", type=Path, required=True, help="file of pairs to count on")
    arguments = parser.parse_args()
    train = [pair for path in arguments.train for pair in read_mnli(path)]
    dev = read_mnli(arguments.dev)
    for name, overlap in (("hypothesis alone", False), ("with overlap", True)):
        print(f"{name}: {100 * accuracy(train, dev, overlap):.1f} % of {len(dev):,} pairs, {len(train):,} trained on")


if __name__ == "__main__":
    main()
