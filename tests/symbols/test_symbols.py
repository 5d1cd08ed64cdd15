"""The graph: sorting networks sort, ranges hold, what numpy moves stays what it was, equal things are one."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from circuit_cases import COMPILES, target, transformer_block

import provenformer as pf
from provenformer.symbols.atoms import merge_exchange
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.graph import Apply, Lin, Product, Term
from provenformer.symbols.linear import add, constant, mix, of_atom, scale
from provenformer.symbols.ranges import hull
from provenformer.symbols.trace import samples, trace


@pytest.mark.parametrize("length", range(1, 13))
def test_merge_exchange_sorts(length: int) -> None:
    """The 0-1 principle: a network of comparators that sorts all sequences of 0 and 1 sorts all sequences."""
    rows = np.array(list(itertools.product((0, 1), repeat=length)))
    for stage in merge_exchange(length):
        touched = [i for pair in stage for i in pair]
        assert len(set(touched)) == len(touched)  # disjoint: one layer
        for i, j in stage:
            rows[:, i], rows[:, j] = rows[:, [i, j]].min(axis=1), rows[:, [i, j]].max(axis=1)
    assert (np.diff(rows, axis=1) >= 0).all()


@pytest.mark.parametrize("name", COMPILES)
def test_the_range_of_every_atom_holds(name: str) -> None:
    f = target(COMPILES[name])
    traced = trace(f)
    x = samples(f, 30, seed=3)
    for atom in traced.graph.atoms:
        found = evaluate(traced.graph, [of_atom(traced.graph, atom)], x)
        room = 1e-12 * (1 + atom.size)
        assert atom.low - room <= found.min() <= found.max() <= atom.high + room
        assert not atom.uniform or np.ptp(found, axis=-1).max() <= room


def test_equal_sub_expressions_are_one_and_functions_of_one_variable_fuse() -> None:
    traced = trace(target(lambda x: np.tanh(x) * np.mean(np.tanh(x), axis=-1, keepdims=True) + np.tanh(x)))
    operations = [type(a.operation) for a in traced.graph.atoms]
    assert operations.count(Apply) == 1
    assert operations.count(Product) == 1
    fused = trace(target(COMPILES["gelu"]))
    assert len([a for a in fused.graph.atoms if isinstance(a.operation, Apply)]) <= 3  # the cube, the tanh, the whole
    assert len(fused.outputs[0].terms) == 1


MOVES: dict[str, Callable[[Any], Any]] = {
    "reversed": lambda x: x[..., ::-1],
    "turned twice": lambda x: np.swapaxes(np.swapaxes(x, -1, -2)[..., ::-1], -1, -2),
    "rows and columns moved": lambda x: np.moveaxis(np.moveaxis(x, -1, 0)[..., None], 0, -2)[..., 0]
    if x.ndim == 2 else np.swapaxes(np.swapaxes(x, -1, -2), -1, -2),
    "halves exchanged": lambda x: np.concatenate([x[..., 2:], x[..., :2]], axis=-1),
    "stacked rows": lambda x: np.concatenate([x[..., 1:, :], 2 * x[..., :1, :]], axis=-2),
    "repeated": lambda x: np.repeat(x[..., ::2], 2, axis=-1),
    "taken": lambda x: np.take(x, [3, 0, 0, 1], axis=-1),
    "column by column": lambda x: np.stack([x[..., j] * (j + 1) for j in range(4)], axis=-1),
    "masked": lambda x: np.where(np.tri(4, dtype=bool)[:3], x, 0.5),
    "constant columns": lambda x: np.concatenate([np.ones_like(x[..., :2]), x[..., :2]], axis=-1),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moved_entries_are_the_entries(name: str) -> None:
    f = target(MOVES[name], d=3, n=4)
    x = f.sample(20)
    assert np.allclose(trace(f)(x), f(x), atol=1e-14)


def test_what_rounding_does_to_coefficients_is_carried() -> None:
    """(1e16 x + x) - 1e16 x is x; the coefficients lose it, and the slack says so."""
    traced = trace(target(lambda x: x * 1.0))
    graph, x = traced.graph, of_atom(traced.graph, traced.graph.atoms[0])
    big = add(graph, scale(graph, x, 1e16), x)
    lost = add(graph, big, x, -1e16)
    coefficient = lost.terms[0].own if lost.terms else 0.0
    assert abs(coefficient - 1.0) <= lost.slack


def test_combinations_of_two_ways_agree() -> None:
    graph = trace(target(lambda x: x * 1.0, n=5)).graph
    rng = np.random.default_rng(0)
    x = of_atom(graph, graph.atoms[0])
    inputs = rng.random((3, 1, 5))
    rows, factors = rng.normal(size=(5, 5)), rng.normal(size=5)
    lin = add(graph, mix(graph, scale(graph, x, factors), rows), constant(factors))
    wanted = np.einsum("jk,bk->bj", rows, inputs[:, 0] * factors) + factors
    assert np.allclose(evaluate(graph, [lin], inputs)[:, 0], wanted)
    low, high = hull(graph, lin)
    assert low <= wanted.min()
    assert wanted.max() <= high


def test_a_graph_can_be_printed() -> None:
    shown = str(trace(target(transformer_block(2), d=2, n=3)))
    assert "attend(" in shown
    assert "output 1:" in shown
    assert isinstance(Lin(1, {0: Term(1.0)}, np.zeros(1)).key, tuple)


def test_a_maximum_is_not_below_what_it_is_one_of() -> None:
    """np.ptp >= 0, max - x >= 0, also times numbers: the range holds, and division by what is added to it compiles."""
    rng = np.random.default_rng(0)
    for fn in (
        lambda x: np.max(x, axis=-1, keepdims=True) - x,
        lambda x: 0 * x + np.ptp(x, axis=-1, keepdims=True),
        lambda x: x - 2 * np.max(x, axis=-1, keepdims=True) + np.max(3 * x[..., ::-1], axis=-1, keepdims=True),
        lambda x: np.min(x, axis=-1, keepdims=True) - x * np.arange(4.0),
    ):
        f = pf.Target(fn, 2, 4, equivariant=False, support=(-1.0, 2.0))
        traced = trace(f)
        value = f(samples(f, 200, seed=1))
        for row, lin in enumerate(traced.outputs):
            low, high = hull(traced.graph, lin)
            assert low <= value[:, row].min() + 1e-12
            assert value[:, row].max() - 1e-12 <= high
    g = pf.Target(lambda x: x / (0.5 + np.ptp(x, axis=-1, keepdims=True)), 1, 5, equivariant=True)
    c = pf.compile(g, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    x = rng.random((200, 1, 5))
    assert np.abs(c.network(x) - g(x)).max() <= c.certificate.bound


def test_computed_constants_are_constants() -> None:
    for fn in (
        lambda x: x * np.exp(0 * x),
        lambda x: x + np.tanh(np.zeros((2, 2)) @ x) * x,
        lambda x: np.stack([0 * x[..., 0] * np.tanh(x[..., 0]), x[..., 1], x[..., 2]], -1),
        lambda x: np.maximum(x - x, np.cos(x - x)) * x,
    ):
        f = pf.Target(fn, 2, 3, equivariant=False, support=(-1.0, 1.0))
        c = pf.compile(f, tolerance=1e-6, norm_order=np.inf, construction="circuit")
        x = f.sample(50)
        assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound
