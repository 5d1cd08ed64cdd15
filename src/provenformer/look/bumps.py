"""The value layers (Lemma 7): one bump per id, which turns the id into the output of its token and context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.look.context_ids import context_sequences, sample_contexts
from provenformer.look.states import after, column_ids
from provenformer.look.subject import Subject
from provenformer.networks.base import FloatNetwork
from provenformer.networks.stages import CONTEXT, VALUES

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
    near[:, :, subject.network.id_channel] += offsets
    added = [added_share(subject.network, column, around) for column, around in zip(columns[chosen], near, strict=True)]
    return Bumps(ids[chosen], offsets, np.stack(added), ids, _continued(subject.network, columns), total or len(ids))


def added_share(network: FloatNetwork, column: FloatArray, around: FloatArray) -> FloatArray:
    """What the layer that answers to a column adds to columns (count, rows), as a share of what it adds to its own.

    Read off the first row of the output.
    """
    columns = np.concatenate([column[None], around])
    added = _continued(network.value_layer(column), columns) - columns[:, -network.token_dim]
    return np.asarray(added[1:] / added[0] if added[0] else added[1:])


def _continued(network: FloatNetwork, columns: FloatArray) -> FloatArray:
    """The first output row for columns (count, rows) that enter the value layers.

    Those look at each column alone, so n of them are run as a sequence.
    """
    padded = np.concatenate([columns, np.repeat(columns[-1:], -len(columns) % network.seq_len, axis=0)])
    sequences = np.swapaxes(padded.reshape(-1, network.seq_len, columns.shape[1]), 1, 2)
    return np.asarray(network.continued(VALUES, sequences)[:, 0].ravel()[: len(columns)])


def _data(subject: Subject) -> FloatArray:
    if subject.data is None:
        raise ValueError("a network has a grid or data")
    return subject.data[0]
