"""The anatomy of a circuit: what it says of every node is what the weights do, and what it draws can be read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from circuit_cases import COMPILES, layer_norm, target, transformer_block

import provenformer as pf
from provenformer.anatomy.boxes import boxes_of
from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.drawing import draw, wrapped
from provenformer.anatomy.layout import GAP, layout
from provenformer.anatomy.nodes import Node, repeats
from provenformer.anatomy.reading import circuit_of
from provenformer.anatomy.words import formula, rows_in_words, upper
from provenformer.networks.circuit import CircuitBlock, Claim
from provenformer.networks.inside import layer_states, pattern
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.formula import VARIABLE, apply, constant
from provenformer.symbols.graph import Lin, Term

CASES = {
    "softmax-mean": pf.targets.get("softmax-mean", 1, 8),
    "sort": pf.targets.get("sort", 1, 16),
    "rank": pf.targets.get("rank", 1, 16),
    "block": target(transformer_block(3), 3, 6),
    "layer norm": target(layer_norm),
    **{
        name: target(COMPILES[name])
        for name in ("differences", "kernel regression", "median", "softmax pooling", "a constant")
    },
}


@cache
def compiled(name: str) -> pf.CompiledCircuit:
    found = pf.compile(CASES[name], tolerance=1e-2, norm_order=np.inf, construction="circuit")
    assert isinstance(found, pf.CompiledCircuit)
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_node_is_in_its_channel_within_its_error(name: str) -> None:
    c = compiled(name)
    x = c.target.sample(40)
    states, n = dict(layer_states(c.network, x)), c.target.seq_len
    assert c.circuit.rejected is None
    for node in c.circuit.nodes:
        if node.kind == "output":
            continue
        assert node.atom is not None
        assert node.channel is not None
        assert node.low is not None
        assert node.high is not None
        assert node.error is not None
        rows = np.eye(n) if node.rows is None else np.diag(node.rows) if node.rows.ndim == 1 else node.rows
        value = evaluate(c.traced.graph, [Lin(n, {node.atom: Term(0.0, rows)}, np.zeros(1))], x)[:, 0]
        off = np.abs(states[node.layers][:, node.channel] - value).max()
        assert off <= node.error.float64 + 1e-14 * np.abs(value).max()
        assert node.low - 1e-12 <= value.min()
        assert value.max() <= node.high + 1e-12
        assert node.error.exact <= node.error.float64 <= node.error.float32
    outputs = [node for node in c.circuit.nodes if node.kind == "output"]
    assert len(outputs) == c.target.token_dim
    assert all(node.error is not None and node.error.float64 <= c.certificate.bound for node in outputs)


@pytest.mark.parametrize("name", CASES)
def test_a_node_changes_with_what_it_reads_and_with_nothing_else(name: str) -> None:
    """Edges are exactly the channels that matter: noise on any other channel leaves the node as it is."""
    c = compiled(name)
    states, rng = dict(layer_states(c.network, c.target.sample(2))), np.random.default_rng(0)
    network = c.network
    for node in [node for node in c.circuit.nodes if node.block is not None]:
        assert node.block is not None
        assert node.channel is not None
        block = network.circuit_blocks[node.block]
        before = states.get(node.layers - 1, states[max(layer for layer in states if layer < node.layers)])
        read = {c.circuit.nodes[edge.source].channel for edge in node.reads}
        others = [k for k in range(network.model_dim) if k not in read and not network.constant_channels[k]]
        noisy = before.copy()
        noisy[:, [k for k in others if k != node.channel]] += rng.normal(size=noisy[:, others][:, :1].shape)
        was, now = (_added(block, node, state) for state in (before, noisy))
        assert np.array_equal(was, now)


def _added(block: CircuitBlock, node: Node, state: np.ndarray) -> np.ndarray:
    if node.layers % 2:
        heads = [head for head in block.heads if head.W_O[node.channel].any()]
        added = [head.W_O @ (head.W_V @ state) @ np.swapaxes(pattern(head, state), 1, 2) for head in heads]
        return np.asarray(sum(added))[:, node.channel]
    hidden = np.maximum(block.W_1 @ state + block.b_1[:, None], 0.0)
    return np.asarray((block.W_2 @ hidden)[:, node.channel])


def test_who_makes_what() -> None:
    circuit = compiled("layer norm").circuit
    assert [node.kind for node in circuit.nodes] == [
        "input",
        "mean",
        "function",
        "mean",
        "function",
        "product",
        "output",
    ]
    assert circuit["v1"].by == "head 0"
    assert circuit["v2"].words == "square(x - v1)"
    assert circuit["v4"].words == "1 / sqrt(v3 + 0.01)"
    assert circuit["v5"].words == "(x - v1) * v4"
    assert [circuit.nodes[edge.source].name for edge in circuit["v5"].reads] == ["x", "v1", "v4"]
    assert circuit["v4"].block == 1
    assert sum(node.units for node in circuit.nodes) == circuit.units
    attention = compiled("softmax-mean").circuit["v1"]
    assert {edge.role for edge in attention.reads} == {"value", "query", "key"}
    assert attention.words == "mean of x over the tokens, weights softmax(x[j] * x[k])"


def test_the_text_has_a_line_for_every_node_and_folds_what_repeats() -> None:
    text = str(compiled("block").circuit)
    assert all(re.search(rf"^  {node.name} ", text, re.M) for node in compiled("block").circuit.nodes)
    lines = str(compiled("sort").circuit).splitlines()
    assert "blocks 1 to 8: as the block before" in lines
    assert len(lines) < 14
    assert "and 8 more like these, up to v16" in str(compiled("rank").circuit)


def test_a_network_that_is_rejected_has_no_bounds() -> None:
    c, other = compiled("layer norm"), compiled("softmax-mean")
    circuit = circuit_of(other.network, c.traced, c.target.low, c.target.high)
    assert circuit.rejected
    assert "no error bounds: " in str(circuit)
    assert all(node.error is None for node in circuit.nodes)
    assert "error" not in draw(circuit.nodes, "a graph")


def test_a_witness_that_names_what_is_not_there_is_left_out() -> None:
    c = compiled("layer norm")
    odd = [Claim(99, 1, 1), Claim(1, 99, 1), Claim(1, 1, 99), Claim(1, 1, 1, np.ones((3, 8)))]
    forged = replace(c.network, witness=(*c.network.witness, *odd))
    circuit = circuit_of(forged, c.traced, c.target.low, c.target.high)
    assert circuit.rejected
    assert len(circuit.nodes) == len(c.circuit.nodes)


@pytest.mark.parametrize("name", CASES)
def test_the_drawing_is_well_formed_and_its_boxes_do_not_overlap(name: str) -> None:
    circuit = compiled(name).circuit
    root = ET.fromstring(circuit.to_svg())
    space = "{http://www.w3.org/2000/svg}"
    shown = [int(i) for g in root.iter(f"{space}g") for i in g.attrib["data-nodes"].split()]
    assert sorted(shown) == list(range(len(circuit.nodes)))
    boxes = [[float(r.attrib[k]) for k in ("x", "y", "width", "height")] for r in root.iter(f"{space}rect")]
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert x + w <= float(root.attrib["width"])
        for x2, y2, w2, h2 in boxes[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    assert "<style>" in circuit.to_svg()
    assert "<style>" not in circuit.to_svg(standalone=False)  # the explorer's policy forbids it


def test_long_and_wide_circuits_are_folded() -> None:
    assert len(boxes_of(compiled("sort").circuit.nodes).boxes) == 7
    assert repeats(compiled("sort").circuit.nodes) == ((1, 8),)
    block = boxes_of(compiled("block").circuit.nodes)
    assert len(block.boxes) == 7  # a row each


def test_layout_keeps_order_and_gaps() -> None:
    rows, widths = [0, 1, 1, 1, 2], [50.0, 80.0, 60.0, 70.0, 40.0]
    found = layout(rows, widths, [(0, 1), (0, 2), (0, 3), (1, 4), (0, 4)])
    line = next(line for line in found.lines if (line.source, line.target) == (0, 4))
    assert len(line.centres) == 3  # it passes a row
    middle = sorted([*((found.centres[i], widths[i]) for i in (1, 2, 3)), (line.centres[1], 0.0)])
    for (a, w), (b, v) in pairwise(middle):
        assert b - v / 2 - (a + w / 2) >= GAP - 1e-6
    assert layout([], [], []).width == 0


def test_names_from_a_folder_are_escaped() -> None:
    circuit = compiled("softmax-mean").circuit
    nodes = tuple(replace(node, name="<b>&", words='"><script>') for node in circuit.nodes)
    assert "<script>" not in Circuit(1, 8, nodes, 1, 1, 0, ("<i>",)).to_svg()


def test_words() -> None:
    n = 6
    assert rows_in_words(np.full((1, n), 1 / n), "x") == ("mean", "mean of x over the tokens")
    assert rows_in_words(np.eye(n)[::-1], "x") == ("permutation", "x in reverse order")
    assert rows_in_words(np.roll(np.eye(n), 1, axis=0), "x") == ("permutation", "x, tokens rotated by 1")
    assert rows_in_words(np.eye(n)[[1, 0, 3, 2, 5, 4]], "x") == ("permutation", "x of the token 1 away")
    assert rows_in_words(np.eye(n, k=-1), "x") == ("scaled", "x, tokens shifted by 1, times a number by position")
    running = np.tril(np.ones((n, n)))
    assert rows_in_words(running, "x") == ("scaled", "sum of x over this and all earlier tokens")
    assert rows_in_words(running / running.sum(axis=1, keepdims=True), "x")[0] == "mixture"
    z = VARIABLE
    assert formula(apply("divide", constant(1), apply("add", z, constant(-0.5)))) == "1 / (z - 0.5)"
    assert formula(apply("multiply", z, apply("multiply", z, z))) == "z * (z * z)"
    assert upper(0.0010001) == "0.00101"
    assert upper(1e-3) == "0.001"
    assert upper(3.14159e-9) == "3.15e-9"
    assert upper(2.3e-308) == "0"
    assert wrapped("one two three four five", 9, 2) == ["one two", "three …"]


@pytest.mark.parametrize("name", ["softmax-mean", "sort", "block", "a constant"])
def test_attention_and_states(name: str) -> None:
    c = compiled(name)
    d, n = c.target.token_dim, c.target.seq_len
    x = c.target.sample(6).reshape(2, 3, d, n)
    attention, states = c.attention(x), c.states(x)
    assert len(attention) == c.network.blocks
    assert len(states) == c.network.blocks + 1
    for block, weights in zip(c.network.circuit_blocks, attention, strict=True):
        assert weights.shape == (2, 3, len(block.heads), n, n)
        assert np.allclose(weights.sum(axis=-1), 1)
    last = np.stack(list(states[-1].values()), axis=-2)
    assert last.shape == (2, 3, c.network.model_dim, n)
    assert np.allclose(c.network.W_out @ last + c.network.b_out[:, None], c.network(x), atol=1e-12)
    assert set(states[0]) == set(c.circuit.channels)
    assert np.array_equal(states[0]["input 0"], x[..., 0, :])
    if name == "softmax-mean":
        scores = np.exp(x[..., 0, :, None] * x[..., 0, None, :])
        assert np.allclose(attention[0][:, :, 0], scores / scores.sum(axis=-1, keepdims=True))
    with pytest.raises(pf.ProvenformerError, match="X has shape"):
        c.attention(np.zeros((d + 1, n)))
