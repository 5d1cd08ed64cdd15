"""Each rule of docs/circuits-verify.md on its own: true on random cases, and not far from what is attained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_circuits import CASES, Case, probes

import provenformer as pf
from provenformer.checker.circuit.errors import Error
from provenformer.checker.circuit.jets import jet_of
from provenformer.checker.circuit.linear import Combination, Part, Ranges, combine, mixed, sign_of, span
from provenformer.checker.circuit.pairs import _product_pairs
from provenformer.checker.circuit.pieces import Units, compare, read_pieces
from provenformer.checker.circuit.ranges import lin_range, ranges_of
from provenformer.checker.circuit.softmax import largest_gap, movement, movement_of
from provenformer.checker.circuit.state import Channel, State
from provenformer.checker.circuit.units import relative_to_whole
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.symbols.formula import VARIABLE, Formula, apply, constant
from provenformer.symbols.trace import samples, trace

Make = Callable[[], Case]
FORMULAS = {
    "tanh": (Formula("tanh", (VARIABLE,)), -2.0, 3.0),
    "exp": (Formula("exp", (VARIABLE,)), -3.0, 1.0),
    **{
        name: (Formula(name, (VARIABLE,)), -0.9, 2.0)
        for name in ("arctan", "sin", "cos", "sinh", "cosh", "expm1", "log1p")
    },
    "square": (Formula("square", (VARIABLE,)), -1.0, 2.0),
    "sqrt": (Formula("sqrt", (VARIABLE,)), 0.0, 2.0),  # its derivatives are unbounded at 0
    "log": (Formula("log", (apply("add", VARIABLE, constant(1.5)),)), -1.0, 1.0),
    "reciprocal root": (
        apply("divide", constant(1.0), Formula("sqrt", (apply("add", VARIABLE, constant(0.01)),))),
        0.0,
        0.3,
    ),
    "gelu-like": (apply("multiply", VARIABLE, apply("add", constant(1.0), Formula("tanh", (VARIABLE,)))), -3.0, 3.0),
}


def bound_of(case: Case) -> CircuitBound:
    return circuit_bound(case.network, case.graph, case.outputs, case.low, case.high)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_circuit_by_hand_is_accepted_and_its_bound_true(make: Make) -> None:
    case = make()
    bound = bound_of(case)
    x = probes(case, 1000)
    wanted = case.fn(x)
    assert np.abs(case.network(x) - wanted).max() <= bound.float64
    assert np.abs(case.network.run(x, np.float32) - wanted).max() <= bound.float32
    assert bound.exact <= bound.float64 <= bound.float32


@pytest.mark.parametrize("name", ["table", "product", "largest"])
def test_where_a_table_or_a_temperature_dominates_the_bound_is_near_the_truth(name: str) -> None:
    case = next(make for make in CASES if make.__name__ == name)()
    x = probes(case, 4000)
    assert bound_of(case).float64 <= 2.1 * np.abs(case.network(x) - case.fn(x)).max()


@pytest.mark.parametrize("name", FORMULAS)
def test_jets_enclose_the_formula_and_its_derivatives(name: str) -> None:
    formula, low, high = FORMULAS[name]
    edges = np.linspace(low, high, 60)
    jet = jet_of(formula, edges[:-1], edges[1:])
    step = (edges[1] - edges[0]) * 1e-3
    for share in np.linspace(0.05, 0.95, 7):
        z = edges[:-1] + share * np.diff(edges)
        before, here, after = (np.asarray(formula(z + k * step)) for k in (-1, 0, 1))
        assert (jet.value.lo <= here).all()
        assert (here <= jet.value.hi).all()
        # by the mean value theorem quotients are derivatives at points of the cell
        first, second = (after - before) / (2 * step), (after - 2 * here + before) / step**2
        noise = 1e-9 * (1 + np.abs(first)), 1e-4 * (1 + np.abs(second))
        assert ((jet.first.lo - noise[0] <= first) & (first <= jet.first.hi + noise[0])).all()
        assert ((jet.second.lo - noise[1] <= second) & (second <= jet.second.hi + noise[1])).all()


def test_a_kink_inside_a_cell_leaves_the_second_derivative_unknown() -> None:
    jet = jet_of(np.abs, np.array([-1.0, 0.0, -2.0]), np.array([1.0, 1.0, -1.0]))
    assert jet.second.hi[0] == np.inf
    assert (jet.second.hi[1:] == 0).all()
    assert (jet.first.lo[0], jet.first.hi[0]) == (-1.0, 1.0)


def evaluated(units: Units, z: np.ndarray) -> np.ndarray:
    return units.constant + units.coefficient @ np.maximum(units.slope[:, None] * z + units.offset[:, None], 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_units_are_read_back_as_the_function_they_are(seed: int) -> None:
    """Any slopes, any signs, knots outside and inside, repeated ones: values and steepest slopes."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 40))
    units = Units(
        rng.normal(size=k) * 10.0 ** rng.uniform(-2, 2, k), rng.normal(size=k), rng.normal(size=k), float(rng.normal())
    )
    units = Units(
        units.slope.repeat(2), units.offset.repeat(2), np.concatenate([units.coefficient] * 2), units.constant
    )
    pieces = read_pieces(units, -1.0, 2.0, 0.5)
    z = np.sort(rng.uniform(-1.5, 2.5, 5000))
    y = evaluated(units, z)
    read = np.interp(z, pieces.points.astype(float), pieces.values.astype(float))
    assert np.abs(y - read).max() <= pieces.radius + 1e-9 * np.abs(y).max()
    slopes = np.abs(np.diff(y) / np.diff(z))
    assert (slopes <= pieces.steepest(z[:-1], z[1:]) * (1 + 1e-6) + 1e-6 * np.abs(slopes).max()).all()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("knots", [2, 5, 33, 400])
def test_a_table_against_its_formula_is_bounded_truly_and_closely(name: str, knots: int) -> None:
    formula, low, high = FORMULAS[name]
    rng = np.random.default_rng(knots)
    at = np.concatenate([[low], np.sort(rng.uniform(low, high, knots - 2)), [high]])
    values = np.asarray(formula(at)) + rng.normal(0, 1e-3, knots)
    slopes = np.diff(values) / np.diff(at)
    units = Units(np.ones(knots - 1), -at[:-1], np.diff(slopes, prepend=0.0), float(values[0]))
    found = compare(read_pieces(units, low, high), formula, low, high)
    z = np.linspace(low, high, 20_001)
    difference = evaluated(units, z) - formula(z)
    assert difference.max() <= found.high.max()
    assert difference.min() >= found.low.min()
    size = np.abs(difference).max()
    close = 5.0 if name == "sqrt" else 1.3  # near 0 only the oscillation of a root is known
    assert max(found.high.max(), -found.low.min()) <= close * size + 1e-9


def test_softmax_moves_by_at_most_tanh_and_that_is_attained() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        scores, eps = rng.normal(0, 3, 6), 10.0 ** rng.uniform(-3, 1)
        moved = scores + rng.choice([-1, 1], 6) * eps
        p, q = (np.exp(s - s.max()) / np.exp(s - s.max()).sum() for s in (scores, moved))
        variation = np.abs(p - q).sum() / 2
        assert variation <= movement(np.array([eps]))[0]
        assert variation <= movement_of(np.log(p[None]), np.full((1, 6), eps)) + 1e-15
    eps = 0.3  # two keys, of odds e^-eps and then e^eps
    p, q = (np.exp(s) / np.exp(s).sum() for s in (np.array([-eps / 2, eps / 2]), np.array([eps / 2, -eps / 2])))
    assert abs(p - q).sum() / 2 == pytest.approx(float(movement(np.array([eps]))[0]))


def test_a_hard_head_stays_hard_though_its_scores_are_far_off() -> None:
    """The one-sided bound: scores off by 1 move a weight of e^-60 to at most e^-58."""
    weights = np.array([[1 - 3e-26, 1e-26, 1e-26, 1e-26]])
    assert movement_of(np.log(weights), np.ones((1, 4))) <= 1e-13
    assert movement_of(np.log([[0.5, 0.5]]), np.ones((1, 2))) > 0.4


@pytest.mark.parametrize("eps", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("n", [2, 3, 64])
def test_the_maximum_by_softmax_is_below_by_at_most_w_over_lambda(n: int, eps: float) -> None:
    rng = np.random.default_rng(n)
    w = float(largest_gap(n, np.array([eps]))[0])
    worst = 0.0
    for _ in range(400):
        t = rng.choice([0.0, 1.0]) * rng.exponential(2.0, n) + rng.choice([0.0, 1 + w]) * np.ones(n)
        t[0] = 0.0
        scores = -t + eps * np.where(np.arange(n) == 0, -1.0, 1.0)
        p = np.exp(scores - scores.max())
        worst = max(worst, float((p / p.sum()) @ t))
    assert worst <= w
    assert worst >= 0.99 * w  # attained when all others are 1 + w behind


def test_combinations_lie_in_their_span() -> None:
    rng = np.random.default_rng(4)
    n = 5
    ranges = Ranges({0: -1.0, 1: 0.5, 2: -2.0}, {0: 2.0, 1: 0.75, 2: 1.0}, {0: False, 1: False, 2: True})

    def random() -> Combination:
        return Combination(
            {
                0: Part(rng.normal(), rng.normal(size=(1, n))),
                1: Part(rng.normal(), rng.normal(size=(n, n))),
                2: Part(0.0, rng.normal(size=(n, 1))),
            },
            rng.normal(size=n),
        )

    def value(one: Combination, atoms: dict[int, np.ndarray]) -> Any:
        total = np.broadcast_to(one.constant, (n,)).astype(float)
        for i, part in one.parts.items():
            total = (
                total + part.own * atoms[i] + (0.0 if part.mix is None else part.mix @ atoms[i][: part.mix.shape[1]])
            )
        return total

    for _ in range(50):
        one, other, weights = random(), random(), rng.dirichlet(np.ones(n), size=n)
        for made, of in (
            (
                combine([(2.0, one), (-0.5, other)], ranges),
                lambda a, x=one, y=other: 2 * value(x, a) - 0.5 * value(y, a),
            ),
            (mixed(weights, one, ranges), lambda a, x=one, w=weights: w @ value(x, a)),
            (mixed(weights[:1], one, ranges), lambda a, x=one, w=weights: np.full(n, (w @ value(x, a))[0])),
        ):
            low, high = span(made, ranges)
            for corner in range(20):
                atoms = {
                    i: rng.choice([ranges.low[i], ranges.high[i]], n)
                    if corner % 2
                    else rng.uniform(ranges.low[i], ranges.high[i], n)
                    for i in ranges.low
                }
                atoms[2] = np.full(n, atoms[2][0])
                assert (np.abs(of(atoms) - value(made, atoms)) <= made.slack + 1e-13).all()
                assert (low <= of(atoms)).all()
                assert (of(atoms) <= high).all()


def test_terms_that_weigh_nothing_add_no_rounding_in_any_order() -> None:
    """Lemma 7: in float32, one large term among many tiny ones."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        terms = np.concatenate([[np.float32(rng.normal())], (rng.normal(size=999) * 1e-12).astype(np.float32)])
        order = rng.permutation(len(terms))
        total = np.float32(0)
        for term in terms[order]:
            total = np.float32(total + term)
        tail = float(np.abs(terms[1:].astype(np.float64)).sum())
        assert (
            abs(float(total) - float(terms.astype(np.float64).sum())) <= 2.0**-24 * abs(float(terms[0])) + tail * 1.001
        )


@pytest.mark.parametrize("factor", [1.0, -1.0, 2.0, -0.5])
def test_ranges_with_maxima_hold(factor: float) -> None:
    """Whichever sign a maximum has, and beside whatever else."""
    for fn in (
        lambda x: factor * np.max(x, axis=-1, keepdims=True) - x,
        lambda x: factor * np.max(x, axis=-1, keepdims=True) - np.min(x, axis=-1, keepdims=True) + 0 * x,
        lambda x: np.max(x[..., ::-1] * np.arange(4.0), axis=-1, keepdims=True) * factor + x * np.arange(4.0),
    ):
        f = pf.Target(fn, 1, 4, equivariant=False, support=(-1.0, 2.0))
        traced = trace(f)
        value = f(samples(f, 100, seed=2))
        low, high = lin_range(traced.graph, traced.outputs[0], ranges_of(traced.graph, f.low, f.high))
        assert low <= value.min() + 1e-12
        assert value.max() - 1e-12 <= high


def relative_state(low: tuple[float, float], high: tuple[float, float], constant: float = 0.0) -> State:
    """Two channels that hold an atom each, off by a thousandth of it, or of it and a known number."""
    ranges = Ranges({0: low[0], 1: low[1]}, {0: high[0], 1: high[1]}, {0: False, 1: False})
    error = Error(np.array([[1e-3 * 4] * 3, [0.0] * 3]), np.array([[0.0] * 3, [1e-3] * 3]))
    channels = (
        Channel(Combination({0: Part(1.0, None)}, np.array([constant])), error),
        Channel(Combination({1: Part(1.0, None)}, np.zeros(1)), error),
    )
    return State(channels, ranges, 4)


@pytest.mark.parametrize("row", [(1.0, 1.0), (1.0, -1.0), (-2.0, -0.5), (-1.0, 0.25), (1.0, 0.0)])
@pytest.mark.parametrize("low", [(0.0, 0.0), (-1.0, 0.0), (-3.0, -3.0)])
def test_errors_of_a_sum_are_relative_only_where_nothing_cancels(
    row: tuple[float, float], low: tuple[float, float]
) -> None:
    """Values that cancel, each off by its share: the difference is not off by a share of the difference."""
    high = (3.0, 0.0 if low[1] < -2 else 3.0)
    error = relative_state(low, high).read(np.array(row)).error
    for a in np.linspace(low[0], high[0], 13):
        for b in np.linspace(low[1], high[1], 13):
            value = row[0] * a + row[1] * b
            off = abs(row[0]) * 1e-3 * abs(a) + abs(row[1]) * 1e-3 * abs(b)
            assert (off <= error.at(np.array([abs(value)]))[:, 0] + 1e-15).all(), (a, b)
    one_sign = row == (1.0, 1.0) and low == (0.0, 0.0)
    assert not one_sign or error.at(np.array([1e-9]))[0, 0] < 1e-11


@pytest.mark.parametrize("constant", [0.5, -0.5])
def test_a_known_number_of_the_other_sign_cancels(constant: float) -> None:
    """a - 0.5 is 0 where a is 0.5, and there a may be off by a thousandth of that."""
    state = relative_state((0.0, 0.0), (1.0, 1.0))
    argument = Combination({0: Part(1.0, None)}, np.array([constant]))
    error = relative_to_whole(state.read(np.array([1.0, 0.0])).error, argument, state)
    for a in np.linspace(0.0, 1.0, 11):
        assert 1e-3 * a <= error.at(np.array([abs(a + constant)]))[0, 0] + 1e-15


def test_pairs_of_a_product_cover_all_values() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = rng.uniform(0.1, 3, 2)
        drawn = zip(10.0 ** rng.uniform(-4, -1, 2), 10.0 ** rng.uniform(-4, -1, 2), sizes, strict=True)
        errors = [
            Error(np.stack([np.full(3, a + r * s), np.full(3, a)]), np.stack([np.zeros(3), np.full(3, r)]))
            for a, r, s in drawn
        ]
        found = Error.of(_product_pairs(errors[0], errors[1], sizes[0], sizes[1]), sizes[0] * sizes[1])
        x, y = rng.uniform(-1, 1, 2) * sizes
        e, g = (float(error.at(np.array([abs(v)]))[0, 0]) for error, v in zip(errors, (x, y), strict=True))
        off = max(abs((x + s * e) * (y + t * g) - x * y) for s in (-1, 1) for t in (-1, 1))
        assert off <= found.at(np.array([abs(x * y)]))[0, 0] * (1 + 1e-12)


def test_signs_of_combinations() -> None:
    ranges = Ranges({0: 0.0, 1: -2.0}, {0: 1.0, 1: 0.0}, {0: False, 1: False})
    mix = np.array([[0.5, 0.5]])
    assert sign_of(Combination({0: Part(1.0, mix)}, np.zeros(1)), ranges) == 1
    assert sign_of(Combination({0: Part(1.0, -mix)}, np.zeros(1)), ranges) == 0
    assert sign_of(Combination({0: Part(1.0, None), 1: Part(-1.0, None)}, np.array([0.0, 2.0])), ranges) == 1
    assert sign_of(Combination({0: Part(1.0, None), 1: Part(1.0, None)}, np.zeros(1)), ranges) == 0
    assert sign_of(Combination({1: Part(0.0, mix)}, np.array([-1.0])), ranges) == -1
    assert sign_of(Combination({1: Part(0.0, mix)}, np.array([-1.0, 1.0])), ranges) == 0


def test_a_table_moves_no_further_than_it_goes_up_and_down() -> None:
    """On windows anywhere, also between knots: never less than the true variation, and hardly more."""
    rng = np.random.default_rng(11)
    for _ in range(40):
        count = int(rng.integers(2, 30))
        knots = np.sort(rng.uniform(-1, 1, count)) * 10.0 ** rng.integers(-6, 3)
        units = Units(np.ones(count), -knots, rng.normal(size=count) * 10.0 ** rng.integers(-3, 6), float(rng.normal()))
        low, high = float(knots[0]) - 1.0, float(knots[-1]) + 1.0
        found = read_pieces(units, low, high)
        windows = np.sort(rng.uniform(low, high, (2, 200)), axis=0)
        windows[:, :20] = np.sort(rng.choice(knots, (2, 20)), axis=0)
        claimed = found.variation(*windows)
        scale = float(np.abs(units.coefficient).sum()) * (high - low)
        for start, end, most in zip(*windows, claimed, strict=True):
            at = np.unique(np.concatenate([[start, end], knots[(knots > start) & (knots < end)]]))
            values = np.maximum(at[:, None] - knots, 0.0) @ units.coefficient
            true = float(np.abs(np.diff(values)).sum())
            assert true - 1e-13 * scale <= most <= true + 1e-9 * scale
