"""Circuits as report and explorer look at them: values of nodes, measured errors, units as functions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from circuit_cases import COMPILES, target, transformer_block

import provenformer as pf
from provenformer.look.circuit import CircuitSubject, measured, node_values
from provenformer.look.unit_tables import unit_tables
from provenformer.symbols.evaluate import evaluate

CASES = {
    "block": target(transformer_block(2), 2, 6),
    "sort": pf.targets.get("sort", 1, 8),
    "rank": pf.targets.get("rank", 1, 8),
    **{
        name: target(COMPILES[name])
        for name in (
            "layer norm", "gelu", "log mean exp", "waves", "differences", "positions", "softmax pooling", "clipped", "hinge",
            "products", "deviation",
        )
    },
}  # fmt: skip


@cache
def subject(name: str) -> CircuitSubject:
    c = pf.compile(CASES[name], tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert isinstance(c, pf.CompiledCircuit)
    return CircuitSubject.of(c)


@pytest.mark.parametrize("name", CASES)
def test_measured_errors_are_below_the_bounds_and_those_of_the_network(name: str) -> None:
    s = subject(name)
    found = measured(s)
    assert found is not None
    assert s.target is not None
    assert found.outputs["float64"] <= s.certificate.bound + 1e-12
    assert found.outputs["float32"] <= s.certificate.bounds["float32"]
    for node, error in zip(s.nodes, found.nodes, strict=True):
        assert node.error is not None
        assert error <= node.error.float64 + 1e-13
    x = s.example()[None]
    values = node_values(s, x)
    assert np.array_equal(values.held[: s.token_dim, 0], x[0])
    assert s.circuit is not None
    last = next(node for node in s.circuit.nodes if node.kind == "output")
    if len(last.reads) == 1 and not last.positions and last.words.startswith("v"):
        shown = values.held[last.reads[0].source, 0]
        assert np.allclose(shown, s.network(x)[0, 0])


@pytest.mark.parametrize("name", CASES)
def test_units_as_a_function_are_what_the_network_computes(name: str) -> None:
    """The curve that is drawn, at the numbers that really occur: within what upstream errors may move it."""
    s = subject(name)
    assert s.target is not None
    assert s.traced is not None
    x = s.target.sample(50)
    values = node_values(s, x)
    for table in unit_tables(s):
        node = table.node
        assert node.error is not None
        assert table.error <= node.error.float64 + 1e-9
        assert node.atom is not None
        argument = s.traced.graph.atoms[node.atom].operation.arguments[0]
        z = np.broadcast_to(evaluate(s.traced.graph, [argument], x)[:, 0], (len(x), s.seq_len))
        drawn = np.interp(z[:, 0], table.argument, table.held)
        upstream = max((s.nodes[e.source].error.exact for e in node.reads), default=0.0)  # type: ignore[union-attr]
        steep = np.abs(np.diff(table.held) / np.diff(table.argument)).max()
        assert np.abs(drawn - values.held[node.index, :, 0]).max() <= 20 * steep * upstream + 1e-9
        assert len(table.corners) <= node.units


def test_without_its_function_a_circuit_is_only_a_network(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    f = target(lambda x: np.tanh(x))
    pf.compile(f, tolerance=1e-2, norm_order=np.inf, construction="circuit").save(folder)
    saved = pf.load(folder)
    s = CircuitSubject.of_saved(saved)
    assert s.circuit is None
    assert s.nodes == []
    assert measured(s) is None
    assert s.missing
    with pytest.raises(pf.ProvenformerError, match="is not known"):
        node_values(s, s.example()[None])
    assert CircuitSubject.of_saved(saved, f).circuit is not None
