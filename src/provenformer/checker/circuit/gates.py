"""Channels that hold another channel's value at one token and 0 at all others, hundreds of them at once.

    sum over signs s of  s relu(s x_j + offset_j),   offset 0 at one token, and so low elsewhere that every unit is off

is x at that token: both signs together are, and the positive one alone where x >= 0 (docs/circuits-verify.md, Heads). What is
not exactly of this form is left to write_scaled, which proves the same of one channel at a time.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, Part
from provenformer.checker.circuit.precision import sum_rounding
from provenformer.checker.circuit.state import Channel, State
from provenformer.checker.circuit.units import arguments
from provenformer.networks.circuit import CircuitBlock, Claim

FEWEST = 8  # channels from which it pays


def write_gates(block: CircuitBlock, state: State, claims: dict[int, Claim]) -> dict[int, Channel]:
    """By channel: what it holds, where its units are gates that are open at one token."""
    candidates = [
        c for c, claim in sorted(claims.items()) if _is_one_token(claim, state) and _is_empty(block, state, c)
    ]
    if len(candidates) < FEWEST:
        return {}
    channels = np.array(candidates)
    tokens = np.array([int(np.argmax(claims[c].rows)) for c in candidates])  # type: ignore[arg-type]
    at, units = np.nonzero(block.W_2[channels])  # pairs of a channel and one of its units
    rows, signs = block.W_1[units], block.W_2[channels[at], units]
    varying = rows * state.varying
    source = np.argmax(varying != 0, axis=1)
    offsets, rounding = arguments(rows, block.b_1[units], state)
    if offsets.shape[1] == 1:  # the same at every token: these are no gates
        return {}
    plain = np.count_nonzero(varying, axis=1) == 1
    plain &= (varying[np.arange(len(units)), source] == signs) & (offsets[np.arange(len(units)), tokens[at]] == 0)
    plain &= _is_off_elsewhere(offsets, rounding, state.size[source], tokens[at])
    found, reach = {}, defaultdict[int, list[float]](list)  # which token it is makes no difference to that
    for i, c in enumerate(candidates):
        mine = np.flatnonzero(at == i) if len(at) != len(channels) else np.array([i])
        claim, s = claims[c], int(source[mine[0]])
        positive = signs[mine].tolist() == [1.0] and state.ranges.low[claim.atom] >= 0
        if not plain[mine].all() or not (positive or sorted(signs[mine].tolist()) == [-1.0, 1.0]):
            continue
        if (source[mine] != s).any() or not _holds(state.channels[s], claim.atom):
            continue
        off = state.errors[s] + rounding[mine].sum(axis=0)
        error = off + sum_rounding(len(mine) + 3, state.ranges.size(claim.atom) * (1 + 1e-9) + off)
        holds = Combination({claim.atom: Part(claim.rows, None)}, np.zeros(1))
        found[c] = Channel(holds, Error.absolute(error), False, np.asarray(claim.rows) != 0, reach[claim.atom])
    return found


def _is_one_token(claim: Claim, state: State) -> bool:
    """Whether a claim is the value of an atom at one token, and 0 elsewhere."""
    rows = claim.rows
    if rows is None or rows.ndim != 1 or state.ranges.uniform[claim.atom]:
        return False
    return bool(np.count_nonzero(rows) == 1 and rows.max() == 1.0)


def _is_empty(block: CircuitBlock, state: State, channel: int) -> bool:
    """Whether a channel was never written and holds 0, exactly, in every arithmetic; and no bias changes that."""
    before = state.channels[channel]
    nothing = not before.holds.parts and not before.holds.constant.any() and not before.error.plain.any()
    return bool(before.fixed and nothing and block.b_2[channel] == 0 and block.W_2[channel].any())


def _holds(channel: Channel, atom: int) -> bool:
    """Whether a channel holds an atom, and nothing else."""
    holds = channel.holds
    if holds.slack or holds.constant.any() or holds.parts.keys() != {atom}:
        return False
    part = holds.parts[atom]
    return part.mix is None and np.ndim(part.own) == 0 and part.own == 1.0


def _is_off_elsewhere(
    offsets: FloatArray, rounding: FloatArray, size: FloatArray, tokens: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Per unit: whether at all other tokens its argument is below 0, as executed, for every |x| <= size."""
    highest = (size + rounding).max(axis=1, keepdims=True) * (1 + 1e-9)
    off = offsets * (1 - 2.0**-50) + highest <= 0  # false where nothing is known
    off[np.arange(len(tokens)), tokens] = True
    return np.asarray(off.all(axis=1))
