"""Symbolic arrays when numpy only moves entries: indexing, transposing, concatenating, choosing by a constant mask.

Every entry gets a number, numpy moves the numbers, and the result is read off them: an axis along which the *token* of an
entry changes is a token axis of the result. So no function that moves entries needs a rule of its own, and no axis is guessed
from its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Untraceable
from provenformer.symbols import trees
from provenformer.symbols.graph import Graph
from provenformer.symbols.linear import add, constant, mix
from provenformer.symbols.pairs import Pair, Scores, Waiting, expanded
from provenformer.symbols.ranges import hull
from provenformer.symbols.signs import Sign

Cells = NDArray[np.object_]
Ints = NDArray[np.int64]
MOST_SPLIT = 1024  # lines of tokens that windows or groups are split into
FAR = 800.0  # a score this far below the others weighs less than what numbers below the smallest normal one may add


class Movable(Protocol):
    """What moves needs of a symbolic array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    tokens: tuple[int, ...]
    cells: Cells
    values: FloatArray | None
    batch: int | None


@dataclass(frozen=True, eq=False)
class Entries:
    """For every entry of every part, in order: the part, its cell there, and its position along each token axis (or -1) and
    along the batch axis (or -1)."""

    part: Ints
    cell: Ints
    token: tuple[Ints, Ints]
    batch: Ints

    @classmethod
    def of(cls, parts: Sequence[Movable]) -> Entries:
        columns: list[list[Ints]] = [[], [], [], [], []]
        for number, x in enumerate(parts):
            size = int(np.prod(x.shape, dtype=np.int64))
            tokens = () if x.values is not None else x.tokens
            features = x.shape if x.values is not None else x.cells.shape
            index = np.indices(x.shape, sparse=False).reshape(len(x.shape), size)
            inner = [np.zeros_like(i) if axis in (*tokens, x.batch) else i for axis, i in enumerate(index)]
            columns[0].append(np.full(size, number))
            columns[1].append(
                np.ravel_multi_index(tuple(inner), features) if features else np.zeros(size, dtype=np.int64)
            )
            for k in (0, 1):
                columns[2 + k].append(index[tokens[k]] if len(tokens) > k else np.full(size, -1))
            columns[4].append(np.full(size, -1) if x.batch is None else index[x.batch])
        part, cell, first, second, batch = (np.concatenate(each) for each in columns)
        return cls(part, cell, (first, second), batch)


def moved(
    graph: Graph, parts: Sequence[Movable], move: Callable[..., Any]
) -> tuple[tuple[int, ...], tuple[int, ...], Cells, int | None]:
    """Shape, token axes, cells and batch axis of move(parts)."""
    starts = np.cumsum([0, *(int(np.prod(x.shape, dtype=np.int64)) for x in parts)])
    labels = [np.arange(a, b).reshape(x.shape) for x, a, b in zip(parts, starts, starts[1:], strict=False)]
    out = np.asarray(move(*labels))
    entries = Entries.of(parts)
    if all(x.batch is None for x in parts):
        return out.shape, *_moved_sequence(graph, parts, entries, out), None
    batch, one = _one_sequence(parts, labels, entries.batch[out], out)
    return out.shape, *_moved_sequence(graph, parts, entries, one), batch


def _one_sequence(parts: Sequence[Movable], labels: Sequence[Ints], batch: Ints, out: Ints) -> tuple[int, Ints]:
    """The batch axis of a result, and the entries of one sequence: those of every other are the same of another sequence."""
    axes = [axis for axis in range(out.ndim) if _varies(batch, axis)]
    if len(axes) != 1:
        raise Untraceable("the batch axis is cut, merged, repeated or indexed; write ... for it, as in x[..., 0, :].")
    place = np.arange(out.shape[axes[0]]).reshape(-1, *(1,) * (out.ndim - axes[0] - 1))
    if ((batch >= 0) & (batch != place)).any() or out.shape[axes[0]] != batch.max() + 1:
        raise Untraceable("sequences of the batch are exchanged or mixed; leave the first axis as it is.")
    alike = np.concatenate([np.ravel(_alike(x, numbers)) for x, numbers in zip(parts, labels, strict=True)])
    return axes[0], one_of_batch(out, alike[out], axes[0])


def _alike(x: Movable, labels: Ints) -> Ints:
    """A label for every entry, equal for those that differ only in the sequence, or are equal constants."""
    if x.batch is not None:
        return np.broadcast_to(np.take(labels, [0], axis=x.batch), labels.shape)
    first: dict[object, int] = {}
    keys = [cell.key for cell in x.cells.ravel()] if x.values is None else x.values.ravel().tolist()
    found = [first.setdefault(key, label) for key, label in zip(keys, labels.ravel().tolist(), strict=True)]
    return np.array(found, dtype=np.int64)


def one_of_batch(x: Any, keys: Any, axis: int) -> Any:
    """The first entry along the batch axis, kept with length 1; refused unless the keys are equal along it."""
    if not (keys == np.take(keys, [0], axis=axis)).all():
        raise Untraceable("the batch meets numbers that differ along it; leave the first axis as it is.")
    return np.take(x, [0], axis=axis)


def _moved_sequence(
    graph: Graph, parts: Sequence[Movable], entries: Entries, out: Ints
) -> tuple[tuple[int, ...], Cells]:
    """Token axes and cells of moved entries."""
    if any(len(x.tokens) == 2 for x in parts if x.values is None):
        return _moved_pairs(graph, parts, entries, out)
    axes = [axis for axis in range(out.ndim) if _varies(entries.token[0][out], axis)]
    if (
        len(axes) > 1
    ):  # windows, groups: any one of these axes may be that of the tokens, the longest takes the fewest cells
        axes = [max(axes, key=lambda axis: (out.shape[axis], axis))]
        if out.size // out.shape[axes[0]] > MOST_SPLIT:
            raise Untraceable(
                f"the token axis is split along several axes, into {out.size // out.shape[axes[0]]:,} lines "
                f"(limit {MOST_SPLIT:,}); keep one axis for the tokens."
            )
    flat = [None if x.values is not None else x.cells.ravel() for x in parts]
    if axes and _only_moved(parts, entries, out, axes[0]):
        lines = np.moveaxis(out, axes[0], -1)
        return (axes[0],), np.expand_dims(parts[0].cells.ravel()[entries.cell[lines][..., 0]], axes[0])
    lines = np.moveaxis(out, axes[0], -1) if axes else out[..., None]
    cells = np.empty(lines.shape[:-1], dtype=object)
    made: dict[bytes, Any] = {}
    for index in np.ndindex(cells.shape):
        line = lines[index]
        key = line.tobytes()
        if key not in made:
            made[key] = _line(graph, parts, flat, entries, line)
        cells[index] = made[key]
    return tuple(axes), np.expand_dims(cells, axes[0]) if axes else cells


def _varies(token: Ints, axis: int) -> bool:
    """Whether neighbours along an axis come from different tokens."""
    one, other = (
        np.take(token, range(token.shape[axis] - 1), axis=axis),
        np.take(token, range(1, token.shape[axis]), axis=axis),
    )
    return bool(((one >= 0) & (other >= 0) & (one != other)).any())


def _line(graph: Graph, parts: Sequence[Movable], flat: list[Any], entries: Entries, line: Ints) -> Any:
    """The combination along one line of entries: from one cell or several, and from constants."""
    source, cell, token = entries.part[line], entries.cell[line], entries.token[0][line]
    first = parts[source[0]]
    alone = (source == source[0]).all() and (cell == cell[0]).all()
    if alone and first.values is None:
        found = flat[source[0]][cell[0]]
        length = first.shape[first.tokens[0]] if first.tokens else 1
        if len(line) == length and ((token == np.arange(length)).all() or token[0] < 0):
            return found
        if len(line) == 1 and token[0] < 0:
            return found
    total = constant(np.zeros(len(line)))
    for number, x in enumerate(parts):
        here = source == number
        if x.values is not None:
            total = (
                add(graph, total, constant(np.where(here, x.values.ravel()[np.where(here, cell, 0)], 0.0)))
                if here.any()
                else total
            )
            continue
        for one in np.unique(cell[here]):
            at = np.flatnonzero(here & (cell == one))
            length = x.shape[x.tokens[0]] if x.tokens else 1
            choice = np.zeros((len(line), length))
            choice[at, np.maximum(token[at], 0)] = 1.0
            lin = flat[number][one]
            lin = lin.value(graph) if isinstance(lin, Waiting | Sign) else lin
            total = add(graph, total, mix(graph, expanded(lin, length), choice))
    return replace(total, rows=len(line))


def _only_moved(parts: Sequence[Movable], entries: Entries, out: Ints, axis: int) -> bool:
    """Whether axes of one array came and went and nothing else: then cells, what waits for a softmax too, stay as they are."""
    if len(parts) != 1 or parts[0].values is not None:
        return False
    lines = np.moveaxis(out, axis, -1)
    cell, token = entries.cell[lines], entries.token[0][lines]
    whole = lines.shape[-1] == parts[0].shape[parts[0].tokens[0]]
    return whole and bool(((token == np.arange(lines.shape[-1])) & (cell == cell[..., :1])).all())


def _moved_pairs(graph: Graph, parts: Sequence[Movable], entries: Entries, out: Ints) -> tuple[tuple[int, ...], Cells]:
    """Axes of pairs may be exchanged, and entries masked by a constant; they may not be cut."""
    n = graph.seq_len
    rows, columns = ([a for a in range(out.ndim) if _varies(token[out], a)] for token in entries.token)
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        raise Untraceable(
            "an axis of pairs of tokens is cut, merged or repeated; slice the tokens before forming pairs."
        )
    turned = rows[0] > columns[0]
    lines = np.moveaxis(
        out, (columns[0], rows[0]) if turned else (rows[0], columns[0]), (-2, -1)
    )  # (.., first, second)
    j, k = (entries.token[i][lines] for i in (0, 1))
    from_pair = j >= 0
    first, second = np.indices((n, n)) if lines.shape[-2:] == (n, n) else (None, None)
    if first is None or second is None:
        raise Untraceable("an axis of pairs of tokens is cut; slice the tokens before forming pairs.")
    want_j, want_k = (second, first) if turned else (first, second)
    if not ((~from_pair) | ((j == want_j) & (k == want_k))).all():
        raise Untraceable(
            "entries of pairs of tokens are moved to other pairs; only exchanging the two axes is available."
        )
    cells = np.empty(lines.shape[:-2], dtype=object)
    for index in np.ndindex(cells.shape):
        cells[index] = _pair_cell(graph, parts, entries, lines[index], from_pair[index], turned)
    axes = tuple(sorted((rows[0], columns[0])))
    return axes, np.expand_dims(cells, axes)


def _pair_cell(
    graph: Graph, parts: Sequence[Movable], entries: Entries, labels: Ints, from_pair: Any, turned: bool
) -> Any:
    numbers, cell = entries.part[labels], entries.cell[labels]
    number, at = int(numbers[from_pair][0]), int(cell[from_pair][0])
    if (numbers[from_pair] != number).any() or (cell[from_pair] != at).any():
        raise Untraceable("values of pairs of tokens from several arrays are mixed; combine them with + instead.")
    found: Pair = parts[number].cells.ravel()[at]
    found = found.turned if turned else found
    if from_pair.all():
        return found
    filled = np.zeros(labels.shape)
    for other in np.unique(numbers[~from_pair]):
        values, here = parts[other].values, ~from_pair & (numbers == other)
        if values is None:
            raise Untraceable(
                "np.where between two values of pairs of tokens is not available; give a constant for one."
            )
        filled[here] = values.ravel()[cell[here]]
    return Pair(trees.masked(found.tree, from_pair, filled), _masked(graph, found, from_pair, filled))


def _masked(graph: Graph, pair: Pair, kept: Any, filled: FloatArray) -> Scores | None:
    """Scores that are masked by something far below them: the mask is -inf. None where they are not."""
    scores = pair.form
    if not isinstance(scores, Scores):
        return None
    low, high = _between(graph, scores)
    least = low if scores.shifted is None else low - high  # less a maximum: above the lowest less the highest
    if float(filled[~kept].max()) > least - FAR - 1e-9 * (abs(low) + abs(high)):
        return None
    bias = np.where(kept, 0.0 if scores.bias is None else scores.bias, -np.inf)
    return replace(scores, bias=bias)


def _between(graph: Graph, scores: Scores) -> tuple[float, float]:
    """Bounds of scores before anything is taken off them, where no mask says -inf."""
    low = high = 0.0
    if scores.bias is not None:
        kept = scores.bias[np.isfinite(scores.bias)]
        low, high = float(kept.min()), float(kept.max())
    for row, column in scores.terms:
        (a, b), (c, d) = hull(graph, row), hull(graph, column)
        products = (a * c, a * d, b * c, b * d)
        low, high = low + min(products), high + max(products)
    return low, high
