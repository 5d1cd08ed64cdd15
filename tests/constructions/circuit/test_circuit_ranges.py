"""Ranges of builder and checker: every value of the graph stays inside, and what belongs together is seen to."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from circuit_cases import COMPILES, target

import provenformer as pf
from provenformer.checker.circuit.affine import _radius
from provenformer.checker.circuit.linear import Ball, of_lin
from provenformer.checker.circuit.ranges import range_of, ranges_of
from provenformer.constructions.circuit.ranges import Narrowed
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.linear import of_atom
from provenformer.symbols.ranges import hull
from provenformer.symbols.trace import Traced, samples, trace

Function = Callable[[Any], Any]
FEATURES: Any = {"axis": -2, "keepdims": True}
RNG = np.random.default_rng(0)
W = RNG.normal(size=(6, 3, 3))
V = RNG.normal(size=(5, 3))


def attention(x: Any, scores: int, values: int) -> Any:
    powers = np.exp(np.swapaxes(x, -1, -2) @ W[scores] @ x)
    weights = powers / np.sum(powers, axis=-1, keepdims=True)
    return (W[values] @ x) @ np.swapaxes(weights, -1, -2)


def norm(x: Any) -> Any:
    z = x - np.mean(x, **FEATURES)
    return z / np.sqrt(np.mean(np.square(z), **FEATURES) + 0.01)


def twice_normed(x: Any) -> Any:
    """One value times two multiples of one factor: it counts once in the sum of squares."""
    r = 1 / np.sqrt(np.mean(np.square(x), **FEATURES) + 1e-6)
    return x * r + x * (2 * r) - 0.5 * (x[..., ::-1, :] * (-3 * r))


ATTACKS: dict[str, Function] = {
    "one attention, values that cancel": lambda x: attention(x, 0, 1) - 0.9 * attention(x, 0, 1)[..., ::-1, :],
    "two attentions, equal values": lambda x: attention(x, 0, 1) - attention(x, 2, 1),
    "attention of a block": lambda x: np.tanh(W[3] @ (x + attention(x, 0, 1))) - x,
    "norms": lambda x: W[4] @ norm(x),
    "norms of attention": lambda x: W[4] @ norm(x + attention(x, 0, 1)) - np.mean(norm(x), axis=-1, keepdims=True),
    "one value, two factors": twice_normed,
    "chords that cancel": lambda x: np.exp(x) - x - np.tanh(x[..., ::-1, :]) * x,
    "means of chords": lambda x: np.exp(x) - np.mean(np.exp(x), axis=-1, keepdims=True) * x,
    "rows that differ": lambda x: np.tanh(3 * x) - np.cumsum(np.square(x), axis=-1) / 4 + x * np.arange(4),
    "deep": lambda x: np.tanh(W[0] @ np.tanh(W[1] @ np.tanh(W[2] @ x)) - np.mean(np.tanh(W[2] @ x), axis=-1, keepdims=True)),
}  # fmt: skip
TARGETS = {name: pf.Target(fn, 3, 4, equivariant=False, name=name, support=(-1.0, 1.0)) for name, fn in ATTACKS.items()}
TARGETS |= {name: target(fn) for name, fn in COMPILES.items()}


def all_values(traced: Traced, f: pf.Target) -> tuple[np.ndarray, np.ndarray]:
    """Of atoms and of outputs, on inputs near corners and edges."""
    x = samples(f, 300)
    return evaluate(traced.graph, [of_atom(traced.graph, a) for a in traced.graph.atoms], x), evaluate(
        traced.graph, traced.outputs, x
    )


@pytest.mark.parametrize("name", TARGETS)
def test_every_value_is_in_its_range(name: str) -> None:
    f = TARGETS[name]
    traced = trace(f)
    narrowed, ranges = Narrowed.of(traced.graph), ranges_of(traced.graph, f.low, f.high)
    atoms, outputs = all_values(traced, f)
    for atom, new in zip(traced.graph.atoms, narrowed.graph.atoms, strict=True):
        values = atoms[:, atom.number]
        slack = 1e-9 * (1 + np.abs(values).max())
        for low, high in ((new.low, new.high), (ranges.low[atom.number], ranges.high[atom.number])):
            assert low - slack <= values.min() <= values.max() <= high + slack, atom
        assert atom.low <= new.low <= new.high <= atom.high
    for row, lin in enumerate(traced.outputs):
        values = outputs[:, row]
        read = of_lin(lin, ranges, f.seq_len)
        for low, high in (narrowed.hull(lin), range_of(traced.graph, read, ranges)):
            assert low - 1e-9 <= values.min() <= values.max() <= high + 1e-9, (row, low, high)


@pytest.mark.parametrize(
    ("name", "row", "share"),
    [
        ("one attention, values that cancel", 0, 0.4),
        ("norms", 0, 0.2),
        ("norms of attention", 0, 0.2),
        ("chords that cancel", 0, 0.5),
        ("means of chords", 0, 0.5),
    ],
)
def test_what_belongs_together_is_narrower_than_intervals(name: str, row: int, share: float) -> None:
    """Builder and checker, each by its own way; and both find about the same."""
    f = TARGETS[name]
    traced = trace(f)
    narrowed, ranges = Narrowed.of(traced.graph), ranges_of(traced.graph, f.low, f.high)
    lin = traced.outputs[row]
    low, high = hull(traced.graph, lin)
    mine, theirs = narrowed.hull(lin), range_of(traced.graph, of_lin(lin, ranges, f.seq_len), ranges)
    assert mine[1] - mine[0] <= share * (high - low)
    assert theirs == pytest.approx(mine, abs=2e-2 * (high - low))


def test_one_value_counts_once_in_a_ball() -> None:
    """x r + 2 x r reaches 3, not sqrt(5): both have the same x."""
    same = [(1.0, Ball(0, "x", scale, 1.0, 0.0)) for scale in (1.0, 2.0)]
    assert 3.0 <= _radius(same) <= 3.001
    assert _radius([(3.0, Ball(0, "x", 1.0, 1.0, 0.0)), (4.0, Ball(0, "y", 1.0, 1.0, 0.5))]) == pytest.approx(7.0)
