"""What users write beside plain formulas: padding, windows, quantiles, signs, angles, softmax by hand; and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.lib.stride_tricks import sliding_window_view

import provenformer as pf
from provenformer.bounds.intervals import Interval
from provenformer.bounds.numpy_calls import run

Function = Callable[[Any], Any]
SIDES = ((0, 0), (0, 0), (1, 1))


def smoothed(x: Any) -> Any:
    p = np.pad(x, SIDES, mode="edge")
    return (p[..., :-2] + 2 * p[..., 1:-1] + p[..., 2:]) / 4


def padded(x: Any) -> Any:
    p = np.pad(x, SIDES, constant_values=0.5)
    return p[..., :-2] * p[..., 2:]


def reflected(x: Any) -> Any:
    return np.pad(x, SIDES, mode="reflect")[..., :-2] + np.pad(x, SIDES, mode="wrap")[..., 2:]


def winsorised(x: Any) -> Any:
    low, high = np.quantile(x, [0.1, 0.9], axis=-1, keepdims=True)
    return np.clip(x, low, high)


def groups(x: Any) -> Any:
    means = x.reshape(*x.shape[:-1], -1, 2).mean(axis=-1)
    return x - np.median(means, axis=-1, keepdims=True)


def windows(x: Any) -> Any:
    return sliding_window_view(np.pad(x, SIDES, mode="edge"), 3, axis=-1).max(axis=-1)


def weighted_windows(x: Any) -> Any:
    w = sliding_window_view(np.pad(x, SIDES, mode="edge"), 3, axis=-1)
    return np.square(w) @ np.array([0.2, 0.5, 0.3])


def by_hand(x: Any) -> Any:
    both = np.concatenate([3 * x, x**2], axis=-2)
    powers = np.exp(both - np.max(both, axis=-2, keepdims=True))
    return (powers / np.sum(powers, axis=-2, keepdims=True))[..., :1, :]


IDIOMS: dict[str, Function] = {
    "edge": smoothed,
    "constant": padded,
    "reflect and wrap": reflected,
    "quantiles": winsorised,
    "percentile": lambda x: x - np.percentile(x, 30, axis=-1, keepdims=True),
    "groups": groups,
    "windows": windows,
    "weighted windows": weighted_windows,
    "mu-law": lambda x: np.sign(x) * np.log1p(255 * np.abs(x)) / np.log1p(255.0),
    "soft threshold": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.2, 0),
    "size": lambda x: np.sign(x - 0.1) * np.abs(x - 0.1),
    "signed square": lambda x: -2 * np.square(x) * np.sign(x),
    "signed exp": lambda x: np.sign(x) * (np.exp(np.abs(x)) - 1),
    "signed root": lambda x: (np.sqrt(np.abs(x - 0.1) + 0.01) - 0.1) * np.sign(x - 0.1),
    "a sign that is known": lambda x: np.sign(x + 2) * x + np.sign(x - 3),
    "angle to the right": lambda x: np.arctan2(x - np.mean(x, axis=-1, keepdims=True), x + 2.5),
    "angle above": lambda x: np.arctan2(x + 3, x),
    "angle below": lambda x: np.arctan2(x - 3, np.flip(x, -1)),
    "ndtr": scipy.special.ndtr,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "decibels": lambda x: 10 * np.log10(np.square(x) + 0.1),
    "interp": lambda x: np.interp(x, [-1, 0, 0.5, 0.9], [0, 1, 0.2, 0.3]),
    "average": lambda x: x - np.average(x, axis=-1, weights=np.arange(1.0, x.shape[-1] + 1), keepdims=True),
    "degrees": lambda x: np.sin(np.radians(90 * x)) + np.degrees(x) / 1000,
    "softmax by hand": by_hand,
}


@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_compile_and_hold(name: str) -> None:
    f = pf.Target(IDIOMS[name], 1, 6, support=(-1, 1), equivariant=False, name=name)
    c = pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    rng = np.random.default_rng(3)
    x = np.concatenate([f.sample(200), rng.choice([-1.0, 0.0, 0.1, 1.0], size=(100, 1, 6)), 1e-9 * f.sample(20)])
    assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound <= 1e-2


@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_on_boxes_contain_their_values(name: str) -> None:
    f, rng = IDIOMS[name], np.random.default_rng(4)
    a, b = np.sort(rng.uniform(-1, 1, size=(2, 20, 1, 6)), axis=0)
    b = np.where(rng.random(b.shape) < 0.5, a + (b - a) / 10, b)
    found = run(f, Interval(a, b))
    for share in (0.0, 0.3, 1.0, rng.random(a.shape)):
        value = f(a + share * (b - a))
        assert (found.lo <= value + 1e-12).all()
        assert (value <= found.hi + 1e-12).all()


def test_a_softmax_by_hand_is_as_small_as_the_helper() -> None:
    def hand(x: Any) -> Any:
        powers = np.exp(3 * x)
        return powers / np.sum(powers, axis=-2, keepdims=True)

    units = [
        pf.compile(
            pf.Target(fn, 3, 4, support=(-1, 1)), tolerance=1e-2, norm_order=np.inf, construction="circuit"
        ).plan.units
        for fn in (hand, lambda x: pf.softmax(3 * x, axis=-2))
    ]
    assert units[0] == units[1]


REFUSED: dict[str, tuple[Function, str]] = {
    "a jump": (np.sign, r"sign of a value in \[-1, 1\] jumps at 0; multiply it with"),
    "of another value": (lambda x: np.sign(x) * np.abs(np.flip(x, -1)), "jumps at 0"),
    "of a shifted value": (lambda x: np.sign(x) * np.abs(x - 0.1), "jumps at 0"),
    "not 0 at 0": (lambda x: np.sign(x) * np.exp(np.abs(x)), "jumps at 0"),
    "nearly 0 at 0": (lambda x: np.sign(x) * (np.abs(x) + 1e-9), "jumps at 0"),
    "not even": (lambda x: np.sign(x) * (np.square(x) + x), "jumps at 0"),
    "a quotient": (lambda x: np.abs(x) / np.sign(x), "jumps at 0"),
    "a sum": (lambda x: np.sign(x) + x, "jumps at 0"),
    "an angle that jumps": (lambda x: np.arctan2(x, np.flip(x, -1)), r"y in \[-1, 1\] and x from -1 up jumps .* keep x > 0"),
    "a mean as padding": (lambda x: np.pad(x, SIDES, mode="mean")[..., 1:-1], "mode='mean'"),
    "two numbers as padding": (
        lambda x: np.pad(x, SIDES, constant_values=((0, 0), (0, 0), (1, 2)))[..., 1:-1], "only one number",
    ),
    "quantiles of another kind": (lambda x: x - np.quantile(x, 0.5, axis=-1, method="lower", keepdims=True), "method="),
    "points out of order": (lambda x: np.interp(x, [1.0, 0.0], [0.0, 1.0]), "increasing order"),
    "partition": (lambda x: np.partition(x, 2, axis=-1), "use np.sort"),
    "fft": (lambda x: np.fft.fft(x, axis=-1).real, "matrix of the transform"),
    "solve": (lambda x: x * np.linalg.det(np.swapaxes(x, -1, -2) @ x)[..., None, None], "write out the formula"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name: str) -> None:
    fn, words = REFUSED[name]
    f = pf.Target(fn, 1, 6, support=(-1, 1), equivariant=False, name=name)
    with pytest.raises(pf.ProvenformerError, match=words) as refusal:
        pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert "\n" not in str(refusal.value)
