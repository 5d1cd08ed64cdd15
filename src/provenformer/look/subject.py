"""What is looked at: a network with its certificate, and its target, grid or data where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.certificates.certificate import Certificate
from provenformer.compiler.memorize import Memorized
from provenformer.compiler.tables import Compiled
from provenformer.constructions import registry
from provenformer.constructions.base import Construction, Naming
from provenformer.constructions.plan import Plan
from provenformer.functions.grid import ContextKind, Grid
from provenformer.functions.targets import Target
from provenformer.networks.base import FloatNetwork
from provenformer.storage import Saved, load

GOLDEN = (5**0.5 - 1) / 2  # multiples of it are spread evenly over the unit interval


@dataclass(frozen=True)
class Subject:
    """A network to look at. A memorised data set has `data` and no grid; a function may be out of reach (`missing`)."""

    network: FloatNetwork
    certificate: Certificate
    construction: str
    grid: Grid | None
    support: tuple[FloatArray, FloatArray]  # the box, low and high per row
    target: Target | None = None
    target_name: str = "a data set"
    missing: str | None = None  # why there is no target
    data: tuple[FloatArray, FloatArray] | None = None  # inputs and outputs, (count, d, n) each

    @classmethod
    def load(cls, path: str | Path) -> Subject:
        """From a folder written by `compile` or `memorize`."""
        try:
            return cls.of_saved(load(path))
        except (KeyError, TypeError, IndexError) as error:
            raise ProvenformerError(f"{path} is not a valid network folder ({error!r}); save it again.") from error

    @classmethod
    def of_saved(cls, saved: Saved, target: Target | None = None) -> Subject:
        """From what `load` returns; `target` is the function, where the folder does not name a built-in one."""
        manifest, spec = saved.manifest, saved.manifest["target"]
        if spec["source"] == "data":
            return cls._of_data(saved.network, saved.certificate, saved.data["inputs"], saved.data["outputs"])
        if saved.grid is None:
            raise ProvenformerError("a circuit has no grid; look at it with look.circuit.CircuitSubject.")
        known = target or saved.target
        missing = None if known is not None else saved.why_no_target
        grid = Grid(manifest["token_dim"], manifest["seq_len"], manifest["cells_per_axis"])
        construction = registry.get(manifest["construction"]).name
        low, high = (np.array(end, dtype=np.float64) for end in spec["support"])
        return cls(saved.network, saved.certificate, construction, grid, (low, high), known, str(spec["name"]), missing)

    @classmethod
    def of(cls, made: Compiled | Memorized) -> Subject:
        """From what `compile` or `memorize` returns, without saving it."""
        if isinstance(made, Memorized):
            return cls._of_data(made.network, made.certificate, made.inputs, made.outputs)
        box = (made.target.low, made.target.high)
        name = made.target.name
        return cls(made.network, made.certificate, made.construction, made.grid, box, made.target, name)

    @classmethod
    def _of_data(
        cls, network: FloatNetwork, certificate: Certificate, inputs: FloatArray, outputs: FloatArray
    ) -> Subject:
        low, high = inputs.min(axis=(0, 2)), inputs.max(axis=(0, 2))
        high = np.where(high > low, high, low + 1.0)
        return cls(network, certificate, "sum", None, (low, high), data=(inputs, outputs))

    @property
    def token_dim(self) -> int:
        return self.network.token_dim

    @property
    def seq_len(self) -> int:
        return self.network.seq_len

    @property
    def positional(self) -> bool:
        return self.network.positions is not None

    @property
    def how(self) -> Construction:
        """The construction itself."""
        return registry.get(self.construction)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of a network on a grid, with four hidden units per layer."""
        return None if self.grid is None else self.how.plan(self.grid, self.positional)

    @property
    def loses_cubes(self) -> bool:
        """Whether the network is 0 where two tokens share a cell."""
        return self.plan is not None and self.plan.lost_share > 0

    @cached_property
    def naming(self) -> Naming | None:
        """How the contexts of a grid get their ids."""
        return None if self.grid is None else self.how.naming(self.grid, self.positional)

    @property
    def id_direction(self) -> FloatArray:
        """u: the id of a column x is u.x. For a data set, recoded tokens lie in the first row."""
        if self.grid is None:
            return np.asarray(np.eye(1, self.token_dim)[0])
        return np.array(self.grid.id_vector, dtype=np.float64)

    @property
    def context_kind(self) -> ContextKind:
        """What the network tells apart: sets, multisets or sequences of tokens."""
        return self.how.contexts(self.positional)

    def in_box(self, unit: FloatArray) -> FloatArray:
        """Points (..., d, n) of the unit cube in the box's coordinates."""
        low, high = (end[:, None] for end in self.support)
        return np.asarray(low + unit * (high - low))

    def example(self) -> FloatArray:
        """One sequence (d, n) to follow: spread over the box, with different tokens where the grid has enough."""
        if self.data is not None:
            return np.asarray(self.data[0][0])
        d, n = self.token_dim, self.seq_len
        candidates = [spread(start, d, n) for start in np.arange(20) / 20 + 0.2]
        if self.grid is None:
            return self.in_box(candidates[0])
        cells = self.grid.cells_per_axis
        columns = [len(np.unique(np.floor(c * cells), axis=1).T) for c in candidates]
        return self.in_box(candidates[int(np.argmax(columns))])

    def affordable(self, work: int = 1 << 33) -> int:
        """How many sequences can be run in about a second: `work` counts layers x tokens, which the engine mostly skips."""
        units = self.network.layers
        if self.how.has_channels:
            units = 32 * sum(self.network.hidden_units.values())  # of which none can be skipped
        return max(16, work // (units * self.seq_len * self.token_dim**2))


def spread(start: float, d: int, n: int) -> FloatArray:
    """Points (d, n) of the unit cube, evenly spread."""
    along = np.arange(n)[None, :] + n * np.arange(d)[:, None]
    return np.asarray(np.round((start + along * GOLDEN) % 1.0 * 0.98 + 0.01, 3))
