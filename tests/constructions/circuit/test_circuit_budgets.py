"""Budgets: plans that keep the bound, and sizes that they reach."""

from __future__ import annotations

import numpy as np
import pytest

import provenformer as pf
from provenformer.checker.circuit.units import _relative
from provenformer.constructions.circuit.budgets import Budget
from provenformer.constructions.circuit.build import _Workshop
from provenformer.constructions.circuit.curves import Curve
from provenformer.constructions.circuit.errors import RHO
from provenformer.constructions.circuit.parts import lower
from provenformer.symbols.trace import trace


def layer_norm(eps: float, n: int) -> pf.Target:
    def function(x: np.ndarray) -> np.ndarray:
        z = x - np.mean(x, axis=-1, keepdims=True)
        return z / np.sqrt(np.mean(np.square(z), axis=-1, keepdims=True) + eps)

    return pf.Target(function, 1, n, name="layer norm")


@pytest.mark.parametrize(("eps", "units"), [(1e-5, 3_000), (1e-2, 540)])
def test_a_layer_norm_of_512_tokens_is_affordable(eps: float, units: int) -> None:
    """Where almost all of the amplification is relative: the planner once ended at 44,000 units for 1e-5."""
    f = layer_norm(eps, 512)
    c = pf.compile(f, tolerance=1e-3, norm_order=np.inf, construction="circuit", max_units=units)
    x = f.sample(50)
    assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound <= 1e-3


@pytest.mark.parametrize("eps", [1e-5, 1e-3, 0.1])
def test_widening_tables_does_not_change_the_bound(eps: float) -> None:
    traced = trace(layer_norm(eps, 64))
    planner = _Workshop.of(lower(traced.graph, traced.outputs), 1e-3).planner
    budget = planner.plan(1e-3)
    plain = Budget(budget.within, budget.relative, {})
    assert budget.spare
    assert planner.run(budget)[2] <= planner.run(plain)[2] * (1 + 1e-4)
    assert sum(planner.units(budget).values()) < sum(planner.units(plain).values())


def test_profiles_behind_a_table_cover_every_piece() -> None:
    """Most pieces are left out before the largest is taken: none that would be it."""
    rng = np.random.default_rng(0)
    for pieces in (1, 2, 3, 40, 1000):
        for bend in (0.5, 1.0, 2.0):
            ends = np.sort(rng.uniform(-2, 2, pieces + 1))
            least = np.abs(rng.normal(size=pieces)) * (rng.random(pieces) < 0.5)
            own = 1e-4 * least**bend + 1e-6 * rng.random(pieces)
            passed = Curve(ends, own, np.ones(pieces + 2), least).through(np.zeros(len(RHO)))
            every = np.maximum((own - RHO[:, None] * least).max(axis=1), 0.0)
            assert (passed.profile >= every).all()
            assert np.allclose(passed.profile, every, rtol=1e-9, atol=1e-15)


def test_relative_errors_of_a_table_are_tried_where_they_help() -> None:
    """A table off by alpha + rho |value|, rho no power of anything: the checker tries a rho close to it."""
    least = np.linspace(0.0, 1.0, 2000)
    for rho in (1.37e-5, 3.3e-3, 0.21):
        noise = 1 + 0.01 * np.random.default_rng(1).random(len(least))
        total = (1e-9 + rho * least) * noise
        alphas = [float((total - r * least).max()) for r in _relative(least, total)]
        best = min(a + r * 1e-6 for a, r in zip(alphas, _relative(least, total), strict=True))
        assert best <= 1.05 * (1e-9 + rho * 1e-6)
