"""The fuzzer finds mistakes about programs on tokens: each test makes one, in the tracer or in the checker of their circuits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzz.forgeries import assert_shown
from fuzz.kept import random_case, tried

from provenformer.checker.tokens import derive, heads, state, units, walk
from provenformer.symbols.tokens import lower, selectors

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
Patch = pytest.MonkeyPatch
MOST_PROGRAMS = 600


def quotients_are_cut_off(patch: Patch) -> None:
    table = lower.table

    def cut(graph: Any, lin: Any, function: Any, words: str) -> Any:
        return table(graph, lin, (lambda v: int(function(v) + (v < 0))) if " // " in words else function, words)

    patch.setattr(lower, "table", cut)


def the_last_largest_is_the_first(patch: Patch) -> None:
    pick = lower.pick

    def turned(graph: Any, queries: Any, keys: Any, bias: Any, *rest: Any) -> Any:
        return pick(graph, queries, keys, np.abs(bias) if rest[1] == "order" else bias, *rest)

    patch.setattr(lower, "pick", turned)


def the_own_token_is_counted_too_often(patch: Patch) -> None:
    patch.setattr(selectors.Selector, "_own", lambda self, _: lower.constant(self.graph, 0))


def float32_rounds_like_float64(patch: Patch) -> None:
    patch.setattr(walk, "UNITS", {"float64": 2.0**-53, "float32": 2.0**-53})


def units_may_write_what_is_not_claimed(patch: Patch) -> None:
    after = units.after_units

    def of_claims(graph: Any, block: Any, known: Any, claims: Any, place: str) -> None:
        claimed = np.isin(np.arange(len(block.b_2)), list(claims))
        after(graph, replace(block, W_2=block.W_2 * claimed[:, None], b_2=block.b_2 * claimed), known, claims, place)

    patch.setattr(walk, "after_units", of_claims)


def heads_may_write_what_is_not_claimed(patch: Patch) -> None:
    after = heads.after_heads

    def of_claims(graph: Any, block: Any, known: Any, claims: Any, place: str) -> None:
        claimed = np.isin(np.arange(len(block.b_2)), list(claims))
        some = tuple(replace(head, W_O=head.W_O * claimed[:, None]) for head in block.heads)
        after(graph, replace(block, heads=some), known, claims, place)

    patch.setattr(walk, "after_heads", of_claims)


def output_and_picked_values_are_not_compared(patch: Patch) -> None:
    patch.setattr(state.Reading, "against", lambda self, *_: 0.0 * self.known[0])


def totals_are_not_compared(patch: Patch) -> None:
    patch.setattr(heads, "_total", lambda *_: 0.0)


def picks_are_not_compared(patch: Patch) -> None:
    patch.setattr(heads, "_pick", lambda *_: 0.0)


def tables_are_not_compared(patch: Patch) -> None:
    patch.setattr(units.Group, "off", lambda *_: units.Off(0.0, 0.0, 0.0, 0.0))


def units_read_their_argument_alone(patch: Patch) -> None:
    made = units.Group.__init__

    def without(self: Any, *args: Any) -> None:
        made(self, *args)
        self.own = 0.0 * self.own

    patch.setattr(units.Group, "__init__", without)


def the_bias_of_units_is_forgotten(patch: Patch) -> None:
    error = units._error

    def of(graph: Any, operation: Any, block: Any, *rest: Any) -> Any:
        return error(graph, operation, replace(block, b_2=0 * block.b_2), *rest)

    patch.setattr(units, "_error", of)


def positions_of_the_tokens_are_allowed(patch: Patch) -> None:
    after = walk.walk

    def without(network: Any, *rest: Any) -> Any:
        positions = network.positions.copy()
        positions[0] = 0.0
        return after(replace(network, positions=positions), *rest)

    patch.setattr(walk, "walk", without)


def what_else_is_stated_is_not_compared(patch: Patch) -> None:
    patch.setattr(derive, "false_statement", lambda *_: None)


PROGRAMS: tuple[Callable[[Patch], None], ...] = (
    quotients_are_cut_off,
    the_last_largest_is_the_first,
    the_own_token_is_counted_too_often,
    float32_rounds_like_float64,
)
FORGERIES: tuple[Callable[[Patch], None], ...] = (
    units_may_write_what_is_not_claimed,
    heads_may_write_what_is_not_claimed,
    output_and_picked_values_are_not_compared,
    totals_are_not_compared,
    picks_are_not_compared,
    tables_are_not_compared,
    units_read_their_argument_alone,
    the_bias_of_units_is_forgotten,
    positions_of_the_tokens_are_allowed,
    what_else_is_stated_is_not_compared,
)


@pytest.mark.parametrize("mistake", PROGRAMS, ids=lambda mistake: mistake.__name__)
def test_random_programs_show(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    for seed in range(MOST_PROGRAMS):
        if wrong := tried(random_case(np.random.default_rng((1, seed)), "program"))[0].wrong:
            print(f"{mistake.__name__}: case {seed}: {wrong}")
            return
    pytest.fail(f"{MOST_PROGRAMS} programs did not show it")


@pytest.mark.parametrize("mistake", FORGERIES, ids=lambda mistake: mistake.__name__)
def test_forgeries_show(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    assert_shown("tokens", mistake, monkeypatch)
