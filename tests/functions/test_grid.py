"""Grid, contexts, codes and plans: exact counts and bijections, compared with enumeration."""

import json
import time
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from math import comb, factorial
from typing import Any

import numpy as np
import pytest
from cases import EXHAUSTIVE
from hypothesis import given, settings
from hypothesis import strategies as st

import provenformer as pf
from provenformer.constructions import registry
from provenformer.constructions.paper.context import Sweep
from provenformer.constructions.sum import layers as sums
from provenformer.constructions.sum.codes import bn_codes, bose_chowla_codes, greedy_codes, next_prime, prime_from
from provenformer.functions.grid import ContextKind, Grid, binomial

KINDS: tuple[ContextKind, ...] = ("sets", "multisets", "sequences")
every_kind = pytest.mark.parametrize("kind", KINDS)


def enumerated(grid: Grid, kind: ContextKind) -> list[tuple[int, ...]]:
    ids, n = range(grid.column_count), grid.seq_len
    if kind == "sequences":
        return list(product(ids, repeat=n))
    return list((combinations if kind == "sets" else combinations_with_replacement)(ids, n))


@every_kind
@pytest.mark.parametrize("size", EXHAUSTIVE, ids=str)
def test_counts_ranks_and_contexts_agree_with_enumeration(size: tuple[int, int, int], kind: ContextKind) -> None:
    """count, column_layers, rank and unrank, without enumerating, against itertools."""
    grid = Grid(*size)
    rows = enumerated(grid, kind)
    assert grid.count(kind) == len(rows)
    assert grid.column_layers(kind) == sum(len(set(row)) if kind == "multisets" else len(row) for row in rows)
    assert [tuple(row) for row in grid.contexts(kind).tolist()] == rows
    assert [grid.rank(row, kind) for row in rows] == list(range(len(rows)))
    assert [grid.unrank(i, kind) for i in range(len(rows))] == rows


@st.composite
def ranked(draw: Any) -> tuple[Grid, ContextKind, int]:
    grid = Grid(draw(st.integers(1, 5)), draw(st.integers(2, 12)), draw(st.integers(2, 40)))
    kind = draw(st.sampled_from(KINDS))
    if grid.count(kind) == 0:
        kind = "multisets"
    return grid, kind, draw(st.integers(0, grid.count(kind) - 1))


@settings(deadline=None)
@given(ranked())
def test_rank_and_unrank_are_inverse_at_any_size(case: tuple[Grid, ContextKind, int]) -> None:
    """Also where contexts are far too many to list; and rank order is lexicographic."""
    grid, kind, rank = case
    context = grid.unrank(rank, kind)
    assert grid.rank(context, kind) == rank
    if rank:
        assert grid.unrank(rank - 1, kind) < context


@given(ranked())
def test_columns_and_ids_are_inverse(case: tuple[Grid, ContextKind, int]) -> None:
    """u.L of a grid token is its id, and every id has a token in 0..N-1."""
    grid, kind, rank = case
    ids = np.array(grid.unrank(rank, kind))
    columns = grid.columns(ids)
    assert ((columns >= 0) & (columns < grid.cells_per_axis)).all()
    assert (columns @ np.array(grid.id_vector) == ids).all()


@pytest.mark.parametrize("size", EXHAUSTIVE, ids=str)
def test_lost_share(size: tuple[int, int, int]) -> None:
    """The share of sequences in which two tokens coincide, counted."""
    grid = Grid(*size)
    rows = enumerated(grid, "sequences")
    assert grid.lost_share == Fraction(sum(len(set(row)) < len(row) for row in rows), len(rows))


@every_kind
def test_ranks_outside_and_wrong_contexts_are_refused(kind: ContextKind) -> None:
    """One line that names the range or the rule."""
    grid = Grid(1, 3, 4)
    with pytest.raises(pf.ProvenformerError, match="outside 0"):
        grid.unrank(grid.count(kind), kind)
    with pytest.raises(pf.ProvenformerError, match="outside 0"):
        grid.unrank(-1, kind)
    wrong = [(0, 1), (0, 1, 4), (-1, 0, 1)] + [(2, 1, 3)] * (kind != "sequences") + [(1, 1, 2)] * (kind == "sets")
    for ids in wrong:
        with pytest.raises(pf.ProvenformerError, match=r"ids in 0\.\.3"):
            grid.rank(ids, kind)


# Codes of the sum construction.


def is_bn(codes: tuple[int, ...], order: int) -> bool:
    """All sums of `order` codes, repetition allowed, differ."""
    totals = [sum(c) for c in combinations_with_replacement(codes, order)]
    return len(set(totals)) == len(totals)


@pytest.mark.parametrize("make", [greedy_codes, bose_chowla_codes, bn_codes])
@pytest.mark.parametrize(
    ("size", "order"), [(2, 2), (2, 5), (3, 3), (4, 2), (5, 4), (7, 3), (8, 2), (9, 3), (16, 2), (13, 3)]
)
def test_bn_property(make: Any, size: int, order: int) -> None:
    """Exhaustively, for both families and the choice between them; positive and increasing."""
    codes = make(size, order)
    assert len(codes) == size
    assert codes[0] >= 1
    assert list(codes) == sorted(set(codes))
    assert is_bn(codes, order)
    if make is bose_chowla_codes:
        assert codes[-1] <= next_prime(size) ** order


@pytest.mark.parametrize(("size", "order"), [(41, 3), (17, 4), (257, 2)])
def test_bn_property_in_fields_beyond_one_block(size: int, order: int) -> None:
    """More than 65,536 powers: the logarithms come from several blocks."""
    assert next_prime(size) ** order > 2**16
    assert is_bn(bose_chowla_codes(size, order), order)


def test_greedy_codes_are_the_known_sequences() -> None:
    """Mian-Chowla for pairs (OEIS A005282); the first B_3 numbers (A096772)."""
    assert greedy_codes(10, 2) == (1, 2, 4, 8, 13, 21, 31, 45, 66, 81)
    assert greedy_codes(6, 3) == (1, 2, 5, 14, 33, 72)


def test_bn_codes_choose_the_smaller_set() -> None:
    """Never above either family where both are known."""
    for size, order in [(4, 3), (8, 3), (12, 3), (20, 2), (6, 4)]:
        assert bn_codes(size, order)[-1] <= min(greedy_codes(size, order)[-1], bose_chowla_codes(size, order)[-1])


def test_a_field_too_large_is_refused() -> None:
    """One line with quantity, limit and remedy."""
    with pytest.raises(pf.ProvenformerError, match=r"elements \(limit 134,217,728\); use fewer cells") as caught:
        bose_chowla_codes(12, 10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("size", [s for s in EXHAUSTIVE if s != (2, 2, 4)], ids=str)
def test_sum_ids_are_a_contextual_mapping(size: tuple[int, int, int], positional: bool) -> None:
    """-c + gain S: one id per (context, token), all different, within [id_low, id_high)."""
    grid = Grid(*size)
    codes = sums.token_codes(grid, positional)
    contexts = grid.contexts("sequences" if positional else "multisets")
    q = codes.context_ids(contexts)
    assert ((q >= codes.id_low) & (q < codes.id_high)).all()
    pairs = {
        value: (row if positional else tuple(sorted(row)), j if positional else token)
        for ids, row in zip(q.tolist(), map(tuple, contexts.tolist()), strict=True)
        for j, (value, token) in enumerate(zip(ids, row, strict=True))
    }
    assert len(pairs) == grid.column_layers("sequences" if positional else "multisets")


# Plans.


def test_plan_of_a_size_that_nobody_can_build() -> None:
    """plan(4, 8, 16): every count recomputed with math.comb."""
    K = 16**4
    paper, total = pf.plan(4, 8, 16, "paper"), pf.plan(4, 8, 16)
    assert paper.stages["quantise"] == 4 * 17
    assert paper.stages["contextual map"] == paper.attention_layers == K + 1
    assert paper.stages["values"] == 1 + 4 + 8 * comb(K, 8)
    assert paper.contexts == comb(K, 8)
    lost = Fraction(1)
    for i in range(8):
        lost *= Fraction(K - i, K)
    assert paper.lost_share == 1 - lost
    assert paper.id_bits == (K**17 * (K - 1)).bit_length()
    assert paper.residual_layers == K**8
    assert paper.residual_parameters == K**8 * (2 * 4 * 8 + 1)
    assert total.contexts == comb(K + 7, 8)
    assert total.stages["values"] == 1 + 4 + K * comb(K + 6, 7)
    assert total.stages["recode"] == K
    assert total.attention_layers == 1
    assert total.lost_share == 0
    for plan in (paper, total):
        assert plan.layers == sum(plan.stages.values())
        assert plan.blocks == plan.layers - 1
        assert plan.parameters == plan.blocks * (2 * (4 * 4 + 1) + 4 * (2 * 4 + 1) + 4)
        assert plan.to_json()["layers"] == plan.layers


def test_section_5_4() -> None:
    """Theorem 2 takes n K^n / n! value layers up to lower order, Theorem 3 n K^n, a residual network K^n."""
    for n in (2, 3, 4):
        K = 10**6
        plan = pf.plan(1, n, K, "paper")
        leading = Fraction(n * K**n, factorial(n))
        assert abs(plan.stages["values"] / leading - 1) < Fraction(1, 1000)
        assert pf.plan(1, n, K, "paper", positional=True).stages["values"] == n * K**n
        assert plan.residual_layers == K**n
        # "More efficient than residual networks": fewer parameters once n! outweighs the constants.
    wide = pf.plan(1, 12, 10**6, "paper")
    assert wide.parameters < wide.residual_parameters


@pytest.mark.parametrize("construction", registry.NAMES)
@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("size", EXHAUSTIVE, ids=str)
def test_id_bits_cover_the_largest_id(size: tuple[int, int, int], positional: bool, construction: str) -> None:
    """id_bits is at least what the ids of the network take."""
    grid = Grid(*size)
    kind: ContextKind = "sequences" if positional else "sets" if construction == "paper" else "multisets"
    contexts = grid.contexts(kind)
    if construction == "wide":  # ids are rank * (largest token id + 1) + token id, one rank per context
        tokens = sums.token_codes(grid, positional).ids
        q = np.array([len(contexts) * (int(tokens.max()) + 1) - 1])
    elif construction == "sum":
        q = sums.token_codes(grid, positional).context_ids(contexts)
    else:
        sweep = Sweep(grid, positional)
        q = sweep.context_ids(sweep.ids(contexts))
    largest = int(q.max(initial=0))
    assert largest.bit_length() <= pf.plan(*size, construction, positional).id_bits


def test_counts_beyond_machine_numbers_are_exact_and_at_once() -> None:
    """BERT_BASE's sizes: products by halves; `math.comb` and a search for the next prime would take minutes."""
    assert all(binomial(top, chosen) == comb(top, chosen) for top in range(12) for chosen in range(12))
    assert binomial(2**70 + 3, 200) == comb(2**70 + 3, 200)
    began = time.process_time()
    plan = registry.plan(768, 512, 256)
    counted = plan.to_json()
    assert time.process_time() - began < 20
    # C(K + 511, 512) lies between K^512 / 512! and (K + 511)^512 / 512!, which have the same length.
    assert plan.contexts.bit_length() == ((2**6144) ** 512 // factorial(512)).bit_length()
    assert counted["contexts"] == "about 10^945,792"
    assert json.loads(json.dumps(counted)) == counted
    assert counted["token_dim"] == 768


def test_a_bound_on_the_next_prime_is_not_below_it() -> None:
    for size in (2**40 + 15, 10**60 + 7, 2**256, 2**300 + 1, 3**200):
        assert prime_from(size) >= next_prime(size)
        assert prime_from(size) <= next_prime(size) or prime_from(size) < size * 1.01


def test_the_share_of_lost_cubes_is_exact_or_from_above() -> None:
    small = Grid(1, 3, 4)
    assert small.lost_share == 1 - Fraction(4 * 3 * 2, 4**3)
    large = Grid(40, 400, 17)
    k = large.column_count
    assert 0 < large.lost_share == Fraction(400 * 399, 2 * k)
