"""The fuzzer finds mistakes: each test makes one in the library, of a kind that a bound rests on, and the fuzzer must see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzz.forgeries import assert_shown
from fuzz.functions import Case
from fuzz.kept import random_case, tried

from provenformer import storage
from provenformer.bounds import slopes
from provenformer.bounds.integrals import bound_integral
from provenformer.certificates import certify
from provenformer.checker import derive, thin, wide
from provenformer.checker.circuit import heads, pieces, walk
from provenformer.constructions.circuit import tables
from provenformer.networks.thin import ReluRun

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
Patch = pytest.MonkeyPatch


def integrals_too_small(patch: Patch) -> None:
    def smaller(*args: Any, **options: Any) -> Any:
        found = bound_integral(*args, **options)
        return replace(found, upper=0.7 * found.upper)

    patch.setattr(certify, "bound_integral", smaller)
    patch.setattr(derive, "bound_integral", smaller)


def ramps_forgotten(patch: Patch) -> None:
    patch.setattr(certify, "ramp_cost", lambda *_: 0.0)
    combine = derive._combine

    def without(*args: Any) -> Any:
        found = combine(*args)
        return replace(found, bound=found.table + found.rounding, ramps=0.0)

    patch.setattr(derive, "_combine", without)


def units_of_wide_networks_not_read(patch: Patch) -> None:
    fed = wide._fed

    def first_only(where: str, block: Any, known: Any) -> Any:
        units = 2 * (len(block.b_1) // 2)  # an odd one is dropped
        return fed(where, replace(block, W_1=block.W_1[:units], b_1=block.b_1[:units], W_2=block.W_2[:, :units]), known)

    patch.setattr(wide, "_fed", first_only)


def units_beyond_the_fourth_not_read(patch: Patch) -> None:
    table = derive.output_table

    def of_four(network: Any, *rest: Any) -> Any:
        runs = [
            replace(r, W_1=r.W_1[:, :4], b_1=r.b_1[:, :4], W_2=r.W_2[:, :, :4]) if isinstance(r, ReluRun) else r
            for r in network.runs
        ]
        return table(replace(network, runs=tuple(runs)), *rest)

    patch.setattr(derive, "output_table", of_four)


def output_bias_of_circuits_not_read(patch: Patch) -> None:
    readout = walk._readout
    patch.setattr(walk, "_readout", lambda net, *rest: readout(replace(net, b_out=0 * net.b_out), *rest))


def curvature_between_knots_forgotten(patch: Patch) -> None:
    patch.setattr(pieces, "_peak", lambda one, other, _: np.maximum(one, other))
    patch.setattr(pieces, "_refined", lambda points, values: (points, values))
    curve = tables.read_back

    def halved(*args: Any) -> Any:
        found = curve(*args)
        return replace(found, own=0.5 * found.own)

    patch.setattr(tables, "read_back", halved)


def moving_scores_cost_nothing(patch: Patch) -> None:
    patch.setattr(heads, "movement", lambda error: 0 * error)
    patch.setattr(heads, "movement_of", lambda *_: 0.0)


def hashes_not_compared(patch: Patch) -> None:
    patch.setattr(storage.folder, "_require_hashes", lambda *_: None)


def half_of_the_product_rule(patch: Patch) -> None:
    patch.setitem(slopes._ELEMENTWISE, "multiply", lambda a, b: slopes.Slope(a.value * b.value, a.value * b.slope))


def growth_of_narrow_networks_not_bounded(patch: Patch) -> None:
    patch.setattr(thin, "_require_finite", lambda *_: None)


def growth_of_wide_networks_not_bounded(patch: Patch) -> None:
    patch.setattr(wide, "_require_small", lambda *_: None)


FUNCTIONS: dict[Callable[[Patch], None], bool] = {  # whether circuits show it
    integrals_too_small: False,
    ramps_forgotten: False,
    half_of_the_product_rule: False,
    curvature_between_knots_forgotten: True,
}
FORGERIES: dict[Callable[[Patch], None], str] = {  # of which networks
    units_of_wide_networks_not_read: "wide",
    units_beyond_the_fourth_not_read: "sum",
    output_bias_of_circuits_not_read: "circuit",
    moving_scores_cost_nothing: "circuit",
    hashes_not_compared: "circuit",
    growth_of_narrow_networks_not_bounded: "sum",
    growth_of_wide_networks_not_bounded: "wide",
}


@pytest.mark.parametrize("mistake", FUNCTIONS, ids=lambda mistake: mistake.__name__)
def test_random_functions_show(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    circuit = FUNCTIONS[mistake]
    for seed in range(200):
        case = random_case(np.random.default_rng((1, seed)), "circuit" if circuit else "table")
        if isinstance(case, Case) and case.token_dim * case.seq_len > 3:
            continue  # takes long
        if wrong := tried(case)[0].wrong:
            print(f"{mistake.__name__}: case {seed}: {wrong}")
            return
    pytest.fail("200 functions did not show it")


@pytest.mark.parametrize("mistake", FORGERIES, ids=lambda mistake: mistake.__name__)
def test_forgeries_show(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    assert_shown(FORGERIES[mistake], mistake, monkeypatch)
