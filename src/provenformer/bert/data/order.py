"""The order of examples: a function of (seed, step) alone, so that a resumed run sees what it would have seen."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

POOL = 50  # batches


def rows_of_step(seed: int, step: int, batch_size: int, examples: int) -> NDArray[np.int64]:
    """The examples of one step: every epoch is a new permutation, and a batch may span two epochs."""
    return rows_in_order(lambda epoch: permutation(seed, epoch, examples), step, batch_size, examples)


def rows_in_order(
    order: Callable[[int], NDArray[np.int64]], step: int, batch_size: int, examples: int
) -> NDArray[np.int64]:
    """The same where `order(epoch)` says which `examples` rows an epoch has."""
    places = np.arange(step * batch_size, (step + 1) * batch_size, dtype=np.int64)
    epochs, within = np.divmod(places, examples)
    rows = np.empty_like(places)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        rows[here] = order(int(epoch))[within[here]]
    return rows


def grouped(
    rows: NDArray[np.int64], lengths: NDArray[np.int32], seed: int, epoch: int, batch_size: int
) -> NDArray[np.int64]:
    """The rows of an epoch in batches of about one length, which need less padding: the batches come in random order.

    Rows are sorted by length within pools of `POOL` batches. A batch that the epoch before has begun is left as it is.
    """
    begun = -epoch * len(rows) % batch_size
    rest = rows[begun:]
    pools = [rest[at : at + POOL * batch_size] for at in range(0, len(rest), POOL * batch_size)]
    by_length = np.concatenate([rows[:0], *(pool[np.argsort(lengths[pool], kind="stable")] for pool in pools)])
    whole = len(by_length) // batch_size * batch_size
    batches = by_length[:whole].reshape(-1, batch_size)
    shuffled = np.random.default_rng([seed, epoch, POOL]).permutation(batches).ravel()
    return np.concatenate([rows[:begun], shuffled, by_length[whole:]])


def balanced(question: NDArray[np.int64], has_answer: NDArray[np.bool_], seed: int, epoch: int) -> NDArray[np.int64]:
    """Every question once: half of them in a window that has the answer, the other half in one that has not.

    Which half, and which of several windows, is drawn for every epoch. Questions whose windows all have the answer, or
    none of them, are in the half where they can be, so if one kind is rare there is more of the other.
    """
    random = np.random.default_rng([seed, epoch])
    windows = random.permutation(len(question))
    questions = np.arange(question.max() + 1)
    having, lacking = np.full((2, len(questions)), -1)
    having[question[windows[has_answer[windows]]]] = windows[has_answer[windows]]
    lacking[question[windows[~has_answer[windows]]]] = windows[~has_answer[windows]]
    # Those that have no choice come first, then as many of the others as make up a half.
    ranked = sorted(random.permutation(questions[lacking >= 0]), key=lambda one: having[one] >= 0)
    without = np.array(ranked[: max(len(questions) // 2, int((having < 0).sum()))], np.int64)
    rows = having.copy()
    rows[without] = lacking[without]
    return random.permutation(rows)


@lru_cache(maxsize=2)  # the current epoch, and the next when a batch spans both
def permutation(seed: int, epoch: int, examples: int) -> NDArray[np.int64]:
    """The usual order of an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(examples)


def uniform_draws(seed: int, step: int, places: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """(places, *shape) uniform numbers; those of a place in the batch do not depend on who computes them."""
    draws = np.empty((len(places), *shape))
    for row, place in zip(draws, places, strict=True):
        np.random.default_rng([seed, step, place]).random(out=row)
    return draws
