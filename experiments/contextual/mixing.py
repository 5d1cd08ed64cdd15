"""What theory says that a mixer cannot see, looked for in a whole model, trained or not."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from provenformer import contextual

FIRST_WORD = 5  # ids below are special tokens


def mixing(model: Any, length: int, seed: int = 0) -> dict[str, Any]:
    """Per layer how far a change of one token reaches; and whether the first layer tells a counter-example apart."""
    ids = np.random.default_rng(seed).integers(FIRST_WORD, model.config.vocab_size, size=(20, length))
    rows = contextual.reach(model, ids.tolist(), edits=6)
    return {
        "length": length,
        "reach": [[row.left, row.right] for row in rows],
        "everywhere": [row.everywhere for row in rows],
        "counter_example": same_mean(model),
    }


def same_mean(model: Any, seed: int = 0) -> float:
    """How far the first layer moves a token when its neighbours u + v, u - v become u + w, u - w; over the radius.

    v and w are as long as each other and have neither mean nor covariance with u, so a LayerNorm divides all four by the same
    number and their sum stays what it was. So a mean of tokens must give 0 (Section 5.2's counter-example in d dimensions).
    """
    first = deepcopy(model.base_model.encoder.layer[0]).double()
    size = model.config.hidden_size
    drawn = np.random.default_rng(seed).standard_normal((size, 5))
    basis, _ = np.linalg.qr(np.column_stack([np.ones(size), drawn]))
    token, u, v, w = np.sqrt(size) * basis.T[1:5]
    table = torch.tensor(np.stack([token, u + v, u - v, u + w, u - w]), dtype=torch.float64)

    def states(batch: np.ndarray) -> list[np.ndarray]:
        with torch.no_grad():
            return [first(table[torch.from_numpy(batch)]).numpy()]

    found = contextual.measure(states, [[0, 1, 2], [0, 3, 4]], modes=("words",), identify="nothing", line_tokens=0)
    return found.model.modes["words"][0].ratio
