"""The ids that name token and context: for many sequences at once, and for one sequence on its way (Lemma 6, docs/sum.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.functions.grid import ContextKind, Grid, IntArray
from provenformer.look.states import column_ids, states
from provenformer.look.subject import Subject
from provenformer.networks.base import CODE, ID, OUTPUT, State
from provenformer.networks.stages import CONTEXT, INPUT, QUANTISE, RECODE, SNAP

MOST_CONTEXTS = 48  # drawn; more lines hide one another
MOST_REPEATED = 24
MOST_SHIFTS = 8  # selective shifts drawn one by one
REPEATED, OUTSIDE, VALID = "repeated token", "token outside the box", "context with a value"


@dataclass(frozen=True)
class IdTable:
    """Ids of sequences at the moments of a network that change them."""

    moments: tuple[str, ...]
    ids: FloatArray  # (moments, sequences, n)
    kinds: tuple[str, ...]  # per sequence: VALID, REPEATED or OUTSIDE
    low: float  # [low, high) are the ids that the value layers answer to
    high: float
    contexts: int  # how many contexts with a value there are; the table may hold fewer
    repeated: int  # how many contexts have a repeated token and no value (paper); 0 where all have one
    moments_left_out: int = 0

    @property
    def inside(self) -> IntArray:
        """Per sequence, whether all its final ids lie in [low, high)."""
        return np.asarray(((self.ids[-1] >= self.low) & (self.ids[-1] < self.high)).all(axis=1))

    @property
    def valid(self) -> IntArray:
        """Per sequence, whether its context has a value."""
        return np.array([kind == VALID for kind in self.kinds])


@dataclass(frozen=True)
class Moment:
    """One sequence after some layers: what the numbers are, and the numbers, (rows, n)."""

    label: str
    layers: int
    values: FloatArray
    ids: FloatArray | None  # (n,) where the columns are ids or codes


@dataclass(frozen=True)
class Leaps:
    """The ids of one sequence before the sweep of selective shifts, after each, and after the last layer."""

    windows: IntArray  # (shifts,): the id that each shift looks for
    ids: FloatArray  # (shifts + 2, n)


def id_table(subject: Subject) -> IdTable:
    """Ids after quantising, after each selective shift (or recoding and the sum), and after the last attention layer."""
    x, kinds, contexts, repeated = _sequences(subject)
    moments = [(label, ids) for state in states(subject, x, True) for label, ids in _ids_at(subject, state)]
    kept = _thin_out(len(moments))
    labels, ids = zip(*(moments[i] for i in kept), strict=True)
    low, high = id_range(subject, ids[-1])
    left_out = len(moments) - len(kept)
    return IdTable(tuple(labels), np.stack(ids), kinds, low, high, contexts, repeated, left_out)


def id_range(subject: Subject, final_ids: FloatArray) -> tuple[float, float]:
    """[id_low, id_high): every id of a context with a value. A data set's range is that of the ids it has."""
    if subject.grid is None:
        return float(final_ids.min()), float(final_ids.max()) + 1.0
    low, high = subject.how.id_range(subject.grid, subject.positional)
    return float(low), float(high)


def path(subject: Subject, sequence: FloatArray) -> list[Moment]:
    """One sequence (d, n) after every stage; attention layers one by one, those that change nothing left out."""
    moments: list[Moment] = []
    previous: FloatArray | None = None
    for state in states(subject, sequence[None], every_attention_layer=True):
        if state.stage == CONTEXT and previous is not None and np.array_equal(previous, state.values):
            continue
        previous = state.values
        moments += _moments(subject, state)
    return moments


def leaps(subject: Subject, sequence: FloatArray) -> Leaps | None:
    """One sequence (d, n) through a sweep of attention layers, one by one; None where there is no sweep."""
    windows = _windows(subject)
    if not windows:
        return None
    kept = [
        column_ids(subject, state.values)[0]
        for state in states(subject, sequence[None], every_attention_layer=True)
        if state.stage in (QUANTISE, CONTEXT)
    ]
    return Leaps(np.array(windows), np.stack(kept))


def context_sequences(subject: Subject, contexts: IntArray) -> FloatArray:
    """The centres of the cubes of contexts (count, n), in the box: (count, d, n)."""
    grid = _grid(subject)
    cells = np.swapaxes(grid.columns(contexts), 1, 2)
    return subject.in_box((cells + 0.5) / grid.cells_per_axis)


def sample_contexts(subject: Subject, count: int) -> IntArray:
    """At most `count` contexts with a value, evenly spread over all of them."""
    return _spread_contexts(_grid(subject), subject.context_kind, count)


def _sequences(subject: Subject) -> tuple[FloatArray, tuple[str, ...], int, int]:
    """Sequences to draw, what each is, and how many contexts there are with a value and without one."""
    if subject.data is not None:
        inputs = subject.data[0]
        x = inputs[np.unique(np.linspace(0, len(inputs) - 1, MOST_CONTEXTS).astype(int))]
        return x, (VALID,) * len(x), len(inputs), 0
    grid, kind = _grid(subject), subject.context_kind
    valid = sample_contexts(subject, MOST_CONTEXTS)
    x, kinds, repeated = context_sequences(subject, valid), [VALID] * len(valid), 0
    if kind == "sets":
        repeated = grid.count("multisets") - grid.count("sets")
        bags = _spread_contexts(grid, "multisets", 16 * MOST_REPEATED)
        bags = bags[(np.diff(bags, axis=1) == 0).any(axis=1)]
        bags = bags[np.unique(np.linspace(0, len(bags) - 1, MOST_REPEATED).astype(int))] if len(bags) else bags
        x = np.concatenate([x, context_sequences(subject, bags)])
        kinds += [REPEATED] * len(bags)
    if not subject.positional and subject.how.drops_outside:
        outside = context_sequences(subject, valid[: 1 if len(valid) else 0])
        outside[:, 0, 0] = subject.support[1][0] + 0.5 * (subject.support[1][0] - subject.support[0][0])
        x = np.concatenate([x, outside])
        kinds += [OUTSIDE] * len(outside)
    return x, tuple(kinds), grid.count(kind), repeated


def _ids_at(subject: Subject, state: State) -> list[tuple[str, FloatArray]]:
    """What ids or codes a state holds, with a label; nothing where it holds numbers of another kind."""
    if state.stage not in (QUANTISE, RECODE, SNAP, CONTEXT):
        return []
    label = {QUANTISE: "quantised", RECODE: "recoded", CONTEXT: "last layer"}.get(state.stage, state.stage)
    if channels := subject.network.channels(state.stage):
        labels = {ID: label, CODE: "recoded"}
        return [(labels[name], state.values[:, rows][:, 0]) for name, rows in channels.items() if name in labels]
    if state.stage == CONTEXT:
        label = _attention_label(subject, state.layers)
    return [(label, column_ids(subject, state.values))]


def _attention_label(subject: Subject, layers: int) -> str:
    """Which id an attention layer looks for, from its place in the network."""
    stages = subject.network.stages
    before = sum(list(stages.values())[: list(stages).index(CONTEXT)])
    place, windows = layers - before - 1, _windows(subject)
    return f"shift at id {windows[place]}" if place < len(windows) else "last layer"


def _windows(subject: Subject) -> Sequence[int]:
    """The ids that attention layers visit one by one."""
    return () if subject.naming is None else subject.naming.windows


def _thin_out(count: int) -> list[int]:
    """Indices of the moments to keep: the first, the last, and at most MOST_SHIFTS between them."""
    middle = range(1, count - 1)
    if len(middle) > MOST_SHIFTS:
        middle_kept = np.unique(np.linspace(1, count - 2, MOST_SHIFTS).round().astype(int)).tolist()
    else:
        middle_kept = list(middle)
    return [0, *middle_kept, count - 1] if count > 1 else [0]


def _moments(subject: Subject, state: State) -> list[Moment]:
    """A state: the channels that its stage wrote, each with its name, or the whole of it."""
    values = state.values[0]
    if state.stage == INPUT:
        return [Moment(INPUT, 0, values[: subject.token_dim], None)]
    if channels := subject.network.channels(state.stage):
        return [
            Moment(f"{state.stage}: {name}", state.layers, values[rows], None if name == OUTPUT else values[rows][0])
            for name, rows in channels.items()
        ]
    found = _ids_at(subject, state)
    label = f"{state.stage}: {found[0][0]}" if state.stage == CONTEXT and _windows(subject) else state.stage
    return [Moment(label, state.layers, values, found[0][1][0] if found else None)]


def _grid(subject: Subject) -> Grid:
    if subject.grid is None:
        raise ValueError("a memorised data set has no grid of contexts")
    return subject.grid


def _spread_contexts(grid: Grid, kind: ContextKind, count: int) -> IntArray:
    """At most `count` contexts at evenly spread ranks; nothing is enumerated."""
    total = grid.count(kind)
    ranks = range(total) if total <= count else [i * (total - 1) // (count - 1) for i in range(count)]
    rows = [grid.unrank(rank, kind) for rank in ranks]
    return np.array(rows, dtype=np.int64).reshape(len(rows), grid.seq_len)
