"""A circuit to look at: network and certificate; where the function is known also its graph, its anatomy and its errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.nodes import Node
from provenformer.anatomy.reading import circuit_of
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.certificates.certificate import Certificate
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.functions.targets import Target
from provenformer.look.subject import spread
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.inside import layer_states
from provenformer.storage import Saved
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.graph import Lin, Term
from provenformer.symbols.trace import Traced, samples, trace

WORK = 1 << 27  # numbers computed, about: a second
MOST_SAMPLES = 4096


@dataclass(frozen=True, eq=False)
class CircuitSubject:
    """A circuit. Without its target (`missing` says why) there is the network alone, and no graph to name its values by."""

    network: CircuitNetwork
    certificate: Certificate
    target_name: str
    support: tuple[FloatArray, FloatArray]
    target: Target | None = None
    missing: str | None = None
    traced: Traced | None = None  # the graph of the function
    circuit: Circuit | None = None  # the network in terms of that graph

    @classmethod
    def of_saved(cls, saved: Saved, target: Target | None = None) -> CircuitSubject:
        """From what `load` returns; `target` is the function, where the folder does not name a built-in one."""
        network, spec = saved.network, saved.manifest["target"]
        if not isinstance(network, CircuitNetwork):
            raise ProvenformerError("this network is not a circuit.")
        low, high = (np.array(end, dtype=np.float64) for end in spec["support"])
        known = target or saved.target
        if known is None:
            return cls(network, saved.certificate, str(spec["name"]), (low, high), missing=saved.why_no_target)
        traced = trace(known)
        circuit = circuit_of(network, traced, low, high)
        return cls(network, saved.certificate, str(spec["name"]), (low, high), known, None, traced, circuit)

    @classmethod
    def of(cls, made: CompiledCircuit) -> CircuitSubject:
        """From what `compile` returns, without saving it."""
        f = made.target
        return cls(made.network, made.certificate, f.name, (f.low, f.high), f, None, made.traced, made.circuit)

    @property
    def token_dim(self) -> int:
        return self.network.token_dim

    @property
    def seq_len(self) -> int:
        return self.network.seq_len

    @property
    def nodes(self) -> list[Node]:
        """Inputs and what blocks make, in order; without the outputs."""
        return [] if self.circuit is None else [node for node in self.circuit.nodes if node.kind != "output"]

    def example(self) -> FloatArray:
        """One sequence (d, n), spread over the box."""
        low, high = (end[:, None] for end in self.support)
        return np.asarray(low + spread(0.2, self.token_dim, self.seq_len) * (high - low))

    def affordable(self, share: float = 1.0) -> int:
        """How many sequences can be run in about that share of a second."""
        net, n = self.network, self.seq_len
        numbers = n * (net.blocks * net.model_dim + sum(net.hidden_units.values()) + net.heads * n)
        return int(np.clip(share * WORK // max(numbers, 1), 8, MOST_SAMPLES))


@dataclass(frozen=True)
class NodeValues:
    """What nodes should be by the graph and what their channels hold, (nodes, batch, n) each."""

    wanted: FloatArray
    held: FloatArray

    @property
    def errors(self) -> FloatArray:
        """(nodes,): the largest difference."""
        return np.asarray(np.abs(self.held - self.wanted).max(axis=(1, 2), initial=0.0))


def node_values(subject: CircuitSubject, x: FloatArray) -> NodeValues:
    """Of `subject.nodes`, for sequences (batch, d, n)."""
    traced, nodes, n = subject.traced, subject.nodes, subject.seq_len
    if traced is None:
        raise ProvenformerError(f"the graph of '{subject.target_name}' is not known: {subject.missing}.")
    atoms = sorted({node.atom for node in nodes if node.atom is not None})
    values = evaluate(traced.graph, [Lin(n, {atom: Term(1.0)}, np.zeros(1)) for atom in atoms], x).swapaxes(0, 1)
    wanted = np.stack([mixed(values[atoms.index(node.atom or 0)], node.rows) for node in nodes])
    held = np.empty_like(wanted)
    for layers, channels in layer_states(subject.network, x):
        for i, node in enumerate(nodes):
            if node.layers == layers:
                held[i] = channels[:, node.channel]
    return NodeValues(wanted, held)


def mixed(values: FloatArray, rows: FloatArray | None) -> FloatArray:
    """rows @ values along the tokens of (batch, n); one row stands for every token, a vector is a factor for each."""
    if rows is None:
        return values
    return values * rows if rows.ndim == 1 else np.broadcast_to(values @ rows.T, values.shape)


@dataclass(frozen=True)
class Measured:
    """The largest |f - g| on sequences of all kinds, by precision, and the largest error of every node in float64."""

    sequences: int
    outputs: dict[str, float]
    nodes: tuple[float, ...]


def measured(subject: CircuitSubject) -> Measured | None:
    """As many sequences as the size allows: random ones, corners, few values, nearly constant, ramps, sorted. None without f."""
    if subject.target is None:
        return None
    x = _sequences(subject, subject.target)
    wanted = subject.target(x)
    outputs = {
        precision: float(np.abs(subject.network.run(x, precision) - wanted).max())
        for precision in ("float64", "float32")
    }
    few = x[:: -(-len(x) // min(256, subject.affordable(0.5)))]  # states are kept, and nodes are many
    return Measured(len(x), outputs, tuple(node_values(subject, few).errors.tolist()))


def _sequences(subject: CircuitSubject, target: Target) -> FloatArray:
    count = subject.affordable()
    special = samples(target)
    order = np.random.default_rng(3).permutation(len(special))[: count // 2]
    return np.concatenate([special[np.sort(order)], target.sample(count - len(order))])
