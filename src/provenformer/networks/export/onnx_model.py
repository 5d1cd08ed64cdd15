"""A network as an ONNX model: float64, batched input `x` (batch, d, n), output `y` of the same shape.

A tiny network is one `Scan` over its stacked blocks, so that thousands of blocks stay a small graph; wide networks and
circuits are their few blocks written out. Circuits have tokens in rows and constants on the right of every product, as linear
layers have them in other tools, and may be float32. Needs the extra `onnx`.
"""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike
from onnx import TensorProto, helper, numpy_helper

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.base.files import atomic_path
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork, Head
from provenformer.networks.export.blocks import block_weights
from provenformer.networks.thin import Network
from provenformer.networks.wide import WideBlock, WideNetwork

OPSET = 23  # current and widely run; onnxruntime 1.31 accepts up to 26
CIRCUIT_OPSET = 13  # what verifiers and converters read


def onnx_model(network: FloatNetwork, dtype: DTypeLike = np.float64, batch: int | None = None) -> Any:
    """The model, checked by onnx; for any number of sequences, or `batch`. float32 is for circuits, which have a bound for it."""
    kind = np.dtype(dtype)
    if kind not in (np.float64, np.float32) or (kind == np.float32 and not isinstance(network, CircuitNetwork)):
        raise ProvenformerError(f"this network has no bound in {kind.name}; use dtype=np.float64.")
    graph = _Graph(dtype=kind)
    state = "x"
    if (
        network.positions is not None
        and len(network.positions) == network.token_dim
        and not isinstance(network, CircuitNetwork)
    ):
        state = graph.node("Add", state, graph.constant("positions", network.positions))
    graph.nodes.append(helper.make_node("Identity", [_layers(network, graph, state)], ["y"]))
    shape: list[str | int | None] = ["batch" if batch is None else batch, network.token_dim, network.seq_len]
    number = TensorProto.DOUBLE if kind == np.float64 else TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, number, shape) for name in ("x", "y")]
    built = helper.make_graph(graph.nodes, type(network).__name__, values[:1], values[1:], graph.constants)
    opset = CIRCUIT_OPSET if isinstance(network, CircuitNetwork) else OPSET
    model = helper.make_model(built, opset_imports=[helper.make_opsetid("", opset)], producer_name="provenformer")
    model.ir_version = 10
    onnx.checker.check_model(model)
    return model


def save_onnx(network: FloatNetwork, path: str | Path, dtype: DTypeLike = np.float64, batch: int | None = None) -> None:
    """Write the model to a file, whole or not at all."""
    model = onnx_model(network, dtype, batch)
    with atomic_path(Path(path)) as temporary:
        onnx.save(model, temporary)


class _Graph:
    """Nodes and constants in the making; every node gets a fresh output name."""

    def __init__(self, prefix: str = "", dtype: np.dtype[Any] | None = None) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.prefix = prefix
        self.dtype = np.dtype(np.float64) if dtype is None else dtype

    def constant(self, name: str, value: Any) -> str:
        value = np.asarray(value, dtype=self.dtype if np.asarray(value).dtype.kind == "f" else None)
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), self.prefix + name))
        return self.prefix + name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"{self.prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output


def _attention(graph: _Graph, state: str, weights: dict[str, str]) -> str:
    """X + W_O (W_V X softmax((W_K X)^T (W_Q X + b_Q))) for heads of size one; weights per head in rows, biases columns."""
    keys, values = (graph.node("MatMul", weights[name], state) for name in ("W_K", "W_V"))  # (batch, heads, n)
    queries = graph.node("Add", graph.node("MatMul", weights["W_Q"], state), weights["b_Q"])
    scores = graph.node(
        "Mul", graph.node("Unsqueeze", keys, weights["last"]), graph.node("Unsqueeze", queries, weights["before_last"])
    )  # (batch, heads, key, query)
    attended = graph.node("Softmax", scores, axis=2)
    row = graph.node("Unsqueeze", values, weights["before_last"])  # (batch, heads, 1, key)
    mixed = graph.node("Squeeze", graph.node("MatMul", row, attended), weights["before_last"])  # (batch, heads, n)
    return graph.node("Add", state, graph.node("MatMul", weights["W_O"], mixed))


def _feed_forward(graph: _Graph, state: str, weights: dict[str, str]) -> str:
    hidden = graph.node("Relu", graph.node("Add", graph.node("MatMul", weights["W_1"], state), weights["b_1"]))
    changed = graph.node("Add", state, graph.node("MatMul", weights["W_2"], hidden))
    return graph.node("Add", changed, weights["b_2"])


def _axes(graph: _Graph) -> dict[str, str]:
    return {"last": graph.constant("last", np.array([3])), "before_last": graph.constant("before_last", np.array([2]))}


@singledispatch
def _layers(network: FloatNetwork, graph: _Graph, state: str) -> str:  # noqa: ARG001
    """All layers of a network of its kind; returns the name of the output."""
    raise TypeError(f"no ONNX model for {type(network).__name__}")


@_layers.register
def _wide(network: WideNetwork, graph: _Graph, state: str) -> str:
    """Pad to d_model channels, the blocks one after the other, the last d channels."""
    d, size = network.token_dim, network.model_dim
    pads = graph.constant("pads", np.array([0, 0, 0, 0, size - d, 0]))
    state = graph.node("Pad", state, pads)
    axes = _axes(graph)
    for i, block in enumerate(network.wide_blocks):
        used = {n: v for n, v in _columns(block).items() if block.attends or n in ("W_1", "b_1", "W_2", "b_2")}
        weights = {name: graph.constant(f"b{i}.{name}", value) for name, value in used.items()} | axes
        if block.attends:
            state = _attention(graph, state, weights)
        state = _feed_forward(graph, state, weights)
    ends = (graph.constant(name, np.array([value])) for name, value in (("from", size - d), ("to", size), ("axis", 1)))
    return graph.node("Slice", state, *ends)


@_layers.register
def _circuit(network: CircuitNetwork, graph: _Graph, state: str) -> str:
    """Tokens in rows: embedding and positions, the blocks one after the other, the readout."""
    tokens = graph.node("Transpose", state, perm=[0, 2, 1])
    state = _linear(graph, tokens, "embedding", np.eye(network.model_dim, network.token_dim))
    state = graph.node("Add", state, graph.constant("positions", network.positions.T))
    for i, block in enumerate(network.circuit_blocks):
        after = state
        for k, head in enumerate(block.heads):
            after = graph.node("Add", after, _circuit_head(graph, state, f"b{i}.h{k}", head))
        if len(block.b_1):
            hidden = graph.node("Relu", _linear(graph, after, f"b{i}.1", block.W_1, block.b_1))
            after = graph.node("Add", after, _linear(graph, hidden, f"b{i}.2", block.W_2, block.b_2))
        elif block.b_2.any():
            after = graph.node("Add", after, graph.constant(f"b{i}.2.b", block.b_2))
        state = after
    return graph.node("Transpose", _linear(graph, state, "out", network.W_out, network.b_out), perm=[0, 2, 1])


def _circuit_head(graph: _Graph, state: str, name: str, head: Head) -> str:
    """softmax((W_Q X + b_Q)^T (W_K X)) (W_V X) W_O, tokens in rows; without queries the average, which every token gets."""
    values = _linear(graph, state, f"{name}.V", head.W_V)  # (batch, n, v)
    if not len(head.b_Q):
        mixed = graph.node("ReduceMean", values, axes=[1], keepdims=1)
        return _linear(graph, mixed, f"{name}.O", head.W_O)
    queries = _linear(graph, state, f"{name}.Q", head.W_Q, head.b_Q)
    keys = graph.node("Transpose", _linear(graph, state, f"{name}.K", head.W_K), perm=[0, 2, 1])  # (batch, m, key)
    attended = graph.node("Softmax", graph.node("MatMul", queries, keys), axis=2)  # (batch, query, key)
    return _linear(graph, graph.node("MatMul", attended, values), f"{name}.O", head.W_O)


def _linear(graph: _Graph, state: str, name: str, weight: FloatArray, bias: FloatArray | None = None) -> str:
    """A linear layer on tokens in rows."""
    made = graph.node("MatMul", state, graph.constant(f"{name}.W", weight.T))
    return made if bias is None else graph.node("Add", made, graph.constant(f"{name}.b", bias))


def _columns(block: WideBlock) -> dict[str, FloatArray]:
    """Weights with biases as columns, so that they broadcast over tokens."""
    return {name: value[:, None] if value.ndim == 1 else value for name, value in block.weights().items()}


@_layers.register
def _scan(network: Network, graph: _Graph, state: str) -> str:
    """One Scan over the blocks: the state is carried, the stacked weights are what is scanned."""
    weights = block_weights(network)
    body = _Graph("in.")
    names = {name: f"in.{name}" for name in weights}
    shaped = {
        name: value[..., None] if value.ndim == 2 else np.swapaxes(value, 1, 2) if name == "W_O" else value
        for name, value in weights.items()
    }
    after = _feed_forward(body, _attention(body, "in.state", names | _axes(body)), names)
    body.nodes.append(helper.make_node("Identity", [after], ["in.after"]))
    shape: list[str | int | None] = ["batch", network.token_dim, network.seq_len]
    inputs = [helper.make_tensor_value_info("in.state", TensorProto.DOUBLE, shape)]
    inputs += [helper.make_tensor_value_info(names[n], TensorProto.DOUBLE, v.shape[1:]) for n, v in shaped.items()]
    outputs = [helper.make_tensor_value_info("in.after", TensorProto.DOUBLE, shape)]
    inner = helper.make_graph(body.nodes, "block", inputs, outputs, body.constants)
    scanned = [graph.constant(name, value) for name, value in shaped.items()]
    return graph.node("Scan", state, *scanned, body=inner, num_scan_inputs=len(scanned))
