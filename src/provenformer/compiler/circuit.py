"""Circuits: function -> graph -> parts -> gadgets -> network, certified, checked and compared.

The certificate is the larger of two bounds: the builder's, and the one that the checker reads off the finished weights. So what
is handed out is what `verify` will accept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from provenformer.anatomy.circuit import Circuit
from provenformer.anatomy.hooks import hook_names
from provenformer.anatomy.reading import circuit_of
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BeyondLimits, ProvenformerError, Rejected
from provenformer.base.extras import extra
from provenformer.certificates.certificate import CIRCUIT_BASIS, Certificate
from provenformer.checker.circuit.walk import CircuitBound, circuit_bound
from provenformer.compiler.disguise import disguised_circuit
from provenformer.compiler.request import Request, require_depth, require_norm_order, require_tolerance, require_whole
from provenformer.constructions.circuit.build import Built, build, drawn
from provenformer.constructions.circuit.kernels import choose_steps
from provenformer.constructions.circuit.parts import Lowered, lower
from provenformer.constructions.plan import CircuitPlan
from provenformer.constructions.relax import TINY_WIDTH
from provenformer.functions.distance import entries_factor
from provenformer.functions.targets import AGREES, Target
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.disguise import DisguisedCircuit
from provenformer.networks.inside import named_states, patterns
from provenformer.storage import save, target_spec
from provenformer.symbols.graph import Apply, PairMean, Product
from provenformer.symbols.trace import Traced, follow, samples
from provenformer.symbols.trace import require_agreement as require_traced

if TYPE_CHECKING:
    from torch import nn
    from transformer_lens.model_bridge import TransformerBridge

CIRCUIT = "circuit"
Result = TypeVar("Result")
ATTEMPTS = 4
ROOM = 1e-9  # stated beyond what the checker finds: on another machine its sums may be taken in another order
SMALLEST_FACTOR = 1e-150  # of (d n vol)^(1/p); 1 over it is the largest
SMALLEST_GOAL = 2.0**-200  # of an error: the checker knows numbers up to one over it


@dataclass(frozen=True, eq=False, repr=False)
class CompiledCircuit:
    """A target, the graph of its formula, the network built from it, and its certificate."""

    target: Target
    norm_order: float
    traced: Traced
    network: CircuitNetwork
    certificate: Certificate
    choice: str  # one sentence: which construction, and why

    @property
    def construction(self) -> str:
        return CIRCUIT

    @property
    def plan(self) -> CircuitPlan:
        """The sizes of the network, as plan() gives them before it is built."""
        return replace(_sizes(self.network), choice=self.choice)

    @cached_property
    def circuit(self) -> Circuit:
        """Which head and which units compute which value of the formula: `print` it, or draw it with `to_svg()`."""
        return circuit_of(self.network, self.traced, self.target.low, self.target.high)

    def attention(self, x: FloatArray) -> tuple[FloatArray, ...]:
        """Per block the attention weights (..., heads, query, key) of sequences (..., d, n)."""
        return tuple(patterns(self.network, x))

    def states(self, x: FloatArray) -> tuple[dict[str, FloatArray], ...]:
        """At the start and after every block, each channel (..., n) by its name, for sequences (..., d, n)."""
        return tuple(named_states(self.network, x))

    def to_torch(self) -> nn.Module:
        """The network as a torch module. Needs the extra `torch`, else raises MissingExtra."""
        return self.network.to_torch()

    def to_transformer_lens(
        self, values: ArrayLike, dtype: DTypeLike = np.float64, *, answers: ArrayLike | None = None
    ) -> TransformerBridge:
        """A model of TransformerLens whose token id i is the token values[i] of the box; `hook_names` says what is where.

        Logits (batch, n, d) are the network's output, transposed; with `answers`, numbers, they are scores
        (batch, n, answers), the largest that of the nearest answer. Needs the extra `lens`, else raises MissingExtra.
        """
        tokens = np.asarray(values, dtype=np.float64)
        columns = tokens.reshape(-1, 1) if tokens.ndim == 1 else tokens
        if tokens.size and ((columns < self.target.low).any() or (columns > self.target.high).any()):
            low, high = self.target.low.tolist(), self.target.high.tolist()
            raise ProvenformerError(
                f"values reach from {tokens.min():g} to {tokens.max():g}, outside the box {low} to {high} of the certificate; "
                "give tokens in the box, or compile for a larger support."
            )
        return self.network.to_transformer_lens(tokens, dtype, answers=answers)

    @cached_property
    def hook_names(self) -> dict[str, tuple[str, ...]]:
        """By hook name of TransformerLens: what each channel holds there, what each head and unit adds to, in words."""
        return hook_names(self.network, self.circuit)

    def disguised(
        self, *, seed: int = 0, rotate: bool = True, compress: bool = False, within: float | None = None
    ) -> DisguisedCircuit:
        """The circuit with weights as trained models have them, and `bounds` on its distance from the target that still hold.

        `rotate` turns the residual stream by a random rotation; `compress` leaves out directions that nothing writes or reads;
        `within` adds to every weight as much noise as keeps the bound in float64 within that. See docs/lens.md.
        """
        return disguised_circuit(self, seed=seed, rotate=rotate, compress=compress, within=within)

    def save_pretrained(self, path: str | Path) -> None:
        """Write config.json and model.safetensors of the torch module, which `pf.from_pretrained(path)` reads; no certificate."""
        with extra("torch", "save_pretrained()"):
            from provenformer.networks.export.torch_module import CircuitBlocks  # noqa: PLC0415
        CircuitBlocks(self.network).save_pretrained(path)

    def save(self, path: str | Path) -> None:
        """Write network, certificate and manifest to a folder."""
        save(path, self.network, self.certificate, {"construction": CIRCUIT, "target": target_spec(self.target)})

    def __repr__(self) -> str:
        net = self.network
        sizes = f"{net.blocks:,} blocks, {net.heads:,} heads, {sum(net.hidden_units.values()):,} units"
        return f"CompiledCircuit({self.target.name!r}, {sizes}, {self.certificate.short}; {self.choice})"


def compile_circuit(target: Target, request: Request, choice: str) -> CompiledCircuit:
    """A circuit within the tolerance in float64, as small as certifies. See compile()."""
    request.progress("tracing the formula")
    _, whole, _ = _limits(target, request)
    made = _certified(target, request, follow(target, depth=require_depth(request.depth)))
    require_traced(target, made.traced)
    require_agreement(target, made.built.network, made.bounds["float64"], made.traced)
    certificate = _certificate(target, float(request.norm_order), made, whole, choice)
    return CompiledCircuit(target, request.norm_order, made.traced, made.built.network, certificate, choice)


def plan_circuit(target: Target, request: Request, choice: str) -> CircuitPlan:
    """The sizes of what compile_circuit() builds; the graph is not yet compared with the function.

    Without tables nothing but the graph decides them. Tables are made finer where the checker finds more than the builder, so
    these are built and checked, as they will be.
    """
    sup, whole, max_units = _limits(target, request)
    plain, goal = follow(target, depth=require_depth(request.depth)), sup / (1 + ROOM)
    _, sizes = _with_kernels(
        target,
        plain,
        goal,
        lambda lowered: None if _has_tables(lowered) else drawn(lowered, goal, max_units, whole)[1].plan(),
    )
    return replace(sizes or _sizes(_certified(target, request, plain).built.network), choice=choice)


def _has_tables(lowered: Lowered) -> bool:
    """Whether something is approximated by more or fewer units."""
    return any(isinstance(part.atom.operation, Apply | Product | PairMean) for part in lowered.parts)


def _sizes(network: CircuitNetwork) -> CircuitPlan:
    heads = tuple(tuple((len(head.b_Q), len(head.W_V)) for head in block.heads) for block in network.circuit_blocks)
    positions = int(network.positions.any(axis=1).sum())
    units = tuple(network.hidden_units.values())
    return CircuitPlan(network.token_dim, network.seq_len, network.model_dim, positions, units, heads)


@dataclass(frozen=True, eq=False)
class _Certified:
    """A network within the tolerance by builder and checker; `bounds` has the larger of the two."""

    traced: Traced
    built: Built
    checked: CircuitBound
    bounds: dict[str, float]


def _certified(target: Target, request: Request, plain: Traced) -> _Certified:
    """Built until the checker, too, finds no more than the tolerance."""
    sup, whole, max_units = _limits(target, request)
    goal = sup / (1 + ROOM)
    for _ in range(ATTEMPTS):
        request.progress(f"building within {goal:.3g}")
        made = partial(build, tolerance=goal, max_units=max_units, asked=sup * whole / goal)
        traced, built = _with_kernels(target, plain, goal, made)
        checked = _checked(target, traced, built)
        bounds = {name: max(value, getattr(checked, name)) * (1 + ROOM) for name, value in built.bounds.items()}
        if bounds["float64"] <= sup:
            return _Certified(traced, built, checked, bounds)
        # below the builder's own bound by as much as the checker is above it: sizes are whole, a small step may change none
        goal = min(goal, built.bounds["float64"]) * 0.98 * sup / bounds["float64"]
        if goal < SMALLEST_GOAL:
            break
    raise ProvenformerError(
        f"the checker finds {bounds['float64'] * whole:.3g} for a circuit built for {sup * whole:g}; use a larger tolerance."
    )


def _limits(target: Target, request: Request) -> tuple[float, float, int]:
    """The tolerance in the sup norm, the factor from there to the norm that was asked for, and the most units."""
    tolerance = _require_no_table(request)
    whole = entries_factor(target, require_norm_order(request.norm_order, up_to_sup=True))
    if not SMALLEST_FACTOR < whole < 1 / SMALLEST_FACTOR:
        raise ProvenformerError(f"(d n vol)^(1/p) is {whole:g} at this support; use norm_order=np.inf.")
    if tolerance / whole < SMALLEST_GOAL:
        raise ProvenformerError(
            f"tolerance={tolerance:g} is {tolerance / whole:.3g} in the sup norm, below the limit {SMALLEST_GOAL:.3g}; "
            "rescale the function."
        )
    return tolerance / whole, whole, require_whole("max_units", request.max_units)


def _require_no_table(request: Request) -> float:
    """The tolerance; what only tables have is refused."""
    if request.cells_per_axis is not None or request.hidden_dim != TINY_WIDTH or request.kind not in (None, "rigorous"):
        raise ProvenformerError(
            "construction='circuit' takes a tolerance, and no cells_per_axis, hidden_dim or other kind than 'rigorous'; "
            "leave them out."
        )
    return require_tolerance(request.tolerance)


def _with_kernels(
    target: Target, plain: Traced, goal: float, made: Callable[[Lowered], Result]
) -> tuple[Traced, Result]:
    """Sums over pairs of tokens in the way that takes fewer units; gathered if by nodes they do not reach the goal."""
    steps = choose_steps(plain.graph, plain.outputs, goal)
    traced = follow(target, steps, plain.graph.depth) if steps else plain
    try:
        return traced, made(lower(traced.graph, traced.outputs))
    except ProvenformerError:
        if not any(steps):
            raise
    traced = follow(target, (0.0,) * len(steps), plain.graph.depth)
    return traced, made(lower(traced.graph, traced.outputs))


def require_agreement(target: Target, network: CircuitNetwork, bound: float, traced: Traced) -> None:
    """Raise if the network is farther from the function, itself computed with rounding, than its bound on any sample."""
    x = samples(target)
    wanted = target(x)
    error = np.abs(network(x) - wanted)
    room = bound + min(AGREES * float(np.abs(wanted).max()), bound / 100) + traced.rounding
    wrong = error > room
    if wrong.any():
        wrong = error > room + traced.rounding_within(x)
    if wrong.any():
        error = (error * wrong).max(axis=(1, 2))
        at = x[int(np.argmax(error))]
        raise ProvenformerError(
            f"target '{target.name}' is {error.max():.3g} away from its circuit at X={np.round(at, 4).tolist()!s:.200}, more "
            f"than the bound {bound:.3g}: it computes something else on symbols than on numbers; use construction='sum'."
        )


def _checked(target: Target, traced: Traced, built: Built) -> CircuitBound:
    try:
        return circuit_bound(built.network, traced.graph, traced.outputs, target.low, target.high)
    except BeyondLimits as verdict:
        raise ProvenformerError(f"{verdict}; scale the function or its support to moderate numbers.") from verdict
    except Rejected as verdict:
        raise ProvenformerError(
            f"the checker does not accept this circuit ({verdict}); this is a fault of provenformer: please report the function."
        ) from verdict


def _certificate(target: Target, p: float, made: _Certified, whole: float, choice: str) -> Certificate:
    """Terms add up to the bound; none is below what the checker finds for it. The builder's, moved as little as that needs."""
    built, checked, bounds = made.built, made.checked, made.bounds
    bound, d = float(bounds["float64"]), target.token_dim
    tables, attention = built.terms["tables"], built.terms["attention"]
    most = bound - (checked.float64 - checked.exact)
    exact = max(checked.exact, min(tables + attention, most))
    attention = min(attention, exact)
    parts = {"tables": exact - attention, "attention": attention, "rounding": max(0.0, bound - exact)}
    terms = {name: value * whole for name, value in parts.items()}
    details = {
        "sup": bound,
        "bounds": {name: value * whole for name, value in bounds.items() if np.isfinite(value)},
        "units": sum(built.network.hidden_units.values()),
        "choice": choice,
    }
    norm = None if p == np.inf else p  # as certificates name the sup norm
    return Certificate(
        bound * whole, terms, "rigorous", norm, "box", CIRCUIT_BASIS, 0.0, (0.0,) * d, (0.0,) * d, details
    )
