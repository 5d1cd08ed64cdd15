"""Is what a circuit's certificate states true? Random formulas; the largest error found, by climbing, against the sup bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import provenformer as pf
from fuzz.expressions import function_of, random_expression
from fuzz.outcome import Outcome, rejected
from provenformer.base.arrays import FloatArray
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.functions.distance import entries_factor
from provenformer.functions.targets import AGREES
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.trace import samples

SUPPORTS = ((0.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (-3.0, 7.0), (1e-3, 2e-3), (0.25, 4.0), (0.0, 100.0), (1e3, 1e3 + 1))
SIZES = (*((1, n) for n in (2, 3, 4, 5, 6, 8)), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2))
LARGE = ((1, 16), (1, 33), (2, 16), (1, 64), (3, 12), (6, 5))
MOST_UNITS = 3000
FINE = 0.15  # of all tolerances go down to 1e-4, which takes ten times as long as the others and finds no more
SUSPECT = ("more than the bound", "something else on symbols")  # the library saw a wrong bound or graph itself
ROUNDS, BEST, TRIES = 6, 6, 24  # of the climb
PRECISIONS = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True)
class CircuitCase:
    """What to compile, as plain data: it can be kept as JSON."""

    expression: str
    scale: float
    support: tuple[Any, Any]
    token_dim: int
    seq_len: int
    tolerance: float
    norm_order: float
    depth: int = 0  # folds

    @classmethod
    def random(cls, rng: np.random.Generator) -> CircuitCase:
        sizes = LARGE if rng.random() < 0.04 else SIZES
        d, n = sizes[rng.integers(len(sizes))]
        support: tuple[Any, Any] = SUPPORTS[rng.integers(len(SUPPORTS))]
        if d > 1 and rng.random() < 0.3:
            rows = [SUPPORTS[rng.integers(len(SUPPORTS))] for _ in range(d)]
            support = (tuple(low for low, _ in rows), tuple(high for _, high in rows))
        scale = float(rng.choice([1, 1, 1, 1, 1, 1e-6, 1e6, 1e-30, 1e30]))
        finest = -4.0 if rng.random() < FINE else -1.5
        return cls(
            random_expression(rng, bool(rng.random() < 0.3), circuit=True), scale, support, d, n,
            scale * 10.0 ** rng.uniform(finest, 0), float(rng.choice([np.inf, np.inf, np.inf, np.inf, 1, 2, 16])),
            int(rng.integers(1, 8)) if rng.random() < 0.2 else 0,
        )  # fmt: skip

    @property
    def target(self) -> pf.Target:
        fn = function_of(self.expression, self.scale, self.support)
        return pf.Target(fn, self.token_dim, self.seq_len, equivariant=False, support=self.support, name="random")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def compiled(self) -> CompiledCircuit:
        """Raises ProvenformerError where it is refused."""
        return pf.compile(
            self.target, tolerance=self.tolerance, norm_order=self.norm_order, construction="circuit", max_units=MOST_UNITS,
            depth=self.depth,
        )  # fmt: skip


def try_circuit(case: CircuitCase, seed: int = 0) -> tuple[Outcome, CompiledCircuit | None]:
    """Compile, verify, measure."""
    try:
        c = case.compiled()
    except pf.ProvenformerError as error:
        reason = str(error)
        wrong = "a refusal of several lines" if "\n" in reason else ""
        if any(words in reason for words in SUSPECT):
            wrong = f"a formula that depends on nothing but X, but: {reason}"
        return Outcome(refused=reason, wrong=wrong), None
    kind = "circuit"
    if not c.certificate.bound <= case.tolerance * (1 + 1e-9):
        return Outcome(kind=kind, wrong=f"bound {c.certificate.bound:.6g}, tolerance {case.tolerance:.6g}"), c
    if wrong := rejected(c):
        return Outcome(kind=kind, wrong=wrong), c
    wrong, ratio = above_its_bounds(c.target, c.network, c.certificate, np.random.default_rng(seed))
    return Outcome(kind=kind, wrong=wrong, ratio=ratio), c


def above_its_bounds(
    f: pf.Target, network: CircuitNetwork, claim: pf.Certificate, rng: np.random.Generator
) -> tuple[str, float]:
    """What of a certificate is untrue, by the largest error found in each precision; and bound over error in float64."""
    whole, ratio = entries_factor(f, claim.norm_order), 0.0
    for name, bound in {"float64": claim.bound, **claim.bounds}.items():
        error, noise = largest_error(f, network, PRECISIONS[name], rng)
        if not (error - noise) * whole <= bound:  # every bound of a circuit is its uniform one times (d n vol)^(1/p)
            return f"measured {error * whole:.9g} in {name}, certified {bound:.9g}", 0.0
        if name == "float64" and error > 100 * noise:
            ratio = bound / (error * whole)
    return "", ratio


def largest_error(f: pf.Target, network: CircuitNetwork, dtype: Any, rng: np.random.Generator) -> tuple[float, float]:
    """max |f - g| over samples of all kinds and a climb from the worst of them; and what the reference itself may be off."""
    low, high = f.low[:, None], f.high[:, None]
    x = samples(f, max(4, 400 // f.seq_len), int(rng.integers(1 << 30)))
    errors, noise = _errors(f, network, x, dtype)
    for step in range(ROUNDS):
        best = x[np.argsort(errors)[-BEST:]]
        near = np.repeat(best, TRIES, axis=0)
        moves = (
            (high - low) * 10.0 ** -rng.uniform(step / 2, step + 1, (len(near), 1, 1)) * rng.standard_normal(near.shape)
        )
        near = np.clip(near + np.where(rng.random(near.shape) < 0.5, moves, 0.0), low, high)
        found, more = _errors(f, network, near, dtype)
        x, errors, noise = (
            np.concatenate([best, near]),
            np.concatenate([np.sort(errors)[-BEST:], found]),
            max(noise, more),
        )
    return float(errors.max()), noise


def _errors(f: pf.Target, network: CircuitNetwork, x: FloatArray, dtype: Any) -> tuple[FloatArray, float]:
    """Against the function in extended precision where its operations have one. What is not finite is infinitely off."""
    with np.errstate(all="ignore"):
        got = network.run(x, dtype).astype(np.longdouble)
        try:
            wanted, unit = np.asarray(f.fn(x.astype(np.longdouble)), dtype=np.longdouble), 0.0
        except TypeError:  # scipy has no erf in extended precision
            wanted, unit = np.asarray(f(x), dtype=np.longdouble), AGREES
        off = np.abs(got - wanted).max(axis=(1, 2)).astype(np.float64)
    size = float(np.abs(wanted).max())
    return np.where(np.isfinite(off), off, np.inf), max(unit, 1e-17) * size
