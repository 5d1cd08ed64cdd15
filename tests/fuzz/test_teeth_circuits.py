"""The fuzzer finds mistakes in the checker of circuits: each test removes one thing that it reads or adds up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzz.forgeries import assert_shown

from provenformer.checker.circuit import (
    derive,
    heads,
    kernels,
    pairs,
    pieces,
    precision,
    ranges,
    scores,
    state,
    units,
    walk,
)
from provenformer.checker.circuit.errors import Error

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
Patch = pytest.MonkeyPatch


def units_may_write_what_is_not_claimed(patch: Patch) -> None:
    after = walk._after_units

    def of_claims(network: Any, graph: Any, b: int, block: Any, known: Any, claims: Any) -> Any:
        claimed = np.isin(np.arange(network.model_dim), list(claims))
        cut = replace(block, W_2=block.W_2 * claimed[:, None], b_2=block.b_2 * claimed)
        return after(network, graph, b, cut, known, claims)

    patch.setattr(walk, "_after_units", of_claims)


def heads_may_write_what_is_not_claimed(patch: Patch) -> None:
    after = walk._after_heads

    def of_claims(network: Any, graph: Any, b: int, block: Any, known: Any, claims: Any) -> Any:
        claimed = np.isin(np.arange(network.model_dim), list(claims))
        some = tuple(replace(head, W_O=head.W_O * claimed[:, None]) for head in block.heads)
        return after(network, graph, b, replace(block, heads=some), known, claims)

    patch.setattr(walk, "_after_heads", of_claims)


def float32_rounds_like_float64(patch: Patch) -> None:
    unit = np.array([0.0, 2.0**-53, 2.0**-53])
    users = [m for name, m in sys.modules.items() if name.startswith("provenformer.checker.circuit")]
    for module in users:
        if getattr(module, "UNIT", None) is precision.UNIT and module is not precision:
            patch.setattr(module, "UNIT", unit)
    patch.setattr(precision, "UNIT", unit)


def what_is_read_is_exact(patch: Patch) -> None:
    read = state.State.read
    patch.setattr(state.State, "read", lambda self, row: replace(read(self, row), error=Error.absolute(0.0)))


def output_is_not_compared(patch: Patch) -> None:
    patch.setattr(walk, "largest", lambda *_: 0.0)


def what_heads_mix_is_not_compared(patch: Patch) -> None:
    patch.setattr(heads, "largest", lambda *_: 0.0)


def scores_are_not_compared(patch: Patch) -> None:
    gap = scores.score_gap

    def none(*args: Any) -> Any:
        found = gap(*args)
        return replace(found, shift=0.0 * found.shift, tail_wanted=0.0, tail_found=0.0)

    patch.setattr(heads, "score_gap", none)


def softmax_is_the_maximum(patch: Patch) -> None:
    patch.setattr(heads, "largest_gap", lambda _, error: 0.0 * error)


def _without_deviation(function: Callable[..., Any]) -> Callable[..., Any]:
    def none(*args: Any) -> Any:
        off, terms = function(*args)
        return 0.0 * off, terms

    return none


def parabolas_are_exact(patch: Patch) -> None:
    patch.setattr(pairs, "_parabolas", _without_deviation(pairs._parabolas))


def comparisons_are_exact(patch: Patch) -> None:
    patch.setattr(pairs, "_compared", _without_deviation(pairs._compared))


def kernels_are_exact(patch: Patch) -> None:
    patch.setattr(kernels, "_deviation", _without_deviation(kernels._deviation))


def factors_of_products_are_exact(patch: Patch) -> None:
    of = pairs._product_pairs
    patch.setattr(pairs, "_product_pairs", lambda *args: [(0 * alpha, 0 * rho) for alpha, rho in of(*args)])


def tables_are_flat(patch: Patch) -> None:
    patch.setattr(pieces.Pieces, "steepest", lambda _, low, high: 0 * low * high)


def channels_are_empty_before_they_are_written(patch: Patch) -> None:
    for module in (units, pairs):
        patch.setattr(module, "left_over", lambda *_: np.zeros(3))


def inputs_have_no_positions(patch: Patch) -> None:
    start = walk._start

    def without(network: Any, known: Any) -> Any:
        positions = network.positions.copy()
        positions[: network.token_dim] = 0.0
        return start(replace(network, positions=positions), known)

    patch.setattr(walk, "_start", without)


def ranges_are_smaller(patch: Patch) -> None:
    of = ranges.ranges_of
    patch.setattr(walk, "ranges_of", lambda graph, low, high: of(graph, 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high))


def what_else_is_stated_is_not_compared(patch: Patch) -> None:
    patch.setattr(derive, "false_statement", lambda *_: None)


MISTAKES: dict[Callable[[Patch], None], str] = {  # of which networks
    units_may_write_what_is_not_claimed: "circuit",
    heads_may_write_what_is_not_claimed: "circuit",
    float32_rounds_like_float64: "circuit",
    what_is_read_is_exact: "circuit",
    output_is_not_compared: "circuit",
    what_heads_mix_is_not_compared: "circuit",
    scores_are_not_compared: "attention(",
    softmax_is_the_maximum: "np.max(",
    parabolas_are_exact: "circuit",
    comparisons_are_exact: "circuit",
    kernels_are_exact: "pairwise(",
    factors_of_products_are_exact: "circuit",
    tables_are_flat: "circuit",
    channels_are_empty_before_they_are_written: "circuit",
    inputs_have_no_positions: "circuit",
    ranges_are_smaller: "circuit",
    what_else_is_stated_is_not_compared: "circuit",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_forgeries_show(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    assert_shown(MISTAKES[mistake], mistake, monkeypatch)
