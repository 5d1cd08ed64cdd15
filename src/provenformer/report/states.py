"""The state of a saved network on its way from input to output, stage by stage or attention layer by attention layer.

These are the float64 weights as they will be executed: the last state is bit for bit what `network(x)` returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from provenformer.base.arrays import FloatArray, require_sequences
from provenformer.networks.thin import FloatRun, Network, SoftmaxRun
from provenformer.networks.wide import WideNetwork
from provenformer.report.subject import Subject

INPUT = "input"
CONTEXT = "contextual map"


@dataclass(frozen=True)
class State:
    """A batch after a number of layers of the network."""

    stage: str
    layers: int  # how many have been applied
    values: FloatArray  # (batch, d, n); for a wide network all channels, (batch, D, n)


def states(subject: Subject, x: FloatArray, every_attention_layer: bool = False) -> Iterator[State]:
    """The state of sequences (batch, d, n) at the start and after every stage, optionally after every attention layer."""
    network = subject.network
    x = require_sequences(x, network.token_dim, network.seq_len)
    if isinstance(network, WideNetwork):
        start = network.start(x)
        yield State(INPUT, 0, start)
        yield from (State(*step) for step in network.steps(start))
        return
    values = x if network.positions is None else x + network.positions
    yield State(INPUT, 0, values)
    done = 0
    for stage, group in groupby(network.runs, key=lambda run: run.stage):
        for part in _parts(tuple(group), every_attention_layer):
            values = Network(network.token_dim, network.seq_len, part)(values)
            done += sum(map(len, part))
            yield State(stage, done, values)


def after(subject: Subject, x: FloatArray, stage: str) -> FloatArray:
    """The state (batch, d or D, n) after the last layer of a stage."""
    return [state.values for state in states(subject, x) if state.stage == stage][-1]


def from_stage(subject: Subject, stage: str, values: FloatArray) -> FloatArray:
    """The output of the layers from the first of `stage` on, for states (batch, d or D, n)."""
    network = subject.network
    if isinstance(network, WideNetwork):
        first = [block.stage for block in network.wide_blocks].index(stage)
        *_, (_, _, values) = replace(network, wide_blocks=network.wide_blocks[first:]).steps(values)
        return values[:, -network.token_dim :]
    first = [run.stage for run in network.runs].index(stage)
    return Network(network.token_dim, network.seq_len, network.runs[first:])(values)


def column_ids(subject: Subject, values: FloatArray) -> FloatArray:
    """The id u.x of every column of a state: (batch, n). A wide network has a channel for it."""
    if isinstance(subject.network, WideNetwork):
        return values[:, subject.token_dim]
    return np.asarray(np.einsum("d,bdn->bn", subject.id_direction, values))


def _parts(runs: tuple[FloatRun, ...], every_attention_layer: bool) -> Iterator[tuple[FloatRun, ...]]:
    """The runs of a stage at once, or its attention layers one by one."""
    if not every_attention_layer or not isinstance(runs[0], SoftmaxRun):
        yield runs
        return
    for run in runs:
        arrays = {name: value for name, value in vars(run).items() if isinstance(value, np.ndarray)}
        for i in range(len(run)):
            yield (SoftmaxRun(run.stage, **{name: value[i : i + 1] for name, value in arrays.items()}),)
