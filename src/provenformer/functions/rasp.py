"""RASP's operations in numpy: on whole numbers, and on the symbols that compile_tokens traces.

`select(keys, queries, predicate)` says for every token j which tokens k it looks at; `selector_width` counts them,
`aggregate` takes the
mean of a value over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def indices(x: Array) -> Array:
    """The position of every token."""
    return np.arange(x.shape[-1]) + 0 * x


def select(keys: Array, queries: Array, predicate: Callable[[Array, Array], Array] = np.equal) -> Array:
    """(..., n, n): predicate(key k, query j), for every query j and key k."""
    return predicate(keys[..., None, :], queries[..., :, None])


def selector_width(selector: Array) -> Array:
    """How many tokens every token looks at."""
    return np.sum(selector, axis=-1)


def aggregate(selector: Array, values: Array, default: int = 0) -> Array:
    """The value of the token that is looked at, of at most one each; `default` where there is none.

    RASP's mean over several tokens is their sum, np.sum(np.where(selector, values[..., None, :], 0), axis=-1), over their number:
    compare such means
    by multiplying with the number.
    """
    found = np.sum(np.where(selector, values[..., None, :], 0), axis=-1)
    width = selector_width(selector)
    return np.where(width == 0, default, found)
