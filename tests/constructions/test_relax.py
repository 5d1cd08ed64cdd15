"""Softmax/ReLU networks (Lemma 9): right on every cube, and what the spec found out about ramps and tokens outside."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from cases import thin
from forging import off_ramp_points

import provenformer as pf
from provenformer.constructions.relax import inverse_temperature, relu_units
from provenformer.networks.base import FloatNetwork
from provenformer.networks.thin import Network, ReluRun

FAR = [5.0, 1e3, 1e6]
HUGE = [1.5, 10.0, 1e3, 1e8, 1e20, 1e50, 1e100]


@cache
def compiled(construction: str, token_dim: int, seq_len: int, cells: int, name: str = "scaled-mean") -> pf.Compiled:
    target = pf.targets.get(name, token_dim, seq_len)
    return pf.compile(target, cells_per_axis=cells, construction=construction, kind="lipschitz")


def without_clip(network: FloatNetwork) -> Network:
    return replace(thin(network), runs=thin(network).runs[:-1])


def corner_of(x: np.ndarray, cells: int) -> np.ndarray:
    return np.floor(x * cells)


def repeated(corner: np.ndarray) -> np.ndarray:
    """Whether two tokens share a cube, for corners (count, d, n)."""
    n = corner.shape[-1]
    same = [(corner[:, :, i] == corner[:, :, j]).all(axis=1) for i in range(n) for j in range(i)]
    return np.any(same, axis=0)


@pytest.mark.parametrize("size", [(1, 3, 8), (1, 3, 16), (1, 4, 8), (2, 2, 4)])
def test_papers_network_is_right_on_every_context(size: tuple[int, int, int]) -> None:
    """Cube centres and a random point of every cube that is on no ramp; cubes with a repeated token give exactly 0."""
    c = compiled("paper", *size, "softmax-mean")
    target, cells = c.target, size[2]
    points = off_ramp_points(target, cells, c.certificate.ramp, np.random.default_rng(0))
    centers = (corner_of(points, cells) + 0.5) / cells
    lost = repeated(corner_of(points, cells))
    assert 0 < lost.mean() == float(c.plan.lost_share)
    expected = np.where(lost[:, None, None], 0.0, target(centers))
    for x in (centers, points):
        y = c.network(x)
        assert (y[lost] == 0.0).all()
        assert np.abs(y - expected).max() <= 1e-6


@pytest.mark.parametrize("size", [(1, 3, 8), (1, 4, 5), (2, 2, 4), (2, 3, 2), (3, 2, 2)])
def test_sum_network_is_right_on_every_context_and_on_repeated_tokens(size: tuple[int, int, int]) -> None:
    c = compiled("sum", *size)
    target, cells = c.target, size[2]
    points = off_ramp_points(target, cells, c.certificate.ramp, np.random.default_rng(0))
    centers = (corner_of(points, cells) + 0.5) / cells
    assert repeated(corner_of(points, cells)).any()
    for x in (centers, points):
        assert np.abs(c.network(x) - target(centers)).max() <= 1e-6


@pytest.mark.parametrize("construction", ["sum", "paper"])
@pytest.mark.parametrize("name", ["sort", "shift"])
def test_positional_networks_are_right_on_every_context(construction: str, name: str) -> None:
    c = compiled(construction, 1, 3, 4, name)
    points = off_ramp_points(c.target, 4, c.certificate.ramp, np.random.default_rng(0))
    assert np.abs(c.network(points) - c.target((corner_of(points, 4) + 0.5) / 4)).max() <= 1e-6


def test_temperature_follows_from_the_smallest_float() -> None:
    """Executed, softmax is hardmax: half a unit of query times a unit of key, at this temperature, weighs exactly 0."""
    for unit in (Fraction(1), Fraction(1, 8), Fraction(1, 3)):
        sharp = inverse_temperature(unit)
        assert np.exp(-sharp * float(unit) ** 2 / 2) == 0.0
        assert np.exp(-sharp * float(unit) ** 2 / 8) > 0.0  # and no sharper than a power of two needs to be
    heads = [run for run in thin(compiled("paper", 1, 3, 8).network).runs if not isinstance(run, ReluRun)]
    assert all((inverse_temperature() * run.W_K == run.W_Q).all() for run in heads)


def test_four_relus_equal_the_jump_outside_its_ramp() -> None:
    for run in compiled("sum", 2, 2, 4).modified.runs:
        phi = getattr(run, "phi", None)
        if phi is None:
            continue
        ramp = Fraction(1, 64)
        units, constant = relu_units(phi, ramp)
        assert len(units) == 4
        for t in (Fraction(k, 32) + Fraction(1, 1000) for k in range(-200, 200)):
            if all(not at - ramp < t < at for at in (phi.low, phi.high)):
                value = sum((w * max(sign * (t - at), Fraction(0)) for sign, at, w in units), constant)
                assert value == phi(t)


# Finding 2: a ramp is a strip that is unbounded in the other tokens.


def just_below_zero(ramp: float, cells: int, width: float = 1e-4, count: int = 4001) -> np.ndarray:
    """x_1 on the ramp below 0 where its id is about -1/2: there the first window of the sweep is undecided."""
    marker = cells**3  # n = 2, d = 1: N^(nd) in cells
    return -ramp * (1 + np.linspace(-width, width, count)) / (2 * marker)


def strip(first: np.ndarray, second: float) -> np.ndarray:
    return np.stack([first, np.full_like(first, second)], axis=1)[:, None, :]


def test_finding_2_papers_network_is_not_zero_on_an_unbounded_strip() -> None:
    """f is 0 there, the output is not, whatever x_2: the integral over the whole space is infinite."""
    c = compiled("paper", 1, 2, 4)
    x1 = just_below_zero(c.certificate.ramp, 4)
    raw = [without_clip(c.network)(strip(x1, x2)) for x2 in FAR]
    assert np.abs(raw[0]).max() > 700.0  # the size of ids
    np.testing.assert_array_equal(raw[0], raw[1])
    np.testing.assert_array_equal(raw[0], raw[2])


def test_finding_2_the_clip_bounds_it_but_does_not_remove_it() -> None:
    c = compiled("paper", 1, 2, 4)
    high = c.certificate.clip_high[0]
    x1 = just_below_zero(c.certificate.ramp, 4)
    for x2 in [*FAR, 1e9]:
        y = np.abs(c.network(strip(x1, x2))).max(axis=(1, 2))
        assert y.max() == high > 0
        assert (y > high / 2).mean() > 0.01  # on a set of x_1 of positive measure, for every x_2: d_p is infinite
    assert c.certificate.domain == "box"


@pytest.mark.parametrize("size", [(1, 2, 4), (1, 3, 5), (2, 2, 3)])
def test_finding_2_is_absent_from_the_sum_construction(size: tuple[int, int, int]) -> None:
    """Tokens on the ramps (around every edge, at all scales) beside a token far outside: exactly 0, even unclipped."""
    c = compiled("sum", *size)
    d, n, cells = size
    network, rng = without_clip(c.network), np.random.default_rng(1)
    count, ramp = 20_000, c.certificate.ramp / cells
    edge = rng.integers(0, cells + 1, size=(count, d, n)) / cells
    scale = 10.0 ** rng.uniform(-9, 0.5, size=(count, d, n))
    x = edge - ramp * scale * rng.choice([1.0, 0.5, -1e-3], size=scale.shape)
    column = rng.integers(n, size=count)
    row = rng.integers(d, size=count)
    far = rng.choice(HUGE, size=count) * rng.choice([-1.0, 1.0], size=count)
    x[np.arange(count), row, column] = np.where(np.abs(far) == 1.5, np.where(far > 0, 1 + 2 * ramp, -2 * ramp), far)
    assert (network(x) == 0.0).all()
    assert (c.network(x) == 0.0).all()


@pytest.mark.parametrize("size", [(1, 2, 4), (1, 3, 5), (2, 2, 3), (1, 4, 4)])
def test_sum_is_exactly_zero_when_a_token_is_outside(size: tuple[int, int, int]) -> None:
    """By a little more than the ramp, or by 1e100; one token or all; the others anywhere."""
    c = compiled("sum", *size)
    d, n, cells = size
    rng = np.random.default_rng(2)
    count, ramp = 8_000, c.certificate.ramp / cells
    x = rng.uniform(-0.5, 1.5, size=(count, d, n))
    below, above = -ramp * rng.uniform(1.001, 3, 2000), 1 + ramp * rng.uniform(1e-3, 3, 2000)
    outside = np.concatenate([below, above, -rng.choice(HUGE, 2000), rng.choice(HUGE, 2000)])
    x[np.arange(count), rng.integers(d, size=count), rng.integers(n, size=count)] = outside
    assert (c.network(x) == 0.0).all()


def test_sum_is_not_zero_inside() -> None:
    """The two tests above are about something: inside the box the output is not 0."""
    c = compiled("sum", 1, 3, 5)
    assert (c.network(c.target.sample(500)) > 0.0).all()


# Finding 6: always clip.


@pytest.mark.parametrize("construction", ["sum", "paper"])
def test_finding_6_ramps_without_and_with_the_clip(construction: str) -> None:
    """On a ramp the raw output is as large as the gaps between ids; the clip bounds it by the range of the values."""
    c = compiled(construction, 1, 3, 8)
    cells, rng = 8, np.random.default_rng(3)
    x = rng.random((20_000, 1, 3))
    x[:, 0, 0] = (rng.integers(1, cells + 1, size=len(x)) - c.certificate.ramp * rng.random(len(x))) / cells
    high = c.certificate.clip_high[0]
    assert np.abs(without_clip(c.network)(x)).max() > 1e2 * high
    y = c.network(x)
    assert y.min() >= 2 * c.certificate.clip_low[0]
    assert y.max() <= 2 * high


def test_the_clip_executed_on_huge_numbers_is_at_most_twice_its_end() -> None:
    """x - (x - high) rounds to the grid of x: 0, or at most 2 high (docs/certificates.md)."""
    c = compiled("sum", 1, 2, 4)
    clip = Network(1, 2, (thin(c.network).runs[-1],))
    high = c.certificate.clip_high[0]
    rng = np.random.default_rng(4)
    x = 10.0 ** rng.uniform(-3, 300, size=(50_000, 1, 2)) * rng.choice([-1, 1], size=(50_000, 1, 2))
    y = clip(x)
    assert y.min() >= 0.0
    assert high < y.max() <= 2 * high
    small = np.abs(x) < 1.0
    np.testing.assert_array_equal(y[small], np.clip(x, 0.0, high)[small])
