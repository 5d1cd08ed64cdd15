"""Every single layer against the slow reference, and the networks against the paper's construction written out."""

from collections import Counter
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import pytest
from cases import Built, Case, all_cells, mixed_inputs, outside_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import (
    ZERO,
    Attend,
    Feed,
    Phi,
    appendix_c_layers,
    apply_layer,
    hardmax_columns,
    matrix,
    paper_layers,
    require_in_class,
    run,
    weights,
)

import provenformer as pf
from provenformer.base.exact import ExactArray
from provenformer.constructions import lemmas as checks
from provenformer.networks.modified import Attention, FeedForward, ModifiedNetwork, ThreePiece, hardmax

LAYERWISE = [
    Case(1, 2, 2),
    Case(1, 2, 3),
    Case(1, 3, 3),
    Case(1, 3, 2),  # fewer tokens on the grid than columns: no context at all
    Case(2, 2, 2),
    Case(1, 2, 3, support=(-1.5, 0.7)),
    Case(2, 2, 2, support=([-1.0, 0.1], [0.25, 0.4])),
    Case(1, 2, 3, scale=1e6),
    Case(1, 2, 2, positional=True),
    Case(1, 2, 3, positional=True, support=(-1.0, 0.3)),
    Case(1, 3, 2, positional=True),
    Case(2, 2, 2, positional=True, scale=1e9),
    Case(1, 2, 2, "sum"),
    Case(1, 3, 3, "sum", support=(0.1, 0.7)),
    Case(2, 2, 2, "sum", support=([-1.0, 0.1], [0.25, 0.4])),
    Case(1, 2, 3, "sum", scale=1e6),
    Case(1, 2, 3, "sum", positional=True),
    Case(1, 3, 2, "sum", positional=True, support=(-1.0, 0.3)),
    Case(2, 2, 2, "sum", positional=True, scale=1e9),
]


@pytest.mark.parametrize("case", LAYERWISE, ids=str)
def test_every_layer_is_in_the_class_and_equals_the_reference(case: Case) -> None:
    """network.layer(i), applied with loops and the full score matrix, gives the traced state after layer i + 1."""
    network, t = case.build().modified, case.target
    inputs = [mixed_inputs(t, case.N, 8)] if case.positional else [mixed_inputs(t, case.N, 8), outside_inputs(t, 6)]
    steps = list(network.trace(np.concatenate(inputs), every="layer"))
    assert [step.layer for step in steps] == list(range(network.layers + 1))
    states = [matrix(x) for x in steps[0].values()]
    for i, step in enumerate(steps[1:]):
        layer = network.layer(i)
        require_in_class(layer, case.d)
        assert layer.stage == step.stage
        states = [apply_layer(layer, x) for x in states]
        assert states == [matrix(x) for x in step.values()], f"layer {i} ({step.stage})"
    with pytest.raises(pf.ProvenformerError, match="layers 0"):
        network.layer(network.layers)


def cell_values(built: Built) -> Any:
    """A_L from the package's table, exactly; the construction around it is the reference's own."""
    table = {
        tuple(ids): [[Fraction(v) for v in column] for column in value]
        for ids, value in zip(built.piecewise.contexts.tolist(), built.piecewise.values.tolist(), strict=True)
    }
    return table.__getitem__


@pytest.mark.parametrize("size", [(1, 2, 2), (1, 2, 4), (1, 3, 3), (2, 2, 2)])
def test_paper_network_is_the_papers_layer_for_layer(size: tuple[int, int, int]) -> None:
    """Proposition 4 written out in the paper's order: the same layers (feed-forward ones sorted down), the same map.

    Only the first value layer differs in a number: M + 1 there is any bound, ours is the one that needs no enumeration.
    """
    case = Case(*size)
    built = case.build()
    ours = layers_by_stage(built.modified)
    theirs = paper_layers(*size, cell_values(built))
    assert [weights(layer) for layer in ours["contextual map"]] == [
        weights(layer) for layer in theirs["contextual map"]
    ]
    assert Counter(map(weights, ours["quantise"])) == Counter(map(weights, theirs["quantise"]))
    assert Counter(map(weights, ours["values"][1:])) == Counter(map(weights, theirs["values"][1:]))
    first, printed = ours["values"][0], theirs["values"][0]
    assert weights(first)[:2] == weights(printed)[:2]
    assert weights(first)[4] == weights(printed)[4]
    assert all(a <= b < 0 for a, b in zip(weights(first)[2], weights(printed)[2], strict=True))  # M is a bound
    x = np.concatenate([all_cells(case.target, case.N, "middle"), outside_inputs(case.target, 10)])
    everything = list(chain.from_iterable(theirs.values()))
    got = built.modified(x)
    assert [matrix(y) for y in got] == [run(everything, matrix(one)) for one in x]


@pytest.mark.parametrize("size", [(1, 2, 3), (1, 3, 2), (2, 2, 2)])
def test_positional_network_is_appendix_c_layer_for_layer(size: tuple[int, int, int]) -> None:
    """Appendix C written out, with the repaired gain N + 1 for d = 1, n = 2 and the printed one otherwise."""
    d, n, N = size
    case = Case(*size, positional=True)
    built = case.build()
    ours = layers_by_stage(built.modified)
    theirs = appendix_c_layers(*size, cell_values(built), N + 1 if (d, n) == (1, 2) else N**d)
    assert [weights(layer) for layer in ours["contextual map"]] == [
        weights(layer) for layer in theirs["contextual map"]
    ]
    for stage in ("quantise", "values"):
        assert Counter(map(weights, ours[stage])) == Counter(map(weights, theirs[stage]))
    assert built.modified.positions is not None
    assert built.modified.positions[:].tolist() == [list(range(n))] * d
    x = all_cells(case.target, N, "edge")
    everything = list(chain.from_iterable(theirs.values()))
    shifted = [[[Fraction(v) + j for j, v in enumerate(row)] for row in one] for one in x.tolist()]
    assert [matrix(y) for y in built.modified(x)] == [run(everything, one) for one in shifted]


def layers_by_stage(network: ModifiedNetwork) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for layer in map(network.layer, range(network.layers)):
        out.setdefault(layer.stage, []).append(layer)
    return out


@pytest.mark.parametrize("case", LAYERWISE, ids=str)
def test_sizes_agree_with_the_plan(case: Case) -> None:
    """Layers per stage and blocks as planned, without the softmax network's clip and our output rescale."""
    built = case.build()
    stages = dict(built.modified.stages)
    rescaled = stages.pop("rescale output", 0)
    assert rescaled == (case.d if case.scale > 1 else 0)
    planned = {stage: count for stage, count in built.plan.stages.items() if stage != "clip"}
    unscaled = case.construction == "paper" and case.support == (0.0, 1.0)  # the paper's own coordinates: no rescale
    assert stages == {stage: count for stage, count in planned.items() if not (unscaled and stage == "rescale")}
    assert built.modified.blocks == built.plan.blocks - case.d * (2 if unscaled else 1) + rescaled
    assert built.modified.shape == (2, 1, 1)
    per_block = 2 * (4 * case.d + 1) + (2 * case.d + 1) + case.d
    positions = case.d * case.n if case.positional else 0
    assert built.modified.parameters == built.modified.blocks * per_block + positions


def test_a_trace_by_stage_is_a_trace_by_layer_seen_less_often() -> None:
    """Stages appear once each, in order, with the state that the layer trace has there."""
    built = Case(1, 3, 3, "sum").build()
    x = mixed_inputs(built.target, 3, 5)
    by_layer = {step.layer: step for step in built.modified.trace(x, every="layer")}
    by_stage = list(built.modified.trace(x))
    assert [step.stage for step in by_stage] == ["input", *built.modified.stages]
    for step in by_stage:
        assert (step.values() == by_layer[step.layer].values()).all()
    assert (by_stage[-1].floats() == built.modified(x)).all()


def test_inputs_of_any_batch_shape() -> None:
    """One sequence, a nested batch and an empty one."""
    built = Case(1, 2, 3).build()
    x = mixed_inputs(built.target, 3, 6)
    y = built.modified(x)
    assert (built.modified(x.reshape(2, 3, 1, 2)) == y.reshape(2, 3, 1, 2)).all()
    assert (built.modified(x[0]) == y[0]).all()
    assert built.modified(x[:0]).shape == (0, 1, 2)


# Layers that no construction uses: ties, unequal keys and queries, arbitrary phi.

whole = st.integers(-3, 3)
small = st.fractions(min_value=-3, max_value=3, max_denominator=4)


def vectors(d: int, of: Any = whole) -> Any:
    return st.lists(of, min_size=d, max_size=d)


@st.composite
def small_networks(draw: Any) -> tuple[ModifiedNetwork, np.ndarray]:
    """Two to four random layers of the class and inputs on a coarse grid, so that ties are common."""
    d, n = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    runs: list[Any] = []
    for _ in range(draw(st.integers(2, 4))):
        if draw(st.booleans()):
            W_V, W_K, W_Q = (ExactArray.of([[draw(vectors(d)) for _ in range(2)]]) for _ in range(3))
            gains = ExactArray.of([[draw(vectors(d, small)) for _ in range(2)]])
            runs.append(Attention("any", gains, W_V, W_K, W_Q, ExactArray.of([draw(vectors(2, small))])))
        else:
            low, high = sorted(draw(vectors(2, small)))
            left, middle, right = ((draw(small), draw(small)) for _ in range(3))
            constant = (Fraction(0), draw(small))
            pieces = (constant, middle, right) if draw(st.booleans()) else (left, middle, constant)
            W_1, b_1 = ExactArray.of([draw(vectors(d))]), ExactArray.of([draw(small)])
            W_2 = ExactArray.of([draw(vectors(d, small))])
            b_2 = ExactArray.of([draw(vectors(d, small))]) if draw(st.booleans()) else None
            runs.append(FeedForward("any", W_1, b_1, W_2, ThreePiece(low, high, pieces), b_2))
    batch = draw(st.lists(st.lists(vectors(n), min_size=d, max_size=d), min_size=1, max_size=3))
    return ModifiedNetwork(d, n, tuple(runs)), np.array(batch, dtype=float) / 4


@settings(max_examples=80, deadline=None)
@given(small_networks())
def test_any_network_of_the_class_equals_the_reference(case: tuple[ModifiedNetwork, np.ndarray]) -> None:
    """The vectorised evaluation is right for every layer of the class, not only for those of the constructions."""
    network, x = case
    states = [matrix(one) for one in x]
    for i, step in enumerate(list(network.trace(x, every="layer"))[1:]):
        states = [apply_layer(network.layer(i), one) for one in states]
        assert states == [matrix(one) for one in step.values()]


@settings(max_examples=40, deadline=None)
@given(small_networks(), st.randoms(use_true_random=False))
def test_claim_1(case: tuple[ModifiedNetwork, np.ndarray], random: Any) -> None:
    """g(XP) = g(X)P, exactly, for random blocks and random permutations."""
    network, x = case
    order = list(range(network.seq_len))
    random.shuffle(order)
    *_, straight = network.trace(x)
    *_, permuted = network.trace(x[..., order])
    assert (permuted.values() == straight.values()[..., order]).all()
    assert checks.is_permutation_equivariant(network, x)


def test_claim_1_is_refuted_with_positions() -> None:
    """With E the network is not equivariant, and the check shows where."""
    built = Case(1, 2, 2, positional=True).build()
    found = checks.is_permutation_equivariant(built.modified, built.target.sample(20))
    assert not found
    assert found.counterexample is not None
    assert "columns 0 and 1 swapped" in found.counterexample


@pytest.mark.parametrize("weights_at", ["W_1", "W_V", "W_K", "W_Q"])
def test_weights_that_the_evaluation_cannot_take_are_refused(weights_at: str) -> None:
    """Projections are whole numbers in all constructions; a fraction must not be cut off silently."""
    half, one = ExactArray.of([[Fraction(1, 2)]]), ExactArray.of([[1]])
    head = {name: ExactArray.of([[[Fraction(1, 2) if name == weights_at else 1]]]) for name in ("W_V", "W_K", "W_Q")}
    layer: Any
    if weights_at == "W_1":
        layer = FeedForward("any", half, ExactArray.of([0]), one, ThreePiece.window(Fraction(0), Fraction(1), 1))
    else:
        layer = Attention("any", ExactArray.of([[[1]]]), **head, b_Q=ExactArray.of([[0]]))
    with pytest.raises(pf.ProvenformerError, match=r"1/2.*integer"):
        ModifiedNetwork(1, 2, (layer,))(np.array([[0.5, 0.25]]))


@given(st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=5))
def test_hardmax(scores: list[list[int]]) -> None:
    """Column-wise one-hot of the arg max, 1/k on a k-way tie."""
    got = hardmax(np.array(scores, dtype=object))
    assert matrix(got) == hardmax_columns(matrix(scores))
    assert (got.sum(axis=0) == 1).all()


def test_hardmax_ties_in_a_layer() -> None:
    """Three equal keys: each gets a third, exactly; a query of 0 ties everyone."""
    one = ExactArray.of([[[1]]])
    layer = Attention("any", one, one, one, one, ExactArray.of([[-1]]))
    network = ModifiedNetwork(1, 4, (layer,))
    *_, last = network.trace(np.array([[[2.0, 2.0, 2.0, 1.0]]]))
    # Queries 1, 1, 1, 0: the first three attend to the tied maximum (2), the last one to all (7/4).
    assert last.values().ravel().tolist() == [4, 4, 4, Fraction(11, 4)]
    assert hardmax(np.array([[5], [5], [5]])).ravel().tolist() == [Fraction(1, 3)] * 3


def test_phi_must_be_in_the_class() -> None:
    """Three pieces in order, at least one constant."""
    slope = (Fraction(1), Fraction(0))
    with pytest.raises(pf.ProvenformerError, match="no constant piece"):
        ThreePiece(Fraction(0), Fraction(1), (slope, slope, slope))
    with pytest.raises(pf.ProvenformerError, match="out of order"):
        ThreePiece(Fraction(1), Fraction(0), (ZERO, ZERO, ZERO))


@pytest.mark.parametrize("live", range(3))
def test_breaks_are_decided_exactly_where_floats_cannot(live: int) -> None:
    """Numbers 2^-80 away from a break round to it in float64; each piece in turn is the only one that is not 0."""
    pieces = [ZERO] * 3
    pieces[live] = (Fraction(0), Fraction(7))
    one = ExactArray.of([[1]])
    phi = ThreePiece(Fraction(1), Fraction(3), (pieces[0], pieces[1], pieces[2]))
    network = ModifiedNetwork(1, 2, (FeedForward("any", one, ExactArray.of([0]), one, phi),))
    den = 2**80
    for at, (left, right) in ((1, (0, 1)), (3, (1, 2))):
        points = [at * den - 1, at * den, at * den + 1]
        states = np.array([[[point, point]] for point in points], dtype=object)
        *_, last = network.trace_exact(states, den)
        moved = [int(v) - point for v, point in zip(last.values()[:, 0, 0] * den, points, strict=True)]
        assert moved == [7 * den * (piece == live) for piece in (left, right, right)]


def test_the_reference_itself() -> None:
    """Numbers worked out by hand: the selective shift of Section B.5 and a jump at a half-open break."""
    x = matrix([[0, 1, 3]])
    shift = Attend(
        [[[Fraction(2)]], [[Fraction(-2)]]], [matrix([[1]])] * 2, [matrix([[1]])] * 2, [matrix([[1]])] * 2,
        [[Fraction(-1, 2)], [Fraction(-3, 2)]],
    )  # fmt: skip
    assert apply_layer(shift, x) == matrix([[0, 1 + 2 * (3 - 0), 3]])
    window = Phi(Fraction(0), Fraction(2), (ZERO, (Fraction(0), Fraction(1)), ZERO))
    jump = Feed(matrix([[1]]), [Fraction(-1)], matrix([[10]]), [Fraction(0)], window)
    assert apply_layer(jump, x) == matrix([[0, 11, 3]])
