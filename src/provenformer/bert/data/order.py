"""The order of examples: a function of (seed, step) alone, so that a resumed run sees what it would have seen."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def rows_of_step(seed: int, step: int, batch_size: int, examples: int) -> NDArray[np.int64]:
    """The examples of one step: every epoch is a new permutation, and a batch may span two epochs."""
    places = np.arange(step * batch_size, (step + 1) * batch_size, dtype=np.int64)
    epochs, within = np.divmod(places, examples)
    rows = np.empty_like(places)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        rows[here] = _permutation(seed, int(epoch), examples)[within[here]]
    return rows


@lru_cache(maxsize=2)  # the current epoch, and the next when a batch spans both
def _permutation(seed: int, epoch: int, examples: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(examples)


def uniform_draws(seed: int, step: int, places: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """(places, *shape) uniform numbers; those of a place in the batch do not depend on who computes them."""
    draws = np.empty((len(places), *shape))
    for row, place in zip(draws, places, strict=True):
        np.random.default_rng([seed, step, place]).random(out=row)
    return draws
