"""What we found wrong or weak in the paper (docs/paper.md), reproduced; findings 2 and 6 belong to Lemma 9."""

from collections import Counter
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from cases import Case, all_cells, build
from reference import appendix_c_layers, apply_layer, last_shift, matrix, paper_layers, phi_at, run, shift_ids

import provenformer as pf
from provenformer.constructions import lemmas as checks
from provenformer.constructions.paper import values
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.sum.codes import bn_codes
from provenformer.networks.modified import FeedForwardLayer

# Section 5.2: averaging.

VOCABULARY = {"I": 0, "am": 2, "was": 3, "sad": 4, "happy": 5, "Bob": 6}


def sentences(*texts: str) -> np.ndarray:
    """One sequence of token ids per text, (count, 1, n)."""
    return np.array([[[VOCABULARY[word] for word in text.split()]] for text in texts])


def average_map(x: np.ndarray) -> np.ndarray:
    """The token, and the average of all tokens, in one number."""
    return x[0] + 100 * x.mean()


def test_section_5_2_the_average_tells_one_changed_word() -> None:
    """ "I am happy" and "I am Bob": every token, "I" included, gets an id of its own."""
    assert pf.is_contextual_mapping(average_map, sentences("I am happy", "I am Bob"), up_to_permutation=False)


def test_section_5_2_the_average_does_not_tell_two_changed_words() -> None:
    """ "I am happy" and "I was sad" have the same average, so "I" cannot be told apart; the paper's map can."""
    two = sentences("I am happy", "I was sad")
    found = pf.is_contextual_mapping(average_map, two)
    assert not found
    assert found.counterexample is not None
    assert "token 0 of sequence 0" in found.counterexample
    assert "token 0 of sequence 1" in found.counterexample
    _, q = checks.contextual_map_ids(Sweep(pf.Grid(1, 3, 8)), two)
    assert pf.is_contextual_mapping(q, two, up_to_permutation=False)


def test_averages_of_codes_do_tell_all_contexts() -> None:
    """The sum construction: the average of B_n codes is a contextual mapping, on all 120 multisets of 3 out of 8."""
    contexts = pf.Grid(1, 3, 8).contexts("multisets")[:, None, :]
    codes = np.array(bn_codes(8, 3))
    assert not pf.is_contextual_mapping(lambda x: x[0] + 100 * x.sum(), contexts)
    assert pf.is_contextual_mapping(lambda x: codes[x[0]] + 10**6 * codes[x[0]].sum(), contexts)


# Finding 5: Definition 5.1 and permutations.


def test_definition_5_1_cannot_hold_for_a_sequence_and_its_permutation() -> None:
    """Any equivariant q gives both the same ids; Lemma 6's map is no exception, and satisfies Lemma 6's version."""
    grid = pf.Grid(1, 3, 4)
    points = np.array([[list(order)] for order in permutations((0, 1, 3))])
    _, q = checks.contextual_map_ids(Sweep(grid), points)
    assert all(set(row) == set(q[0]) for row in q.tolist())
    assert not pf.is_contextual_mapping(q, points, up_to_permutation=False)
    assert pf.is_contextual_mapping(q, points)
    alone = points[:1]
    assert pf.is_contextual_mapping(q[:1], alone, up_to_permutation=False)


def test_definition_5_1_needs_no_luck_to_fail() -> None:
    """Over all equivariant maps with values in 0..5 on {(a, b), (b, a)}: none is a contextual mapping to the letter."""
    pair = np.array([[[0, 1]], [[1, 0]]])
    for first, second in product(range(6), repeat=2):
        q = [[first, second], [second, first]]
        assert not pf.is_contextual_mapping(q, pair, up_to_permutation=False)
        assert bool(pf.is_contextual_mapping(q, pair)) == (first != second)


@pytest.mark.parametrize(
    ("q", "up_to_permutation", "holds"),
    [
        ([[1, 2], [3, 4]], True, True),
        ([[1, 1], [3, 4]], True, False),  # two different tokens of one sequence
        ([[1, 2], [2, 4]], True, False),  # two contexts
        ([[1, 2], [3, 3]], True, True),  # two equal tokens may share their id
        ([[1, 2], [3, 3]], False, False),
    ],
)
def test_is_contextual_mapping_cases(q: list[list[int]], up_to_permutation: bool, holds: bool) -> None:
    """Sequences (0, 1) and (5, 5)."""
    found = pf.is_contextual_mapping(q, np.array([[[0, 1]], [[5, 5]]]), up_to_permutation=up_to_permutation)
    assert bool(found) == holds
    assert (found.counterexample is None) == holds


def test_is_contextual_mapping_with_a_tolerance() -> None:
    """Floating-point ids: nearer than the tolerance counts as equal, also through a chain of neighbours."""
    x = np.array([[[0, 1]], [[2, 3]]])
    q = [[0.0, 1.0], [2.0, 3.0]]
    assert pf.is_contextual_mapping(q, x, tolerance=0.5)
    assert not pf.is_contextual_mapping(q, x, tolerance=1.0)


# Finding 1: repeated columns.


def lost_error(d: int, n: int, N: int, p: float) -> float:
    """d_p(f_bar, g_bar), measured: both are constant on cubes, so the mean over all cubes is the integral."""
    t = pf.targets.get("scaled-mean", d, n)
    x = all_cells(t, N, "middle")
    paper = build(t, N, "paper")
    difference = np.abs(paper.modified(x) - t(x))
    assert (difference > 1e-12).any(axis=(1, 2)).mean() == pytest.approx(float(paper.grid.lost_share))
    return float((difference**p).sum(axis=(1, 2)).mean() ** (1 / p))


@pytest.mark.parametrize(("d", "n", "cells"), [(1, 2, (8, 16, 32)), (1, 3, (4, 8, 12)), (2, 2, (2, 4, 6))])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_finding_1_repeated_columns_cost_delta_to_the_d_over_p(
    d: int, n: int, cells: tuple[int, ...], p: float
) -> None:
    """On lost cubes the paper's network is 0: the error falls like delta^(d/p) and no faster."""
    errors = [lost_error(d, n, N, p) for N in cells]
    scaled = [error * N ** (d / p) for error, N in zip(errors, cells, strict=True)]
    assert max(scaled) / min(scaled) < 1.35
    assert errors[0] > errors[1] > errors[2]


def test_finding_1_share_of_lost_cubes() -> None:
    """1 - prod(1 - i/K): about n (n - 1) / 2K."""
    for d, n, N in [(1, 3, 16), (2, 4, 10), (3, 5, 7)]:
        K = N**d
        product_form = Fraction(1)
        for i in range(n):
            product_form *= 1 - Fraction(i, K)
        assert pf.Grid(d, n, N).lost_share == 1 - product_form
    assert abs(pf.Grid(1, 3, 10**6).lost_share * 10**6 - 3) < Fraction(1, 1000)


def test_finding_1_five_percent_takes_more_than_1024_cells() -> None:
    """softmax-mean, d = 1, n = 3, p = 2: the lost cubes alone are above 5 % at N = 1024, f_bar is near 5 % at N = 8."""
    t = pf.targets.get("softmax-mean", 1, 3)
    x = t.sample(200_000)
    norm = np.sqrt((t(x) ** 2).sum(axis=(1, 2)).mean())
    twins = x.copy()
    twins[..., 1] = twins[..., 0]  # the lost cubes: up to a set of measure 1/K^2, exactly two tokens in one cell
    at_twins = (t(twins) ** 2).sum(axis=(1, 2)).mean()
    lost = np.sqrt(float(pf.Grid(1, 3, 1024).lost_share) * at_twins) / norm
    assert 0.05 < lost < 0.06
    assert pf.plan(1, 3, 1024, "paper").layers > 5 * 10**8
    cell = (np.floor(x * 8) + 0.5) / 8
    step_one = np.sqrt(((t(x) - t(cell)) ** 2).sum(axis=(1, 2)).mean()) / norm
    assert step_one < 0.06
    assert pf.plan(1, 3, 8, "sum").layers < 350


@pytest.mark.parametrize("size", [(1, 3, 8), (2, 2, 3)])
def test_finding_1_the_sum_construction_loses_nothing(size: tuple[int, int, int]) -> None:
    """The same cubes, repeated columns included."""
    d, n, N = size
    t = pf.targets.get("scaled-mean", d, n)
    x = all_cells(t, N, "middle")
    np.testing.assert_allclose(build(t, N, "sum").modified(x), t(x), rtol=1e-12)


# Finding 3: Appendix C for d = 1, n = 2.


@pytest.mark.parametrize("N", range(2, 9))
def test_finding_3_appendix_c_shifts_a_column_twice(N: int) -> None:
    """L = (1 - delta, 1): with gain N the first column lands on 2 - delta, a later window; with N + 1 on 2."""
    grid = pf.Grid(1, 2, N)
    literal, repaired = checks.check_appendix_c(grid, literal=True), checks.check_appendix_c(grid)
    assert not literal
    assert literal.counterexample is not None
    assert f"[[{N - 1}, {N}]]" in literal.counterexample
    assert repaired

    windows, ids = range(2 * N), [N - 1, N]
    once = ids[0] + N * (ids[1] - ids[0])
    assert once == 2 * N - 1  # 2 - delta
    swept = shift_ids(ids, windows, N)
    assert swept[0] > once  # shifted again
    assert swept != sorted(swept)  # the claimed order l_1 < l_2 fails
    assert shift_ids(ids, windows, N + 1) == sorted(shift_ids(ids, windows, N + 1))


@pytest.mark.parametrize("N", range(2, 9))
def test_finding_3_the_ids_stay_distinct_all_the_same(N: int) -> None:
    """Only the order fails: the printed map is still one-to-one on these grids."""
    final = 2 * N ** (3 + 1)
    ids = [last_shift(shift_ids([a, N + b], range(2 * N), N), final) for a in range(N) for b in range(N)]
    flat = [v for row in ids for v in row]
    assert len(set(flat)) == len(flat)


@pytest.mark.parametrize("size", [(1, 3, 2), (1, 3, 5), (1, 4, 3), (2, 2, 2), (2, 2, 4), (3, 2, 2), (2, 3, 2)])
def test_finding_3_happens_only_there(size: tuple[int, int, int]) -> None:
    """For every other size tried the printed gain shifts each column once, and is the one we use."""
    grid = pf.Grid(*size)
    assert checks.check_appendix_c(grid, literal=True)
    assert Sweep(grid, positional=True).gain == Sweep(grid, positional=True, literal=True).gain


def test_finding_3_with_the_papers_layers() -> None:
    """The same with genuine attention layers: trace the two columns of L = (1 - delta, 1) through the sweep."""
    for gain, moves in ((3, 2), (4, 1)):
        shifts = appendix_c_layers(1, 2, 3, lambda ids: [[Fraction(0)]] * 2, gain)["contextual map"]  # noqa: ARG005
        state, changes = matrix([[Fraction(2, 3), 1]]), 0
        for layer in shifts[:-1]:
            after = apply_layer(layer, state)
            changes += after[0][0] != state[0][0]
            state = after
        assert changes == moves


# Finding 4: the condition missing from Lemma 7.


def constant(value: float) -> pf.Target:
    return pf.Target(lambda x: np.full(x.shape, value), 1, 2)


def test_finding_4_large_values_are_rescaled_and_still_exact() -> None:
    """Values far above t_l: the output layers multiply by a power of two, and nothing is lost."""
    for case in (Case(1, 2, 4, scale=1e9), Case(2, 2, 2, scale=1e12), Case(1, 2, 4, "sum", scale=1e9)):
        built = case.build()
        assert built.modified.stages["rescale output"] == case.d
        layer = built.modified.layer(built.modified.layers - 1)
        assert isinstance(layer, FeedForwardLayer)
        last = layer.phi
        assert phi_at(last, last.low) == phi_at(last, last.low - 1) < 0  # continuous, constant below all values
        x = all_cells(case.target, case.N, "middle")
        got = built.modified(x)
        assert (got == built.piecewise(x)).all()
        assert np.abs(got).max() > 1e8
    small = Case(1, 2, 4).build()
    assert "rescale output" not in small.modified.stages


def test_finding_4_the_condition_is_detected_at_its_limit() -> None:
    """|u.A| < t_l - delta/2, strictly: at (1, 2, 2) t_l = 8 and delta = 1/2, so 7.75 is the first value too large."""
    for value, fine in ((7.5, True), (7.75, False), (-7.75, False), (0.0, True)):
        built = build(constant(value), 2, "paper")
        found = checks.check_lemma_7_condition(built.piecewise)
        assert bool(found) == fine
        assert ("rescale output" not in built.modified.stages) == fine
        assert (found.counterexample is None) == fine


def test_finding_4_without_the_rescale_a_finished_column_is_hit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value near another column's id: a later value layer takes the finished column for that one."""
    delta = Fraction(1, 3)
    ids = sorted(last_shift(shift_ids([0, 1], range(3), 3), 27))  # q of the context {0, 1}, units of delta
    value = float(Fraction(ids[0]) * delta + delta / 4)  # within half a unit of the lower id, swept last
    x = np.array([[[0.1, 0.5]], [[0.9, 0.1]]])
    fine = build(constant(value), 3, "paper")
    assert (fine.modified(x) == value).all()
    assert checks.check_lemma_7(fine.piecewise, fine.modified)

    monkeypatch.setattr(values, "output_scale", lambda *_: 1)
    printed = build(constant(value), 3, "paper")
    assert (printed.modified(x) != value).any()
    assert not checks.check_lemma_7(printed.piecewise, printed.modified)
    hits: Counter[int] = Counter()
    before = None
    for step in printed.modified.trace(x[1:], every="layer"):
        if before is not None and step.stage == "values":
            hits.update(np.flatnonzero((step.values() != before).ravel()).tolist())
        before = step.values()
    assert max(hits.values()) == 2


def test_finding_4_in_the_papers_own_order() -> None:
    """The printed, ascending order has the same flaw: A_1 = q_2 turns column 1 into column 2."""
    low, high = (v / 2 for v in last_shift(shift_ids([0, 1], range(2), 2), 8))
    x = matrix([[0.25, 0.75]])

    def network(first: Fraction, second: Fraction) -> Any:
        layers = paper_layers(1, 2, 2, lambda ids: [[first], [second]])  # noqa: ARG005
        return run([layer for stage in layers.values() for layer in stage], x)

    assert network(Fraction(3), Fraction(5)) == [[3, 5]]
    assert low < high
    assert network(high, Fraction(5)) == [[5, 5]]  # not [high, 5]
