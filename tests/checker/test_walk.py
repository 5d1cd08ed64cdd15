"""The steps of `verify` on arbitrary layers: what is executed, in any order of the sums, lies where the walk says it does.

Random layers with everything that hurts: cancelling units, huge and tiny weights, breaks at the points, radii, ties. A
layer may be rejected; what is not rejected must be true.
"""

from fractions import Fraction

import numpy as np
import pytest
from cases import run_of, thin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.attention import attend
from provenformer.checker.coordinates import map_intervals
from provenformer.checker.growth import first_overflow
from provenformer.checker.outside import layer_image
from provenformer.checker.points import Where, apply_layers, feed_points
from provenformer.networks.thin import Network, ReluRun, SoftmaxRun, attention, evaluate, feed_forward

WHERE = Where(0, "test")
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32 - 1)


def layer(rng: np.random.Generator, d: int, tame: bool = False) -> ReluRun:
    """One feed-forward layer: random, or units that cancel, or whole numbers, or wild sizes."""
    style = rng.integers(3 if tame else 4)
    W_1, b_1 = rng.normal(size=(1, 4, d)), rng.normal(size=(1, 4)) * 5
    W_2, b_2 = rng.normal(size=(1, d, 4)), rng.normal(size=(1, d)) * rng.integers(0, 2)
    if style == 1:  # large opposite units with almost the same break
        big = 2.0 ** rng.integers(5, 45)
        W_1 = np.repeat(rng.choice([1.0, 1.1, 0.3, -1.0], size=(1, 1, d)), 4, axis=1)
        b_1 = np.full((1, 4), rng.choice([-1000.3, -3.0, -0.1, 2.7])) + rng.choice([0.0, 1e-9], size=(1, 4))
        W_2 = big * rng.choice([-1.0, 1.0, 0.0], size=(1, d, 4))
    elif style == 2:
        W_1, b_1, W_2 = (np.round(4 * a) / rng.choice([1, 4]) for a in (W_1, b_1, W_2))
        W_1[:, rng.random(4) < 0.5] = np.eye(d)[rng.integers(d)] * rng.choice([-1.0, 1.0])
    elif style == 3:
        W_1, b_1, W_2 = (a * 10.0 ** rng.integers(-200, 200, size=a.shape) for a in (W_1, b_1, W_2))
    W_2[rng.random(W_2.shape) < 0.3] = 0.0
    return ReluRun("test", W_1, b_1, W_2, b_2)


def executed(run: ReluRun, x: np.ndarray) -> list[np.ndarray]:
    """Tokens (count, d) after one layer: the reference, sums in the other order, and every sum rounded only once."""
    with np.errstate(all="ignore"):
        flipped = ReluRun("test", run.W_1[:, ::-1, ::-1], run.b_1[:, ::-1], run.W_2[:, ::-1, ::-1], run.b_2[:, ::-1])
        return [feed_forward(run, x.T).T, feed_forward(flipped, x[:, ::-1].T).T[:, ::-1], fused(run, x)]


def fused(run: ReluRun, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for k, token in enumerate(x):
        hidden = []
        for unit in range(4):
            exact = sum((Fraction(w) * Fraction(t) for w, t in zip(run.W_1[0, unit], token, strict=True)), Fraction(0))
            hidden.append(max(rounded(exact + Fraction(run.b_1[0, unit])), 0.0))
        for row in range(x.shape[1]):
            if not np.isfinite(hidden).all():
                out[k, row] = np.inf
                continue
            change = sum((Fraction(w) * Fraction(h) for w, h in zip(run.W_2[0, row], hidden, strict=True)), Fraction(0))
            out[k, row] = rounded(Fraction(token[row]) + change + Fraction(run.b_2[0, row]))
    return out


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


@SETTINGS
@given(seeds)
def test_intervals_through_a_layer(seed: int) -> None:
    """_map_intervals: every float of a cell lands in the cell's image."""
    rng = np.random.default_rng(seed)
    run = layer(rng, 1)
    start = rng.choice([0.0, 1000.3, -3.0, 5.0, 1e6, 0.1]) + np.sort(rng.random(4)) * 10.0 ** rng.integers(-8, 2)
    low, high = [Fraction(float(a)) for a in start[:-1]], [Fraction(float(a)) for a in start[1:]]
    if rng.random() < 0.2:
        high = list(low)
    new_low, new_high = list(low), list(high)
    try:
        map_intervals(WHERE, run, 0, 0, new_low, new_high)
    except Rejected:
        return
    for k in range(3):
        x = np.linspace(float(low[k]), float(high[k]), 23)[:, None]
        for y in executed(run, x):
            finite = y[np.isfinite(y)]
            assert all(new_low[k] <= Fraction(value) <= new_high[k] for value in finite.tolist())


@SETTINGS
@given(seeds, st.integers(1, 3))
def test_points_through_a_layer(seed: int, d: int) -> None:
    """_apply: executed from anywhere within the radius, the result is within the new radius."""
    rng = np.random.default_rng(seed)
    run = layer(rng, d)
    points = rng.choice([0.0, 1.0, -2.0, 5.0, 0.75, 1000.3, 2.0**20, 2.0**46, 0.1], size=(5, d)) * rng.choice(
        [1, 1, -1]
    )
    inputs, radius = nearby(points, rng, 4)
    with np.errstate(all="ignore"):
        out, spread = apply_layers(run, np.zeros(5, dtype=int), points, radius)
    for x in inputs:
        for y in executed(run, x):
            good = np.isfinite(y) & np.isfinite(out) & np.isfinite(spread)
            assert (np.abs(y[good] - out[good]) <= spread[good] * (1 + 1e-12)).all()


def nearby(points: np.ndarray, rng: np.random.Generator, count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Floats around points, some entries exactly on them, and the radius that just covers them."""
    size = np.where(rng.random(points.shape) < 0.5, 0.0, np.abs(points) * 10.0 ** rng.integers(-15, -3) + 1e-12)
    inputs = [points + size * rng.choice([-1.0, 1.0, 0.3, 0.0], size=points.shape) for _ in range(count)]
    return inputs, np.max([np.abs(x - points) for x in inputs], axis=0)  # differences of near floats are exact


@SETTINGS
@given(seeds)
def test_points_through_a_long_run(seed: int) -> None:
    """_feed_points on windows, read back and searched, against running every layer; altered runs included."""
    rng = np.random.default_rng(seed)
    count = 80
    ids = np.sort(rng.choice(4000, size=count, replace=False))[::-1] + 100.0
    value = rng.normal(size=count)
    breaks = np.array([-0.75, -0.5, 0.25, 0.5])
    b_1 = -(ids[:, None] + breaks)
    W_2 = (4 * (value - ids))[:, None, None] * np.array([1.0, -1.0, -1.0, 1.0])
    kind = rng.integers(6)
    at, unit = rng.integers(count), rng.integers(4)
    if kind == 1:
        b_1[at, unit] += rng.choice([1.0, -1.0, 0.25, 1e-9, 500.0])
    if kind == 2:
        W_2[at, 0, unit] *= rng.choice([1.01, 0.0, -1.0, 1e6])
    if kind == 3:
        b_1[[at, at - 1]] = b_1[[at - 1, at]]
    if kind == 4:
        W_2[at] *= 1.01
    run = ReluRun("test", np.ones((count, 4, 1)), b_1, W_2, np.zeros((count, 1)))
    points = np.concatenate([ids, [0.0, 0.3, ids[3] + 2.0]])[:, None]
    inputs = [points + sign * rng.choice([0.0, 1e-12, 1e-6, 0.3]) for sign in (-1, 0, 1)]
    radius = np.max([np.abs(x - points) for x in inputs], axis=0)
    try:
        out, spread = feed_points(WHERE, run, points, radius)
    except Rejected:
        return
    for x in inputs:
        assert (np.abs(feed_forward(run, x.T).T - out) <= spread * (1 + 1e-12)).all()


def test_an_honest_long_run_is_not_rejected() -> None:
    ids = np.arange(500.0, 100.0, -2)
    b_1, W_2 = -(ids[:, None] + [-0.75, -0.5, 0.25, 0.5]), (4 * (0.5 - ids))[:, None, None] * [1.0, -1.0, -1.0, 1.0]
    run = ReluRun("test", np.ones((len(ids), 4, 1)), b_1, W_2, np.zeros((len(ids), 1)))
    out, spread = feed_points(WHERE, run, ids[:, None], np.zeros((len(ids), 1)))
    assert (out == 0.5).all()
    assert spread.max() < 1e-10


def heads(rng: np.random.Generator, d: int) -> SoftmaxRun:
    style = rng.integers(4)
    W_K, W_V = rng.integers(-1, 2, size=(2, 1, 2, d)).astype(float)
    W_Q, b_Q = (
        2048 * rng.integers(-1, 2, size=(1, 2, d)).astype(float),
        1024 * rng.integers(-3, 4, size=(1, 2)).astype(float),
    )
    W_O = rng.integers(-8, 9, size=(1, 2, d)) * rng.choice([1.0, 2.0**20, 1.01])
    if style == 1:
        W_O[:, 1], W_V[:, 1], W_K[:, 1], W_Q[:, 1] = -W_O[:, 0], W_V[:, 0], W_K[:, 0], W_Q[:, 0]
    if style == 2:
        W_K, W_Q = W_K * 0, W_Q * rng.integers(2)
    if style == 3:
        W_Q, b_Q, W_V = W_Q * 1.01, b_Q * 1.0001, W_V * 0.7
    return SoftmaxRun("test", W_O, W_V, W_K, W_Q, b_Q)


@SETTINGS
@given(seeds, st.integers(1, 2), st.integers(2, 4))
def test_contexts_through_attention(seed: int, d: int, n: int) -> None:
    """_attend: ties, cancelling heads, radii. Two columns are equal bit by bit only when the context says so."""
    rng = np.random.default_rng(seed)
    run = heads(rng, d)
    tokens = rng.choice([0.0, 1.0, 2.0, 3.0, -4.0, 1000.5, 2.0**30], size=(4, d))
    if rng.random() < 0.3:
        tokens[1] = tokens[0]  # different tokens that came out the same
    ids = rng.integers(4, size=(6, n))
    inputs, token_radius = nearby(tokens, rng, 6)
    state, radius = tokens[ids], token_radius[ids]
    alike = ids[:, :, None] == ids[:, None, :]
    try:
        out, spread = attend(WHERE, run, state, radius, alike)
    except Rejected:
        return
    for moved in inputs:
        x = moved[ids].transpose(2, 0, 1)  # (d, batch, n)
        y = attention(run, x).transpose(1, 2, 0)
        assert (np.abs(y - out) <= spread * (1 + 1e-12)).all()
        turned = rng.permutation(n)
        y = attention(run, np.ascontiguousarray(x[:, :, turned])).transpose(1, 2, 0)
        assert (np.abs(y - out[:, turned]) <= spread[:, turned] * (1 + 1e-12)).all()


@SETTINGS
@given(seeds)
def test_half_lines_through_a_layer(seed: int) -> None:
    """_layer_image: the image of a (half-)line contains every executed value, however far out."""
    rng = np.random.default_rng(seed)
    run = layer(rng, 1, tame=True)
    if rng.random() < 0.3:
        run.W_1[0, rng.integers(4)] = 0.0
    low = None if rng.random() < 0.5 else Fraction(float(rng.normal() * 100))
    high = None if rng.random() < 0.5 else (low or Fraction(-50)) + Fraction(float(rng.random() * 100))
    try:
        new_low, new_high = layer_image(run, 0, 0, low, high)
    except Rejected:
        return
    far = 10.0 ** np.linspace(-3, 60, 200)
    x = np.concatenate([-far, far, rng.normal(size=200) * 50])
    x = x[(x >= (-np.inf if low is None else float(low))) & (x <= (np.inf if high is None else float(high)))][:, None]
    for y in executed(run, x)[:2]:
        values = y[np.isfinite(y)]
        assert new_low is None or all(Fraction(t) >= new_low for t in values.tolist())
        assert new_high is None or all(Fraction(t) <= new_high for t in values.tolist())


def steps(rng: np.random.Generator, d: int) -> ReluRun:
    """Layers that lower what they read by a height, as the value layers do; some of them with too large weights."""
    starts = np.sort(rng.choice(1000, size=30, replace=False))[::-1] + 1.0
    W_1, b_1, W_2 = np.zeros((30, 4, d)), np.zeros((30, 4)), np.zeros((30, d, 4))
    W_1[:, :, 0] = 1.0
    b_1[:, 0], b_1[:, 1] = -starts + 0.25, -starts
    W_2[:, 0, 0] = -4 * starts * 10.0 ** rng.choice([0, 0, 20, 40])
    W_2[:, :, 1] = -W_2[:, :, 0]
    return ReluRun("test", W_1, b_1, W_2, np.zeros((30, d)))


@SETTINGS
@given(seeds, st.integers(1, 2))
def test_what_cannot_overflow_does_not(seed: int, d: int) -> None:
    """growth.first_overflow: when it finds nothing, every input gives a finite output."""
    rng = np.random.default_rng(seed)
    runs: list[ReluRun | SoftmaxRun] = []
    for _ in range(rng.integers(1, 30)):
        if rng.random() < 0.2:
            runs.append(heads(rng, d))
        elif rng.random() < 0.3:
            runs.append(steps(rng, d))
        else:
            run = layer(rng, d)
            if rng.random() < 0.3:
                run.W_2[...] *= 10.0 ** rng.integers(0, 60)
            runs.append(run)
    network = Network(d, 2, tuple(runs))
    if first_overflow(network, 100.0) is None:
        with np.errstate(all="raise", under="ignore"):
            y = evaluate(network, rng.uniform(-100, 100, size=(50, d, 2)))
        assert np.isfinite(y).all()


def test_overflow_is_found_where_it_happens() -> None:
    """The layer named is the first one that can pass 2^1000; honest networks have none."""
    network = thin(pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=4).network)
    assert first_overflow(network, 1.0) is None
    run = run_of(network, -2, ReluRun)
    W_2 = np.array(run.W_2)
    W_2[7, 0, 2] = 1e305
    broken = Network(1, 3, (*network.runs[:-2], ReluRun("values", run.W_1, run.b_1, W_2, run.b_2), network.runs[-1]))
    assert first_overflow(broken, 1.0) == (len(network.runs) - 2, 7)


@pytest.mark.parametrize("size", [1000.3, 1e6])
def test_rounding_is_relative_to_what_enters_a_sum(size: float) -> None:
    """Opposite units of size 2^49 whose break lies just below a cell far from 0: their sum is small, its rounding is not.

    Relative to the sums the error looks like 2^-14; executed it is whole cells. (A forged network used this.)
    """
    step = 2.0**-10
    W_1, b_1 = np.array([[[1.1], [1.3], [0.0], [0.0]]]), np.array([[-1.1 * size, -1.3 * size, 0.0, 0.0]])
    W_2 = np.array([[[2.0**49, -(2.0**49) * 1.1 / 1.3, 0.0, 0.0]]])
    run = ReluRun("test", W_1, b_1, W_2, np.zeros((1, 1)))
    low, high = [Fraction(size) + Fraction(step) / 4], [Fraction(size) + Fraction(step)]
    x = np.linspace(float(low[0]), float(high[0]), 1000)[:, None]
    map_intervals(WHERE, run, 0, 0, low, high)
    for y in executed(run, x):
        assert low[0] <= Fraction(float(y.min()))
        assert high[0] >= Fraction(float(y.max()))


def test_underflow_is_not_exact() -> None:
    """2^-600 * 2^-600 is 0 when executed, so x + 2^600 ReLU(2^-600 x) is x; on paper it is 2 x."""
    W_1, W_2 = np.array([[[2.0**-600], [0.0], [0.0], [0.0]]]), np.array([[[2.0**600, 0.0, 0.0, 0.0]]])
    run = ReluRun("test", W_1, np.zeros((1, 4)), W_2, np.zeros((1, 1)))
    x = 2.0**-600
    low, high = [Fraction(x)], [Fraction(x)]
    map_intervals(WHERE, run, 0, 0, low, high)
    assert low[0] <= Fraction(float(feed_forward(run, np.array([[x]]))[0, 0])) == Fraction(x)
    assert high[0] >= 2 * Fraction(x)
