"""A circuit as people read it: one node for every value that a channel holds, as text and as a drawing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from provenformer.anatomy.drawing import draw
from provenformer.anatomy.nodes import Node, listed
from provenformer.anatomy.words import upper

MARGIN = 2  # between columns of the text


@dataclass(frozen=True, eq=False, repr=False)
class Circuit:
    """Nodes in the order in which they are there: inputs, then layer by layer, then outputs. `print` shows them."""

    token_dim: int
    seq_len: int
    nodes: tuple[Node, ...]
    blocks: int
    heads: int
    units: int
    channels: tuple[str, ...]
    rejected: str | None = None  # why the checker gives no error bounds
    looks: dict[tuple[int, int], str] = field(
        default_factory=dict
    )  # what a head of a program looks at, by block and head

    def __getitem__(self, name: str) -> Node:
        """The node of that name."""
        return self._named[name]

    @cached_property
    def _named(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @property
    def summary(self) -> str:
        """Sizes, in a line."""
        parts = [(self.blocks, "block"), (self.heads, "head"), (self.units, "unit"), (len(self.channels), "channel")]
        sizes = ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in parts)
        return f"d={self.token_dim}, n={self.seq_len}, {sizes}"

    def to_svg(self, standalone: bool = True) -> str:
        """A drawing. For a file of its own it brings its colours for light and dark; inside a page it takes that page's."""
        return draw(self.nodes, f"The circuit as a graph: {self.summary}", standalone)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        rows = [("value", "made by", "channel", "what it is", "range", "error")]
        block: int | None = None
        for node in listed(self.nodes):
            if isinstance(node, str):
                rows.append((node, "", "", "", "", ""))
                continue
            if node.block not in (block, None):
                rows.append((f"block {node.block}", "", "", "", "", ""))
            block = node.block
            channel = "" if node.channel is None else str(node.channel)
            error = "" if node.error is None else upper(node.error.float64)
            rows.append((f"  {node.name}", node.by, channel, node.words, node.range, error))
        wide = [row for row in rows if row[1]]
        widths = [max(len(row[i]) for row in wide) + MARGIN for i in range(len(rows[0]) - 1)]
        lines = ["".join(cell.ljust(w) for cell, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows]
        notes = [] if self.rejected is None else [f"no error bounds: {self.rejected}"]
        return "\n".join([f"circuit: {self.summary}", *lines, *notes])

    def __repr__(self) -> str:
        return f"Circuit({self.summary})"
