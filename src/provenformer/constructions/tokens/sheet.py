"""Channels of a token circuit, and what reads them: a combination of atoms becomes a row of weights and a bias."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.symbols.tokens.graph import Lin, TokenGraph

Reading = tuple[dict[int, float], float]  # weight by channel, bias


@dataclass
class Sheet:
    """A channel for every atom that is needed, and for every vector of positions that is read."""

    graph: TokenGraph
    channels: dict[int, int] = field(default_factory=dict)  # of atoms
    known: dict[bytes, int] = field(default_factory=dict)  # of vectors of positions
    names: list[str] = field(default_factory=list)
    vectors: dict[int, FloatArray] = field(default_factory=dict)

    def of_atom(self, atom: int) -> int:
        if atom not in self.channels:
            self.channels[atom] = self._new(self.graph.atoms[atom].words)
        return self.channels[atom]

    def of_vector(self, vector: FloatArray, name: str) -> int:
        """The channel that holds these numbers throughout."""
        key = np.asarray(vector, dtype=np.float64).tobytes()
        if key not in self.known:
            self.known[key] = self._new(name)
            self.vectors[self.known[key]] = np.asarray(vector, dtype=np.float64)
        return self.known[key]

    def reading(self, lin: Lin) -> Reading:
        """The numerator of a combination."""
        weights = {self.of_atom(atom): float(c) for atom, c in lin.terms}
        extra, bias = self.vector_reading(lin.constant.astype(np.float64))
        for channel, weight in extra.items():
            weights[channel] = weights.get(channel, 0.0) + weight
        return weights, bias

    def vector_reading(self, vector: FloatArray) -> Reading:
        """Known numbers: of the position where they lie on a line, else a channel of their own."""
        if (vector == vector[0]).all():
            return {}, float(vector[0])
        steps = np.diff(vector)
        if (steps == steps[0]).all():
            channel = self.of_vector(np.arange(len(vector), dtype=np.float64), "position")
            return {channel: float(steps[0])}, float(vector[0])
        return {self.of_vector(vector, "known per position"): 1.0}, 0.0

    def _new(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1
