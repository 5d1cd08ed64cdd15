"""Units that add up curve(u_j + v_k) over all tokens k on one channel, from u and from channels that hold the v_k.

Every unit reads u and, of one token k alone, the atoms that v is made of. What the units of a token compute is a piecewise linear
function of z = u_j + v_k, and is compared with the curve; tokens whose units are alike are compared once
(docs/circuits-verify.md, Lemma 9).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.linear import Combination, of_lin
from provenformer.checker.circuit.precision import UNIT
from provenformer.checker.circuit.ranges import range_of
from provenformer.checker.circuit.state import Channel
from provenformer.checker.circuit.units import (
    Direction,
    Written,
    fitted,
    left_over,
    reading_error,
    rest_of,
    units_at,
    units_error,
)  # fmt: skip
from provenformer.symbols.graph import PairSum


@dataclass(frozen=True, eq=False)
class Split:
    """What the units read: slope * (direction @ state + v_k) each, k the unit's token, and what is left."""

    direction: FloatArray  # (D,): direction @ state is u, up to its error
    slopes: FloatArray  # (units,)
    tokens: NDArray[np.intp]  # (units,)
    error: FloatArray  # (arithmetics,): of v_k, for every k
    rest: FloatArray  # (arithmetics,): all else in any unit's argument, its rounding included


def write_pair_sum(written: Written, operation: PairSum, claim: Combination, before: Channel) -> Channel:
    """The units of every token against the curve; their deviations, and what all of them round, add up."""
    state, n = written.state, written.state.seq_len
    row, column = (of_lin(lin, state.ranges, n) for lin in (operation.row, operation.column))
    constants = (row.constant, column.constant, written.constant)
    if (written.offsets != written.offsets[:, :1]).any() or any(len(known) > 1 for known in constants):
        raise Rejected(f"{written.where}: what is known of its arguments differs from token to token")
    split = _split(written, row, column)
    (a, b), (c, d) = (range_of(written.graph, one, state.ranges) for one in (row, column))
    low, high = float(np.nextafter(a + c, -np.inf)), float(np.nextafter(b + d, np.inf))
    known = float(row.constant[0] + column.constant[0])
    error = reading_error(state, split.direction, row.without_constant()).plain + split.error + column.slack
    error = error + 2.0**-52 * abs(known)  # of z: the sum of two known numbers is rounded here
    reach = float(np.where(np.isfinite(error), error, 0.0).max()) * (1 + 1e-9)
    ends, constant = (low - reach, high + reach), float(written.constant[0])
    alike = replace(written, rounding=np.broadcast_to(split.rest, written.rounding.shape))
    worst, terms = np.zeros(len(UNIT)), np.zeros(len(UNIT))
    for units, count in _classes(written, split):
        direction = Direction(units, split.direction, Error.absolute(error), split.slopes[units], np.zeros(1))
        here = units_at(alike, direction, 0, known, constant / n, ends)
        found = units_error(here.units, operation.curve, (low, high), reach, direction.error)
        worst, terms = worst + count * (found.plain + here.error), terms + count * here.terms
    own = written.outer_rounding(terms) + left_over(before, state) + 2.0**-51 * abs(constant)
    return Channel(claim, Error.absolute(worst * (1 + 1e-12) + own))


def _split(written: Written, row: Combination, column: Combination) -> Split:
    """Of every unit one token's atoms apart from one direction of all other channels, which must be u."""
    state = written.state
    known = _known_tokens(written, column)
    channels = np.array(sorted(known), dtype=np.intp)
    tokens_of, atoms_of = (np.array([known[c][i] for c in channels.tolist()], dtype=np.intp) for i in (0, 1))
    taken, rows = written.varying[:, channels], written.varying.copy()
    rows[:, channels] = 0.0
    there = taken != 0
    if not len(channels) or not there.any(axis=1).all():
        raise Rejected(f"{written.where}: a unit reads no token of its column")
    tokens = tokens_of[np.argmax(there, axis=1)]
    if (there & (tokens_of != tokens[:, None])).any():
        raise Rejected(f"{written.where}: a unit reads more than one token of its column")
    direction, slopes = fitted(written, rows, written.coefficients, row.without_constant())
    rest, error = rest_of(state, rows, slopes[:, None] * direction), np.zeros(len(UNIT))
    for atom, part in column.parts.items():
        here = atoms_of == atom
        weights, wanted = (
            taken[:, here].sum(axis=1),
            slopes * part.own,
        )  # one channel each: nothing is rounded in the sum
        size, off = state.swing[channels[here]].max(axis=0), state.errors[channels[here]].max(axis=0)
        apart = np.abs(weights - wanted) + 2.0**-51 * (np.abs(weights) + np.abs(wanted))
        rest, error = rest + apart[:, None] * size, error + abs(part.own) * off
    return Split(direction, slopes, tokens, error * (1 + 1e-12), (rest + written.rounding).max(axis=0))


def _known_tokens(written: Written, column: Combination) -> dict[int, tuple[int, int]]:
    """By channel that the units read: token and atom, where it holds the value of one atom of the column at one token."""
    found: dict[int, tuple[int, int]] = {}
    if any(part.mix is not None or np.ndim(part.own) for part in column.parts.values()):
        raise Rejected(f"{written.where}: its column is not made of atoms at their own token")
    for channel in np.flatnonzero(written.varying.any(axis=0)).tolist():
        holds = written.state.channels[channel].holds
        if len(holds.parts) != 1 or holds.slack:
            continue
        ((atom, part),) = holds.parts.items()
        if (
            atom not in column.parts
            or np.any(part.own)
            or part.mix is None
            or part.mix.shape != (1, written.state.seq_len)
        ):
            continue
        tokens = np.flatnonzero(part.mix)
        if len(tokens) == 1 and part.mix[0, tokens[0]] == 1.0:
            found[channel] = int(tokens[0]), atom
    if len(set(found.values())) < len(found):
        raise Rejected(f"{written.where}: its units read a token of its column from two channels")
    return found


def _classes(written: Written, split: Split) -> list[tuple[NDArray[np.intp], int]]:
    """Units of one token, and how many tokens have units like these."""
    numbers = np.stack([split.slopes, written.offsets[:, 0], written.coefficients])
    order = np.lexsort((*numbers, split.tokens))
    counts = np.bincount(split.tokens, minlength=written.state.seq_len)
    if not counts.all():
        raise Rejected(f"{written.where}: no unit reads token {int(np.argmin(counts))} of its column")
    groups = np.split(order, np.cumsum(counts)[:-1])
    alike = Counter(numbers[:, units].tobytes() for units in groups)
    first = {numbers[:, units].tobytes(): units for units in reversed(groups)}
    return [(first[key], count) for key, count in alike.items()]
