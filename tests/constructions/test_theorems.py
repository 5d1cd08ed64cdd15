"""Theorems 2 and 3 for the modified network: it equals f_bar exactly, wherever it is meant to."""

import tracemalloc
from functools import reduce
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest
from cases import Case, all_cells, build, cell_points, exact_cell, expected, mixed_inputs, outside_inputs, target

import provenformer as pf
from provenformer.constructions.paper.construction import paper_network

both = pytest.mark.parametrize("construction", ["paper", "sum"])


@both
def test_theorem_2_on_ten_thousand_inputs(construction: str) -> None:
    """(1, 3, 16): random, on edges, repeated, outside; the state after each stage is what the lemma promises."""
    case = Case(1, 3, 16, construction)
    t, built = case.target, case.build()
    parts = [t.sample(6000), mixed_inputs(t, 16, 3900), outside_inputs(t, 100)]
    x = np.concatenate(parts)
    # One call per part: 1e300 and 5e-324 in a batch mean a denominator of 1074 bits for all of it.
    got, piecewise = np.concatenate([built.modified(part) for part in parts]), built.piecewise(x)
    assert (got == piecewise).all()
    some = slice(5500, None, 3)
    assert (piecewise[some] == expected(t, 16, x[some], repeated_is_zero=construction == "paper")).all()
    cells = np.floor(x * 16)
    inside = np.all((x >= 0) & (x < 1), axis=(1, 2))
    distinct = np.all(np.diff(np.sort(cells, axis=2), axis=2) != 0, axis=(1, 2))
    assert (got[~inside] == 0).all()
    if construction == "paper":
        assert (got[~distinct] == 0).all()
        stages = {step.stage: step for step in built.modified.trace(x[:9900:50])}
        assert (stages["quantise"].floats()[inside[:9900:50]] == cells[:9900:50][inside[:9900:50]] / 16).all()
    assert (got[inside & distinct] != 0).all()  # so that "equal" above was not 0 == 0


@both
def test_theorem_2_on_every_cube(construction: str) -> None:
    """(2, 2, 4): corner, middle and last float of all 256 cubes, mixtures of them, and points outside."""
    case = Case(2, 2, 4, construction)
    t, built = case.target, case.build()
    parts = [all_cells(t, 4, part) for part in ("corner", "middle", "edge")]
    x = np.concatenate([*parts, mixed_inputs(t, 4, 1000), outside_inputs(t, 100)])
    wanted = expected(t, 4, x, repeated_is_zero=construction == "paper")
    assert (built.piecewise(x) == wanted).all()
    assert (built.modified(x) == wanted).all()
    zeros = (wanted == 0).all(axis=(1, 2))[:256].mean()
    assert zeros == (built.grid.lost_share if construction == "paper" else 0)


@both
@pytest.mark.parametrize("name", ["sort", "reverse"])
def test_theorem_3_on_every_cube(construction: str, name: str) -> None:
    """(1, 3, 8): all 512 cubes at corner, middle and last float, and every corner with coordinates exactly 1.0."""
    t = pf.targets.get(name, 1, 3)
    built = build(t, 8, construction)
    closed = np.array(list(product(np.arange(9) / 8, repeat=3)))[:, None, :]
    x = np.concatenate([*(all_cells(t, 8, part) for part in ("corner", "middle", "edge")), closed])
    got = built.modified(x)
    assert (got == built.piecewise(x)).all()
    centre = (np.minimum(np.floor(x * 8), 7) + 0.5) / 8
    assert (got == (np.sort(centre, axis=-1) if name == "sort" else centre[..., ::-1])).all()


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("name", pf.targets.names())
def test_lemma_8(name: str, p: float) -> None:
    """|f - f_bar|_p <= L times half the diagonal of a cube, edges included; f_bar is equivariant if f is."""
    t = pf.targets.get(name, 2, 2, (-1.0, 2.0))
    assert t.lipschitz is not None
    for N in (2, 5):
        built = build(t, N, "sum")
        x = np.concatenate([t.sample(300), mixed_inputs(t, N, 300)])
        y = built.piecewise(x)
        half_diagonal = (2 * 2) ** (1 / p) * 3.0 / N / 2
        error = np.linalg.norm((t(x) - y).reshape(len(x), -1), p, axis=1)
        assert error.max() <= t.lipschitz * half_diagonal * (1 + 1e-9)
        if t.equivariant:
            assert (built.piecewise(x[..., ::-1]) == y[..., ::-1]).all()


SUPPORTS = [
    Case(1, 3, 5, support=(-3.0, -1.0)),
    Case(1, 2, 7, support=(0.1, 0.7)),
    Case(2, 2, 3, support=([-1.0, 0.1], [0.25, 1e3])),
    Case(1, 2, 6, support=(-1e-3, 1e-3 / 3)),
    Case(1, 2, 8, support=(0, 8)),  # the rescale layer of the sum construction is the identity: left out
    Case(1, 2, 4, support=(0.0, 1.0)),
]


@pytest.mark.parametrize("construction", ["paper", "sum"])
@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("base", SUPPORTS, ids=lambda case: f"{case.d},{case.n},{case.N}-{case.support}")
def test_other_supports_and_any_cell_count(base: Case, positional: bool, construction: str) -> None:
    """Negative, per row, with ends and cells that are no floats: cells are decided exactly, down to the last bit."""
    case = Case(base.d, base.n, base.N, construction, positional, base.support)
    t, built = case.target, case.build()
    outside = [] if positional else [outside_inputs(t, 40)]
    x = np.concatenate([mixed_inputs(t, case.N, 300), all_cells(t, case.N, "edge"), *outside])
    if positional:
        x[::7, :, -1] = t.high
    assert (built.modified(x) == built.piecewise(x)).all()
    repeated_is_zero = construction == "paper" and not positional
    np.testing.assert_allclose(built.piecewise(x), expected(t, case.N, x, repeated_is_zero), rtol=1e-12, atol=1e-12)
    assert (built.modified(x) != 0).any()


@pytest.mark.parametrize(("low", "high", "N"), [(0.1, 0.7, 7), (-1 / 3, 1e5, 11), (1e-300, 3e-300, 3), (-0.1, 0.2, 64)])
def test_cells_are_exact(low: float, high: float, N: int) -> None:
    """Piecewise.cells against rational arithmetic on the floats around every edge."""
    t = target(1, 2, support=(low, high))
    piecewise = build(t, N, "paper").piecewise
    points = [v for part in cell_points(low, high, N).values() for v in part]
    points += [low, high, float(np.nextafter(low, -np.inf)), float(np.nextafter(high, -np.inf))]
    x = np.array(points)[:, None, None].repeat(2, axis=2)
    assert piecewise.cells(x)[:, 0, 0].tolist() == [min(N, max(-1, exact_cell(v, low, high, N))) for v in points]


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("size", [(1, 3, 5), (2, 2, 3)])
def test_the_papers_network_in_cells(size: tuple[int, int, int], positional: bool) -> None:
    """Counted in cells instead of the unit interval it is the same function."""
    built = Case(*size, positional=positional, support=(-0.5, 0.6)).build()
    in_cells = paper_network(built.piecewise, in_cells=True).modified
    x = mixed_inputs(built.target, size[2], 300)
    if not positional:
        x = np.concatenate([x, outside_inputs(built.target)])
    assert (in_cells(x) == built.modified(x)).all()


@pytest.mark.parametrize("size", [(1, 10, 12), (1, 20, 21), (2, 14, 4)], ids=str)
def test_ids_far_beyond_64_bits(size: tuple[int, int, int]) -> None:
    """Exact where int64 (ids, and for (1, 20, 21) even the ranks of contexts) would overflow."""
    d, n, N = size
    case = Case(d, n, N)
    built = case.build()
    assert built.plan.id_bits > 64
    rng = np.random.default_rng(1)
    ids = np.array([rng.permutation(N**d)[:n] for _ in range(12)])
    x = (np.swapaxes(built.grid.columns(ids), 1, 2) + rng.random((12, d, n))) / N
    x[-3:, :, 1] = x[-3:, :, 0]
    x[-4, 0, 0] = 1.5
    got = built.modified(x)
    assert (got == built.piecewise(x)).all()
    assert (got == expected(case.target, N, x, repeated_is_zero=True)).all()
    assert (got[:-4] != 0).all()
    assert (got[-4:] == 0).all()


def test_many_repeated_tokens_in_the_sum_construction() -> None:
    """(1, 20, 3): 231 multisets of twenty tokens out of three."""
    built = Case(1, 20, 3, "sum").build()
    x = built.target.sample(40)
    assert (built.modified(x) == expected(built.target, 3, x, repeated_is_zero=False)).all()


@both
def test_an_equivariant_function_with_uneven_rounding(construction: str) -> None:
    """Sums in an order that depends on the column: f_bar and the network stay equal and exactly equivariant."""

    def cyclic_sum(x: Any) -> Any:
        n = x.shape[-1]
        return np.stack([reduce(np.add, [x[..., (j + i) % n] for i in range(n)]) for j in range(n)], axis=-1)

    t = pf.Target(cyclic_sum, 1, 3)
    built = build(t, 10, construction)
    x = mixed_inputs(t, 10, 1500)
    y = built.piecewise(x)
    assert (built.modified(x) == y).all()
    assert (built.piecewise(x[..., [2, 0, 1]]) == y[..., [2, 0, 1]]).all()
    same = x[:, 0, 0] == x[:, 0, 2]
    assert same.any()
    assert (y[same, 0, 0] == y[same, 0, 2]).all()


def test_a_large_network_is_a_few_arrays() -> None:
    """(1, 3, 64): 125,000 value layers in some megabytes, built within 300 MB, any layer at hand."""
    t = pf.targets.get("scaled-mean", 1, 3)
    tracemalloc.start()
    built = build(t, 64, "paper")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6
    network = built.modified
    assert network.stages == {"quantise": 65, "contextual map": 65, "values": 2 + 3 * comb(64, 3)}
    assert 3 * comb(64, 3) == 124_992
    assert network.nbytes < 10e6
    x = t.sample(20)
    assert (network(x) == built.piecewise(x)).all()
    middle = network.layer(network.layers // 2)
    assert middle.stage == "values"


@pytest.mark.parametrize("N", [2, 3, 8])
def test_fewer_grid_tokens_than_columns(N: int) -> None:
    """K < n: the paper's network is 0 everywhere, the sum construction still is f_bar."""
    n = N + 1
    x = Case(1, n, N).target.sample(30)
    paper = Case(1, n, N).build()
    assert (paper.modified(x) == 0).all()
    assert (paper.piecewise(x) == 0).all()
    assert paper.plan.lost_share == 1
    if N < 8:
        total = Case(1, n, N, "sum").build()
        assert (total.modified(x) == expected(total.target, N, x, repeated_is_zero=False)).all()
