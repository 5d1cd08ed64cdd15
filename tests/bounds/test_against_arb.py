"""Every function of the front door on random and adversarial boxes, against python-flint's arb at 1,200 bits.

arb shares nothing with intervals.py and slopes.py: the reference runs numpy's own loops over objects that hold an arb, or
a formula written out below where numpy has no such loop. PROVENFORMER_ARB_ROUNDS=500 is a long run (default: seconds).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest
import scipy.special
from flint import arb, ctx

import provenformer as pf
from provenformer.bounds import numpy_calls
from provenformer.bounds.integrals import _linear_part, p_sum, power
from provenformer.bounds.intervals import Interval
from provenformer.bounds.slopes import slopes_of

ROUNDS = int(os.environ.get("PROVENFORMER_ARB_ROUNDS", "4"))
BITS = 1200  # enough for sin(1e308)
Function = Callable[[Any], Any]


class Real:
    """A real number as numpy's loops over objects want it: operators, and functions as methods."""

    def __init__(self, value: Any) -> None:
        self.v = value if isinstance(value, arb) else arb(float(value))

    def __add__(self, other: Any) -> Real:
        return Real(self.v + number(other))

    def __sub__(self, other: Any) -> Real:
        return Real(self.v - number(other))

    def __rsub__(self, other: Any) -> Real:
        return Real(number(other) - self.v)

    def __mul__(self, other: Any) -> Real:
        return Real(self.v * number(other))

    def __truediv__(self, other: Any) -> Real:
        return Real(self.v / number(other))

    def __rtruediv__(self, other: Any) -> Real:
        return Real(number(other) / self.v)

    def __pow__(self, exponent: Any) -> Real:
        return reduce(lambda a, b: a * b, [self] * int(exponent))

    def __neg__(self) -> Real:
        return Real(-self.v)

    def __pos__(self) -> Real:
        return self

    def __abs__(self) -> Real:
        return Real(abs(self.v))

    def __lt__(self, other: Any) -> bool:
        return bool(self.v < number(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.v <= number(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.v > number(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.v >= number(other))

    def hypot(self, other: Real) -> Real:
        return Real((self.v * self.v + other.v * other.v).sqrt())

    def conjugate(self) -> Real:
        return self

    __radd__, __rmul__ = __add__, __mul__


def number(value: Any) -> Any:
    return value.v if isinstance(value, Real) else arb(float(value))


METHODS: dict[str, Callable[[Any], Any]] = {
    "sqrt": lambda v: v.sqrt(), "exp": lambda v: v.exp(), "exp2": lambda v: (v * arb(2).log()).exp(),
    "expm1": lambda v: v.expm1(),
    "log": lambda v: v.log(), "log2": lambda v: v.log() / arb(2).log(), "log1p": lambda v: v.log1p(), "sin": lambda v: v.sin(),
    "cos": lambda v: v.cos(), "sinh": lambda v: v.sinh(), "cosh": lambda v: v.cosh(), "tanh": lambda v: v.tanh(),
    "arctan": lambda v: v.atan(), "log10": lambda v: v.log() / arb(10).log(),
    "sign": lambda v: v.sgn(),
    "radians": lambda v: v * arb.pi() / 180, "degrees": lambda v: v * 180 / arb.pi(),
    "ndtr": lambda v: (1 + (v / arb(2).sqrt()).erf()) / 2,
    "expit": lambda v: 1 / (1 + (-v).exp()), "erf": lambda v: v.erf(), "fabs": abs,
}  # fmt: skip
for _name, _function in METHODS.items():
    setattr(Real, _name, lambda self, function=_function: Real(function(self.v)))
lift: Callable[[Any], Any] = np.vectorize(Real, otypes=[object])


@dataclass(frozen=True)
class Case:
    """A function of x (boxes, 2, 3), and what arb runs in its place where numpy cannot."""

    f: Function
    exact: Function | None = None
    spread: float = 300.0  # decimal exponents of the inputs reach this far


def each(name: str) -> Function:
    return np.vectorize(lambda value: getattr(value, name)(), otypes=[object])


def along(axis: int, reduced: Callable[[list[Real]], Real]) -> Function:
    """A reduction written out: a function of the entries along an axis, which is kept."""
    return lambda x: np.expand_dims(np.apply_along_axis(lambda row: reduced(list(row)), axis, x), axis)


def total(row: Any) -> Real:
    return reduce(lambda a, b: a + b, row)


def softmax_row(row: Any) -> Any:
    weights = [v.exp() for v in row]
    return np.array([w / total(weights) for w in weights], dtype=object)


@np.vectorize
def angles(y: Real, x: Real) -> Real:
    return Real(arb.atan2(y.v, x.v))


@np.vectorize
def interpolated(z: Real) -> Real:
    points, values = (-1.0, 0.1, 2.0), (0.3, -0.7, 5.0)
    if z <= points[0] or z >= points[2]:
        return Real(values[0] if z <= points[0] else values[2])
    k = 0 if z < points[1] else 1
    slope = (Real(values[k + 1]) - values[k]) / (Real(points[k + 1]) - points[k])
    return slope * (z - points[k]) + values[k]


W = np.array([[0.5, -1.0, 2.0], [1e-3, 0.0, 3.0], [-2.0, 1.0, 1e5]])
MASK = [True, False, True]
UNARY = {
    name: Case(getattr(np, name), spread=12 if name in ("sin", "cos") else 300)
    for name in (*numpy_calls.UNARY, "fabs", "positive", "reciprocal")
    if name not in numpy_calls.SCIPY
}
CASES: dict[str, dict[str, Case]] = {
    "functions of numbers": {
        **UNARY,
        "expit": Case(scipy.special.expit, each("expit")),
        "erf": Case(scipy.special.erf, each("erf")),
        "ndtr": Case(scipy.special.ndtr, each("ndtr")),
        "sign": Case(np.sign, each("sign")),
        "log10": Case(np.log10, each("log10")),
        "radians": Case(np.radians, each("radians")),
        "deg2rad": Case(np.deg2rad, each("radians")),
        "degrees": Case(np.degrees, each("degrees")),
        "rad2deg": Case(np.rad2deg, each("degrees")),
        "arctan2": Case(lambda x: np.arctan2(x, x[..., ::-1]), lambda x: angles(x, x[..., ::-1])),
        "logaddexp": Case(
            lambda x: np.logaddexp(x, x[..., ::-1]), lambda x: each("log")(each("exp")(x) + each("exp")(x[..., ::-1])), 2.5
        ),
        "add": Case(lambda x: x + x[..., ::-1] + 0.1),
        "subtract": Case(lambda x: 0.1 - x - x[..., ::-1]),
        "multiply": Case(lambda x: x * x[..., ::-1]),
        "divide": Case(lambda x: x / x[..., ::-1]),
        "maximum": Case(lambda x: np.maximum(x, x[..., ::-1])),
        "minimum": Case(lambda x: np.minimum(x, 0.3)),
        "power": Case(lambda x: x**7),
        "hypot": Case(lambda x: np.hypot(x, x[..., ::-1])),
        "matmul": Case(lambda x: W[:2, :2] @ x @ W),
        "vecdot": Case(lambda x: np.vecdot(x, x[..., ::-1])[..., None] + x),
    },
    "ufunc.reduce": {
        "add": Case(lambda x: np.add.reduce(x, axis=-1, keepdims=True) + x),
        "multiply": Case(lambda x: np.multiply.reduce(x, axis=-1, keepdims=True) + x),
        "maximum": Case(lambda x: np.maximum.reduce(x, axis=-1, keepdims=True) + x),
        "minimum": Case(lambda x: np.minimum.reduce(x, axis=-1, keepdims=True) + x),
    },
    "ufunc.accumulate": {
        "add": Case(lambda x: np.add.accumulate(x, axis=-1)),
        "multiply": Case(lambda x: np.multiply.accumulate(x, axis=-1)),
        "maximum": Case(lambda x: np.maximum.accumulate(x, axis=-1)),
        "minimum": Case(lambda x: np.minimum.accumulate(x, axis=-1)),
    },
    "functions of arrays": {
        "sum": Case(lambda x: np.sum(x, axis=(-1, -2), keepdims=True) * x),
        "max": Case(lambda x: np.max(x, axis=-1, keepdims=True) - x),
        "min": Case(lambda x: np.min(x, axis=-2, keepdims=True) - x),
        "prod": Case(lambda x: np.prod(x, axis=-1, keepdims=True) + x),
        "mean": Case(lambda x: np.mean(x, axis=-1, keepdims=True) * x),
        "var": Case(lambda x: np.var(x, axis=-1, keepdims=True, ddof=1) + x),
        "std": Case(lambda x: np.std(x, axis=-1, keepdims=True) + x),
        "ptp": Case(lambda x: np.ptp(x, axis=-1, keepdims=True) + x),
        "median": Case(
            lambda x: np.median(x, axis=-2, keepdims=True) * x, lambda x: along(-2, lambda r: total(r) / 2.0)(x) * x
        ),
        "quantile": Case(
            lambda x: np.quantile(x, 0.3, axis=-2, keepdims=True) * x,
            lambda x: (np.min(x, axis=-2, keepdims=True) * 0.7 + np.max(x, axis=-2, keepdims=True) * 0.3) * x,
        ),
        "percentile": Case(
            lambda x: np.percentile(x, [25.0, 50.0], axis=-2)[1][..., None, :] * x,
            lambda x: along(-2, lambda r: total(r) / 2.0)(x) * x,
        ),
        "average": Case(
            lambda x: np.average(x, axis=-1, weights=[1.0, 2.0, 0.1], keepdims=True) + x,
            lambda x: along(-1, lambda r: (r[0] + r[1] * 2.0 + r[2] * 0.1) / (Real(1.0) + 2.0 + 0.1))(x) + x,
        ),
        "interp": Case(lambda x: np.interp(x, [-1.0, 0.1, 2.0], [0.3, -0.7, 5.0]), lambda x: interpolated(x)),
        "pad": Case(
            lambda x: np.pad(x, ((0, 0), (0, 0), (1, 0)), constant_values=0.1)[..., :3]
            + np.pad(x, ((0, 0), (0, 0), (0, 2)), mode="edge")[..., 2:],
            lambda x: np.concatenate([x[..., :1] * 0.0 + 0.1, x[..., :2]], axis=-1) + x[..., [2, 2, 2]],
        ),
        "sliding_window_view": Case(
            lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=-1)[..., [0, 1, 1], 1] + x,
            lambda x: x[..., [1, 2, 2]] + x,
        ),
        "norm": Case(
            lambda x: np.linalg.norm(x, axis=-1, keepdims=True) + x,
            lambda x: along(-1, lambda r: total([v * v for v in r]).sqrt())(x) + x,  # type: ignore[attr-defined]
        ),
        "sort": Case(lambda x: np.sort(x, axis=-1)),
        "cumsum": Case(lambda x: np.cumsum(x, axis=-1)),
        "cumprod": Case(lambda x: np.cumprod(x, axis=-1)),
        "diff": Case(lambda x: np.concatenate([np.diff(x, axis=-1), x[..., :1]], axis=-1)),
        "clip": Case(lambda x: np.clip(x, -0.5, 0.7), lambda x: np.minimum(np.maximum(x, lift(-0.5)), lift(0.7))),
        "dot": Case(lambda x: np.dot(x, W)),
        "inner": Case(lambda x: np.inner(x, W)),
        "tensordot": Case(lambda x: np.tensordot(x, W, axes=(-1, 0))),
        "einsum": Case(lambda x: np.einsum("...dn,...dm,mk->...dk", x, x, W), lambda x: _attended(x)),
        "concatenate": Case(lambda x: np.concatenate([x[..., 1:], x[..., :1]], axis=-1)),
        "stack": Case(lambda x: np.stack([x, 2.0 * x], axis=0)[1]),
        "hstack": Case(lambda x: np.hstack([x[:, 1:], x[:, :1]])),
        "vstack": Case(lambda x: np.vstack([x, 2.0 * x])[: x.shape[0]]),
        "where": Case(lambda x: np.where(MASK, x * 2.0, 0.5), lambda x: np.where(MASK, x * 2.0, lift(0.5))),
        "tril": Case(lambda x: np.sum(np.tril(x[..., :, None] * x[..., None, :]), axis=-1)),
        "triu": Case(lambda x: np.sum(np.triu(x[..., :, None] - x[..., None, :], 1), axis=-1)),
        "zeros_like": Case(lambda x: np.zeros_like(x) + x, lambda x: x),
        "ones_like": Case(lambda x: np.ones_like(x) + x, lambda x: x + 1.0),
        "full_like": Case(lambda x: np.full_like(x, 0.1) + x, lambda x: x + 0.1),
        "split": Case(lambda x: np.concatenate(np.split(x, [1], axis=-1)[::-1], axis=-1)),
        "shape": Case(lambda x: x * float(np.shape(x)[-1])),
        "ndim": Case(lambda x: x * float(np.ndim(x))),
        "size": Case(lambda x: x * float(np.size(x, -1))),
    },
    "moves": {
        "flip": Case(lambda x: np.flip(x, axis=-1)),
        "fliplr": Case(lambda x: np.fliplr(x)),
        "flipud": Case(lambda x: np.flipud(np.swapaxes(x, 0, 1)).swapaxes(0, 1)),
        "roll": Case(lambda x: np.roll(x, 2, axis=-1)),
        "reshape": Case(lambda x: np.reshape(np.reshape(x, (x.shape[0], 3, 2)), x.shape)),
        "ravel": Case(lambda x: np.ravel(x).reshape(x.shape)),
        "swapaxes": Case(lambda x: np.swapaxes(np.swapaxes(x, -1, -2)[..., ::-1], -1, -2)),
        "moveaxis": Case(lambda x: np.moveaxis(np.moveaxis(x, -1, 0)[::-1], 0, -1)),
        "transpose": Case(lambda x: np.transpose(np.transpose(x, (2, 0, 1))[::-1], (1, 2, 0))),
        "matrix_transpose": Case(lambda x: np.matrix_transpose(np.matrix_transpose(x)[..., ::-1])),
        "expand_dims": Case(lambda x: np.expand_dims(x, 1)[:, 0]),
        "squeeze": Case(lambda x: np.squeeze(x[..., None], -1)),
        "broadcast_to": Case(lambda x: np.broadcast_to(x[..., :1], x.shape)),
        "take": Case(lambda x: np.take(x, [2, 0, 0], axis=-1)),
        "take_along_axis": Case(lambda x: np.take_along_axis(x, np.array([[[2, 0, 1]]]), axis=-1)),
        "repeat": Case(lambda x: np.repeat(x, 2, axis=-1)[..., 1:4]),
        "tile": Case(lambda x: np.tile(x, 2)[..., 1:4]),
        "diagonal": Case(lambda x: np.diagonal(x[..., :, None] * x[..., None, :], axis1=-1, axis2=-2)),
        "copy": Case(lambda x: np.copy(x)),
    },
    "helpers": {
        "softmax": Case(lambda x: pf.softmax(x, axis=-1), lambda x: np.apply_along_axis(softmax_row, -1, x), 3.0),
        "logsumexp": Case(
            lambda x: pf.logsumexp(x, axis=-1, keepdims=True) + x,
            lambda x: along(-1, lambda r: total([v.exp() for v in r]).log())(x) + x,  # type: ignore[attr-defined]
        ),
    },
}  # fmt: skip


def _attended(x: Any) -> Any:
    """einsum("...dn,...dm,mk->...dk") in words: the sum of a row times (the row times W)."""
    return np.sum(x, axis=-1, keepdims=True) * np.dot(x, W)


def test_every_function_of_the_table_has_a_case() -> None:
    assert {kind: sorted(cases) for kind, cases in CASES.items()} == {
        kind: sorted(set(names)) for kind, names in numpy_calls.supported().items()
    }


SPECIAL = [
    0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, -2.2e-308, 1e-300, -1e-300, 1e-160, -1e-160, 1e-20, 0.3, 0.5,
    1.0, -1.0, -0.5, 1.0000000000000002, 0.9999999999999999, -0.9999999999999999, 2.0, 1 / 3, np.pi, -np.pi, np.pi /
    2, 3 * np.pi / 2, 1e4 * np.pi, 6.0, 20.0, -38.0, 700.0, 709.78, 709.79, 710.5, -745.1, -746.0, 1024.0, -1075.0,
    1e5, 1e9, 2.0**30, 1e15, 1e154, 1.4e154, -1e200, 1e308, 1.7e308, -1.7e308,
]  # fmt: skip


def numbers(rng: np.random.Generator, shape: tuple[int, ...], spread: float) -> Any:
    """Special numbers and their neighbours, ordinary ones, and those of all sizes."""
    special = rng.choice(SPECIAL, size=shape)
    special = np.where(
        rng.random(shape) < 0.4, np.nextafter(special, rng.choice([-np.inf, np.inf], size=shape)), special
    )
    special = np.where(np.abs(special) <= 10.0**spread, special, 1.0)
    ordinary = rng.normal(size=shape) * rng.choice([1.0, 10.0], size=shape)
    any_size = rng.normal(size=shape) * 10.0 ** rng.uniform(-spread, min(spread, 300.0), size=shape)
    out = np.choose(rng.integers(3, size=shape), [special, ordinary, any_size])
    return np.clip(out, -1.7e308, 1.7e308)


def boxes(rng: np.random.Generator, spread: float, positive: bool, count: int = 2) -> tuple[Any, Any]:
    """Points, neighbours, small and wide boxes; half of the rounds above 0, where roots and logarithms live."""
    shape = (count, 2, 3)
    a = numbers(rng, shape, spread)
    with np.errstate(over="ignore"):
        widened = np.clip(a + np.abs(a) * 10.0 ** rng.uniform(-16, 1, size=shape), -1.7e308, 1.7e308)
    kinds = [a, np.nextafter(a, np.inf), widened, numbers(rng, shape, spread)]
    b = np.choose(rng.choice(4, p=[0.2, 0.2, 0.4, 0.2], size=shape), kinds)
    low, high = np.minimum(a, b), np.maximum(a, b)
    if positive:
        low, high = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
    return low, high


def inside(rng: np.random.Generator, low: Any, high: Any) -> Any:
    """Ends, points in between, and 0 where the box has it."""
    share = rng.random(low.shape)
    with np.errstate(over="ignore"):
        between = np.clip(low * (1 - share) + high * share, low, high)
    zero = np.where((low <= 0) & (high >= 0), 0.0, between)
    return np.choose(rng.integers(4, size=low.shape), [low, high, between, zero])


def holds(low: Any, value: Any, high: Any) -> bool:
    """Whether low <= value <= high is possible for an arb; a value beyond arb's own range says nothing."""
    if not value.is_finite():
        return True
    return not (value < arb(float(low)) if np.isfinite(low) else low > 0) and not (
        value > arb(float(high)) if np.isfinite(high) else high < 0
    )


ALL = {f"{kind}: {name}": case for kind, cases in CASES.items() for name, case in cases.items()}


@pytest.mark.parametrize("name", ALL)
def test_enclosures(name: str) -> None:
    case = ALL[name]
    exact = case.exact or case.f
    checked = 0
    with ctx.workprec(BITS), np.errstate(all="ignore"):
        for seed in range(2 * ROUNDS):
            rng = np.random.default_rng([seed, len(name)])
            low, high = boxes(rng, case.spread, seed % 2 == 0)
            for one in range(len(low)):  # box by box: one that leaves the domain is refused alone
                box = low[one : one + 1], high[one : one + 1]
                try:
                    found = case.f(Interval(*box))
                except TypeError:
                    continue
                assert not (np.isnan(found.lo) | np.isnan(found.hi)).any()
                for _ in range(2):
                    x = inside(rng, *box)
                    values = np.broadcast_to(exact(lift(x)), found.shape)
                    for at in np.ndindex(found.shape):
                        checked += 1
                        value = number(values[at])
                        assert holds(found.lo[at], value, found.hi[at]), (x, at, found.lo[at], found.hi[at], value)
    assert checked > 0


@pytest.mark.parametrize("name", ALL)
def test_slopes(name: str) -> None:
    """f(x) - f(y) lies in sum_k slope_k (x_k - y_k), in real arithmetic."""
    case = ALL[name]
    exact = case.exact or case.f
    checked = 0
    with ctx.workprec(BITS), np.errstate(all="ignore"):
        for seed in range(2 * ROUNDS):
            rng = np.random.default_rng([seed, len(name), 1])
            low, high = boxes(rng, min(case.spread, 4.0 if seed % 3 else 300.0), seed % 2 == 0, count=1)
            try:
                found = slopes_of(case.f, low, high)
            except TypeError:
                continue
            x, y = inside(rng, low, high), inside(rng, low, high)
            fx, fy = (np.broadcast_to(exact(lift(v)), found.shape) for v in (x, y))
            for at in np.ndindex(found.shape):
                value = number(fx[at])
                assert holds(found.value.lo[(0, *at)], value, found.value.hi[(0, *at)]), (x, at, value)
                least = most = arb(0)
                for k, (step_to, step_from) in enumerate(zip(x.ravel(), y.ravel(), strict=True)):
                    ends = (found.slope.lo[(k, *at)], found.slope.hi[(k, *at)])
                    if not np.isfinite(ends).all():
                        break  # unbounded: nothing is claimed
                    steps = [arb(float(end)) * (arb(float(step_to)) - arb(float(step_from))) for end in ends]
                    least, most = least + steps[0].min(steps[1]), most + steps[0].max(steps[1])
                else:
                    checked += 1
                    rise = value - number(fy[at])
                    assert not rise.is_finite() or not (rise < least or rise > most), (x, y, at, least, most, rise)
    assert checked > 0


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 4, 7, 64])
def test_the_linear_part_of_the_mean_value_form(p: float) -> None:
    """Its L_p mean over the box, by exact moments (p = 2, 4) or from below by quadrature, for offsets and slopes of all sizes."""
    rng = np.random.default_rng(int(10 * p))
    grid = (np.arange(200) + 0.5) / 100 - 1.0  # midpoints of [-1, 1]
    with ctx.workprec(200):
        for _ in range(10 * ROUNDS):
            offset, moved = 10.0 ** rng.uniform(-300, 300) * rng.random((2, 2)) ** 8
            found = float(_linear_part(np.array([[offset[0]]]), np.array([[moved]]), p)[0, 0])
            unit = max(offset[0], *moved)
            u, v = np.meshgrid(grid, grid)
            values = np.abs(offset[0] / unit + moved[0] / unit * u + moved[1] / unit * v)
            mean = values.max() * ((values / values.max()) ** p).mean() ** (1 / p)
            assert found / unit >= mean * (1 - 1e-4)
            if p in (2, 4):
                a, s, t = (arb(float(w)) / arb(float(unit)) for w in (offset[0], *moved))
                variance = (s * s + t * t) / 3
                fourth = 3 * variance**2 - 2 * (s**4 + t**4) / 15
                moment = a**2 + variance if p == 2 else a**4 + 6 * a**2 * variance + fourth
                assert arb(found) / arb(float(unit)) >= moment.root(int(p))


@pytest.mark.parametrize("p", [1, 1.3, 2, 5.5, 64])
def test_powers_and_their_sums_do_not_fall_below(p: float) -> None:
    rng = np.random.default_rng(0)
    with ctx.workprec(300):
        for _ in range(20 * ROUNDS):
            sizes = np.abs(numbers(rng, (4,), 300.0 / p))
            for size, found in zip(sizes, power(sizes, p), strict=True):
                if size > 0 and np.isfinite(found):
                    assert arb(float(found)) * (1 + arb(2) ** -40) >= arb(float(size)) ** arb(float(p))
            exact = sum((arb(float(s)) ** arb(float(p)) for s in sizes if s > 0), arb(0))
            if exact > 0:
                assert arb(p_sum(sizes, p)) * (1 + arb(2) ** -40) >= exact ** (1 / arb(float(p)))
