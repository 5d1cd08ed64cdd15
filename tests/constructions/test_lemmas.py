"""Lemmas 5, 6, 7, 10 and Appendix C over whole grids, by the package's checks and by simulation written here."""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from cases import EXHAUSTIVE, Case, build, expected
from reference import last_shift, shift_ids

import provenformer as pf
from provenformer.base.exact import floats_over
from provenformer.constructions import lemmas as checks
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.paper.quantize import positional_quantizer, quantizer
from provenformer.networks.modified import ModifiedNetwork

Size = tuple[int, int, int]
exhaustive = pytest.mark.parametrize("size", EXHAUSTIVE, ids=str)


def extended_ids(d: int, n: int, N: int) -> tuple[np.ndarray, list[list[int]]]:
    """The extended grid in cells (-1 is the marker) and its column ids in units of delta, by definition."""
    points = np.array(list(product(range(-1, N), repeat=d * n))).reshape(-1, d, n)
    marker = -(N ** (n * d)) * N  # -N^(nd) in units of delta
    ids = [
        [sum(N**i * (int(v) if v >= 0 else marker) for i, v in enumerate(column)) for column in point.T]
        for point in points
    ]
    return points, ids


@exhaustive
@pytest.mark.parametrize("positional", [False, True])
def test_lemma_5(size: Size, positional: bool) -> None:
    """The check, and every coordinate of mixed inputs against floor(N t) / N or the marker."""
    d, n, N = size
    grid = pf.Grid(*size)
    assert checks.check_lemma_5(grid, positional)
    layers = (positional_quantizer if positional else quantizer)(grid, grid.cell_width)
    assert sum(len(run) for run in layers) == (d * n * N if positional else d * (N + 1))
    top = n if positional else 1
    near = [k / N for k in range(top * N)]
    axis = [v for k in near for v in (k, k + 0.5 / N, np.nextafter(k, top), np.nextafter(k + 1 / N, 0))]
    if not positional:
        axis += [1.0, np.nextafter(0, -1), -3.0, 1e9]
    x = np.random.default_rng(0).choice(axis, size=(200, d, n))
    *_, last = ModifiedNetwork(d, n, tuple(layers)).trace(x)
    for entry, got in zip(x.ravel().tolist(), last.values().ravel(), strict=True):
        inside = 0 <= Fraction(entry) < top
        assert got == (Fraction(int(Fraction(entry) * N), N) if inside else -(Fraction(N) ** (n * d)))


@exhaustive
def test_lemma_6(size: Size) -> None:
    """All four properties, on ids simulated here from the definition, with the paper's t_l and t_r."""
    d, n, N = size
    grid, K, delta = pf.Grid(*size), N**d, Fraction(1, N)
    four = checks.check_lemma_6(grid)
    assert all(four), [check.counterexample for check in four]
    assert all(check.cases == (N + 1) ** (d * n) for check in four)

    points, ids = extended_ids(*size)
    swept = [shift_ids(row, range(K), K) for row in ids]
    q = [last_shift(row, K ** (n + 1)) for row in swept]
    before, after = checks.contextual_map_ids(Sweep(grid), points)
    assert before.tolist() == swept
    assert after.tolist() == q

    t_l, t_r = delta ** (-2 * n * d + 1) * (K - 1), delta ** (-(2 * n + 1) * d + 1) * (K - 1)
    assert (Sweep(grid).id_low * delta, Sweep(grid).id_high * delta) == (t_l, t_r)
    owner: dict[Fraction, frozenset[int]] = {}
    for point, row, out in zip(points, ids, q, strict=True):
        in_range = [t_l <= v * delta < t_r for v in out]
        if (point >= 0).all() and len(set(row)) == n:
            assert len(set(out)) == n  # 1
            for value in out:
                assert owner.setdefault(value, frozenset(row)) == frozenset(row)  # 2
            assert all(in_range)  # 3
        else:
            assert not any(in_range)  # 4


@exhaustive
def test_lemma_10(size: Size) -> None:
    """The bounds on the largest id before the last layer, and that it names the set of ids."""
    d, n, N = size
    K, delta = N**d, Fraction(1, N)
    assert checks.check_lemma_10(pf.Grid(*size))
    low = delta ** (-(n - 1) * d + 1) * (K - 1)
    high = delta ** (-n * d + 1) * (K - 1) - delta * (K - 1) ** 2
    largest = [max(shift_ids(ids, range(K), K)) for ids in pf.Grid(*size).contexts("sets").tolist()]
    assert all(low <= v * delta <= high for v in largest)
    assert len(set(largest)) == len(largest)


@exhaustive
def test_lemma_7(size: Size) -> None:
    """From every point of the extended grid: A_L, or 0; the layers are counted, M bounds every entry."""
    d, n, N = size
    built = Case(*size).build()
    lemma = checks.check_lemma_7(built.piecewise, built.modified)
    assert lemma, lemma.counterexample
    contexts = len(list(pf.Grid(*size).contexts("sets")))
    assert built.modified.stages["values"] == 1 + d + n * contexts
    assert built.modified.stages["contextual map"] == N**d + 1

    points, ids = extended_ids(*size)
    x = np.where(points < 0, -0.75, (points + 0.5) / N)
    assert (built.modified(x) == expected(built.target, N, x, repeated_is_zero=True)).all()

    sweep = Sweep(built.grid)
    q = [last_shift(shift_ids(row, range(N**d), N**d), N ** (d * (n + 1))) for row in ids]
    marker = N ** (n * d) * N
    first_row = [abs(a - b) + marker for out, row in zip(q, ids, strict=True) for a, b in zip(out, row, strict=True)]
    assert max(first_row) <= sweep.entry_bound


@exhaustive
def test_appendix_c(size: Size) -> None:
    """C.2 and C.3 on all sequences: one shift per column, in order, all ids different and within the stated range."""
    d, n, N = size
    grid, K = pf.Grid(*size), N**d
    found = checks.check_appendix_c(grid)
    assert found, found.counterexample
    sweep = Sweep(grid, positional=True)
    start = [j * N * sum(N**i for i in range(d)) for j in range(n)]
    windows = sorted({s + k for s in start for k in range(K)})
    final = n * N ** ((n + 1) * d + 1)
    gain = N + 1 if (d, n) == (1, 2) else K
    seen: set[Fraction] = set()
    for tokens in product(range(K), repeat=n):
        swept = shift_ids([s + k for s, k in zip(start, tokens, strict=True)], windows, gain)
        assert swept == sorted(set(swept))
        out = last_shift(swept, final)
        assert all(sweep.id_low <= v < sweep.id_high for v in out)
        assert seen.isdisjoint(out)
        seen.update(out)
    assert len(seen) == n * K**n


@pytest.mark.parametrize("size", [(1, 2, 4), (1, 3, 3), (2, 2, 2)])
def test_the_contextual_map_is_equivariant_and_a_contextual_mapping(size: Size) -> None:
    """q(LP) = q(L)P on the whole grid; Lemma 6's version of Definition 5.1 holds on sequences with distinct tokens."""
    grid = pf.Grid(*size)
    ids = grid.contexts("sequences")
    ids = ids[[len(set(row)) == len(row) for row in ids.tolist()]]
    points = np.swapaxes(grid.columns(ids), 1, 2)
    _, q = checks.contextual_map_ids(Sweep(grid), points)
    assert pf.is_contextual_mapping(q, points)
    where = {point.tobytes(): row for point, row in zip(points, q, strict=True)}
    for order in permutations(range(grid.seq_len)):
        for point, row in zip(points, q, strict=True):
            assert (where[np.ascontiguousarray(point[:, order]).tobytes()] == row[list(order)]).all()


def test_the_checks_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain that is too small breaks Lemmas 6 and 10, wrong values break Lemma 7, a missing cell breaks Lemma 5."""
    grid = pf.Grid(1, 3, 3)
    built = Case(1, 3, 3).build()
    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "gain", 1)
        assert not all(checks.check_lemma_6(grid))
        ten = checks.check_lemma_10(grid)
        assert not ten
        assert ten.counterexample is not None
        assert not checks.check_appendix_c(pf.Grid(1, 3, 2))
    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "final_gain", 1)
        assert not all(checks.check_lemma_6(grid))
    other = build(pf.targets.get("centered"), 3, "paper")
    seven = checks.check_lemma_7(built.piecewise, other.modified)
    assert not seven
    assert seven.counterexample is not None
    with monkeypatch.context() as patch:
        patch.setattr(
            "provenformer.constructions.paper.quantize.quantizer", lambda grid, width: quantizer(grid, width)[:1]
        )
        assert not checks.check_lemma_5(grid)


def test_the_extended_grid_has_a_limit() -> None:
    """Exhaustive checks say when a grid is too large for them."""
    with pytest.raises(pf.ProvenformerError, match=r"has 4,294,967,296 points \(limit 1,000,000\); use fewer cells"):
        checks.check_lemma_6(pf.Grid(4, 4, 3))


def test_the_marker_survives_float_input() -> None:
    """The marker is exact however large: -N^(nd) at N^(nd) far beyond 2^53."""
    grid = pf.Grid(2, 9, 10)
    x = np.full((1, 2, 9), 1.0)
    *_, last = ModifiedNetwork(2, 9, tuple(quantizer(grid, grid.cell_width))).trace_exact(floats_over(x, 1), 1)
    assert set(last.values().ravel()) == {Fraction(-(10**18))}
