"""What circuits refuse: one line that names the operation, the range or the size, and the remedy."""

from functools import partial

import numpy as np
import pytest
from circuit_cases import REFUSED, Function, target

import provenformer as pf
from provenformer.base.errors import TooLarge, Untraceable


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_named(name: str) -> None:
    fn, words = REFUSED[name]
    with pytest.raises(Untraceable, match=words) as refusal:
        pf.compile(target(fn), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert "\n" not in str(refusal.value)


def test_a_function_that_traces_differently_than_it_runs() -> None:
    def hides(x: object) -> object:
        return np.tanh(x) if type(x) is np.ndarray else x * 1.0  # type: ignore[operator]

    with pytest.raises(pf.ProvenformerError, match="something else on symbols"):
        pf.compile(target(hides), tolerance=1e-2, norm_order=np.inf, construction="circuit")


def test_a_table_beyond_max_units_is_not_built() -> None:
    with pytest.raises(TooLarge, match=r"max_units=50.*a tolerance of about"):
        pf.compile(
            pf.targets.get("scaled-mean", seq_len=4),
            tolerance=1e-6,
            norm_order=np.inf,
            construction="circuit",
            max_units=50,
        )


def test_a_tolerance_below_rounding_is_refused() -> None:
    with pytest.raises(pf.ProvenformerError, match="use a larger tolerance"):
        pf.compile(pf.targets.get("sort", seq_len=4), tolerance=1e-16, norm_order=np.inf, construction="circuit")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tolerance": 0.0}, "tolerance=0.0"),
        ({"tolerance": 1e-2, "norm_order": 0.5}, "norm_order=0.5 is outside"),
        ({"tolerance": 1e-2, "norm_order": float("nan")}, "norm_order=nan is outside"),
        ({"tolerance": 1e-2, "cells_per_axis": 4}, "takes a tolerance"),
        ({"cells_per_axis": 4}, "takes a tolerance"),
        ({"tolerance": 1e-2, "hidden_dim": 8}, "takes a tolerance"),
        ({"tolerance": 1e-2, "kind": "statistical"}, "takes a tolerance"),
        ({"tolerance": 1e-2, "max_units": 1.5}, "max_units=1.5 is not a whole number"),
    ],
)
def test_options(options: dict, words: str) -> None:
    with pytest.raises(pf.ProvenformerError, match=words):
        pf.compile(pf.targets.get("centered", seq_len=4), construction="circuit", **options)


def test_an_axis_of_features_that_is_as_long_as_the_sequence_is_not_taken_for_tokens() -> None:
    """d = n: sums over features and over tokens must not be confused, whatever numpy does to the axes between."""
    n = 4

    def fn(x: np.ndarray) -> np.ndarray:
        over_features = np.swapaxes(np.sum(np.swapaxes(x, -1, -2), axis=-1, keepdims=True), -1, -2)
        return np.tanh(over_features) + np.mean(x, axis=-1, keepdims=True) * x

    f = target(fn, d=n, n=n)
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    x = f.sample(200)
    assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound


def test_the_axes_of_a_pair_may_be_exchanged_and_nothing_else() -> None:
    def attention(turned: bool, x: np.ndarray) -> np.ndarray:
        powers = np.exp(3 * x[..., :, None] * x[..., None, :] ** 2)
        weights = powers / np.sum(powers, axis=-2 if turned else -1, keepdims=True)
        return np.sum(weights * (x[..., :, None] if turned else x[..., None, :]), axis=-2 if turned else -1)

    for turned in (False, True):
        f = target(partial(attention, turned), n=5)
        c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
        x = f.sample(100)
        assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound
    cut = target(lambda x: np.sum((x[..., :, None] * x[..., None, :])[..., 1:, :], axis=-2), n=5)
    with pytest.raises(Untraceable, match="pairs"):
        pf.compile(cut, tolerance=1e-2, norm_order=np.inf, construction="circuit")


def test_weights_of_a_softmax_do_not_pass_for_another() -> None:
    """Powers divided by the sum of other powers, or along the other axis, are refused or right."""
    for axes in ((-1, -1), (-1, -2), (-2, -1), (-2, -2)):

        def fn(x: np.ndarray, axes: tuple[int, int] = axes) -> np.ndarray:
            powers = np.exp(x[..., :, None] * np.square(x)[..., None, :])
            return np.sum(powers / np.sum(powers, axis=axes[0], keepdims=True) * x[..., None, :], axis=axes[1])

        f = target(fn, n=4)
        try:
            c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
        except Untraceable:
            continue
        x = f.sample(100)
        assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound


@pytest.mark.parametrize(
    ("fn", "support", "tolerance"),
    [
        (np.square, (-1e30, 1e30), 1e58),
        (lambda x: 2 * x, (-1e200, 1e200), 1e190),
        (lambda x: x + np.flip(x, -1), (-1e61, 1e61), 1e55),
    ],
)
def test_numbers_beyond_the_limits_are_a_limit_and_no_fault(
    fn: Function, support: tuple[float, float], tolerance: float
) -> None:
    f = pf.Target(fn, 1, 4, support=support, equivariant=False)
    with pytest.raises(pf.ProvenformerError, match="nothing is claimed; scale the function or its support") as refusal:
        pf.compile(f, tolerance=tolerance, norm_order=np.inf, construction="circuit")
    assert "fault" not in str(refusal.value)


def test_inputs_far_beyond_every_box_are_refused() -> None:
    f = pf.targets.get("softmax-mean", 1, 4)
    c = pf.compile(f, tolerance=1e-3, norm_order=np.inf, construction="circuit")
    for size, dtype in ((1e308, np.float64), (1e30, np.float32)):
        with pytest.raises(pf.ProvenformerError, match="numbers may overflow"):
            c.network.run(np.full((1, 1, 4), size), dtype)
        assert np.isfinite(c.network.run(np.full((1, 1, 4), 1e15), dtype)).all()


def test_a_support_that_float64_cannot_hold() -> None:
    with pytest.raises(pf.ProvenformerError, match="wider than float64 can hold"):
        pf.Target(lambda x: x, 1, 4, support=(-1e308, 1e308))


PLANNED = {
    "layer norm": (lambda x: (x - np.mean(x, -1, keepdims=True)) / np.sqrt(np.var(x, -1, keepdims=True) + 0.1), 0),
    "squares of squares": (lambda x: np.square(np.square(x) + np.mean(x, -1, keepdims=True)) + np.square(x), 2),
    "a table": (lambda x: np.tanh(3 * x), 0),
    "no table": (lambda x: np.sort(x, axis=-1), 0),
    "pairs": (lambda x: np.mean(np.abs(x[..., :, None] - x[..., None, :]), axis=-1), 0),
}


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3])
def test_a_plan_is_what_is_built(name: str, tolerance: float) -> None:
    fn, depth = PLANNED[name]
    f = pf.Target(fn, 1, 12, equivariant=False)
    planned = pf.plan(f, tolerance=tolerance, norm_order=np.inf, depth=depth)
    assert planned == pf.compile(f, tolerance=tolerance, norm_order=np.inf, depth=depth).plan
