"""Dynamic masking: 15 % of the tokens are targets; of these 80 % become [MASK], 10 % a random word, 10 % stay."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provenformer.bert.data.vocabulary import Vocabulary

NO_TARGET = -100
TO_MASK, TO_RANDOM = 0.8, 0.9  # borders of the 80/10/10 split
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Masking:
    """Which share of the tokens are targets, and whether the pieces of a word are targets together."""

    vocabulary: Vocabulary
    fraction: float = 0.15
    whole_word: bool = False

    def apply(self, ids: Ids, draws: NDArray[np.float64]) -> tuple[Ids, Ids]:
        """Masked ids and labels, (rows, positions); `draws` are uniform, (rows, 3, positions).

        Each row gets round(fraction * its tokens) targets, at least one; whole words may add the rest of the last one.
        """
        special = np.isin(ids, [self.vocabulary.pad, self.vocabulary.cls, self.vocabulary.sep])
        key = draws[:, 0]
        if self.whole_word:
            positions = np.arange(ids.shape[1])
            starts = np.where(self.vocabulary.continues_word[ids], 0, positions)
            key = np.take_along_axis(key, np.maximum.accumulate(starts, axis=1), axis=1)
        key = np.where(special, np.inf, key)  # the lowest keys are the targets
        tokens = (~special).sum(axis=1)
        budget = np.maximum(np.rint(self.fraction * tokens).astype(np.int64), 1)
        limit = np.take_along_axis(np.sort(key, axis=1), budget[:, None] - 1, axis=1)
        target = (key <= limit) & ~special
        words = self.vocabulary.ordinary_ids
        drawn = words[(draws[:, 2] * len(words)).astype(np.int64)]
        replaced = np.where(draws[:, 1] < TO_MASK, self.vocabulary.mask, np.where(draws[:, 1] < TO_RANDOM, drawn, ids))
        return np.where(target, replaced, ids), np.where(target, ids, NO_TARGET)
