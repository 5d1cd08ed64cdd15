"""The ids that name token and context: for many sequences at once, and for one sequence on its way (Lemma 6, docs/sum.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.sum.layers import token_codes
from provenformer.functions.grid import ContextKind, Grid, IntArray
from provenformer.look.states import CONTEXT, INPUT, State, column_ids, states
from provenformer.look.subject import Subject
from provenformer.networks.wide import WideNetwork

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
    if subject.construction == "paper":
        sweep = Sweep(subject.grid, subject.positional)
        return float(sweep.id_low), float(sweep.id_high)
    codes = token_codes(subject.grid, subject.positional)
    if subject.construction == "wide":
        return 0.0, float(subject.grid.count(subject.context_kind) * (int(codes.ids.max()) + 1))
    return float(codes.id_low), float(codes.id_high)


def path(subject: Subject, sequence: FloatArray) -> list[Moment]:
    """One sequence (d, n) after every stage; attention layers one by one, those that change nothing left out."""
    moments: list[Moment] = []
    previous: FloatArray | None = None
    for state in states(subject, sequence[None], every_attention_layer=True):
        if state.stage == CONTEXT and previous is not None and np.array_equal(previous, state.values):
            continue
        previous = state.values
        moments += (
            _wide_moments(subject, state) if isinstance(subject.network, WideNetwork) else [_moment(subject, state)]
        )
    return moments


def leaps(subject: Subject, sequence: FloatArray) -> Leaps:
    """Paper's construction: one sequence (d, n) through the sweep, layer by layer."""
    kept = [
        column_ids(subject, state.values)[0]
        for state in states(subject, sequence[None], every_attention_layer=True)
        if state.stage in ("quantise", CONTEXT)
    ]
    return Leaps(np.array(_windows(subject)), np.stack(kept))


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
    if not subject.positional and subject.construction != "wide":  # those two are certified on the box only
        outside = context_sequences(subject, valid[: 1 if len(valid) else 0])
        outside[:, 0, 0] = subject.support[1][0] + 0.5 * (subject.support[1][0] - subject.support[0][0])
        x = np.concatenate([x, outside])
        kinds += [OUTSIDE] * len(outside)
    return x, tuple(kinds), grid.count(kind), repeated


def _ids_at(subject: Subject, state: State) -> list[tuple[str, FloatArray]]:
    """What ids or codes a state holds, with a label; nothing where it holds numbers of another kind."""
    if state.stage not in ("quantise", "recode", "snap", CONTEXT):
        return []
    ids = column_ids(subject, state.values)
    if isinstance(subject.network, WideNetwork):
        first_codes = "recode" if subject.token_dim > 1 else "quantise"
        codes = [("recoded", state.values[:, subject.token_dim + 1])] if state.stage == first_codes else []
        label = {"quantise": "quantised", CONTEXT: "last layer"}.get(state.stage)
        return [*([(label, ids)] if label else []), *codes]
    if state.stage == CONTEXT and subject.construction == "paper":
        return [(_shift_label(subject, state.layers), ids)]
    return [({"quantise": "quantised", "recode": "recoded", CONTEXT: "last layer"}.get(state.stage, state.stage), ids)]


def _shift_label(subject: Subject, layers: int) -> str:
    """Which id a layer of the sweep shifts, from its place in the network."""
    stages = subject.network.stages
    before = sum(list(stages.values())[: list(stages).index(CONTEXT)])
    place, windows = layers - before - 1, _windows(subject)
    return f"shift at id {windows[place]}" if place < len(windows) else "last layer"


def _windows(subject: Subject) -> list[int]:
    """The ids that the sweep visits, in its order."""
    sweep = Sweep(_grid(subject), subject.positional)
    return sorted({start + i for start in sweep.column_offsets for i in range(sweep.grid.column_count)})


def _thin_out(count: int) -> list[int]:
    """Indices of the moments to keep: the first, the last, and at most MOST_SHIFTS between them."""
    middle = range(1, count - 1)
    if len(middle) > MOST_SHIFTS:
        middle_kept = np.unique(np.linspace(1, count - 2, MOST_SHIFTS).round().astype(int)).tolist()
    else:
        middle_kept = list(middle)
    return [0, *middle_kept, count - 1] if count > 1 else [0]


def _moment(subject: Subject, state: State) -> Moment:
    found = _ids_at(subject, state)
    label = state.stage
    if state.stage == CONTEXT and subject.construction == "paper":
        label = f"{state.stage}: {found[0][0]}"
    return Moment(label, state.layers, state.values[0], found[0][1][0] if found else None)


def _wide_moments(subject: Subject, state: State) -> list[Moment]:
    """The channels of a wide state that its block wrote, each with its name."""
    d, values = subject.token_dim, state.values[0]
    if state.stage == INPUT:
        return [Moment(INPUT, 0, values[:d], None)]
    if state.stage == "values":
        return [Moment("values: output", state.layers, values[-d:], None)]
    names = {"quantise": {"id": d}, "recode": {"code": d + 1}, CONTEXT: {"sum of codes": d + 2, "id": d}}[state.stage]
    if state.stage == "quantise" and d == 1:
        names["code"] = d + 1
    return [
        Moment(f"{state.stage}: {name}", state.layers, values[row : row + 1], values[row])
        for name, row in names.items()
    ]


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
