"""From the graph of a program to a Transformer: every atom a channel, written as early as what it reads is there."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.constructions.tokens.heads import Dimension, known_scores, pick_scores
from provenformer.constructions.tokens.sheet import Sheet
from provenformer.constructions.tokens.tables import hinges
from provenformer.networks.circuit import CircuitBlock, CircuitNetwork, Claim, Head
from provenformer.symbols.tokens.graph import Input, Lin, Operation, Pick, TokenGraph, Total, Units

PARAMETER_LIMIT = 20_000_000


def build_tokens(graph: TokenGraph, output: Lin, max_parameters: int = PARAMETER_LIMIT) -> CircuitNetwork:
    """The network whose output is the combination `output`, at every token."""
    layers = schedule(graph, output)
    sheet = Sheet(graph)
    sheet.of_atom(0)
    by_layer: dict[int, list[int]] = defaultdict(list)
    for atom, layer in layers.items():
        if layer:
            by_layer[layer].append(atom)
    depth = (max(by_layer, default=0) + 1) // 2
    plans = [(_heads(sheet, by_layer[2 * b + 1]), _units(sheet, by_layer[2 * b + 2])) for b in range(depth)]
    weights, bias = sheet.reading(output)
    size = len(sheet.names)
    planned = sum(2 * size * (len(u[0]) + sum(len(d) + len(v) for d, v in h)) for h, u in plans) + size * graph.seq_len
    if planned > max_parameters:
        raise ProvenformerError(
            f"the network has about {planned:,} parameters (limit {max_parameters:,}); use a smaller vocabulary or shorter "
            "sequences, or raise max_parameters."
        )
    blocks = tuple(CircuitBlock(tuple(_head(h, size) for h in heads), *_layer(units, size)) for heads, units in plans)
    positions = np.zeros((size, graph.seq_len))
    for channel, vector in sheet.vectors.items():
        positions[channel] = vector
    W_out = np.zeros((1, size))
    for channel, weight in weights.items():
        W_out[0, channel] = weight / output.den
    claims = tuple(
        Claim(sheet.channels[a], layer, a) for a, layer in sorted(layers.items(), key=lambda v: (v[1], v[0])) if layer
    )
    names = _distinct(sheet.names)
    return CircuitNetwork(1, graph.seq_len, blocks, positions, W_out, np.array([bias / output.den]), names, claims)


def reads(operation: Operation) -> set[int]:
    """The atoms that an operation needs."""
    if isinstance(operation, Total):
        return {operation.of}
    if isinstance(operation, Units):
        return {atom for part in operation.parts for atom, _ in part.of.terms}
    if isinstance(operation, Pick):
        return {atom for lin in (*operation.queries, *operation.keys, operation.value) for atom, _ in lin.terms}
    return set()


def schedule(graph: TokenGraph, output: Lin) -> dict[int, int]:
    """After how many layers each needed atom is there: heads write odd ones, units even ones."""
    needed, stack = set(), [atom for atom, _ in output.terms]
    while stack:
        atom = stack.pop()
        if atom not in needed:
            needed.add(atom)
            stack += reads(graph.atoms[atom].operation)
    layers: dict[int, int] = {}
    for atom in sorted(needed):
        operation = graph.atoms[atom].operation
        ready = max((layers[a] for a in reads(operation)), default=0)
        odd = isinstance(operation, Total | Pick)
        layers[atom] = 0 if isinstance(operation, Input) else ready + 1 + ((ready + 1) % 2 != odd)
    return layers


HeadPlan = tuple[
    list[Dimension], list[tuple[dict[int, float], int, float]]
]  # scores; (what the value reads, channel, factor)


def _heads(sheet: Sheet, atoms: list[int]) -> list[HeadPlan]:
    """One head for all atoms with the same scores."""
    plans: dict[object, HeadPlan] = {}
    for atom in atoms:
        operation = sheet.graph.atoms[atom].operation
        channel = sheet.of_atom(atom)
        if isinstance(operation, Total):
            key: object = (operation.counts.shape, operation.counts.tobytes())
            if key not in plans:
                plans[key] = known_scores(sheet, operation.counts), []
            plans[key][1].append(({sheet.of_atom(operation.of): 1.0}, channel, float(operation.counts[0].sum())))
        else:
            assert isinstance(operation, Pick)
            if operation.scores_key not in plans:
                plans[operation.scores_key] = pick_scores(sheet, operation), []
            plans[operation.scores_key][1].append((sheet.reading(operation.value)[0], channel, 1.0))
    return list(plans.values())


def _head(plan: HeadPlan, size: int) -> Head:
    dimensions, values = plan
    m = max(1, len(dimensions))  # a uniform head has one dimension, all 0
    W_Q, b_Q, W_K = np.zeros((m, size)), np.zeros(m), np.zeros((m, size))
    for i, ((weights, bias), keys) in enumerate(dimensions):
        b_Q[i] = bias
        for channel, w in weights.items():
            W_Q[i, channel] = w
        for channel, w in keys.items():
            W_K[i, channel] = w
    W_V, W_O = np.zeros((len(values), size)), np.zeros((size, len(values)))
    for i, (weights, channel, factor) in enumerate(values):
        for source, w in weights.items():
            W_V[i, source] = w
        W_O[channel, i] = factor
    return Head(W_Q, b_Q, W_K, W_V, W_O)


UnitsPlan = tuple[dict[object, tuple[dict[int, float], float, dict[int, float]]], dict[int, float]]


def _units(sheet: Sheet, atoms: list[int]) -> UnitsPlan:
    """Units by what they read and where they bend; those that read the same serve all functions of it."""
    found: dict[object, tuple[dict[int, float], float, dict[int, float]]] = {}
    biases: dict[int, float] = {}
    for atom in atoms:
        channel = sheet.of_atom(atom)
        operation = sheet.graph.atoms[atom].operation
        assert isinstance(operation, Units)
        for part in operation.parts:
            start, bends = hinges(part)
            biases[channel] = biases.get(channel, 0.0) + start
            weights, bias = sheet.reading(part.of)
            for knot, side, slope in bends:
                # in steps of the grid: side * ((z - low) / step - knot)
                where = Fraction(int(bias)) - part.low - knot * part.step
                key = (tuple(sorted(weights.items())), part.step, where, side)
                scaled = {c: side * w / part.step for c, w in weights.items()}
                unit = found.setdefault(key, (scaled, float(side * where / part.step), {}))
                unit[2][channel] = unit[2].get(channel, 0.0) + float(slope)
    return found, biases


def _layer(plan: UnitsPlan, size: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    units, biases = plan
    W_1, b_1, W_2, b_2 = (
        np.zeros((len(units), size)),
        np.zeros(len(units)),
        np.zeros((size, len(units))),
        np.zeros(size),
    )
    for i, (weights, bias, outputs) in enumerate(units.values()):
        b_1[i] = bias
        for channel, w in weights.items():
            W_1[i, channel] = w
        for channel, w in outputs.items():
            W_2[channel, i] = w
    for channel, bias in biases.items():
        b_2[channel] = bias
    return W_1, b_1, W_2, b_2


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Names of channels, shortened, each once."""
    seen: dict[str, int] = defaultdict(int)
    found = []
    for name in names:
        short = name if len(name) <= 120 else f"{name[:117]}..."
        seen[short] += 1
        found.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return tuple(found)
