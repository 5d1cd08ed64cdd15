"""What a drawing of a circuit shows: boxes in rows. Nodes that do the same stand in one box, blocks that repeat in one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provenformer.anatomy.nodes import Node, Role, interval, repeats
from provenformer.anatomy.words import upper

ALONE = 2  # nodes of a row that get a box each, however alike they are
NAMES = 4  # listed, before the rest is left to dots
GROUP_WORDS = {
    "input": "rows of the input",
    "output": "rows of the output",
    "attention": "means over the tokens with softmax weights",
    "product": "products",
    "comparison": "maxima and minima",
    "largest": "largest of all tokens",
    "mean": "means over the tokens",
    "permutation": "tokens permuted",
    "mixture": "mixtures of tokens",
    "scaled": "times a number by position",
    "pieces": "piecewise linear functions",
    "pairs": "means over pairs of tokens",
    "total": "sums over the tokens",
    "pick": "values of one token each",
}


@dataclass(frozen=True)
class Box:
    """One or several nodes of a row. `lines`: a title, what it is, and what is known of it."""

    nodes: tuple[int, ...]
    row: int
    by: str  # input, heads, units, output, or blocks for those that are folded
    title: str
    words: str
    facts: str


@dataclass(frozen=True)
class Boxes:
    """Boxes, names of the rows, and which box reads which: (source, target) -> roles."""

    boxes: tuple[Box, ...]
    rows: tuple[str, ...]
    edges: dict[tuple[int, int], frozenset[Role]]


def boxes_of(nodes: Sequence[Node]) -> Boxes:
    """Few enough boxes to be read, in the order of the layers."""
    folded = {block: run for run in repeats(nodes) for block in range(run[0], run[1] + 1)}
    rows: dict[object, list[Node]] = {}
    for node in nodes:
        rows.setdefault(folded.get(node.block, node.layers) if node.block is not None else node.layers, []).append(node)
    boxes: list[Box] = []
    names: list[str] = []
    for place, made in rows.items():
        if isinstance(place, tuple):
            names.append(f"blocks {place[0]} to {place[1]}")
            boxes.append(_repeated(nodes, place, made, len(names) - 1))
            continue
        names.append(_row_name(made[0]))
        boxes += [_box(group, len(names) - 1) for group in _groups(made)]
    of_node = {i: b for b, box in enumerate(boxes) for i in box.nodes}
    edges: dict[tuple[int, int], frozenset[Role]] = {}
    for node in nodes:
        for edge in node.reads:
            ends = (of_node[edge.source], of_node[node.index])
            if ends[0] != ends[1]:
                edges[ends] = edges.get(ends, frozenset()) | {edge.role}
    return Boxes(tuple(boxes), tuple(names), edges)


def _groups(nodes: list[Node]) -> list[list[Node]]:
    if len(nodes) <= ALONE:
        return [[node] for node in nodes]
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        groups.setdefault((node.kind, node.family, node.heads), []).append(node)
    return list(groups.values())


def _row_name(node: Node) -> str:
    if node.block is None:
        return node.kind
    return f"block {node.block}, {'heads' if node.layers % 2 else 'units'}"


def _made_by(node: Node) -> str:
    return node.kind if node.block is None else "heads" if node.layers % 2 else "units"


def _box(nodes: list[Node], row: int) -> Box:
    first, names = nodes[0], [node.name for node in nodes]
    title = ", ".join(names) if len(names) <= NAMES else f"{names[0]} … {names[-1]}"
    words = first.words if len(nodes) == 1 else _together(nodes)
    units = sum(node.units for node in nodes)
    by = first.by if len(nodes) == 1 or not units else f"{units:,} units"
    if first.block is not None:
        title += f" · {by}" + (" · positions" if any(node.positions for node in nodes) else "")
    return Box(tuple(node.index for node in nodes), row, _made_by(first), title, words, _facts(nodes))


def _together(nodes: list[Node]) -> str:
    first = nodes[0]
    if first.kind == "function":
        return f"{len(nodes)} times {first.family}"
    return GROUP_WORDS.get(first.kind, f"{len(nodes)} values")


def _repeated(every: Sequence[Node], run: tuple[int, int], nodes: list[Node], row: int) -> Box:
    before = [node for node in every if node.block == run[0] - 1]
    what = "; ".join(dict.fromkeys(GROUP_WORDS.get(node.kind, node.family) for node in before))
    count = run[1] - run[0] + 1
    title = f"{nodes[0].name} … {nodes[-1].name} · {count} blocks"
    return Box(tuple(n.index for n in nodes), row, "blocks", title, f"as the block before: {what}", _facts(nodes))


def _facts(nodes: list[Node]) -> str:
    lows = [node.low for node in nodes if node.low is not None]
    highs = [node.high for node in nodes if node.high is not None]
    errors = [node.error.float64 for node in nodes if node.error is not None]
    facts = [f"in {interval(min(lows), max(highs))}"] if lows and highs else []
    if errors and nodes[0].kind != "input":
        facts.append(f"error ≤ {upper(max(errors))}")
    return ", ".join(facts)
