"""The value layers (Lemma 7): one bump per id, which turns the id into the output of its token and context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.look.context_ids import context_sequences, sample_contexts
from provenformer.look.states import CONTEXT, after, column_ids, from_stage
from provenformer.look.subject import Subject
from provenformer.networks.stages import VALUES
from provenformer.networks.thin import Network, ReluRun

PROFILES = 4  # ids drawn close up
HEIGHTS = 240  # ids drawn with their output


@dataclass(frozen=True)
class Bumps:
    """What the value layers make of ids and of numbers near them, in the first row."""

    ids: FloatArray  # (profiles,), increasing
    offsets: FloatArray  # (points,): distance from the id
    added: FloatArray  # (profiles, points): what the id's own layer adds, as a share of what it adds at the id
    all_ids: FloatArray  # (heights,), increasing
    heights: FloatArray  # (heights,): the output at the id itself
    total: int  # how many ids with a value there are; `all_ids` may be fewer


def bumps(subject: Subject) -> Bumps:
    """Move the columns of a few contexts up and down by less than one id, and run the layers from the values on."""
    if subject.grid is None:
        x, total = _data(subject)[: HEIGHTS // subject.seq_len + 1], 0
    else:
        x = context_sequences(subject, sample_contexts(subject, max(2, HEIGHTS // subject.seq_len)))
        total = subject.grid.column_layers(subject.context_kind)
    state = after(subject, x, CONTEXT)
    ids, first = np.unique(column_ids(subject, state).ravel(), return_index=True)
    columns = np.swapaxes(state, 1, 2).reshape(-1, state.shape[1])[first]
    chosen = np.unique(np.linspace(0, len(ids) - 1, PROFILES).round().astype(int))
    offsets = np.linspace(-1.0, 1.0, 161)
    near = np.repeat(columns[chosen][:, None], len(offsets), axis=1)
    near[:, :, subject.id_channel] += offsets
    added = np.stack([_added(subject, column, around) for column, around in zip(columns[chosen], near, strict=True)])
    return Bumps(ids[chosen], offsets, added, ids, _outputs(subject, columns), total or len(ids))


def _outputs(subject: Subject, columns: FloatArray) -> FloatArray:
    """The first output row for columns (count, d or D) that enter the value layers."""
    sequences = _as_sequences(subject, columns)
    return np.asarray(from_stage(subject, VALUES, sequences)[:, 0].ravel()[: len(columns)])


def _added(subject: Subject, column: FloatArray, around: FloatArray) -> FloatArray:
    """What the layer that answers to `column` adds to the first row of columns `around` it, relative to `column`."""
    columns = np.concatenate([column[None], around])
    if not isinstance(subject.network, Network):
        change = _outputs(subject, columns)
    else:
        layer = Network(subject.token_dim, subject.seq_len, (_answering_layer(subject.network, column),))
        sequences = _as_sequences(subject, columns)
        change = (layer(sequences) - sequences)[:, 0].ravel()[: len(columns)]
    return np.asarray(change[1:] / change[0] if change[0] else change[1:])


def _answering_layer(network: Network, column: FloatArray) -> ReluRun:
    """The value layer that turns `column` into its output: the first of the downward sweep with a unit on."""
    sweep = max((run for run in network.runs if isinstance(run, ReluRun) and run.stage == VALUES), key=len)
    read = float(sweep.W_1[0, 0] @ column)
    i = int(np.argmax(read + sweep.b_1.max(axis=1) > 0))
    part = slice(i, i + 1)
    return ReluRun(VALUES, sweep.W_1[part], sweep.b_1[part], sweep.W_2[part], sweep.b_2[part])


def _as_sequences(subject: Subject, columns: FloatArray) -> FloatArray:
    """Columns (count, d or D), n to a sequence; feed-forward layers look at each alone."""
    padded = np.concatenate([columns, np.repeat(columns[-1:], -len(columns) % subject.seq_len, axis=0)])
    return np.swapaxes(padded.reshape(-1, subject.seq_len, columns.shape[1]), 1, 2)


def _data(subject: Subject) -> FloatArray:
    if subject.data is None:
        raise ValueError("a network has a grid or data")
    return subject.data[0]
