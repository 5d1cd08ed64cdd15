"""Functions whose formula is easy to misread. Each is 0 but near one sequence, which no sample meets: the trace alone decides."""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.base.errors import Untraceable
from provenformer.bounds.integrals import supports_intervals, supports_slopes
from provenformer.compiler.circuit import require_agreement as require_network_agreement
from provenformer.symbols.arrays import inputs
from provenformer.symbols.graph import Graph, Input, Pieces
from provenformer.symbols.linear import add, divide, mix, of_atom, scale
from provenformer.symbols.trace import Traced, follow, require_agreement, trace

D, N = 2, 4
PLACE = np.array([[0.3, 0.8, 0.15, 0.55], [0.7, 0.2, 0.9, 0.4]])
Function = Callable[[Any], Any]


def hidden(fn: Function) -> pf.Target:
    """fn near one sequence, 0 elsewhere."""

    def bump(x: Any) -> Any:
        return 20 * np.maximum(0.05 - np.max(np.abs(x - PLACE), axis=(-2, -1), keepdims=True), 0.0) * fn(x)

    return pf.Target(bump, D, N, equivariant=False)


def scores(x: Any) -> Any:
    return 3 * x[..., 0, :, None] * x[..., 1, None, :]


def softmax(s: Any, axis: int = -1) -> Any:
    powers = np.exp(s)
    return powers / np.sum(powers, axis=axis, keepdims=True)


def attended(weights: Any, x: Any) -> Any:
    return np.sum(weights[..., None, :, :] * x[..., :, None, :], axis=-1)


def less_peak(s: Any, axis: int = -1) -> Any:
    return s - np.max(s, axis=axis, keepdims=True)


def total_along_its_own_axis(x: Any) -> Any:
    powers = np.exp(scores(x))
    return attended(powers / np.sum(powers, axis=-1)[..., None, :], x)


def turned_total(x: Any) -> Any:
    powers = np.exp(scores(x))
    weights = powers / np.swapaxes(np.sum(powers, axis=-2, keepdims=True), -1, -2)
    return np.sum(weights[..., None, :, :] * x[..., :, :, None], axis=-2)


def peak_along_its_own_axis(x: Any) -> Any:
    s = scores(x)
    return attended(softmax(s - np.max(s, axis=-1)[..., None, :]), x)


def totals_of_other_features(x: Any) -> Any:
    powers, i = np.exp(x[..., :, :, None] * x[..., :, None, :]), np.arange(N)
    totals = np.sum(powers, axis=-1)
    mixed = totals[..., np.stack([i % 2, (i + 1) % 2]), i]
    return np.sum(powers / mixed[..., :, None] * x[..., :, None, :], axis=-1)


def shifted_twice(x: Any) -> Any:
    weights = softmax(less_peak(less_peak(scores(x)), -2), -2)
    return np.sum(weights[..., None, :, :] * x[..., :, :, None], axis=-2)


def weights_times_shifted(x: Any) -> Any:
    s = less_peak(scores(x))
    return x + np.sum(softmax(s) * s, axis=-1)[..., None, :]


def weights_over_shifted(x: Any) -> Any:
    s = (x[..., 0, :, None] + 1) * (x[..., 1, None, :] + 1)
    return x + np.sum(softmax(s) / less_peak(s), axis=-1)[..., None, :]


def masked_after_shift(x: Any) -> Any:
    s = less_peak(scores(x) + 1000.0)
    return attended(softmax(np.where(np.tri(N, dtype=bool), s, -1.0)), x)


PAIRS = [
    total_along_its_own_axis, turned_total, peak_along_its_own_axis, totals_of_other_features, shifted_twice,
    weights_times_shifted, masked_after_shift,
]  # fmt: skip


@pytest.mark.parametrize("fn", PAIRS, ids=lambda fn: fn.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_softmax_does_not_pass_for_one(fn: Function) -> None:
    """It is evaluated pair by pair, and is what it is."""
    f, x = hidden(fn), np.random.default_rng(3).random((20, 2, N))
    assert np.allclose(trace(f, (0.0,) * 4)(x), f(x), atol=1e-12)


def test_a_division_by_scores_less_their_maximum_is_refused() -> None:
    with pytest.raises(Untraceable, match="which contains 0") as refusal:
        trace(hidden(weights_over_shifted))
    assert "\n" not in str(refusal.value)


def test_axes_are_those_of_a_batch_of_sequences() -> None:
    """axis=1 of (batch, d, n) is that of the features."""
    f = hidden(lambda x: x + np.sum(x, axis=1, keepdims=True))
    assert np.abs(f(PLACE[None])).max() > 1
    assert np.allclose(trace(f)(PLACE[None]), f(PLACE[None]), atol=1e-14)


BATCHES: dict[str, Function] = {
    "reduced": lambda x: x + np.sum(x, axis=0, keepdims=True),
    "reduced with all": lambda x: x + np.max(x),
    "reversed": lambda x: x + x[::-1],
    "indexed": lambda x: x + x[0],
    "sorted": lambda x: np.sort(x, axis=0),
    "summed up": lambda x: np.cumsum(x, axis=0),
    "exchanged with the features": lambda x: x + np.swapaxes(x, 0, 1),
    "merged": lambda x: x + np.reshape(x, (-1, N))[:1],
    "weighted": lambda x: x * np.arange(1.0, 1 + len(x))[:, None, None],
    "weighted by functions of constants": lambda x: x + np.exp(np.zeros_like(x) + np.arange(len(x))[:, None, None]),
    "masked": lambda x: np.where(np.arange(len(x))[:, None, None] > 0, x, 0.5),
    "repeated": lambda x: np.repeat(x[:1], len(x), axis=0),
}


@pytest.mark.parametrize("name", BATCHES)
def test_what_looks_at_the_batch_is_refused(name: str) -> None:
    graph = Graph(D, N)
    for row in range(D):
        graph.atom(Input(row), False, 0.0, 1.0)
    with pytest.raises(Untraceable, match="batch") as refusal:
        BATCHES[name](inputs(graph, 2))
    assert "\n" not in str(refusal.value)


def test_the_size_of_the_batch_does_not_matter() -> None:
    with pytest.raises(Untraceable, match="batches of another size"):
        trace(hidden(lambda x: x * x.shape[0]))


def test_constants_with_a_batch_axis_are_those_of_one_sequence() -> None:
    def fn(x: Any) -> Any:
        weights = np.ones_like(x) * np.arange(1.0, 1 + N)
        ends = np.concatenate([np.exp(np.zeros_like(x))[..., :1], x[..., 1:]], axis=-1)
        return np.moveaxis(np.moveaxis(weights * x, 0, -1), -1, 0) + ends

    f = pf.Target(fn, D, N, equivariant=False)
    x = f.sample(10)
    assert np.allclose(trace(f)(x), f(x), atol=1e-14)
    constant = pf.Target(lambda x: np.exp(np.zeros_like(x)), D, N)
    assert np.allclose(trace(constant)(x), 1.0)


def test_coefficients_do_not_vanish() -> None:
    graph = Graph(1, N)
    x = of_atom(graph, graph.atom(Input(0), False, 0.0, 1e55))
    small = scale(graph, x, 1e-200)
    for lost in (
        lambda: scale(graph, small, 1e-155),
        lambda: scale(graph, small, 2.0**-1000),
        lambda: scale(graph, small, np.array([1.0, 1e-155, 1.0, 1.0])),
        lambda: divide(graph, small, np.array([1e155])),
        lambda: mix(graph, small, np.full((1, N), 1e-155)),
        lambda: add(graph, x, small, 1e-155),
    ):
        with pytest.raises(Untraceable, match="less than float64 has"):
            lost()
    assert scale(graph, scale(graph, of_atom(graph, graph.atom(Input(1), False, 0.0, 1e-290)), 1e-20), 3.0).slack > 0


def test_tiny_functions_are_compared_too() -> None:
    """A graph of another function, 1e-12 times as large as usual: what is compared is relative."""
    f, g = (pf.Target(lambda x: 1e-12 * np.tanh(x), D, N), pf.Target(lambda x: 1.001e-12 * np.tanh(x), D, N))
    traced: Traced = trace(f)
    require_agreement(f, traced)
    with pytest.raises(pf.ProvenformerError, match="something else on symbols"):
        require_agreement(g, traced)
    network: Any = traced
    require_network_agreement(f, network, 1e-18, traced)
    with pytest.raises(pf.ProvenformerError, match="away from its circuit"):
        require_network_agreement(g, network, 1e-18, traced)


def test_what_cancels_is_compared_up_to_its_rounding() -> None:
    trace(pf.Target(lambda x: np.mean(x - np.mean(x, axis=-1, keepdims=True), axis=-1, keepdims=True) + 0 * x, D, N))
    trace(pf.Target(lambda x: np.sin(x) ** 2 + np.cos(x) ** 2 - 1.0, D, N))


def test_what_is_0_but_for_the_rounding_of_arguments_is_compared_up_to_that() -> None:
    """min(z, 0) of z >= 0 is 0, and where z = 0 but for rounding it is that; another function is found all the same."""

    def least(above: float) -> pf.Target:
        middle, half = np.array([[2.0], [0.0]]), np.array([[5.0], [1.0]])
        support = ([-3.0, -1.0], [7.0, 1.0])

        def function(x: Any) -> Any:
            means = np.cumsum((x - middle) / half, axis=-1) / np.arange(1, 4)
            return np.minimum(means + above, 0) * 1e-30

        return pf.Target(function, 2, 3, equivariant=False, support=support)

    f, other = least(1.0), least(1.0 - 1e-6)
    c = pf.compile(f, tolerance=3.84e-32, norm_order=np.inf, construction="circuit")
    with pytest.raises(pf.ProvenformerError, match="something else on symbols"):
        require_agreement(other, c.traced)
    with pytest.raises(pf.ProvenformerError, match="away from its circuit"):
        require_network_agreement(other, c.network, c.certificate.bound, c.traced)


def test_high_powers_are_short_formulas() -> None:
    f = pf.Target(lambda x: (x / 2) ** 3001 + x**7, 1, N)
    assert np.allclose(trace(f)(f.sample(5)), f(f.sample(5)), atol=1e-14)


# Ways to do something else on symbols than on numbers. Each adds 7 near PLACE, where numbers pass.


def near(x: Any) -> Any:
    return 0.05 - np.max(np.abs(x - PLACE), axis=(-2, -1), keepdims=True)


def caught_comparison(x: Any) -> Any:
    try:
        return x + 7.0 * (near(x) > 0)
    except TypeError:
        return x


def caught_assignment(x: Any) -> Any:
    y = x.copy()
    with contextlib.suppress(Exception):
        y[np.broadcast_to(near(x) > 0, x.shape)] += 7.0
    return y


def caught_conversion(x: Any) -> Any:
    try:
        return x + 7.0 * np.ceil(np.clip(np.array(near(x)), 0, 1))
    except TypeError:
        return x


def caught_number(x: Any) -> Any:
    try:
        return x + 7.0 * max(int(100 * part) for part in np.ravel(near(x)))
    except (TypeError, pf.ProvenformerError):
        return x


def caught_truth(x: Any) -> Any:
    with contextlib.suppress(TypeError):
        if np.max(near(x)):
            return x + 7.0 * np.round(np.clip(near(x), 0, 0.05) * 20)
    return x


def asked_for_an_attribute(x: Any) -> Any:
    return x + 7.0 * (near(x) > 0) if hasattr(x, "nbytes") else x


def asked_for_a_method(x: Any) -> Any:
    return x + 7.0 * (near(x) > 0) if getattr(x, "argsort", None) else x


def asked_for_the_class(x: Any) -> Any:
    return x + 7.0 * (near(x) > 0) if isinstance(x, np.ndarray) else x


WAYS = [
    caught_comparison, caught_assignment, caught_conversion, caught_number, caught_truth, asked_for_an_attribute,
    asked_for_a_method, asked_for_the_class,
]  # fmt: skip


@pytest.mark.parametrize("fn", WAYS, ids=lambda fn: fn.__name__)
def test_what_was_refused_stays_refused(fn: Function) -> None:
    f = pf.Target(fn, D, N, equivariant=False)
    with pytest.raises(Untraceable, match="cannot be a circuit") as refusal:
        trace(f)
    assert "\n" not in str(refusal.value)
    assert not supports_intervals(f)
    assert not supports_slopes(f)


def test_questions_with_the_same_answer_on_numbers_are_no_refusals() -> None:
    def fn(x: Any) -> Any:
        if hasattr(x, "numpy") or not isinstance(x, np.ndarray):
            raise AssertionError
        rows = list(np.moveaxis(x, -2, 0))
        return np.stack([copy.copy(row) * copy.deepcopy(rows[0]) for row in rows], axis=-2)

    f = pf.Target(fn, D, N)
    x = f.sample(10)
    assert np.allclose(trace(f)(x), f(x), atol=1e-14)
    assert supports_intervals(f)
    assert supports_slopes(f)


def test_copies_are_values_of_the_same_run() -> None:
    f = pf.Target(lambda x: np.sin(x) + np.tanh(copy.deepcopy(x)), D, N)
    assert np.allclose(trace(f)(f.sample(10)), f(f.sample(10)), atol=1e-14)


def test_a_value_of_an_earlier_call_is_refused() -> None:
    kept: list[Any] = []

    def fn(x: Any) -> Any:
        kept.append(np.tanh(x))
        return np.sin(x) + kept[0]

    with pytest.raises(Untraceable, match="kept from an earlier call"):
        follow(pf.Target(fn, D, N))


def test_a_root_of_something_else_does_not_keep_its_variable_above_0() -> None:
    """Of sqrt(tanh(z) + 2) z may be below 0, where slack hides it: the root is between 1 and 1.74, and below 1.5 somewhere."""

    def rooted(x: Any) -> Any:
        z = 1e6 * (((x + 2.0**40) - 2.0**-15) - 2.0**40) + 15  # 1e6 (x - 2^-15) + 15, stored as 1e6 x + 15
        return np.maximum(np.sqrt(np.tanh(z) + 2), 1.5)

    atoms = follow(pf.Target(rooted, 1, 2)).graph.atoms
    assert any(atom.low < 1.01 and atom.high > 1.73 for atom in atoms)
    assert any(isinstance(atom.operation, Pieces) for atom in atoms)
