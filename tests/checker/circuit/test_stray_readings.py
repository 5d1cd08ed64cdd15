"""A unit that reads, beside its direction, some of another channel: all of it is error."""

from __future__ import annotations

import numpy as np
from circuit_forgeries import stray_reading

import provenformer as pf
from provenformer.checker.circuit.derive import derive_circuit


def test_what_units_read_beside_their_direction_counts() -> None:
    f = pf.targets.get("sort", 1, 4)
    network = pf.compile(f, tolerance=0.05, norm_order=np.inf, construction="circuit").network
    rng = np.random.default_rng(0)
    x = np.concatenate([f.sample(200), rng.integers(0, 2, (50, 1, 4)).astype(np.float64)])
    far = 0
    for _ in range(40):
        what, altered = stray_reading(network, rng)
        off = float(np.abs(altered(x) - f(x)).max())
        assert off <= derive_circuit(altered, f).float64, what
        far += off > 0.05
    assert far > 3  # some of them do harm
