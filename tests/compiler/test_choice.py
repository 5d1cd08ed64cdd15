"""Which construction: the circuit where the formula can be followed, else the table, and a sentence that says why."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf

F = pf.targets.get("scaled-mean", 1, 3)


def jumps(x: Any) -> Any:
    return np.where(x > 0.5, x, 0.5)


def bump(x: Any) -> Any:
    return x * (1.0 - x) * np.prod(x * (1.0 - x), axis=-1, keepdims=True)


def test_a_formula_becomes_a_circuit() -> None:
    c = pf.compile(F, tolerance=0.05)
    assert isinstance(c, pf.CompiledCircuit)
    assert c.choice == "circuit, because its formula could be followed"
    assert c.choice in repr(c)
    assert c.certificate.details["choice"] == c.choice


def test_what_jumps_becomes_a_table_that_says_where() -> None:
    c = pf.compile(pf.Target(jumps, 1, 2), tolerance=0.3)
    assert isinstance(c, pf.Compiled)
    line = jumps.__code__.co_firstlineno + 1
    for part in ("sum, because", "numpy.greater", "jumps", f"line {line} "):
        assert part in c.choice
    assert c.choice in repr(c)
    assert c.certificate.details["choice"] == c.choice


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"cells_per_axis": 4}, "cells_per_axis"),
        ({"tolerance": 0.3, "hidden_dim": 8}, "hidden_dim"),
        ({"tolerance": 0.3, "kind": "lipschitz"}, "lipschitz"),
    ],
)
def test_what_only_tables_have_asks_for_one(options: dict[str, Any], word: str) -> None:
    c = pf.compile(F, **options)
    assert isinstance(c, pf.Compiled)
    assert c.choice.startswith("sum, because")
    assert word in c.choice


def test_a_function_on_the_whole_space_is_a_table() -> None:
    c = pf.compile(pf.Target(bump, 1, 2, vanishes_outside=True), tolerance=0.05)
    assert c.certificate.domain == "space"
    assert "outside its box" in c.choice


def test_who_asks_gets_it() -> None:
    for name in ("circuit", "sum", "wide"):
        assert pf.compile(F, tolerance=0.2, construction=name).choice == f"{name}, as asked for"


@pytest.mark.parametrize("p", [1, 1.5, 2, 64, np.inf])
def test_the_tolerance_is_met_in_the_norm_that_was_asked_for(p: float) -> None:
    f = pf.targets.get("scaled-mean", 1, 3, (0.0, 2.0))
    c = pf.compile(f, tolerance=0.05, norm_order=p)
    assert isinstance(c, pf.CompiledCircuit)
    assert c.certificate.bound <= 0.05
    assert c.certificate.norm_order == (None if p == np.inf else p)
    factor = 1.0 if p == np.inf else (3 * 2.0**3) ** (1 / p)
    assert c.certificate.bound == pytest.approx(c.certificate.details["sup"] * factor, rel=1e-6)


def test_where_neither_can_be_had_both_are_explained() -> None:
    with pytest.raises(pf.ProvenformerError, match=r"no circuit: numpy.greater.*no table: .* cubes") as caught:
        pf.compile(pf.Target(jumps, 1, 64), tolerance=0.3)
    assert "\n" not in str(caught.value)


def test_in_the_sup_norm_only_the_circuit_is_explained() -> None:
    with pytest.raises(pf.ProvenformerError, match="greater") as caught:
        pf.compile(pf.Target(jumps, 1, 2), tolerance=0.3, norm_order=np.inf)
    assert "table" not in str(caught.value)


@pytest.mark.parametrize("p", [0, 0.5, -1, -np.inf, np.nan, 65, "two", None, True])
def test_norms_that_are_none(p: Any) -> None:
    with pytest.raises(pf.ProvenformerError, match="norm_order"):
        pf.compile(F, tolerance=0.05, norm_order=p)


def test_a_function_that_is_not_what_it_is_declared_to_be_is_no_table_either() -> None:
    with pytest.raises(pf.ProvenformerError, match="equivariant=False") as caught:
        pf.compile(pf.Target(lambda x: x[..., ::-1], 1, 3), tolerance=0.3)
    assert "no table" not in str(caught.value)


def test_an_unknown_construction_names_all() -> None:
    with pytest.raises(pf.ProvenformerError, match="circuit, sum, paper, wide"):
        pf.compile(F, tolerance=0.3, construction="magic")


def test_what_was_chosen_is_saved(tmp_path: Path) -> None:
    for options in ({"tolerance": 0.05}, {"cells_per_axis": 3}):
        c = pf.compile(F, **options)
        c.save(tmp_path / "net")
        assert pf.load(tmp_path / "net").certificate.details["choice"] == c.choice
        assert pf.verify(tmp_path / "net")


def test_the_claim_says_what_it_rests_on(tmp_path: Path) -> None:
    for construction, words in (("circuit", "traced to a graph"), ("sum", "boxes in interval arithmetic")):
        pf.compile(F, tolerance=0.3, construction=construction).save(tmp_path / "net")
        claim = pf.verify(tmp_path / "net").claim
        assert claim is not None
        assert words in claim.basis
