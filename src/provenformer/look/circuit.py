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
from provenformer.certificates.claim import YOURS, Claim, claim_about
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.functions import targets
from provenformer.functions.targets import Target
from provenformer.look.subject import spread
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.inside import layer_states
from provenformer.storage import Saved, source_digest
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
    token_names: tuple[str, ...] = ()  # of a program on tokens, whose inputs are their indices
    answers_are_tokens: bool = False  # whether its outputs are indices, too

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

    def wanted(self, x: FloatArray) -> FloatArray | None:
        """The function on sequences (batch, d, n); None where it is not known."""
        return None if self.target is None else np.asarray(self.target(x))

    def atoms(self, numbers: list[int], x: FloatArray) -> FloatArray:
        """(atoms, batch, n): values of the graph on sequences (batch, d, n)."""
        if self.traced is None:
            raise ProvenformerError(f"the graph of '{self.target_name}' is not known: {self.missing}.")
        n = self.seq_len
        return evaluate(self.traced.graph, [Lin(n, {atom: Term(1.0)}, np.zeros(1)) for atom in numbers], x).swapaxes(
            0, 1
        )

    def sequences(self, count: int) -> FloatArray:
        """About so many of all kinds: random ones, corners, few values, nearly constant, ramps, sorted."""
        assert self.target is not None
        special = samples(self.target)
        order = np.random.default_rng(3).permutation(len(special))[: count // 2]
        return np.concatenate([special[np.sort(order)], self.target.sample(count - len(order))])

    def claim(self) -> Claim | None:
        """In full, as `verify` states it; None without the function."""
        if self.target is None:
            return None
        return claim_about(self.certificate, self.target, YOURS, source_digest(self.target))

    @property
    def formula(self) -> str | None:
        """What a built-in function computes, in a sentence."""
        known = self.target is not None and targets.is_built_in(self.target)
        return targets.describe(self.target_name) if known else None

    @property
    def claimed(self) -> float | None:
        """What the certificate states of the largest entry in float64."""
        sup = self.certificate.details.get("sup")
        return sup if isinstance(sup, float) else None

    def in_words(self, sequence: FloatArray) -> list[str]:
        """The tokens of a sequence (d, n)."""
        return [", ".join(f"{v:.4g}" for v in token) for token in sequence.T]

    def require_inside(self, sequence: FloatArray) -> FloatArray:
        """The sequence (d, n), if it is one that can be followed."""
        return sequence

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
    nodes = subject.nodes
    atoms = sorted({node.atom for node in nodes if node.atom is not None})
    values = subject.atoms(atoms, x)
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
    """On as many sequences as the size allows. None without f."""
    if subject.circuit is None:
        return None
    x = subject.sequences(subject.affordable())
    wanted = subject.wanted(x)
    assert wanted is not None
    outputs = {
        precision: float(np.abs(subject.network.run(x, precision) - wanted).max())
        for precision in ("float64", "float32")
    }
    few = x[:: -(-len(x) // min(256, subject.affordable(0.5)))]  # states are kept, and nodes are many
    return Measured(len(x), outputs, tuple(node_values(subject, few).errors.tolist()))
