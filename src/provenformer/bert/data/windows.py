"""Pairs of texts as arrays of token ids, ready for batches."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding

from provenformer.bert.data.examples import Batch


@dataclass(frozen=True)
class Windows:
    """[CLS] first [SEP] second [SEP], one row each, padded to the same length."""

    ids: NDArray[np.int32]
    second: NDArray[np.bool_]  # whether a position is of the second text, its [SEP] included
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, encodings: list[Encoding], pad: int, seq_len: int) -> "Windows":
        lengths = np.array([len(encoding) for encoding in encodings], np.int32)
        ids = np.full((len(encodings), seq_len), pad, np.int32)
        second = np.zeros(ids.shape, np.bool_)
        for row, encoding in enumerate(encodings):
            ids[row, : lengths[row]] = encoding.ids
            second[row, : lengths[row]] = encoding.type_ids
        return cls(ids, second, lengths)

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """These rows, without the columns in which all of them are padding."""
        longest = int(self.lengths[rows].max())
        real = np.arange(longest) < self.lengths[rows, None]
        return {
            "input_ids": torch.from_numpy(self.ids[rows, :longest].astype(np.int64)),
            "attention_mask": torch.from_numpy(real.astype(np.int64)),
            "token_type_ids": torch.from_numpy(self.second[rows, :longest].astype(np.int64)),
        }
