"""One input on its way through a network, layer by layer, in words and numbers for the page.

Both kinds of network are followed with the library's own layers: the modified one exactly (`ModifiedNetwork.trace`), the
softmax/ReLU one in float64 (`FloatNetwork.layer_states`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.explore.building import Built, columns_of
from provenformer.functions.grid import IntArray
from provenformer.look.bumps import added_share
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import FeedForward
from provenformer.networks.stages import INPUT, QUANTISE, RECODE, RESCALE, VALUES

BoolArray = NDArray[np.bool_]
COLLISION = 0.5  # ids are whole numbers; different tokens closer than this are not told apart
FULL = 0.999  # a bump that adds at least this share of its step has fired


@dataclass(frozen=True)
class Path:
    """The states of one input after every layer, the input itself first."""

    states: FloatArray  # (layers + 1, d, n)

    @cached_property
    def moved(self) -> BoolArray:
        """Which tokens each layer changes, (layers, n)."""
        return np.asarray((self.states[1:] != self.states[:-1]).any(axis=1))


def follow(built: Built, x: FloatArray, network: FloatNetwork | None) -> Path:
    """All layers on the input x (d, n): those of a softmax/ReLU network, or, exactly, of the modified one."""
    if network is not None:
        return Path(np.stack([state.values[0] for state in network.layer_states(x[None])]))
    states: list[FloatArray] = []
    last = None
    for step in built.in_cells.trace(x[None], every="layer"):
        states.append(states[-1] if step.num is last else step.floats()[0])  # most bumps leave the state as it is
        last = step.num
    return Path(np.stack(states))


def token_ids(built: Built, state: FloatArray) -> FloatArray:
    """u.x per token of states (..., d, n)."""
    return np.asarray(built.subject.id_direction @ state)


def moments_view(built: Built, path: Path) -> list[dict[str, Any]]:
    """What each layer does, and the state after it; value bumps that change nothing, of which there are many, are left out."""
    start, stop = built.bumps_start, built.bumps_start + len(built.bump_ids)
    notes = [(INPUT, _input_text(built), None), *layer_notes(built), *_clip_notes(built)]
    moved = np.concatenate([np.zeros_like(path.moved[:1]), path.moved])
    quiet = np.asarray(~moved.any(axis=1))
    quiet[: start + 1] = quiet[stop + 1 :] = False
    shown = np.flatnonzero(~quiet).tolist()
    ids = token_ids(built, path.states[shown])
    return [
        {
            "layer": i, "stage": notes[i][0], "text": notes[i][1], "window": notes[i][2],
            "ids": ids[at].tolist(), "state": columns_of(path.states[i]), "moved": moved[i].tolist(),
        }
        for at, i in enumerate(shown)
    ]  # fmt: skip


def bumps_view(built: Built, x: FloatArray, shown: Path, network: FloatNetwork | None) -> list[dict[str, Any]]:
    """Per token: the bump that should fire, the one that does, and the bump's curve around the id."""
    ids, got = token_ids(built, shown.states[built.bumps_start]), fired_bumps(built, shown)
    expected = bumps_at(built, ids if network is None else exact_ids(built, x))
    out = []
    for j, id_ in enumerate(ids.tolist()):
        right, fired = expected[j], got[j]
        drawn = right if right is not None else fired
        curve: list[tuple[float, float]] = []
        share = 0.0
        if drawn is not None:
            at = float(built.bump_ids[drawn])
            offsets = np.linspace(-1.5, 1.5, 121)
            curve = list(zip(offsets.tolist(), bump_shape(built, network, drawn, at + offsets).tolist(), strict=True))
            share = float(bump_shape(built, network, drawn, np.array([id_]))[0])
        out.append(
            {
                "id": id_, "at": None if drawn is None else float(built.bump_ids[drawn]), "curve": curve, "share": share,
                "expected": right is not None, "fired": fired is not None,
                "hit": fired == right and (right is None or share >= FULL),
            }
        )  # fmt: skip
    return out


def exact_ids(built: Built, x: FloatArray) -> FloatArray:
    """The ids that meet the bumps in the modified network: only the layers before them are followed."""
    *_, last = replace(built.in_cells, runs=built.in_cells.runs[: built.bumps[0]]).trace(x[None])
    return token_ids(built, last.floats()[0])


def bumps_at(built: Built, ids: FloatArray) -> list[int | None]:
    """Per token the bump at its id, of which there is at most one."""
    at = np.searchsorted(-built.bump_ids, -ids)
    return [
        int(i) if i < len(built.bump_ids) and built.bump_ids[i] == id_ else None for i, id_ in zip(at, ids, strict=True)
    ]


def fired_bumps(built: Built, path: Path) -> list[int | None]:
    """Per token the first value bump that changes it."""
    bumps = path.moved[built.bumps_start : built.bumps_start + len(built.bump_ids)]
    return [int(np.argmax(column)) if column.any() else None for column in bumps.T]


def bump_shape(built: Built, network: FloatNetwork | None, index: int, ids: FloatArray) -> FloatArray:
    """What a value layer adds for these ids, as a share of its step: that of a network, or of the modified one."""
    at = built.bump_ids[index]
    if network is None:
        phi = built.bumps[1].phi
        return np.where((ids - at >= float(phi.low)) & (ids - at < float(phi.high)), 1.0, 0.0)
    to_column = np.eye(1, built.compiled.grid.token_dim)  # the id of a column is u.x with u_1 = 1
    return added_share(network, at * to_column[0], ids[:, None] * to_column)


def collisions(built: Built, cells: IntArray, path: Path) -> list[tuple[int, int]]:
    """Pairs of tokens in different cells (or at different positions) whose ids are the same after the contextual map."""
    ids = token_ids(built, path.states[built.context_layers])
    positional = built.in_cells.positions is not None
    n = len(ids)
    return [
        (j, k)
        for j in range(n)
        for k in range(j + 1, n)
        if abs(ids[j] - ids[k]) < COLLISION and (positional or (cells[:, j] != cells[:, k]).any())
    ]


Note = tuple[str, str, tuple[float, float] | None]


@lru_cache(maxsize=8)
def layer_notes(built: Built) -> tuple[Note, ...]:
    """Stage, sentence and window of every layer of the modified network."""
    sentences = zip_longest(built.naming.attention_in_words(), built.naming.windows)
    notes: list[Note] = []
    for i, run in enumerate(built.in_cells.runs):
        if isinstance(run, FeedForward):
            notes += _feed_forward_notes(built, run, is_bumps=i == built.bumps[0])
        else:
            notes += [(run.stage, text, _around(window)) for text, window in islice(sentences, len(run))]
    return tuple(notes)


def _feed_forward_notes(built: Built, run: FeedForward, is_bumps: bool) -> Iterator[Note]:
    grid, renamings = built.compiled.grid, built.naming.renamings
    cells, d = grid.cells_per_axis, grid.token_dim
    for i in range(len(run)):
        if run.stage == RESCALE:
            yield run.stage, f"Count in cells: multiply {_row(run, i, d)} by {cells}.", None
        elif run.stage == QUANTISE and len(run) == 1:
            yield run.stage, f"Is {_row(run, i, d)} outside the box? Then send it far below 0.", None
        elif run.stage == QUANTISE:
            low = -float(run.b_1[np.array([i])][0])
            text = f"Cell {low:g}: {_row(run, i, d)} between {low:g} and {low + 1:g} becomes {low:g}."
            yield run.stage, text, (low, low + 1) if d == 1 else None
        elif run.stage == RECODE:
            token, name = renamings[i]
            text = f"Token id {token:,} is renamed {name:,}: all sums of {grid.seq_len} such names differ."
            yield run.stage, text, _around(token)
        elif is_bumps:
            id_ = float(built.bump_ids[i])
            yield run.stage, f"Value bump at id {id_:,.0f}: replace the id by its output.", _around(id_)
        elif run.stage == VALUES:
            yield run.stage, "Ids that belong to no context are sent to 0.", None
        else:
            yield run.stage, "Scale the output back.", None


def _around(id_: float | None) -> tuple[float, float] | None:
    """The window in which a layer takes a number for this id."""
    return None if id_ is None else (id_ - 0.5, id_ + 0.5)


def _row(run: FeedForward, i: int, token_dim: int) -> str:
    """Which number of a token a layer reads."""
    if token_dim == 1:
        return "a token"
    return f"row {int(np.argmax([w != 0 for w in run.W_1[i]])) + 1}"


def _clip_notes(built: Built) -> list[Note]:
    low, high = built.compiled.certificate.clip_low, built.compiled.certificate.clip_high
    return [("clip", f"Clip the output to [{a:.3g}, {b:.3g}].", None) for a, b in zip(low, high, strict=True)]


def _input_text(built: Built) -> str:
    if built.in_cells.positions is None:
        return "The input tokens."
    return "The input tokens, each moved to an interval of its own by its position."
