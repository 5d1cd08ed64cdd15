"""What is taken for real numbers keeps all of itself, wherever data or a function's results come in."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.base.arrays import real_numbers

X = np.array([[[0.1, 0.2]], [[0.3, 0.4]]])
LOSING: dict[str, Any] = {
    "an imaginary part": X + 1j,
    "a mask": np.ma.masked_array(X, X > 0.3),
    "digits of whole numbers": np.array([[[2**53 + 1, 0]], [[1, 2]]]),
    "digits of Python's whole numbers": np.array([[[2**70 + 1, 0]], [[1, 2]]]),
    "that they are words": np.array([[["1", "2"]], [["3", "4"]]]),
    "that they are words among objects": np.array([[["1", 2]], [[3, 4]]], dtype=object),
    "that they are dates": np.array([[[0, 1]], [[2, 3]]], dtype="datetime64[D]"),
}
TAKES: dict[str, Callable[[Any], Any]] = {
    "memorize, outputs": lambda v: pf.memorize(X, v, positional=True),
    "memorize, inputs": lambda v: pf.memorize(v, X, positional=True),
    "distance": lambda v: pf.distance(lambda x: np.resize(v, x.shape), lambda x: x, token_dim=1, seq_len=2, samples=16),
    "target": lambda v: pf.Target(lambda _: v, 1, 2)(X),
    "network": lambda v: pf.compile(pf.targets.get("centered", 1, 2), cells_per_axis=2, construction="sum").network(v),
}


@pytest.mark.parametrize("loses", LOSING)
@pytest.mark.parametrize("takes", TAKES)
def test_nothing_is_dropped(takes: str, loses: str) -> None:
    if takes == "distance" and loses == "a mask":
        pytest.skip("np.resize drops it, and that is numpy's")
    with pytest.raises(pf.ProvenformerError) as refusal:
        TAKES[takes](LOSING[loses])
    assert "\n" not in str(refusal.value)


def test_what_float64_holds_is_taken() -> None:
    for kind in (bool, np.int8, np.uint64, np.float32, object):
        values = np.array([[[1, 0]]], dtype=kind)
        assert (real_numbers(values) == np.array([[[1.0, 0.0]]])).all()
    assert (real_numbers(np.array([2**60, 3])) == np.array([2.0**60, 3.0])).all()
