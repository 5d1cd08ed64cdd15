"""plan(): what compile() then builds, before anything is built."""

import time
from typing import Any

import numpy as np
import pytest
from circuit_cases import COMPILES, target, transformer_block

import provenformer as pf

CASES: dict[str, pf.Target] = {name: pf.targets.get(name, 1, 16) for name in pf.targets.names()} | {
    "softmax-mean of four numbers": pf.targets.get("softmax-mean", 4, 6, (-1.0, 2.0)),
    "a Transformer block": target(transformer_block(2), d=2, n=6),
    "layer norm": target(COMPILES["layer norm"]),
    "median": target(COMPILES["median"]),
    "causal attention": target(COMPILES["causal attention"]),
}

REFINED = ("layer norm", "a Transformer block")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("norm_order", [2, np.inf])
def test_the_plan_of_a_circuit_is_what_is_built(name: str, norm_order: float) -> None:
    f = CASES[name]
    planned = pf.plan(f, tolerance=1e-2, norm_order=norm_order)
    c = pf.compile(f, tolerance=1e-2, norm_order=norm_order)
    assert isinstance(c, pf.CompiledCircuit)
    assert isinstance(planned, pf.CircuitPlan)
    if name in REFINED:  # the checker found more than the builder, and tables were made finer
        assert (planned.blocks, planned.heads, planned.channels) == (c.plan.blocks, c.plan.heads, c.plan.channels)
        assert planned.units <= c.plan.units <= 1.25 * planned.units
    else:
        assert planned == c.plan
    net, sizes = c.network, c.plan
    weights = [v for key, v in net.tensors().items() if not key.startswith("witness")]
    assert (sizes.blocks, sizes.heads, sizes.parameters) == (net.blocks, net.heads, net.parameters)
    assert sizes.units == sum(net.hidden_units.values())
    assert sizes.channels == net.model_dim
    assert sizes.bytes == sum(v.nbytes for v in weights) + net.positions.nbytes
    assert sizes.to_json()["parameters"] == net.parameters


@pytest.mark.parametrize("name", ["scaled-mean", "centered", "relative-max", "softmax-mean"])
def test_planning_is_fast_where_building_would_not_be(name: str) -> None:
    f = pf.targets.get(name, 16, 1024)
    start = time.process_time()
    planned = pf.plan(f, tolerance=1e-2, norm_order=np.inf)
    assert time.process_time() - start < 8
    assert planned.blocks == 1


def test_the_plan_says_why_there_is_no_circuit() -> None:
    f = pf.Target(lambda x: np.where(x > 0.5, x, 0.5), 1, 4)
    with pytest.raises(pf.ProvenformerError, match=r"no circuit: numpy.greater .*give cells_per_axis\.") as caught:
        pf.plan(f, tolerance=0.1)
    assert "\n" not in str(caught.value)
    with pytest.raises(pf.ProvenformerError, match="max_units=10"):
        pf.plan(pf.targets.get("scaled-mean", 1, 4), tolerance=1e-4, max_units=10, construction="circuit")


def test_tables_are_planned_from_sizes_or_from_a_function() -> None:
    f = pf.targets.get("sort", 1, 3)
    for construction in ("sum", "paper", "wide"):
        sizes = pf.plan(token_dim=1, seq_len=3, cells_per_axis=4, construction=construction, positional=True)
        assert pf.plan(f, cells_per_axis=4, construction=construction) == sizes
    assert pf.plan(f, cells_per_axis=4) == pf.plan(1, 3, 4, positional=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tolerance": 0.1, "construction": "sum"}, "give cells_per_axis"),
        ({}, "give cells_per_axis"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": 0.1, "norm_order": 0.5}, "norm_order"),
        ({"tolerance": 0.1, "construction": "magic", "cells_per_axis": 4}, "construction"),
    ],
)
def test_plans_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(pf.ProvenformerError, match=words):
        pf.plan(pf.targets.get("centered", 1, 4), **options)
