"""What the tracer itself computes, from constants, is off by no more than the slack that it says."""

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.base.errors import Untraceable
from provenformer.symbols.formula import VARIABLE, apply
from provenformer.symbols.graph import Graph, Input, Lin, Pieces
from provenformer.symbols.linear import constant
from provenformer.symbols.trace import follow, trace
from provenformer.symbols.trees import function, masked, of_row

N = 4
BIAS = 0.1 * np.arange(N * N).reshape(N, N)


def output(fn: Any, **about: Any) -> tuple[Graph, Lin]:
    traced = follow(pf.Target(fn, 1, N, equivariant=False, **about), (0.0,) * 4)
    return traced.graph, traced.outputs[0]


@pytest.mark.parametrize("power", [3, 1001, 10**9, 2**31 - 1])
def test_powers_of_constants(power: int) -> None:
    """By repeated squaring a rounding counts as often as the exponent says."""
    base = 1 + 2.0**-33
    _, lin = output(lambda x: (0 * x + base) ** power)
    with localcontext() as context:
        context.prec = 60
        off = abs(Decimal(float(lin.constant[0])) - Decimal(base) ** power)
    assert off <= Decimal(lin.slack)


def test_functions_of_what_stands_where_a_mask_is_false() -> None:
    number = 0.7
    tree = masked(of_row(constant(0.0)), np.eye(N, dtype=bool), np.full((N, N), number))
    tree = function(apply("exp", VARIABLE), tree)
    with localcontext() as context:
        context.prec = 60
        off = abs(Decimal(float(np.asarray(tree.matrix)[0, 1])) - Decimal(number).exp())
    assert 0 < off <= Decimal(tree.slack)
    assert tree.turned.slack == tree.slack
    below = masked(of_row(constant(0.0)), np.eye(N, dtype=bool), np.full((N, N), -np.inf))
    assert function(apply("exp", VARIABLE), below).slack == 0


def test_factors_of_a_maximum_of_pairs() -> None:
    exact = Fraction(1)

    def fn(x: Any) -> Any:
        nonlocal exact
        found, exact = np.max(x[..., :, None] - x[..., None, :], axis=-1), Fraction(1)
        for factor in 300 * [1 / 3, 3.0]:
            found, exact = found * factor, exact * Fraction(factor)
        return found

    graph, lin = output(fn)
    ((number, term),) = lin.terms.items()
    off = abs(Fraction(term.own) - exact) * Fraction(graph.atoms[number].size)
    assert 0 < off <= Fraction(lin.slack)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("by", ["sum", "product", "position"])
def test_biases_of_scores(far: float, by: str) -> None:
    """far + BIAS - far is BIAS in real numbers, and so it should be in what is stated of the tracer's."""

    def head(x: Any, bias: Any) -> Any:
        powers = np.exp(bias(x[..., 0, :, None] * x[..., 0, None, :]))
        weights = powers / np.sum(powers, axis=-1, keepdims=True)
        return np.sum(weights[..., None, :, :] * x[..., :, None, :], axis=-1)

    columns = np.arange(N) * far / 3
    ways = {
        "sum": lambda s: s + np.full((N, N), far) + BIAS - np.full((N, N), far),
        "product": lambda s: s + (0 * s + np.full((N, N), far) + BIAS) * np.ones((N, N)) - np.full((N, N), far),
        "position": lambda s: s + columns + BIAS - np.broadcast_to(columns, (N, N)),
    }
    f = pf.Target(lambda x: head(x, ways[by]), 1, N, equivariant=False)
    traced, x = follow(f), f.sample(50)
    off = np.abs(traced(x) - head(x, lambda s: s + BIAS)).max()
    assert off <= traced.outputs[0].slack + 1e-14
    assert far == 1e3 or off > 1e-13


@pytest.mark.parametrize("far", [1.0, 1e17, -1e17])
def test_pieces_of_pieces_far_from_0(far: float) -> None:
    low, middle, high = sorted((far, 1.5 * far, 2 * far))
    support = (low - abs(far), high + abs(far))
    f = pf.Target(lambda x: np.maximum(np.clip(x, low, high), middle), 1, N, support=support)
    x = f.sample(100)
    assert np.allclose(trace(f)(x), f(x), rtol=1e-14)


def test_an_infinite_end_is_none() -> None:
    f = pf.Target(lambda x: np.clip(x, 0.3, np.inf) + np.clip(x, -np.inf, 0.6), 1, N)
    x = f.sample(100)
    assert np.allclose(trace(f)(x), f(x), atol=1e-15)


@pytest.mark.parametrize(
    ("fn", "support"),
    [
        (lambda x: x / 1e-310, (0.0, 1e-309)),
        (
            lambda x: np.where(np.arange(N) > 0, np.concatenate([x[..., 1:], x[..., :1] + np.inf], axis=-1), 0.0),
            (0.0, 1.0),
        ),
        (lambda x: x + np.exp(0 * x + 800.0) * 0.0, (0.0, 1.0)),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_is_named(fn: Any, support: tuple[float, float]) -> None:
    with pytest.raises(Untraceable, match="is not finite") as refusal:
        follow(pf.Target(fn, 1, N, equivariant=False, support=support))
    assert "\n" not in str(refusal.value)


FAR = {
    "clip": (lambda x: np.clip(x, 0.3, 1e9), lambda z: min(max(z, Fraction(0.3)), Fraction(1e9))),
    "outside": (lambda x: x - np.clip(x, 0.3, 1e9), lambda z: z - min(max(z, Fraction(0.3)), Fraction(1e9))),
    "twice": (lambda x: np.maximum(np.clip(x, -1e9, 0.3), 0.1), lambda z: min(max(z, Fraction(0.1)), Fraction(0.3))),
    "one piece": (
        lambda x: np.minimum(np.clip(x, -1e9, 0.3) - 7, 0.0),
        lambda z: min(max(z, Fraction(-1e9)), Fraction(0.3)) - 7,
    ),
    "steep": (
        lambda x: np.abs(0.1 * np.maximum(x, 1e-8) - 1e4),
        lambda z: abs(Fraction(0.1) * max(z, Fraction(1e-8)) - 10**4),
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_pieces_with_knots_far_away(name: str) -> None:
    """Near 0 a piecewise linear function with a knot at 1e9 loses digits in float64: what is stored, not what is meant."""
    fn, exactly = FAR[name]
    graph, lin = output(fn, support=(-2.0, 4.0))

    def stored(one: Lin, z: Fraction) -> tuple[Fraction, Fraction]:
        """The value of a combination of pieces, and its slack with that of its arguments."""
        total, slack = Fraction(float(one.constant[0])), Fraction(one.slack)
        for number, term in one.terms.items():
            operation = graph.atoms[number].operation
            value, off = (z, Fraction(0)) if isinstance(operation, Input) else stored(operation.arguments[0], z)
            if isinstance(operation, Pieces):
                value, off = operation.curve.exactly(value), off * max(Fraction(abs(s)) for s in operation.curve.slopes)
            total, slack = total + Fraction(term.own) * value, slack + abs(Fraction(term.own)) * off
        return total, slack

    for x in (-2.0, -1.7, 0.0, 1e-8, 0.1, 0.3, 0.301, 0.7, 4.0):
        value, slack = stored(lin, Fraction(x))
        assert abs(value - exactly(Fraction(x))) <= slack <= 1e-9


def test_a_sign_times_nothing_is_nothing() -> None:
    graph, lin = output(lambda x: x + np.sign(x) * np.maximum(np.abs(x) - 3.3, 0.0), support=(-1.0, 1.0))
    assert len(graph.atoms) <= 2
    assert lin.terms.keys() == {0}


def test_signs_of_numbers_beside_which_1_is_nothing() -> None:
    """The last piece lies right of its knot, which is so large that adding 1 to it changes nothing."""
    f = pf.Target(lambda x: np.sign(x) * np.minimum(np.abs(x), 1e16), 1, 2, support=(-1e17, 1e17))
    assert (trace(f)(np.array([[[3e16, -5e15]]])) == [[[1e16, -5e15]]]).all()
