"""The state of a saved network on its way from input to output, stage by stage or attention layer by attention layer.

These are the float64 weights as they will be executed: the last state is bit for bit what `network(x)` returns.
"""

from __future__ import annotations

from collections.abc import Iterator

from provenformer.base.arrays import FloatArray
from provenformer.look.subject import Subject
from provenformer.networks.base import State


def states(subject: Subject, x: FloatArray, every_attention_layer: bool = False) -> Iterator[State]:
    """The state of sequences (batch, d, n) at the start and after every stage, optionally after every attention layer."""
    return subject.network.states(x, every_attention_layer)


def after(subject: Subject, x: FloatArray, stage: str) -> FloatArray:
    """The state (batch, rows, n) after the last layer of a stage."""
    return [state.values for state in states(subject, x) if state.stage == stage][-1]


def column_ids(subject: Subject, values: FloatArray) -> FloatArray:
    """The id u.x of every column of a state: (batch, n)."""
    return subject.network.ids(values, subject.id_direction)
