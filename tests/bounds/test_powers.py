"""Powers beyond whole ones, on boxes: against python-flint's arb at 300 bits, and derivatives against difference quotients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from provenformer.bounds.intervals import Interval
from provenformer.bounds.slopes import slopes_of

POWERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "x ** -1": (lambda x: x**-1, lambda v: 1 / v),
    "x ** -3": (lambda x: x**-3, lambda v: 1 / (v * v * v)),
    "x ** 0.5": (lambda x: x**0.5, lambda v: v.sqrt()),
    "x ** 2.5": (lambda x: x**2.5, lambda v: v * v * v.sqrt()),
    "x ** -0.5": (lambda x: x**-0.5, lambda v: 1 / v.sqrt()),
    "x ** 0.3": (lambda x: x**0.3, lambda v: (arb(0.3) * v.log()).exp()),
    "x ** -1.7": (lambda x: x**-1.7, lambda v: (arb(-1.7) * v.log()).exp()),
    "10 ** x": (lambda x: 10**x, lambda v: (v * arb(10).log()).exp()),
    "0.3 ** x": (lambda x: 0.3**x, lambda v: (v * arb(0.3).log()).exp()),
    "2 ** x": (lambda x: 2.0**x, lambda v: (v * arb(2).log()).exp()),
}


@pytest.mark.parametrize("name", POWERS)
def test_powers_on_boxes(name: str) -> None:
    run, exact = POWERS[name]
    rng = np.random.default_rng(0)
    low = 10.0 ** rng.uniform(-3, 1.5, 200)
    high = low * (1 + 10.0 ** rng.uniform(-15, 0, 200))
    found = run(Interval(low, high))
    before, ctx.prec = ctx.prec, 300
    try:
        for i, share in enumerate(rng.choice([0.0, 0.3, 1.0], 200)):
            value = exact(arb(float(np.clip(low[i] + share * (high[i] - low[i]), low[i], high[i]))))
            assert arb(float(found.lo[i])) <= value <= arb(float(found.hi[i]))
    finally:
        ctx.prec = before


@pytest.mark.parametrize("name", POWERS)
def test_slopes_of_powers(name: str) -> None:
    run, _ = POWERS[name]
    low, high = np.full((1, 1, 2), 0.5), np.full((1, 1, 2), 0.7)
    found = slopes_of(run, low, high)
    x, h = np.linspace(0.5, 0.7 - 1e-3, 50), 1e-3
    rise = (run(x + h) - run(x)) / h
    assert np.isfinite(found.value.hi).all()
    slope = np.stack([np.broadcast_to(found.slope.lo, found.slope.lo.shape).ravel(), found.slope.hi.ravel()])
    assert slope[0].min() - 1e-9 <= rise.min()
    assert rise.max() <= slope[1].max() + 1e-9


def test_powers_without_a_rule_are_refused() -> None:
    x = Interval(np.array([0.5]), np.array([0.7]))
    for wrong in (lambda: x**x, lambda: (-2.0) ** x, lambda: x**0, lambda: x ** np.ones(1)):
        with pytest.raises(TypeError, match=r"numpy\.power"):
            wrong()
