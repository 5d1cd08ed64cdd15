"""The table of cases that feeds the tests, and inputs that sit where mistakes happen: corners, edges, outside."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import provenformer as pf
from provenformer.compiler.tables import plan_for
from provenformer.constructions import registry
from provenformer.constructions.plan import Plan
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import ModifiedNetwork
from provenformer.networks.thin import FloatRun, Network

Floats = NDArray[np.float64]
Run = TypeVar("Run", bound=FloatRun)

# (d, n, N) at which issue 2 asks for Lemmas 5, 6, 7, 10 over the whole extended grid.
EXHAUSTIVE = [
    *((1, 2, N) for N in range(2, 9)),
    *((1, 3, N) for N in range(2, 7)),
    (1, 4, 4),
    *((2, 2, N) for N in range(2, 5)),
    (2, 3, 2),
    (3, 2, 2),
]


def irregular(x: Any) -> Any:
    """Equivariant, both signs, no two cells alike, rows mixed."""
    return np.sin(3.0 * x + 1.0) * (0.3 - np.sum(x**2, axis=(-2, -1), keepdims=True)) + np.cos(5.0 * x)


def irregular_positional(x: Any) -> Any:
    """The same with a different factor per position."""
    return irregular(x) * np.arange(1.0, x.shape[-1] + 1.0) - x[..., ::-1]


def target(
    d: int, n: int, positional: bool = False, support: tuple[Any, Any] = (0.0, 1.0), scale: float = 1.0
) -> pf.Target:
    fn = irregular_positional if positional else irregular
    return pf.Target(lambda x: scale * fn(x), d, n, not positional, support=support, name="irregular")


def thin(network: FloatNetwork) -> Network:
    """The network as one of the paper's class, whose runs a test may look into."""
    if not isinstance(network, Network):
        raise TypeError(f"a {type(network).__name__} has no runs of thin layers")
    return network


def run_of(network: FloatNetwork, index: int, kind: type[Run]) -> Run:
    """One of its runs, which must be of this kind."""
    run = thin(network).runs[index]
    if not isinstance(run, kind):
        raise TypeError(f"run {index} is a {type(run).__name__} and not a {kind.__name__}")
    return run


@dataclass(frozen=True)
class Built:
    """The exact half of `pf.compile`: f_bar and the modified network, without the limits of float64."""

    target: pf.Target
    plan: Plan
    piecewise: PiecewiseConstant
    modified: ModifiedNetwork

    @property
    def grid(self) -> pf.Grid:
        return self.plan.grid


def build(t: pf.Target, N: int, construction: str) -> Built:
    how = registry.get(construction)
    plan = plan_for(t, N, construction)
    piecewise = PiecewiseConstant.of(t, plan.grid, how.contexts(plan.positional))
    return Built(t, plan, piecewise, how.build(piecewise).modified)


@dataclass(frozen=True)
class Case:
    """A network to build: sizes, theorem, construction, support, size of the values."""

    d: int
    n: int
    N: int
    construction: str = "paper"
    positional: bool = False
    support: tuple[Any, Any] = (0.0, 1.0)
    scale: float = 1.0

    @property
    def target(self) -> pf.Target:
        return target(self.d, self.n, self.positional, self.support, self.scale)

    def build(self) -> Built:
        return build(self.target, self.N, self.construction)

    def __str__(self) -> str:
        box = "" if self.support == (0.0, 1.0) else f"-{self.support}"
        large = "" if self.scale == 1.0 else f"-x{self.scale:g}"
        return f"{self.construction}-{'T3' if self.positional else 'T2'}-{self.d},{self.n},{self.N}{box}{large}"


def exact_cell(x: float, low: float, high: float, N: int) -> int:
    """floor(N (x - low) / (high - low)) in rationals."""
    return (Fraction(x) - Fraction(low)) * N // (Fraction(high) - Fraction(low))


def cell_points(low: float, high: float, N: int) -> dict[str, list[float]]:
    """Per cell its first float, one in the middle and its last float, found with exact comparisons."""
    out: dict[str, list[float]] = {"corner": [], "middle": [], "edge": []}
    for k in range(N):
        at = float(Fraction(low) + k * (Fraction(high) - Fraction(low)) / N)
        while exact_cell(at, low, high, N) < k:
            at = float(np.nextafter(at, np.inf))
        while exact_cell(float(np.nextafter(at, -np.inf)), low, high, N) == k:
            at = float(np.nextafter(at, -np.inf))
        out["corner"].append(at)
        if k:
            out["edge"].append(float(np.nextafter(at, -np.inf)))
        out["middle"].append(low + (k + 0.5) * (high - low) / N)
    out["edge"].append(float(np.nextafter(high, -np.inf)))
    return out


def all_cells(t: pf.Target, N: int, part: str) -> Floats:
    """One input per cube: all coordinates at the cell's "corner", "middle" or "edge"; (N^(dn), d, n)."""
    axes = [cell_points(low, high, N)[part] for low, high in zip(*t.support, strict=True) for _ in range(t.seq_len)]
    return np.array(list(product(*axes))).reshape(-1, t.token_dim, t.seq_len)


def mixed_inputs(t: pf.Target, N: int, count: int, seed: int = 0) -> Floats:
    """Coordinates drawn from corners, middles, last floats and random numbers, with many repeated tokens."""
    rng = np.random.default_rng(seed)
    x = t.sample(count, seed)
    for row, (low, high) in enumerate(zip(*t.support, strict=True)):
        points = np.array([v for part in cell_points(low, high, N).values() for v in part])
        chosen = rng.random((count, t.seq_len)) < 0.7
        x[:, row] = np.where(chosen, rng.choice(points, size=(count, t.seq_len)), x[:, row])
    repeat = rng.random(count) < 0.3
    x[repeat, :, -1] = x[repeat, :, 0]
    return x


def outside_inputs(t: pf.Target, count: int = 60, seed: int = 0) -> Floats:
    """Inside but for one or more coordinates: on the upper end, just below the lower one, far away on either side."""
    rng = np.random.default_rng(seed)
    x = t.sample(count, seed)
    for i in range(count):
        for _ in range(rng.integers(1, 3)):
            row, column = rng.integers(t.token_dim), rng.integers(t.seq_len)
            low, high = t.low[row], t.high[row]
            far = [
                high,
                np.nextafter(low, -np.inf),
                high + (high - low) / 3,
                low - 2 * (high - low),
                1e6,
                -1e6,
                1e300,
                -1e300,
            ]
            x[i, row, column] = rng.choice(far)
    return x


def expected(case_target: pf.Target, N: int, x: Floats, repeated_is_zero: bool) -> Floats:
    """f_bar by definition, one input at a time: f at the centre of the cube; 0 outside (and where tokens repeat)."""
    out = np.zeros(x.shape)
    for i, one in enumerate(x):
        cells = np.array(
            [
                [exact_cell(v, low, high, N) for v in row]
                for row, low, high in zip(one.tolist(), *case_target.support, strict=True)
            ]
        )
        if not case_target.equivariant:
            cells[one == case_target.high[:, None]] = N - 1
        if (cells < 0).any() or (cells >= N).any():
            continue
        tokens = [tuple(column) for column in cells.T.tolist()]
        if repeated_is_zero and len(set(tokens)) < len(tokens):
            continue
        order = list(range(len(tokens)))
        if case_target.equivariant:  # f(XP) = f(X)P up to rounding: evaluate at the sorted representative
            order.sort(key=lambda j: tokens[j][::-1])
        width = (case_target.high - case_target.low)[:, None]
        out[i][:, order] = case_target(case_target.low[:, None] + (cells[:, order] + 0.5) / N * width)
    return out
