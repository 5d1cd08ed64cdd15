"""Small circuits written by hand, one for each rule of the checker, with their graph and their function in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head
from provenformer.symbols.formula import VARIABLE, Formula, apply, constant
from provenformer.symbols.graph import (
    Apply,
    Attend,
    Compare,
    Graph,
    Input,
    Largest,
    Lin,
    Operation,
    Pieces,
    Product,
    Term,
)  # fmt: skip
from provenformer.symbols.piecewise import PiecewiseLinear

Array = NDArray[Any]
Weights = dict[int, float]  # channel: weight


@dataclass(frozen=True)
class Case:
    """f, the network that should compute it, and its graph."""

    name: str
    fn: Callable[[Array], Array]
    network: CircuitNetwork
    graph: Graph
    outputs: list[Lin]
    low: Array
    high: Array


@dataclass
class Draft:
    """A network in the making: channels are added as they are needed, weights are given as {channel: weight}."""

    n: int
    d: int = 1
    positions: list[Array] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.positions = [np.zeros(self.n) for _ in range(self.d)]

    def channel(self, known: Array | float = 0.0) -> int:
        self.positions.append(np.broadcast_to(np.asarray(known, dtype=float), (self.n,)).copy())
        return len(self.positions) - 1

    def block(self) -> None:
        self.blocks.append({"heads": [], "units": [], "bias": {}})

    def head(
        self, queries: list[tuple[Weights, float]], keys: list[Weights], values: list[tuple[Weights, int, float]]
    ) -> None:
        self.blocks[-1]["heads"].append((queries, keys, values))

    def unit(self, reads: Weights, bias: float, writes: Weights) -> None:
        self.blocks[-1]["units"].append((reads, bias, writes))

    def table(self, reads: Weights, knots: Array, values: Array, to: int, shift: float = 0.0) -> None:
        """Interpolates values at knots as a function of reads @ state + shift."""
        slopes = np.diff(values) / np.diff(knots)
        for knot, jump in zip(knots[:-1], np.diff(slopes, prepend=0.0), strict=True):
            self.unit(reads, shift - float(knot), {to: float(jump)})
        self.bias(to, float(values[0]))

    def bias(self, channel: int, value: float) -> None:
        self.blocks[-1]["bias"][channel] = self.blocks[-1]["bias"].get(channel, 0.0) + value

    def claim(self, channel: int, layers: int, atom: int, rows: Array | None = None) -> None:
        self.claims.append(Claim(channel, layers, atom, rows))

    def network(self, readout: Weights, bias: float = 0.0) -> CircuitNetwork:
        size = len(self.positions)

        def row(weights: Weights) -> Array:
            out = np.zeros(size)
            for channel, weight in weights.items():
                out[channel] += weight
            return out

        def rows(many: list[Weights]) -> Array:
            return np.array([row(one) for one in many]).reshape(len(many), size)

        blocks = []
        for block in self.blocks:
            heads = []
            for queries, keys, values in block["heads"]:
                out = np.zeros((size, len(values)))
                for i, (_, to, weight) in enumerate(values):
                    out[to, i] = weight
                bias_q = np.array([b for _, b in queries], dtype=float)
                heads.append(
                    Head(rows([q for q, _ in queries]), bias_q, rows(keys), rows([v for v, _, _ in values]), out)
                )
            units = block["units"]
            reads, writes = (rows([u[i] for u in units]) for i in (0, 2))
            bias_1 = np.array([u[1] for u in units], dtype=float)
            blocks.append(CircuitBlock(tuple(heads), reads, bias_1, writes.T.copy(), row(block["bias"])))
        names = tuple(f"c{i}" for i in range(size))
        return CircuitNetwork(
            self.d, self.n, tuple(blocks), np.array(self.positions), row(readout)[None], np.array([bias]), names,
            tuple(self.claims),
        )  # fmt: skip


def new_graph(n: int, low: float, high: float) -> Graph:
    graph = Graph(1, n)
    graph.atom(Input(0), False, low, high)
    return graph


def atom(graph: Graph, operation: Operation, uniform: bool = False) -> int:
    return graph.atom(operation, uniform, -np.inf, np.inf).number  # the checker finds ranges of its own


def lin(
    n: int, own: dict[int, float] | None = None, mix: dict[int, Array] | None = None, known: Array | float = 0.0
) -> Lin:
    own, mix = own or {}, mix or {}
    terms = {i: Term(own.get(i, 0.0), mix.get(i)) for i in {*own, *mix}}
    return Lin(n, terms, np.atleast_1d(np.asarray(known, dtype=float)))


def mean_row(n: int) -> Array:
    return np.full((1, n), 1.0 / n)


TANH = Formula("tanh", (VARIABLE,))


def table(n: int = 3, knots: int = 33, low: float = -1.0, high: float = 2.0) -> Case:
    """tanh(2 x + 0.25) at every token: a table in one channel."""
    g = new_graph(n, low, high)
    formula = TANH.of(apply("add", VARIABLE, constant(0.25)))
    y = atom(g, Apply(formula, lin(n, {0: 2.0})))
    draft = Draft(n)
    out = draft.channel()
    draft.block()
    at = np.linspace(2 * low, 2 * high, knots)
    draft.table({0: 2.0}, at, np.tanh(at + 0.25), out)
    draft.claim(out, 2, y)
    network = draft.network({out: 1.0})
    return Case("table", lambda x: np.tanh(2 * x + 0.25), network, g, [lin(n, {y: 1.0})], *_box(low, high))


def centred(n: int = 5, low: float = -1.0, high: float = 3.0) -> Case:
    """x - mean(x): a uniform head and nothing else."""
    g = new_graph(n, low, high)
    draft = Draft(n)
    mean = draft.channel()
    draft.block()
    draft.head([], [], [({0: 1.0}, mean, 1.0)])
    draft.claim(mean, 1, 0, mean_row(n))
    network = draft.network({0: 1.0, mean: -1.0})
    out = lin(n, {0: 1.0}, {0: -mean_row(n)})
    return Case("centred", lambda x: x - x.mean(axis=-1, keepdims=True), network, g, [out], *_box(low, high))


def reverse(n: int = 6, low: float = 0.0, high: float = 1.0, sharp: float = 60.0) -> Case:
    """x_(n+1-j) + j/8: a hard head on positions on a circle."""
    g = new_graph(n, low, high)
    draft = Draft(n)
    turn = 2 * np.pi * np.arange(n) / n
    c, s, known, out = (
        draft.channel(np.cos(turn)),
        draft.channel(np.sin(turn)),
        draft.channel(np.arange(n) / 8),
        draft.channel(),
    )
    draft.block()
    strength = sharp / (1 - np.cos(2 * np.pi / n))
    angle = 2 * np.pi * (n - 1) / n
    draft.head(
        [({c: strength * np.cos(angle), s: strength * np.sin(angle)}, 0.0),
         ({c: strength * np.sin(angle), s: -strength * np.cos(angle)}, 0.0)],
        [{c: 1.0}, {s: 1.0}],
        [({0: 1.0}, out, 1.0)],
    )  # fmt: skip
    flip = np.eye(n)[::-1].copy()
    draft.claim(out, 1, 0, flip)
    outputs = [lin(n, None, {0: flip}, np.arange(n) / 8)]
    network = draft.network({out: 1.0, known: 1.0})
    return Case("reverse", lambda x: x[..., ::-1] + np.arange(n) / 8, network, g, outputs, *_box(low, high))


def largest(n: int = 7, low: float = -1.0, high: float = 1.0, sharp: float = 2e4) -> Case:
    """x - max(3 x + 1) / 3."""
    g = new_graph(n, low, high)
    top = atom(g, Largest(lin(n, {0: 3.0}, None, 1.0)), True)
    draft = Draft(n)
    out, one = draft.channel(), draft.channel(1.0)
    draft.block()
    draft.head([({}, sharp)], [{0: 3.0}], [({0: 3.0, one: 1.0}, out, 1.0)])
    draft.claim(out, 1, top)
    outputs = [lin(n, {0: 1.0, top: -1 / 3})]
    network = draft.network({0: 1.0, out: -1 / 3})
    return Case(
        "largest", lambda x: x - (3 * x + 1).max(axis=-1, keepdims=True) / 3, network, g, outputs, *_box(low, high)
    )


def attention(n: int = 6, low: float = -1.0, high: float = 1.5) -> Case:
    """sum_k softmax_k((x_j + 0.5)(2 x_k - 1) + bias_jk) (x_k + 1), with a bias by positions and keys with a known part."""
    g = new_graph(n, low, high)
    known = np.linspace(-0.5, 0.5, n)
    bias = np.outer(np.linspace(0, 1, n), known)
    att = atom(
        g, Attend((lin(n, {0: 1.0}, None, 0.5),), (lin(n, {0: 2.0}, None, -1.0),), bias, lin(n, {0: 1.0}, None, 1.0))
    )
    draft = Draft(n)
    out, one, row, col = draft.channel(), draft.channel(1.0), draft.channel(np.linspace(0, 1, n)), draft.channel(known)
    draft.block()
    draft.head(
        [({0: 0.5}, 0.25), ({row: 1.0}, 0.0)], [{0: 4.0, one: -2.0}, {col: 1.0}], [({0: 1.0, one: 1.0}, out, 1.0)],
    )  # fmt: skip
    draft.claim(out, 1, att)

    def fn(x: Array) -> Array:
        scores = (x + 0.5)[..., :, None] * (2 * x - 1)[..., None, :] + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.asarray(np.sum(weights * (x + 1)[..., None, :], axis=-1))

    return Case("attention", fn, draft.network({out: 1.0}), g, [lin(n, {att: 1.0})], *_box(low, high))


def product(n: int = 4, pieces: int = 21, low: float = 0.25, high: float = 1.0) -> Case:
    """(x - mean) * (mean + 0.5): two parabolas in two directions, and lines."""
    g = new_graph(n, low, high)
    left, right = lin(n, {0: 1.0}, {0: -mean_row(n)}), lin(1, None, {0: mean_row(n)}, 0.5)
    y = atom(g, Product(left, right))
    draft = Draft(n)
    mean, out = draft.channel(), draft.channel()
    draft.block()
    draft.head([], [], [({0: 1.0}, mean, 1.0)])
    draft.claim(mean, 1, 0, mean_row(n))
    reach_x, reach_y, centre = (1 - 1 / n) * (high - low), (high - low) / 2, (low + high) / 2 + 0.5
    t = np.linspace(-2, 2, pieces + 1)
    for sign in (1.0, -1.0):
        reads = {0: 1 / reach_x, mean: -1 / reach_x + sign / reach_y}
        scale = sign * reach_x * reach_y / 4
        draft.table(reads, t, scale * t**2, out, shift=sign * (0.5 - centre) / reach_y)
    # x y = (x)(y - centre) + centre x; x = (x + 2 reach) - 2 reach is always on
    draft.unit({0: 1.0, mean: -1.0}, 2 * reach_x, {out: centre})
    draft.bias(out, -2 * reach_x * centre)
    draft.claim(out, 2, y)

    def fn(x: Array) -> Array:
        m = x.mean(axis=-1, keepdims=True)
        return np.asarray((x - m) * (m + 0.5))

    return Case("product", fn, draft.network({out: 1.0}), g, [lin(n, {y: 1.0})], *_box(low, high))


def running(n: int = 5, low: float = -1.0, high: float = 1.0) -> Case:
    """max of the last two tokens, min on the second half: comparisons in place, gated by positions."""
    g = new_graph(n, low, high)
    back = np.eye(n)[np.maximum(np.arange(n) - 1, 0)]
    sign = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    sign[0] = 0.0
    y = atom(g, Compare(lin(n, {0: 1.0}), lin(n, None, {0: back}), sign))
    draft = Draft(n)
    eye = [draft.channel(np.eye(n)[k]) for k in range(n)]
    gap = 2 * (high - low) + 1
    up, down = draft.channel(np.where(sign == 1, 0.0, -gap)), draft.channel(np.where(sign == -1, 0.0, -gap))
    partner = draft.channel()
    draft.block()
    draft.head(
        [({eye[j]: 80.0 * back[j, k] for j in range(n)}, 0.0) for k in range(n)], [{eye[k]: 1.0} for k in range(n)],
        [({0: 1.0}, partner, 1.0)],
    )  # fmt: skip
    draft.claim(partner, 1, 0, back)
    draft.unit({partner: 1.0, 0: -1.0, up: 1.0}, 0.0, {0: 1.0})
    draft.unit({partner: -1.0, 0: 1.0, down: 1.0}, 0.0, {0: -1.0})
    draft.claim(0, 2, y)

    def fn(x: Array) -> Array:
        before = x[..., np.maximum(np.arange(n) - 1, 0)]
        return np.where(sign > 0, np.maximum(x, before), np.where(sign < 0, np.minimum(x, before), x))

    return Case("running", fn, draft.network({0: 1.0}), g, [lin(n, {y: 1.0})], *_box(low, high))


def larger(n: int = 3, low: float = 0.0, high: float = 1.0) -> Case:
    """max(x, 2 mean) in a channel of its own: one unit compares, one carries."""
    g = new_graph(n, low, high)
    y = atom(g, Compare(lin(n, {0: 1.0}), lin(1, None, {0: 2 * mean_row(n)}), np.array([1.0])))
    draft = Draft(n)
    mean, out = draft.channel(), draft.channel()
    draft.block()
    draft.head([], [], [({0: 1.0}, mean, 1.0)])
    draft.claim(mean, 1, 0, mean_row(n))
    draft.unit({mean: 2.0, 0: -1.0}, 0.0, {out: 1.0})
    draft.unit({0: 1.0}, 1.0, {out: 1.0})
    draft.bias(out, -1.0)
    draft.claim(out, 2, y)
    outputs = [lin(n, {y: 1.0})]
    network = draft.network({out: 1.0})
    return Case(
        "larger", lambda x: np.maximum(x, 2 * x.mean(axis=-1, keepdims=True)), network, g, outputs, *_box(low, high)
    )


def broken(n: int = 3, low: float = -1.0, high: float = 1.0) -> Case:
    """clip(2 x, -0.5, 1) with its knots, plus a known number by position."""
    g = new_graph(n, low, high)
    y = atom(g, Pieces(PiecewiseLinear((-0.5, 1.0), (0.0, 1.0, 0.0), -0.5), lin(n, {0: 2.0})))
    draft = Draft(n)
    out, known = draft.channel(), draft.channel(np.arange(n) * 0.25)
    draft.block()
    draft.unit({0: 2.0}, 0.5, {out: 1.0})
    draft.unit({0: 2.0}, -1.0, {out: -1.0})
    draft.bias(out, -0.5)
    draft.claim(out, 2, y)
    outputs = [lin(n, {y: 1.0}, None, np.arange(n) * 0.25)]
    network = draft.network({out: 1.0, known: 1.0})
    return Case(
        "broken", lambda x: np.clip(2 * x, -0.5, 1) + np.arange(n) * 0.25, network, g, outputs, *_box(low, high)
    )


def normalised(n: int = 4, low: float = 0.0, high: float = 1.0, eps: float = 0.05, units: int = 400) -> Case:
    """(x - mean) / sqrt(var + eps): three blocks; the reciprocal root is a table of a mean of a table."""
    g = new_graph(n, low, high)
    centred_lin = lin(n, {0: 1.0}, {0: -mean_row(n)})
    square = atom(g, Apply(Formula("square", (VARIABLE,)), centred_lin))
    root = Formula("divide", (constant(1.0), Formula("sqrt", (apply("add", VARIABLE, constant(eps)),))))
    inverse = atom(g, Apply(root, lin(1, None, {square: mean_row(n)})), True)
    y = atom(g, Product(centred_lin, lin(1, {inverse: 1.0})))
    draft = Draft(n)
    mean, sq, var, inv, out = (draft.channel() for _ in range(5))
    width = (1 - 1 / n) * (high - low)
    draft.block()
    draft.head([], [], [({0: 1.0}, mean, 1.0)])
    draft.claim(mean, 1, 0, mean_row(n))
    at = np.linspace(-width, width, units + 1)
    draft.table({0: 1.0, mean: -1.0}, at, at**2, sq)
    draft.claim(sq, 2, square)
    draft.block()
    draft.head([], [], [({sq: 1.0}, var, 1.0)])
    draft.claim(var, 3, square, mean_row(n))
    at = np.linspace(0, (high - low) ** 2 / 4, units + 1)
    draft.table({var: 1.0}, at, 1 / np.sqrt(at + eps), inv)
    draft.claim(inv, 4, inverse)
    draft.block()
    top, bottom = 1 / np.sqrt(eps), 1 / np.sqrt((high - low) ** 2 / 4 + eps)
    reach_y, centre = (top - bottom) / 2, (top + bottom) / 2
    t = np.linspace(-2.02, 2.02, units + 1)
    for sign in (1.0, -1.0):
        reads = {0: 1 / width, mean: -1 / width, inv: sign / reach_y}
        draft.table(reads, t, sign * width * reach_y / 4 * t**2, out, shift=-sign * centre / reach_y)
    draft.unit({0: 1.0, mean: -1.0}, 2 * width, {out: centre})
    draft.bias(out, -2 * width * centre)
    draft.claim(out, 6, y)

    def fn(x: Array) -> Array:
        z = x - x.mean(axis=-1, keepdims=True)
        return np.asarray(z / np.sqrt(np.mean(z * z, axis=-1, keepdims=True) + eps))

    return Case("normalised", fn, draft.network({out: 1.0}), g, [lin(n, {y: 1.0})], *_box(low, high))


def _box(low: float, high: float) -> tuple[Array, Array]:
    return np.array([low]), np.array([high])


CASES = (table, centred, reverse, largest, attention, product, running, larger, broken, normalised)


def probes(case: Case, count: int, seed: int = 0) -> Array:
    """Inputs of the box: random, corners, and repeated tokens."""
    rng = np.random.default_rng(seed)
    low, high, n = float(case.low[0]), float(case.high[0]), case.network.seq_len
    inside = rng.uniform(low, high, (count, 1, n))
    corners = rng.choice([low, high], (count, 1, n))
    equal = np.broadcast_to(rng.uniform(low, high, (count, 1, 1)), (count, 1, n))
    near = np.clip(equal + rng.normal(0, 1e-3, (count, 1, n)), low, high)
    return np.concatenate([inside, corners, equal, near])
