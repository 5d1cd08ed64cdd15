"""Numbers that are too large or too small: beyond the limits nothing is claimed, so that no bound is lost in an overflow.

A weight that nothing uses counts, too: in execution 0 times infinity is not a number.
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BeyondLimits
from provenformer.checker.circuit.precision import LARGEST, TINY, UNIT
from provenformer.checker.circuit.state import State
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork

WEIGHT = 2.0**100
STATE = 2.0**200


def require_moderate_weights(network: CircuitNetwork) -> FloatArray:
    """Rejected beyond WEIGHT; else 0 or infinity for every arithmetic, which may not be able to hold a weight.

    A weight below the smallest normal number may become 0, whatever it is multiplied by.
    """
    top, bottom = 0.0, np.inf
    for name, value in {**network.tensors(), "positions": network.positions}.items():
        largest = float(np.abs(value).max(initial=0.0))
        if not largest <= WEIGHT:
            raise BeyondLimits(f"{name} has a number of {largest:.3g}; beyond {WEIGHT:.3g} nothing is claimed")
        top = max(top, largest)
        bottom = min(bottom, float(np.abs(value[value != 0]).min(initial=np.inf)))
    return _beyond(np.array([top])) + np.where(bottom < TINY, np.inf, 0.0)


def overflow(where: str, block: CircuitBlock, state: State) -> FloatArray:
    """0 or infinity for every arithmetic, which may overflow in this block."""
    size = state.size
    worst = float(size[:, 0].max(initial=0.0))
    if not worst <= STATE:
        raise BeyondLimits(f"{where}: numbers may reach {worst:.3g}; beyond {STATE:.3g} nothing is claimed")
    found = [size.max(axis=0, initial=0.0)]
    for head in block.heads:
        q, k, v = (np.abs(w) @ size for w in (head.W_Q, head.W_K, head.W_V))
        q = q + np.abs(head.b_Q)[:, None]
        found += [part.max(axis=0, initial=0.0) for part in (q, k, v, np.abs(head.W_O) @ v)]
        found.append((q * k).sum(axis=0))
    hidden = np.abs(block.W_1) @ size + np.abs(block.b_1)[:, None]
    found += [
        hidden.max(axis=0, initial=0.0),
        (np.abs(block.W_2) @ hidden + np.abs(block.b_2)[:, None]).max(axis=0, initial=0.0),
    ]
    return _beyond(np.max(found, axis=0))


def _beyond(size: FloatArray) -> FloatArray:
    return np.where((UNIT == 0) | (size <= LARGEST), 0.0, np.inf)
