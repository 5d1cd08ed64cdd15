"""Is what `compile` states true? Random functions, sizes, norms, supports, constructions; measured on cells, ramps, edges."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from forging import off_ramp_points, ramp_points

import provenformer as pf
from fuzz.expressions import function_of, random_expression
from fuzz.outcome import Outcome, rejected
from provenformer.base.arrays import FloatArray

SUPPORTS = (
    (0.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (-3.0, 7.0), (1e-3, 2e-3), (1e5, 1e5 + 1), (-1e-8, 1e-8), (0.0, 1e6),
    (-0.1, 0.30000000000000004), (1e3, 1e3 + 1e-3), (3.0, 4.0),
)  # fmt: skip
SMALL = (*((1, 2, N) for N in (2, 3, 4, 5, 7, 8)), *((1, 3, N) for N in (2, 3, 4)))
MIDDLE = (*((1, 2, N) for N in (12, 16, 31)), (1, 3, 5), (1, 3, 6), (1, 4, 2), (1, 4, 3), (2, 2, 2), (2, 2, 3))
LARGE = ((1, 3, 8), (1, 4, 4), (2, 2, 4), (3, 2, 2), (2, 3, 2), (1, 5, 2), (1, 6, 2), (1, 8, 2))
OFTEN = ((0.92, SMALL), (0.99, MIDDLE), (1.0, LARGE))  # a large one takes as long as a hundred small ones
MOST_LAYERS = 20_000
MOST_NORM = 4.0  # at which tightness is looked at
DEVIATIONS = 5  # a measurement counts as above the bound when it is so by that many standard errors


@dataclass(frozen=True)
class Case:
    """What to compile, as plain data: it can be kept as JSON."""

    expression: str
    scale: float
    support: tuple[Any, Any]
    token_dim: int
    seq_len: int
    cells_per_axis: int
    equivariant: bool
    construction: str
    hidden_dim: int
    norm_order: float

    @classmethod
    def random(cls, rng: np.random.Generator) -> Case:
        which = rng.random()
        sizes = next(some for below, some in OFTEN if which < below)
        d, n, cells = sizes[rng.integers(len(sizes))]
        equivariant = bool(rng.random() < 0.6)
        construction = str(rng.choice(["sum", "sum", "paper", "wide"]))
        hidden = int(rng.choice([4, 4, 8, 32])) if construction != "wide" else 4
        support: tuple[Any, Any] = SUPPORTS[rng.integers(len(SUPPORTS))]
        if d > 1 and rng.random() < 0.4:
            rows = [SUPPORTS[rng.integers(len(SUPPORTS))] for _ in range(d)]
            support = (tuple(low for low, _ in rows), tuple(high for _, high in rows))
        return cls(
            random_expression(rng, equivariant),
            float(rng.choice([1, 1, 1, 1e-6, 1e6, 1e-30, 1e30, 1e-200, 1e-310])), support, d, n, cells, equivariant,
            construction, hidden, float(rng.choice([1, 1, 1.3, 2, 2, 2.5, 3, 4, 6, 16, 64])),
        )  # fmt: skip

    @property
    def target(self) -> pf.Target:
        fn = function_of(self.expression, self.scale, self.support)
        return pf.Target(
            fn, self.token_dim, self.seq_len, equivariant=self.equivariant, support=self.support, name="random"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def compiled(self) -> pf.Compiled:
        """Raises ProvenformerError where it is refused."""
        return pf.compile(
            self.target, cells_per_axis=self.cells_per_axis, construction=self.construction, hidden_dim=self.hidden_dim,
            norm_order=self.norm_order, max_layers=MOST_LAYERS,
        )  # fmt: skip


def try_case(case: Case, seed: int = 0) -> tuple[Outcome, pf.Compiled | None]:
    """Compile, verify, measure; and what was compiled."""
    try:
        c = case.compiled()
    except pf.ProvenformerError as error:
        return Outcome(refused=str(error), wrong="a refusal of several lines" if "\n" in str(error) else ""), None
    return _measured(case, c, seed), c


def _measured(case: Case, c: pf.Compiled, seed: int) -> Outcome:
    f, kind, bound = c.target, c.certificate.kind, c.certificate.bound
    if wrong := rejected(c):
        return Outcome(kind=kind, wrong=wrong)
    rng = np.random.default_rng(seed)
    cells, ramp, p = case.cells_per_axis, c.certificate.ramp, case.norm_order
    volume = float(np.prod(f.high - f.low) ** f.seq_len)
    measured, least = _distance(f, c, off_ramp_points(f, cells, ramp, rng, each=_repeats(f, c)), p, volume)
    if least > bound:
        return Outcome(kind=kind, wrong=f"measured {measured:.6g} on cells, certified {bound:.6g}")
    on_ramps = np.concatenate([ramp_points(f, cells, ramp, rng, 1500), _edges(f, cells, rng, 500)])
    outputs = c.network(on_ramps)
    if not np.isfinite(outputs).all():
        return Outcome(kind=kind, wrong="an output on a ramp is not finite")
    share = volume * f.token_dim * f.seq_len * ramp
    lost, _ = _distance(f, c, on_ramps, p, share)
    if lost > 1.1 * c.certificate.terms["ramps"] + np.finfo(float).tiny:
        return Outcome(kind=kind, wrong=f"measured {lost:.6g} on ramps, certified {c.certificate.terms['ramps']:.6g}")
    ordinary = case.scale == 1 and p <= MOST_NORM and measured > 1e-9  # else rounding and ramps are most of a bound
    return Outcome(kind=kind, ratio=bound / measured if ordinary else 0.0)


def _repeats(f: pf.Target, c: pf.Compiled) -> int:
    """At least 16 points a cube where that is affordable."""
    cubes: int = c.grid.cells_per_axis ** (f.token_dim * f.seq_len)
    return max(2, min(16, int(2e9 / (cubes * c.network.layers * f.token_dim * f.seq_len)), (1 << 16) // cubes))


def _edges(f: pf.Target, cells: int, rng: np.random.Generator, count: int) -> FloatArray:
    """Corners of cubes, exactly as a user would write them."""
    unit = np.round(rng.random((count, f.token_dim, f.seq_len)) * cells) / cells
    x = f.low[:, None] + unit * (f.high - f.low)[:, None]
    return np.asarray(np.clip(x, f.low[:, None], f.high[:, None]))


def _distance(f: pf.Target, c: pf.Compiled, x: FloatArray, p: float, measure: float) -> tuple[float, float]:
    """d_p over a set of the given measure, sampled, and that less DEVIATIONS standard errors."""
    x = np.clip(x, f.low[:, None], f.high[:, None])
    off = np.abs(f(x) - c.network(x))
    largest = float(off.max())
    if not largest:
        return 0.0, 0.0
    powers = ((off / largest) ** p).sum(axis=(1, 2))
    mean, error = float(powers.mean()), float(powers.std(ddof=1) / len(powers) ** 0.5)
    value, least = (largest * (max(m, 0.0) * measure) ** (1 / p) for m in (mean, mean - DEVIATIONS * error))
    return value, least
