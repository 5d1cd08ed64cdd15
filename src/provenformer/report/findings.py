"""Everything a report shows about a network, computed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray, require_sequences
from provenformer.base.errors import ProvenformerError
from provenformer.functions.distance import Distance
from provenformer.look.bumps import Bumps, bumps
from provenformer.look.context_ids import IdTable, Leaps, Moment, id_table, leaps, path
from provenformer.look.measured import measured_distance
from provenformer.look.sizes import StageSizes, Variant, stage_sizes, variants
from provenformer.look.slices import Curve, Quantised, Surface, curve, quantised, surface
from provenformer.look.subject import Subject

NUMBERS_SHOWN = 2000  # output numbers of a data set that are drawn


@dataclass(frozen=True)
class Findings:
    """The data behind page and figures. What does not apply to a network is None or empty."""

    subject: Subject
    sequence: FloatArray  # (d, n): the one that is followed
    moments: list[Moment]
    output: FloatArray  # (d, n): the network's
    wanted: FloatArray | None  # (d, n): the target's, where it is known
    contributions: dict[str, float]
    measured: Distance | None
    stages: StageSizes
    variants: list[Variant]
    ids: IdTable
    bumps: Bumps | None  # None where no context has a value: fewer grid tokens than places (paper)
    leaps: Leaps | None  # where attention layers visit ids one by one
    quantised: Quantised | None  # networks on a grid, as the next two
    curve: Curve | None
    surface: Surface | None
    data: tuple[FloatArray, FloatArray] | None  # given and computed outputs of a data set


def find(subject: Subject, sequence: FloatArray | None = None) -> Findings:
    """Look at a network; `sequence` (d, n) is the one to follow through it."""
    followed = subject.example() if sequence is None else one_sequence(sequence, subject.token_dim, subject.seq_len)
    on_grid = subject.grid is not None
    ids = id_table(subject)
    output = subject.network(followed[None])[0]
    return Findings(
        subject=subject,
        sequence=followed,
        moments=path(subject, followed),
        output=output,
        wanted=_wanted(subject, followed, given=sequence is not None),
        contributions=subject.certificate.contributions(),
        measured=measured_distance(subject),
        stages=stage_sizes(subject),
        variants=variants(subject),
        ids=ids,
        bumps=bumps(subject) if ids.valid.any() else None,
        leaps=leaps(subject, followed),
        quantised=quantised(subject) if on_grid else None,
        curve=curve(subject) if on_grid else None,
        surface=surface(subject) if on_grid else None,
        data=_data(subject),
    )


def one_sequence(given: FloatArray, token_dim: int, seq_len: int) -> FloatArray:
    """The only sequence (d, n) of an array, or one line that says what else it is."""
    shape = (token_dim, seq_len)
    several = require_sequences(given, *shape).reshape(-1, *shape)
    if len(several) != 1:
        raise ProvenformerError(f"a report follows one sequence and got {len(several)}; give one of shape {shape}.")
    followed: FloatArray = several[0]
    return followed


def _wanted(subject: Subject, sequence: FloatArray, given: bool) -> FloatArray | None:
    if subject.target is not None:
        return np.asarray(subject.target(sequence[None])[0])
    if subject.data is not None and not given:
        return np.asarray(subject.data[1][0])
    return None


def _data(subject: Subject) -> tuple[FloatArray, FloatArray] | None:
    if subject.data is None:
        return None
    pairs = max(1, NUMBERS_SHOWN // (subject.token_dim * subject.seq_len))
    inputs, outputs = (part[:pairs] for part in subject.data)
    return outputs, subject.network(inputs)
