"""The networks of the benchmark and the questions about them, from trivial to hard.

Every fact about f is one line of algebra, said in `why`, or interval arithmetic on f itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.bounds.helpers import attend
from provenformer.bounds.intervals import Interval
from provenformer.functions import targets
from provenformer.functions.targets import Target
from provenformer.instances.problems import Known, Question

EPS = 0.1  # of the layer norm
W_Q = np.array([[1.0, 0.5], [-0.5, 1.0]])
W_K = np.array([[0.5, -1.0], [1.0, 0.5]])
W_1 = np.array([[0.5, 1.0], [1.0, -0.5]])


def layer_norm(x: Any) -> Any:
    """Over tokens, without gain: z / sqrt(mean z^2 + EPS), z = x - mean x."""
    z = x - np.mean(x, axis=-1, keepdims=True)
    return z / np.sqrt(np.mean(np.square(z), axis=-1, keepdims=True) + EPS)


def transformer_block(x: Any) -> Any:
    """Softmax attention and a tanh layer, each with its skip."""
    h = x + attend(W_Q @ x, W_K @ x, x)
    return h + np.tanh(W_1 @ h)


@dataclass(frozen=True)
class Family:
    """A network, within what it is compiled, and what is asked about it, with margins from loose to tight."""

    name: str
    target: Target
    tolerance: float
    questions: tuple[Question, ...]
    margins: tuple[float, ...]


def families(largest: int) -> Iterator[Family]:
    """All families of at most `largest` tokens, small ones first."""
    wide, tight = 0.125, 0.0078125
    sizes = {n: [make for make, lengths in MAKERS.items() if n in lengths] for n in range(largest + 1)}
    for n, makers in sizes.items():
        for make in makers:
            yield make(n, (wide, tight))


def _attention(n: int, margins: tuple[float, ...]) -> Family:
    low, high = np.full((1, n), 0.25), np.full((1, n), 0.75)
    why = (
        "softmax attention gives weighted means of the tokens, which are at most 0.75; if all are 0.75, so is the mean"
    )
    question = Question("mean", low, high, (Known(0, ">=", 0.75),), Known(0, ">=", 0.75), high, why)
    return Family(f"attention-{n}", targets.get("softmax-mean", 1, n), 1e-3, (question,), margins)


def _maximum(n: int, margins: tuple[float, ...]) -> Family:
    low, high = np.full((1, n), 0.25), np.full((1, n), 0.75)
    first = low.copy()
    first[0, 0] = 0.75
    why = "a token less the largest token is at most 0, and 0 for the largest"
    question = Question("top", low, high, (Known(0, ">=", 0.0),), Known(0, ">=", 0.0), first, why)
    return Family(f"maximum-{n}", targets.get("relative-max", 1, n), 1e-3, (question,), margins)


def _sort(n: int, margins: tuple[float, ...]) -> Family:
    """Every other token is small: half of the outputs are, whatever the order."""
    small = np.arange(n) % 2 == 0
    low, high = np.where(small, 0.0, 0.625)[None], np.where(small, 0.375, 1.0)[None]
    count = int(small.sum())
    never = (Known(count - 1, ">=", 0.375), Known(count, "<=", 0.625))
    why = f"{count} tokens are at most 0.375 and the others at least 0.625, so output {count - 1} of the sorted ones is at most "
    why += f"0.375 and output {count} at least 0.625; if all small tokens are 0.375, output {count - 1} is"
    question = Question("halves", low, high, never, Known(count - 1, ">=", 0.375), high, why)
    return Family(f"sort-{n}", targets.get("sort", 1, n), 1e-3, (question,), margins)


def _layer_norm(n: int, margins: tuple[float, ...]) -> Family:
    low, high = np.zeros((1, n)), np.ones((1, n))
    one = low.copy()
    one[0, 0] = 1.0
    target = Target(layer_norm, token_dim=1, seq_len=n, equivariant=True, name="layer norm")
    most = float(np.nextafter(np.sqrt((n - 1) * 0.25 / (0.25 + EPS)), np.inf)) + 1e-12
    why = "z_1^2 <= (n - 1) v for deviations z with mean square v, v <= 1/4 on [0, 1], so |f| <= sqrt((n - 1) v / (v + eps)); "
    why += "the witness has one token 1 and the others 0"
    question = Question("large", low, high, (Known(0, ">=", most),), Known(0, ">=", value_at(target, one, 0)), one, why)
    return Family(f"layer-norm-{n}", target, 1e-3, (question,), margins)


def _block(n: int, margins: tuple[float, ...]) -> Family:
    target = Target(transformer_block, token_dim=2, seq_len=n, equivariant=True, name="transformer block")
    questions = []
    for name, radius in (("small", 2.0**-6), ("large", 2.0**-3)):
        middle = np.round(64 * np.random.default_rng(n).uniform(0.25, 0.75, size=(2, n))) / 64
        low, high = middle - radius, middle + radius
        corners = np.where(np.random.default_rng(0).random((64, 2, n)) < 0.5, low, high)
        witness = corners[int(np.argmax(target(corners)[:, 0, 0]))]
        why = "interval arithmetic on the formula bounds it on the box, and at the witness"
        never = Known(0, ">=", float(_interval(target, low, high).hi.ravel()[0]))
        reached = Known(0, ">=", value_at(target, witness, 0))
        questions.append(Question(name, low, high, (never,), reached, witness, why))
    return Family(f"block-{n}", target, 1e-2, tuple(questions), margins[-1:])


MAKERS = {_attention: (3, 8, 32), _maximum: (3, 8), _sort: (4, 8, 16), _layer_norm: (4, 8), _block: (3, 6)}
LARGEST = 32
SMALLEST = 3


def value_at(target: Target, x: FloatArray, index: int) -> float:
    """A number that the function is not below at x, in entry `index`."""
    return float(_interval(target, x, x).lo.ravel()[index])


def _interval(target: Target, low: FloatArray, high: FloatArray) -> Interval:
    found = target.fn(Interval(low[None], high[None]))
    if not isinstance(found, Interval):
        raise ProvenformerError(f"{target.name} leaves interval arithmetic; it cannot be part of the benchmark.")
    return found
