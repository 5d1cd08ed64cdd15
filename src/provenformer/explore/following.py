"""One input on its way through a network, layer by layer, in words and numbers for the page.

Both kinds of network are followed with the library's own layers: the modified one exactly (`ModifiedNetwork.trace`), the
softmax/ReLU one in float64 (`network.feed_forward`, `network.attention`, one layer at a time).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.constructions.paper import context
from provenformer.constructions.sum.layers import TokenCodes
from provenformer.explore.building import Built, Relaxed, columns_of
from provenformer.functions.grid import IntArray
from provenformer.networks.modified import Attention, FeedForward
from provenformer.networks.stages import QUANTISE, RESCALE, VALUES
from provenformer.networks.thin import FloatRun, Network, ReluRun, SoftmaxRun, attention, feed_forward

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


def follow(built: Built, x: FloatArray, network: Network | None) -> Path:
    """All layers on the input x (d, n): those of a softmax/ReLU network, or, exactly, of the modified one."""
    return Path(np.stack(list(_exact_states(built, x) if network is None else _float_states(network, x))))


def _exact_states(built: Built, x: FloatArray) -> Iterator[FloatArray]:
    for step in built.in_cells.trace(x[None], every="layer"):
        yield step.floats()[0]


def _float_states(network: Network, x: FloatArray) -> Iterator[FloatArray]:
    tokens = x if network.positions is None else x + network.positions
    yield tokens
    for run in network.runs:
        for i in range(len(run)):
            one = _single(run, i)
            tokens = feed_forward(one, tokens) if isinstance(one, ReluRun) else attention(one, tokens[:, None])[:, 0]
            yield tokens


def _single(run: FloatRun, i: int) -> FloatRun:
    """A run of only the i-th layer."""
    one = slice(i, i + 1)
    if isinstance(run, ReluRun):
        return ReluRun(run.stage, run.W_1[one], run.b_1[one], run.W_2[one], run.b_2[one])
    return SoftmaxRun(run.stage, run.W_O[one], run.W_V[one], run.W_K[one], run.W_Q[one], run.b_Q[one])


def token_ids(built: Built, state: FloatArray) -> FloatArray:
    """u.x per token of states (..., d, n)."""
    return np.asarray(np.array(built.compiled.grid.id_vector, dtype=np.float64) @ state)


def moments_view(built: Built, path: Path) -> list[dict[str, Any]]:
    """What each layer does, and the state after it; value bumps that change nothing, of which there are many, are left out."""
    start, stop = built.bumps_start, built.bumps_start + len(built.bump_ids)
    notes = [("input", _input_text(built), None), *layer_notes(built), *_clip_notes(built)]
    moved = np.concatenate([np.zeros_like(path.moved[:1]), path.moved])
    shown = [i for i in range(len(path.states)) if not start < i <= stop or moved[i].any()]
    ids = token_ids(built, path.states[shown])
    return [
        {
            "layer": i, "stage": notes[i][0], "text": notes[i][1], "window": notes[i][2],
            "ids": ids[at].tolist(), "state": columns_of(path.states[i]), "moved": moved[i].tolist(),
        }
        for at, i in enumerate(shown)
    ]  # fmt: skip


def bumps_view(built: Built, x: FloatArray, shown: Path, relaxed: Relaxed | None) -> list[dict[str, Any]]:
    """Per token: the bump that should fire, the one that does, and the bump's curve around the id."""
    expected, got = expected_bumps(built, x), fired_bumps(built, shown)
    ids = token_ids(built, shown.states[built.bumps_start])
    out = []
    for j, id_ in enumerate(ids.tolist()):
        right, fired = expected[j], got[j]
        drawn = right if right is not None else fired
        curve: list[tuple[float, float]] = []
        share = 0.0
        if drawn is not None:
            at = float(built.bump_ids[drawn])
            offsets = np.linspace(-1.5, 1.5, 121)
            curve = list(zip(offsets.tolist(), bump_shape(built, relaxed, drawn, at + offsets).tolist(), strict=True))
            share = float(bump_shape(built, relaxed, drawn, np.array([id_]))[0])
        out.append(
            {
                "id": id_, "at": None if drawn is None else float(built.bump_ids[drawn]), "curve": curve, "share": share,
                "expected": right is not None, "fired": fired is not None,
                "hit": fired == right and (right is None or share >= FULL),
            }
        )  # fmt: skip
    return out


def expected_bumps(built: Built, x: FloatArray) -> list[int | None]:
    """Per token the bump at its exact id, of which there is at most one: only the layers before the bumps are followed."""
    *_, last = replace(built.in_cells, runs=built.in_cells.runs[: built.bumps[0]]).trace(x[None])
    ids = token_ids(built, last.floats()[0])
    at = np.searchsorted(-built.bump_ids, -ids)
    return [
        int(i) if i < len(built.bump_ids) and built.bump_ids[i] == id_ else None for i, id_ in zip(at, ids, strict=True)
    ]


def fired_bumps(built: Built, path: Path) -> list[int | None]:
    """Per token the first value bump that changes it."""
    bumps = path.moved[built.bumps_start : built.bumps_start + len(built.bump_ids)]
    return [int(np.argmax(column)) if column.any() else None for column in bumps.T]


def bump_shape(built: Built, relaxed: Relaxed | None, index: int, ids: FloatArray) -> FloatArray:
    """What a value layer adds for these ids, as a share of its step."""
    place, run = built.bumps
    relu = relaxed.network.runs[place] if relaxed is not None and isinstance(relaxed.network, Network) else None
    if not isinstance(relu, ReluRun):
        at = ids - built.bump_ids[index]
        return np.where((at >= float(run.phi.low)) & (at < float(run.phi.high)), 1.0, 0.0)
    row = int(np.argmax(np.abs(relu.W_2[index, :, 0])))
    weights = relu.W_2[index, row]

    def height(t: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(t[:, None] + relu.b_1[index], 0.0) @ weights)

    return height(ids) / height(built.bump_ids[index : index + 1])


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
    return tuple(note for i, run in enumerate(built.in_cells.runs) for note in _run_notes(built, i, run))


def _run_notes(built: Built, index: int, run: FeedForward | Attention) -> Iterator[Note]:
    grid = built.compiled.grid
    cells, d = grid.cells_per_axis, grid.token_dim
    for i in range(len(run)):
        if isinstance(run, Attention):
            yield run.stage, *_attention_note(built, run, i)
        elif run.stage == RESCALE:
            yield run.stage, f"Count in cells: multiply {_row(run, i, d)} by {cells}.", None
        elif run.stage == QUANTISE and len(run) == 1:
            yield run.stage, f"Is {_row(run, i, d)} outside the box? Then send it far below 0.", None
        elif run.stage == QUANTISE:
            low = -float(run.b_1[np.array([i])][0])
            text = f"Cell {low:g}: {_row(run, i, d)} between {low:g} and {low + 1:g} becomes {low:g}."
            yield run.stage, text, (low, low + 1) if d == 1 else None
        elif run.stage == "recode" and isinstance(built.naming, TokenCodes):
            token, name = _renaming(built.naming, i)
            text = f"Token id {token:,} is renamed {name:,}: all sums of {grid.seq_len} such names differ."
            yield run.stage, text, (token - 0.5, token + 0.5)
        elif index == built.bumps[0]:
            id_ = float(built.bump_ids[i])
            yield run.stage, f"Value bump at id {id_:,.0f}: replace the id by its output.", (id_ - 0.5, id_ + 0.5)
        elif run.stage == VALUES:
            yield run.stage, "Ids that belong to no context are sent to 0.", None
        else:
            yield run.stage, "Scale the output back.", None


def _renaming(naming: TokenCodes, i: int) -> tuple[int, int]:
    """Which id the i-th recoding layer reads, and what it writes: the layers go downwards."""
    ids, codes = naming.ids.ravel(), naming.codes.ravel()
    at = np.argsort(-ids)[i]
    return int(ids[at]), -int(codes[at])


def _attention_note(built: Built, run: Attention, i: int) -> tuple[str, tuple[float, float] | None]:
    if isinstance(built.naming, TokenCodes):
        text = f"One uniform attention layer: add {built.naming.gain:,} times the sum of all names to every token."
        return text, None
    bias = [float(b) for b in run.b_Q[i]]
    if len(run) == 1:
        return f"Last shift: add {built.naming.final_gain:,} times the largest id to every token.", None
    low, high = -bias[0], -bias[1]
    text = f"Selective shift at id {(low + high) / 2:g}: there add {built.naming.gain} x (largest id - smallest id)."
    return text, (low, high)


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


def context_range(built: Built) -> tuple[float, float]:
    """[id_low, id_high): where the ids of contexts lie."""
    naming: context.Sweep | TokenCodes = built.naming
    return float(naming.id_low), float(naming.id_high)
