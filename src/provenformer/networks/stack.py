"""What all networks of runs share: counting layers, stages, blocks and parameters, and finding a single layer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError


class LayerStack:
    """A sequence of runs; a mixin for networks that have `runs`, `token_dim`, `seq_len`, `hidden_dim` and `positions`."""

    token_dim: int
    seq_len: int
    runs: Any  # a tuple of runs, each with `stage`, `attends` and a length
    positions: Any
    hidden_dim: Any

    heads = 2
    head_dim = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """(h, m, r)."""
        return (self.heads, self.head_dim, self.hidden_dim)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(run) for run in self.runs))

    @property
    def layers(self) -> int:
        """How many layers there are, of either kind."""
        return self._ends[-1] if self._ends else 0

    @property
    def stages(self) -> dict[str, int]:
        """Layers per stage, in order."""
        out: dict[str, int] = {}
        for run in self.runs:
            out[run.stage] = out.get(run.stage, 0) + len(run)
        return out

    @property
    def blocks(self) -> int:
        """Blocks t^(h,m,r): an attention layer and the feed-forward layer after it share one."""
        runs = [run for run in self.runs if len(run)]
        return self.layers - sum(int(a.attends and not b.attends) for a, b in pairwise(runs))

    @property
    def parameters(self) -> int:
        """Parameters of that many full blocks, and of the positions."""
        per_block = block_parameters(self.token_dim, *self.shape)
        return self.blocks * per_block + (0 if self.positions is None else self.token_dim * self.seq_len)

    def __repr__(self) -> str:
        heads, size, width = self.shape
        sizes = f"d={self.token_dim}, n={self.seq_len}, {self.blocks:,} blocks, h={heads}, m={size}, r={width}"
        return f"{type(self).__name__}({sizes})"

    def _find(self, index: int) -> tuple[Any, int]:
        """The run that holds a layer, and the layer's place in it."""
        if not 0 <= index < self.layers:
            raise ProvenformerError(f"layer {index} does not exist; the network has layers 0..{self.layers - 1}.")
        at = bisect_right(self._ends, index)
        return self.runs[at], index - (self._ends[at] - len(self.runs[at]))


def block_parameters(token_dim: int, heads: int, head_dim: int, hidden_dim: int) -> int:
    """Parameters of one block: W_O, W_V, W_K, W_Q, b_Q per head; W_1, b_1, W_2, b_2."""
    return heads * head_dim * (4 * token_dim + 1) + hidden_dim * (2 * token_dim + 1) + token_dim


def first_where(holds: Callable[[slice], NDArray[np.bool_]], start: int, stop: int) -> int:
    """The first layer from `start` on for which it holds, or `stop`. Looks twice as far each time: neither a layer that is near
    nor one that is far costs much more than it must."""
    reach = 1
    while start < stop:
        found = np.flatnonzero(holds(slice(start, min(stop, start + reach))))
        if found.size:
            return start + int(found[0])
        start, reach = start + reach, 2 * reach
    return stop
