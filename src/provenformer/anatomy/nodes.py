"""Nodes: the values that channels of a circuit hold, and what makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from provenformer.anatomy.words import number
from provenformer.base.arrays import FloatArray

Role = Literal["value", "query", "key"]
MOST_ALIKE = 8  # nodes of a layer that are listed although they do the same
SHORTEST_RUN = 5  # equal blocks, before those between the first and the last are folded


@dataclass(frozen=True)
class Error:
    """Bounds on |channel - value|, over the box and all tokens: of the weights in real arithmetic, and as executed."""

    exact: float
    float64: float
    float32: float


@dataclass(frozen=True)
class Edge:
    """A node reads another: as a value, or as part of the queries or keys of a head."""

    source: int  # index of a node
    role: Role = "value"


@dataclass(frozen=True, eq=False)
class Node:
    """A value: what it is in words, where it is made and kept, between what it lies and how far the channel may be from it.

    `layers` is how many layers have been applied when it is there: 0 for inputs, 2 b + 1 after the heads of block b, 2 b + 2
    after its units, one more than all for outputs. `heads` are those of the block that add to its channel, from 0; `units` is
    how many of its units do.
    """

    index: int
    name: str
    words: str
    kind: str  # input, output, or what operation it is
    family: str  # equal for nodes that do the same to different values
    layers: int
    channel: int | None  # None for outputs
    heads: tuple[int, ...] = ()
    units: int = 0
    low: float | None = None
    high: float | None = None
    error: Error | None = None
    reads: tuple[Edge, ...] = ()
    positions: bool = False  # whether weights that make it read positions
    atom: int | None = None
    rows: FloatArray | None = None  # the node is rows @ atom; None: the atom itself

    @property
    def block(self) -> int | None:
        """The block that makes it, from 0; None for inputs and outputs."""
        return None if self.kind in ("input", "output") else (self.layers - 1) // 2

    @property
    def by(self) -> str:
        """What makes it, in words."""
        if self.kind in ("input", "output"):
            return self.kind
        made = [f"head{'s' if len(self.heads) > 1 else ''} {', '.join(map(str, self.heads))}"] if self.heads else []
        if self.units or not made:
            made.append("bias" if not self.units else f"{self.units:,} unit{'s' if self.units > 1 else ''}")
        return " and ".join(made)

    @property
    def range(self) -> str:
        """[low, high]."""
        return "" if self.low is None or self.high is None else interval(self.low, self.high)


def interval(low: float, high: float) -> str:
    """[low, high]; an end that is 0 but for rounding is 0."""
    dust = 1e-10 * max(abs(low), abs(high))
    return "[{}, {}]".format(*(number(end if abs(end) > dust else 0.0) for end in (low, high)))


def repeats(nodes: Sequence[Node]) -> tuple[tuple[int, int], ...]:
    """Blocks (first, last) that do what the block before `first` does, and the one after `last` does again."""
    made: dict[int, list[tuple[int, str, str]]] = {}
    for node in nodes:
        if node.block is not None:
            made.setdefault(node.block, []).append((node.layers % 2, node.kind, node.family))
    blocks, runs, start = sorted(made), [], 0
    for i in range(1, len(blocks) + 1):
        if i == len(blocks) or sorted(made[blocks[i]]) != sorted(made[blocks[start]]):
            if i - start >= SHORTEST_RUN:
                runs.append((blocks[start + 1], blocks[i - 2]))
            start = i
    return tuple(runs)


def listed(nodes: Sequence[Node]) -> Iterator[Node | str]:
    """Nodes in order, with a line in place of blocks that repeat, and of nodes of a layer that are like many before them."""
    folded = {block: run for run in repeats(nodes) for block in range(run[0], run[1] + 1)}
    alike = Counter((node.layers, node.kind, node.family) for node in nodes)
    seen: Counter[object] = Counter()
    for node in nodes:
        run, kind = folded.get(node.block) if node.block is not None else None, (node.layers, node.kind, node.family)
        key = run or kind
        seen[key] += 1
        if run is not None:
            if seen[key] == 1:
                yield f"blocks {run[0]} to {run[1]}: as the block before"
        elif alike[kind] <= MOST_ALIKE + 1 or seen[key] <= MOST_ALIKE:
            yield node
        elif seen[key] == alike[kind]:
            yield f"and {alike[kind] - MOST_ALIKE} more like these, up to {node.name}"
