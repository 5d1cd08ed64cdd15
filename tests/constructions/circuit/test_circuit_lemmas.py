"""The lemmas of docs/circuits.md, attacked: each bound holds for the worst input that we know, and is not much larger."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from circuit_cases import target
from hypothesis import given, settings
from hypothesis import strategies as st

from provenformer.constructions.circuit import heads
from provenformer.constructions.circuit.build import build
from provenformer.constructions.circuit.errors import RHO, UNITS, Errors, plain, settled
from provenformer.constructions.circuit.gadgets import SquareUnits
from provenformer.constructions.circuit.heads import lambert
from provenformer.constructions.circuit.parts import lower
from provenformer.constructions.circuit.tables import Density, Units, exact_curve, fit, read_back, units_of_pieces
from provenformer.symbols.formula import SQUARE, VARIABLE, Formula, apply, constant
from provenformer.symbols.graph import Product
from provenformer.symbols.jets import formula_range, jet, slope_bound
from provenformer.symbols.trace import trace

FORMULAS: dict[str, tuple[Formula, float, float]] = {
    "exp": (apply("exp", VARIABLE), -1.0, 2.0),
    "tanh": (apply("tanh", VARIABLE), -7.0, 7.0),
    "square": (SQUARE, -1.0, 3.0),
    "root": (apply("sqrt", VARIABLE), 0.0, 1.0),
    "sine": (apply("sin", apply("multiply", constant(5.0), VARIABLE)), 0.0, 3.0),
    "sigmoid": (apply("divide", constant(1.0), apply("add", constant(1.0), apply("exp", VARIABLE))), -4.0, 4.0),
    "reciprocal root": (
        apply("divide", constant(1.0), apply("sqrt", apply("add", VARIABLE, constant(1e-3)))),
        0.0,
        1.0,
    ),
    "logarithm": (apply("log", VARIABLE), 0.1, 5.0),
}


def value(units: Units, z: np.ndarray) -> np.ndarray:
    hidden = np.maximum(units.sign[:, None] * (z - units.knot[:, None]), 0.0)
    return units.constant + units.coefficient @ hidden


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("error", [1e-1, 1e-3, 1e-5])
def test_lemma_1_tables(name: str, error: float) -> None:
    """The bound holds between the knots, and is not idle: a wrong coefficient shows."""
    formula, low, high = FORMULAS[name]
    density = Density.of(formula, low, high)
    table = fit(formula, density, np.full(len(density.bend), error))
    z = np.unique(
        np.concatenate(
            [np.linspace(low, high, 20_001), table.units.knot, low + (high - low) * np.geomspace(1e-12, 1, 500)]
        )
    )
    z = z[(z >= low) & (z <= high)]
    found = np.abs(value(table.units, z) - formula(z)).max()
    assert found <= table.curve.own.max() + 1e-12 <= error + 1e-12
    assert found >= 0.3 * error or len(table.units) <= 8
    u = table.units
    bent = Units(u.sign, u.knot, u.coefficient * np.where(np.arange(len(u)) == 0, 1.5, 1.0), u.constant)
    assert (
        np.abs(value(bent, z) - formula(z)).max() <= read_back(formula, bent, np.array([low, high])).own.max() + 1e-12
    )


def test_a_line_in_disguise_needs_few_units() -> None:
    """Enclosures of log(2 exp z) are wide on long pieces, and a table that does not bend has no knots to make them short."""
    formula = apply("log", apply("multiply", constant(2.0), apply("exp", VARIABLE)))
    density = Density.of(formula, -8.0, 8.0)
    table = fit(formula, density, np.full(len(density.bend), 1e-3))
    assert len(table.units) <= 40
    z = np.linspace(-8.0, 8.0, 20_001)
    assert np.abs(value(table.units, z) - formula(z)).max() <= table.curve.own.max() <= 1e-3


@pytest.mark.parametrize("name", FORMULAS)
def test_lemma_1_jets(name: str) -> None:
    """Values and difference quotients lie in the enclosures of value, first and second derivative."""
    formula, low, high = FORMULAS[name]
    edges = np.linspace(low, high, 60)
    found = jet(formula, edges[:-1], edges[1:])
    points = edges[:-1] + np.diff(edges) * np.linspace(0.05, 0.95, 9)[:, None]
    h = (high - low) * 1e-4
    y, left, right = formula(points), formula(points - h), formula(points + h)
    slack = 1e-5 * (1 + np.abs(y))
    assert (found.value.lo <= y).all()
    assert (y <= found.value.hi).all()
    inside = (points - h >= edges[:-1]) & (points + h <= edges[1:])
    first, second = (right - left) / (2 * h), (right - 2 * y + left) / h**2
    assert (~inside | ((found.first.lo - slack <= first) & (first <= found.first.hi + slack))).all()
    assert (~inside | ((found.second.lo * (1 + 1e-3) - 1e-2 <= second) | (found.second.lo - 1e-2 <= second))).all()
    assert (~inside | ((second <= found.second.hi * (1 + 1e-3) + 1e-2) | (second <= found.second.hi + 1e-2))).all()
    bottom, top = formula_range(formula, low, high)
    assert bottom <= y.min() <= y.max() <= top
    assert slope_bound(formula, low, high) >= np.abs(np.diff(y.T.ravel()) / np.diff(points.T.ravel())).max() * (
        1 - 1e-9
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5).map(lambda v: round(v, 2)), min_size=1, max_size=6, unique=True), st.data())
def test_lemma_2_pieces_are_exact(knots: list[float], data: st.DataObject) -> None:
    """Whatever the anchor, the units are the piecewise linear function, and its slope bounds what errors do."""
    at = np.sort(np.array(knots))
    slopes = np.array(data.draw(st.lists(st.integers(-3, 3).map(float), min_size=len(at) + 1, max_size=len(at) + 1)))
    start = data.draw(st.integers(-2, 2).map(float))
    units = units_of_pieces(at, slopes, start, -6.0, 6.0)
    z = np.linspace(-6, 6, 301)
    wanted = start + slopes[0] * np.minimum(z - at[0], 0)
    for knot, end, slope in zip(at, [*at[1:], np.inf], slopes[1:], strict=True):
        wanted = wanted + slope * np.clip(z - knot, 0, end - knot)
    assert np.abs(value(units, z) - wanted).max() < 1e-12
    moved = np.abs(value(units, z + 0.01) - value(units, z)).max()
    assert moved <= exact_curve(units, 0.0, -6.0, 6.0).slopes.max() * 0.01 + 1e-12


PROFILES = {
    "plain": plain(1e-3),
    "relative": np.maximum(2e-3 - RHO, 1e-6),
    "square-like": np.where(RHO > 0, 1e-6 / np.maximum(RHO, 1e-9), 0.3) + 1e-7,
    "large": plain(0.4),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("kind", PROFILES)
def test_lemma_2_errors_pass_through_a_table(name: str, kind: str) -> None:
    """|T(z^) - phi(z)| <= alpha + rho |phi(z)| for every rho, for z^ as far from z as the profile lets it, and in between."""
    formula, low, high = FORMULAS[name]
    density, profile = Density.of(formula, low, high), PROFILES[kind]
    table = fit(formula, density, 1e-3 + 1e-3 * density.least)
    z = np.concatenate([np.linspace(low, high, 4001), low + (high - low) * np.geomspace(1e-9, 1, 300)])
    far = (profile[:, None] + RHO[:, None] * np.abs(z)).min(axis=0)
    found = table.curve.through(profile).profile
    assert (np.diff(found) <= 1e-12).all()
    worst = np.zeros(len(RHO))
    for share in (-1.0, -0.5, 0.0, 0.3, 1.0):
        off = np.abs(value(table.units, z + share * far) - formula(z))
        assert (off <= found[:, None] + RHO[:, None] * np.abs(formula(z)) + 1e-12).all()
        worst = np.maximum(worst, (off - RHO[:, None] * np.abs(formula(z))).max(axis=1))
    assert found[0] <= 4 * worst[0] or kind in ("large", "square-like")


@settings(max_examples=200, deadline=None)
@given(st.floats(-3, 3), st.floats(0, 2), st.floats(0, 2), st.floats(0, 0.4), st.floats(0, 1))
def test_profiles_follow_from_pairs(low: float, width: float, alpha: float, rho: float, share: float) -> None:
    """alpha + rho |v| is within every number of the profile, for all v of the range."""
    found, _ = settled(np.array([alpha]), np.array([rho]), low, low + width)
    v = abs(low + share * width)
    assert (alpha + rho * v <= found + RHO * v + 1e-12).all()


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 3), st.floats(0.01, 3), st.integers(0, len(RHO) - 1), st.integers(0, len(RHO) - 1), st.data())
def test_lemma_3_products_of_relative_errors(x: float, y: float, i: int, j: int, data: st.DataObject) -> None:
    """The profile of a product covers arguments that are off by their own, at any values of the range."""
    f = target(lambda v: (v[..., :1, :] + 0.5) * (v[..., 1:, :] - 0.5) + v * 0, d=2, n=2)
    traced = trace(f)
    lowered = lower(traced.graph, traced.outputs)
    (part,) = [p for p in lowered.parts if isinstance(p.atom.operation, Product)]
    left, right = lowered.arguments[part.index]
    errors = Errors(0.0)
    for k, (alpha, r) in enumerate(((x * 1e-2, i), (y * 1e-2, j))):
        errors.set(lowered.parts[k], np.where(np.arange(len(RHO)) >= r, alpha, alpha + RHO[r] * lowered.parts[k].size))
    found = SquareUnits(part, left, right, 10_001, (9.0, 9.0)).error(errors)
    a, b = (local.low + data.draw(st.floats(0, 1)) * (local.high - local.low) for local in (left, right))
    e, g = ((errors.profile(local) + RHO * abs(v)).min() for local, v in ((left, a), (right, b)))
    off = max(abs((a + s * e) * (b + t * g) - a * b) for s in (-1, 1) for t in (-1, 1))
    assert off <= (found + RHO * abs(a * b)).min() + 1e-9


@pytest.mark.parametrize("pieces", [3, 5, 21])
def test_lemma_3_squares(pieces: int) -> None:
    """The difference of two interpolated squares is within rx ry / K^2 of the product, and reaches it."""
    knots = np.linspace(-2, 2, pieces + 1)
    s, t = np.meshgrid(np.linspace(-1, 1, 241), np.linspace(-1, 1, 241))
    square = [np.interp(u, knots, knots**2) for u in (s + t, s - t)]
    found = np.abs((square[0] - square[1]) / 4 - s * t).max()
    assert found <= 1 / pieces**2 + 1e-12
    assert found >= 0.9 / pieces**2


@settings(max_examples=100, deadline=None)
@given(*[st.floats(-1, 1)] * 4)
def test_lemma_4_comparisons(a: float, b: float, ea: float, eb: float) -> None:
    """max and min move by at most the larger error."""
    for f in (max, min):
        assert abs(f(a + ea, b + eb) - f(a, b)) <= max(abs(ea), abs(eb)) + 1e-15


@pytest.mark.parametrize("n", [2, 3, 16, 512])
def test_lemma_9_the_maximum(n: int) -> None:
    """All others (1 + W)/sharpness below: the softmax then stays exactly W/sharpness below the maximum, and never farther."""
    sharpness, w = 37.0, lambert(n)

    def below(gaps: np.ndarray) -> float:
        weights = np.exp(-sharpness * gaps)
        return float((weights * gaps).sum() / (1 + weights.sum()))

    worst = below(np.full(n - 1, (1 + w) / sharpness))
    assert worst == pytest.approx(w / sharpness, rel=1e-9)
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 3.0):
        for _ in range(200):
            assert below(rng.random(n - 1) * scale * (1 + w) / sharpness * 2) <= w / sharpness * (1 + 1e-9)


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max())
    return e / e.sum()


@pytest.mark.parametrize("eps", [1e-3, 0.1, 2.0])
def test_lemma_10_scores(eps: float) -> None:
    """Scores within eps move a weighted mean by at most tanh(eps/2) times the spread; two equal groups reach it."""
    values = np.array([0.0, 1.0])
    reached = abs(softmax(np.array([-eps, eps]) / 2 * 1.0) @ values - softmax(np.array([eps, -eps]) / 2) @ values)
    assert reached == pytest.approx(np.tanh(eps / 2), rel=1e-9)
    rng = np.random.default_rng(1)
    for _ in range(300):
        s, d, v = rng.normal(size=6) * 3, rng.uniform(-eps, eps, 6), rng.random(6)
        assert abs((softmax(s + d) - softmax(s)) @ v) <= np.tanh(eps / 2) * np.ptp(v) + 1e-15


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("order", [lambda v: v, lambda v: v[::-1], lambda v: np.sort(v), lambda v: np.sort(v)[::-1]])
def test_lemma_0_sums_in_any_order(precision: str, order: Callable[[np.ndarray], np.ndarray]) -> None:
    """gamma(k) times the sum of sizes, for weights rounded to the precision, one addition after the other."""
    dtype = np.dtype(precision)
    rng = np.random.default_rng(2)
    for k in (2, 30, 500):
        w, s = (
            rng.normal(size=k) * 10.0 ** rng.uniform(-6, 2, k),
            rng.normal(size=k).astype(np.float32).astype(np.float64),
        )
        exact = float(np.sum(w.astype(np.longdouble) * s.astype(np.longdouble)))
        total = dtype.type(0)
        for term in order(w.astype(dtype) * s.astype(dtype)):
            total = dtype.type(total + term)
        assert abs(float(total) - exact) <= Errors(UNITS[precision]).gamma(k + 2) * float(np.abs(w * s).sum())


HEADS_AND_GATES: dict[str, Callable[[Any], Any]] = {
    "gates of lemma 5": lambda x: np.tanh(x) * np.arange(4),
    "gates of lemma 5, negative": lambda x: (np.tanh(x) - 0.5) * np.arange(4),
    "means of lemma 6": lambda x: np.broadcast_to(np.mean(np.tanh(x), axis=-1, keepdims=True), x.shape),
    "permutations of lemma 7": lambda x: np.tanh(x)[..., [2, 0, 1, 1]],
    "rotations of lemma 7": lambda x: np.roll(np.tanh(x), 1, axis=-1),
    "rows of lemma 8": lambda x: (
        np.tanh(x) @ np.array([[0.5, 0, 0, 0], [0.5, 0.25, 0, 0], [0, 0.75, 1, 0.1], [0, 0, 0, 0.9]])
    ),
}


@pytest.mark.parametrize("name", HEADS_AND_GATES)
@pytest.mark.parametrize("margin", [64.0, 3.0])
def test_lemmas_5_to_8_heads_and_gates(name: str, margin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder's own bound, in all corners and in both precisions; with blunt heads the tails are seen, and counted."""
    monkeypatch.setattr(heads, "MARGIN", margin)
    f = target(HEADS_AND_GATES[name], n=4)
    traced = trace(f)
    built = build(lower(traced.graph, traced.outputs), 1.0 if margin < 64 else 1e-3, 20_000)
    x = np.array([[list(corner)] for corner in itertools.product((0.0, 0.5, 1.0), repeat=4)])
    for precision, bound in built.bounds.items():
        found = np.abs(built.network.run(x, precision) - f(x)).max()
        assert found <= bound + 1e-15
    if margin < 64 and "permutations" in name:
        assert built.terms["attention"] > 1e-3
        assert np.abs(built.network(x) - f(x)).max() > 1e-3


@pytest.mark.parametrize("n", [3, 17])
def test_lemma_7_the_gap_is_what_the_stored_numbers_give(n: int) -> None:
    """A permutation whose queries point beside the mark has a smaller lead, and the bound knows it."""
    choice = np.roll(np.arange(n), 1)[::-1].copy()
    f = target(lambda x: x[..., choice], n=n)
    traced = trace(f)
    lowered = lower(traced.graph, traced.outputs)
    (part,) = [p for p in lowered.parts if p.kind == "pick"]
    head = heads.PickHead(part)
    errors = Errors(0.0)
    errors.set(lowered.parts[0], 0.0)
    good = head.error(errors)
    object.__setattr__(head, "_temperature", head._temperature / 64)
    object.__delattr__(head, "_gap")
    assert good < 1e-25 < 1e-2 < head.error(errors)
