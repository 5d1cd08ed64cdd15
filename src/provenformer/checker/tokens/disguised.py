"""A token circuit in disguise: the walk through the circuit itself, with what the disguised weights err added to every reading.

Let A be what channels of the circuit should hold, whole numbers and known ones. Invariant: S' = R (A + e) + r, where e is what
executed heads and units made of channels, |e| <= their errors, and r what written weights are off and rounding, |r| <= dust. As
A + e is a sum of columns that the circuit writes with what heads and units of the disguised network give as factors, a reading
W' S' + b' is W (A + e) + b up to `fresh`: |W' R - W| on those columns, |W'| dust, |b' - b| and rounding (docs/drift.md). So the
walk goes on as before: e ends in tables that are flat around whole numbers, and only `fresh` is new in every layer.
"""

from __future__ import annotations

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import Rejected
from provenformer.certificates.drift import EXP, SAFETY, TINY, UNIT, Walk, moderate
from provenformer.checker.tokens.ranges import Ranges
from provenformer.checker.tokens.state import State
from provenformer.checker.tokens.walk import TokenBound, rounded, walk
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.disguise import Disguised
from provenformer.symbols.tokens.graph import Lin, TokenGraph


def disguised_bound(
    network: CircuitNetwork, disguised: Disguised, graph: TokenGraph, output: Lin, ranges: Ranges
) -> TokenBound:
    """Largest |output - program| of the disguised network over all sequences, as executed; infinite where nothing follows."""
    found = {}
    circuit = rounded(network, "float64")  # arrays of its own: no two heads share one, so weights tell which is read
    largest = np.array([graph.vocab_size - 1.0])
    for name, unit in UNIT.items():
        executed, error = disguised.in_precision(name), np.inf
        if moderate(executed, TINY[name]):
            guise = _Guise(circuit, executed, largest, unit, TINY[name])
            with np.errstate(all="ignore"):
                try:
                    error = walk(circuit, graph, output, ranges, unit, guise.after, guise.fresh)
                except Rejected:  # too much noise, or too coarse an arithmetic
                    error = np.inf
        found[name] = error if np.isfinite(error) else np.inf
    return TokenBound(**found)


class _Guise(Walk):
    """What the disguised network errs beside the errors of channels, which the walk carries: `moved` stays 0 here."""

    def __init__(self, network: CircuitNetwork, disguised: Disguised, x: FloatArray, unit: float, tiny: float) -> None:
        super().__init__(network, disguised, x, unit, tiny)
        self.known: dict[int, tuple[FloatArray, FloatArray]] = {}  # fresh and reach of what was read in this layer
        self.others = {id(network.W_out): (disguised.W_out, disguised.b_out)}
        for block, other in zip(network.circuit_blocks, disguised.circuit_blocks, strict=True):
            self.others[id(block.W_1)] = (other.W_1, other.b_1)
            for head, its in zip(block.heads, other.heads, strict=True):
                self.others[id(head.W_Q)] = (its.W_Q, its.b_Q)
                self.others[id(head.W_K)] = (its.W_K, np.zeros(len(its.W_K)))
                self.others[id(head.W_V)] = (its.W_V, np.zeros(len(its.W_V)))

    def fresh(self, weights: FloatArray, bias: FloatArray, size: FloatArray) -> FloatArray:
        """(rows,): how far what is read may be from the circuit's weights on the circuit's channels, these with their errors."""
        if id(weights) not in self.known:
            other, other_bias = self.others[id(weights)]
            found = self.read(weights, other, bias, other_bias, size)
            self.known[id(weights)] = found.fresh * SAFETY, (found.size + found.fresh) * SAFETY
        return self.known[id(weights)][0]

    def after(self, layers: int, state: State) -> None:
        """Dust, and what was written, after a layer that has been read."""
        block, units = divmod(layers - 1, 2)
        if layers == 0 or not (units or self.network.circuit_blocks[block].heads):
            return
        ours, other = self.network.circuit_blocks[block], self.disguised.circuit_blocks[block]
        written, terms, dust = self.state(state.size.max(axis=1)), 3, np.zeros(self.width)
        parts = [(head.W_O, its.W_O, id(head.W_V)) for head, its in zip(ours.heads, other.heads, strict=True)]
        mixing = (
            1 + (2 * self.network.seq_len + EXP) * self.unit * 1.1
        )  # mixtures are no larger than values, up to rounding
        if units:
            parts, mixing = [(ours.W_2, other.W_2, id(ours.W_1))], 1.0
            self.made.append((ours.b_2[:, None], np.ones(1)))
            dust += self.written(ours.b_2[:, None], other.b_2[:, None])[:, 0]
            written += np.abs(other.b_2)
        for columns, its_columns, read in parts:
            if read not in self.known:
                raise Rejected(f"a head of block {block} writes nothing")
            reach = self.known[read][1] * mixing
            dust += self.written(columns, its_columns) @ reach
            written += np.abs(its_columns) @ reach
            terms += len(reach)
            self.made.append((columns, reach))
        self.dust = (self.dust + dust + self.sum(terms) * written + self.tiny * terms) * SAFETY
        self.known.clear()
