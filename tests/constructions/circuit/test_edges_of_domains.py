"""Functions that touch the edge of their domain, or mix sizes, are no faults: they compile, and their bounds hold there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import provenformer as pf

EDGE = 0.3
TOUCHING: dict[str, Callable[[Any], Any]] = {
    "the root of a ramp": lambda x: np.sqrt(np.maximum(x - EDGE, 0.0)),
    "the root of a size": lambda x: np.sqrt(np.abs(x - EDGE)),
    "the root of a clipped ramp": lambda x: np.sqrt(np.clip(x - EDGE, 0.0, 0.2)),
    "a power of a size": lambda x: np.abs(x - EDGE) ** 1.5,
    "the root of a mean of sizes": lambda x: np.sqrt(np.mean(np.abs(x - EDGE), axis=-1, keepdims=True)) + 0 * x,
    "a signed power": lambda x: np.sign(x - EDGE) * np.abs(x - EDGE) ** 1.5,
    "a sign and pieces that are 0 at 0 but for rounding": lambda x: (
        np.sign(x - EDGE) * np.clip(np.abs(x - EDGE) - 0.1, 0.0, 0.45)
    ),
    "a sign and a root that is 0 at 0 but for rounding": lambda x: (
        np.sign(x - EDGE) * (np.sqrt(np.abs(x - EDGE) + 0.1) - np.sqrt(0.1))
    ),
}


@pytest.mark.parametrize("name", TOUCHING)
def test_a_function_that_touches_the_edge_of_its_domain(name: str) -> None:
    c = pf.compile(pf.Target(TOUCHING[name], 1, 3), tolerance=1e-2, norm_order=np.inf, construction="circuit")
    rng = np.random.default_rng(0)
    near = EDGE + 10.0 ** rng.uniform(-18, -1, (500, 1, 3)) * rng.choice([-1, 0, 1], (500, 1, 3))
    x = np.concatenate([near, rng.random((500, 1, 3))])
    assert np.abs(c.network(x) - c.target(x)).max() <= c.certificate.bound <= 1e-2
    assert np.abs(c.network.run(x, np.float32) - c.target(x)).max() <= c.certificate.bounds["float32"]


@pytest.mark.parametrize("low", [-2e10, 1e10, 1e-10])
def test_a_product_of_numbers_of_very_different_sizes(low: float) -> None:
    half = abs(low) / 2

    def scaled(x: Any) -> Any:
        u = (x - (low + half)) / half
        return np.min(u, axis=-1, keepdims=True) * u

    c = pf.compile(
        pf.Target(scaled, 1, 2, support=(low, low + 2 * half)),
        tolerance=1e-2,
        norm_order=np.inf,
        construction="circuit",
    )
    x = c.target.sample(1000, seed=1)
    assert np.abs(c.network(x) - c.target(x)).max() <= c.certificate.bound <= 1e-2
