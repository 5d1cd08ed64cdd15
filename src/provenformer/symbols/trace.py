"""From a target to its graph, compared with the target itself on numbers: a mismatch is an error, never a warning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, Untraceable
from provenformer.bounds.numpy_calls import run
from provenformer.functions.targets import AGREES, Target
from provenformer.symbols.arrays import Symbol, inputs, per_sequence, stacked
from provenformer.symbols.evaluate import ROUNDINGS, evaluate
from provenformer.symbols.graph import Graph, Input, Key, Lin
from provenformer.symbols.linear import UNIT, constant, size
from provenformer.symbols.pairs import Waiting, expanded
from provenformer.symbols.signs import Sign

SAMPLES = 24  # of each kind, fewer for long sequences: pairs of tokens take their square
DISCONTINUOUS = (
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "sign", "heaviside", "floor", "ceil", "rint", "round",
    "trunc", "argsort", "argmax", "argmin",
)  # fmt: skip
FEW = 4  # entries of a sequence up to which a table is of use
TRIES = 4  # of moving all arguments at random by their rounding
BATCHES = (2, 3)  # sequences in the batches that a function is traced on; neither may matter


@dataclass(frozen=True, eq=False)
class Traced:
    """A graph and the combination that is each row of the result."""

    graph: Graph
    outputs: list[Lin]

    def __call__(self, x: FloatArray) -> FloatArray:
        """What the graph computes for sequences (batch, d, n)."""
        return evaluate(self.graph, self.outputs, x)

    @property
    def key(self) -> Key:
        """Equal for equal graphs."""
        return (*(atom.operation.key for atom in self.graph.atoms), *(lin.key for lin in self.outputs))

    @property
    def rounding(self) -> float:
        """About what float64 changes in values of the function: a share of all that adds up to them, and of what cancelled."""
        return max(ROUNDINGS * UNIT * size(self.graph, lin) + ROUNDINGS * lin.slack for lin in self.outputs)

    def rounding_within(self, x: FloatArray) -> FloatArray:
        """About what float64 changes at these sequences because arguments of atoms were rounded: where min(z, 0) should be 0."""
        with np.errstate(all="ignore"):  # a root just left of 0 is no number, and says nothing
            tries = [evaluate(self.graph, self.outputs, x, np.random.default_rng(seed)) for seed in range(TRIES)]
            return np.asarray(np.fmax.reduce([np.zeros(x.shape), *(np.abs(one - self(x)) for one in tries)]))

    def __str__(self) -> str:
        """The atoms in order, one a line, then the outputs."""
        atoms = [f"{a.number}: {_shown(a.operation)}  in [{a.low:.4g}, {a.high:.4g}]" for a in self.graph.atoms]
        return "\n".join([*atoms, *(f"output {row}: {_lin(lin)}" for row, lin in enumerate(self.outputs))])


def trace(target: Target, steps: Sequence[float] = (), depth: int = 0) -> Traced:
    """The graph of a function, compared with it. An Untraceable names the operation that has no rule, and the remedy.

    steps: how sums of kernels over pairs of tokens are written (Graph.kernel_step); depth: how often squares are folded
    (folds.py). Each choice gives the same function.
    """
    traced = follow(target, steps, depth)
    require_agreement(target, traced)
    return traced


def follow(target: Target, steps: Sequence[float] = (), depth: int = 0) -> Traced:
    """Run the function on symbols; what it computes is not yet compared with the function."""
    traced, again = (_traced(target, batch, steps, depth) for batch in BATCHES)
    if traced.key != again.key:
        raise Untraceable(
            f"target '{target.name}' computes something else on batches of another size; sizes are x.shape[-2] and x.shape[-1]."
        )
    return traced


def _traced(target: Target, batch: int, steps: Sequence[float], depth: int) -> Traced:
    d, n = target.token_dim, target.seq_len
    graph = Graph(d, n, steps=tuple(steps), depth=depth)
    for row, (low, high) in enumerate(zip(*target.support, strict=True)):
        graph.atom(Input(row), False, float(low), float(high))
    try:
        result = run(target.fn, inputs(graph, batch))
    except ProvenformerError as error:
        raise Untraceable(f"target '{target.name}' cannot be a circuit: {error}") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        jumps = any(f"numpy.{name} " in f"{reason} " for name in DISCONTINUOUS)
        raise Untraceable(
            f"target '{target.name}' cannot be a circuit: {reason}{_remedy(reason, jumps, d * n)}."
        ) from error
    return Traced(graph, _outputs(target, graph, result, (batch, d, n)))


def _remedy(reason: str, jumps: bool, entries: int) -> str:
    """What to do about an operation without a rule; a reason with a semicolon says so itself."""
    if jumps:
        return "; it jumps: use np.maximum, np.clip or a steep np.tanh"
    if "; " in reason:
        return ""
    return (
        "; use construction='sum'"
        if entries <= FEW
        else "; write it with the functions that docs/own-function.md lists"
    )


def require_agreement(target: Target, traced: Traced) -> None:
    """Raise if the graph and the function differ on random, corner, few-valued or nearly constant sequences."""
    x = samples(target)
    wanted, found = target(x), traced(x)
    off, room = np.abs(found - wanted), AGREES * float(np.abs(wanted).max()) + traced.rounding
    wrong = off > room
    if wrong.any():
        wrong = off > room + traced.rounding_within(x)
    if wrong.any() or not np.isfinite(found).all():
        at = x[int(np.argwhere(wrong | ~np.isfinite(found))[0][0])]
        raise ProvenformerError(
            f"target '{target.name}' computes something else on symbols than on numbers, for example at "
            f"X={np.round(at, 4).tolist()!s:.200}; use construction='sum'."
        )


def samples(target: Target, count: int | None = None, seed: int = 5) -> FloatArray:
    """Sequences of the support: uniform, corners, of few values, nearly constant, ramps and sorted ones; the edges."""
    rng = np.random.default_rng(seed)
    count = count or int(np.clip(2**19 // target.seq_len**2, 1, SAMPLES))
    shape = (count, target.token_dim, target.seq_len)
    uniform = rng.random(shape)
    values = np.take_along_axis(rng.random((count, target.token_dim, 3)), rng.integers(0, 3, shape), axis=-1)
    narrow = np.clip(rng.random((*shape[:2], 1)) + 10.0 ** rng.uniform(-6, 0, (count, 1, 1)) * (uniform - 0.5), 0, 1)
    ramps = np.clip(
        np.linspace(0, 1, shape[2]) * rng.uniform(-1, 2, (*shape[:2], 1)) + rng.random((*shape[:2], 1)), 0, 1
    )
    mostly = (rng.random(shape) < rng.random((*shape[:2], 1))).astype(float)
    edges = np.stack([np.zeros(shape[1:]), np.ones(shape[1:])])
    unit = np.concatenate([uniform, rng.integers(0, 2, shape), mostly, values, narrow, ramps, np.sort(uniform), edges])
    return np.asarray(target.low[:, None] + unit * (target.high - target.low)[:, None])


def _outputs(target: Target, graph: Graph, result: object, shape: tuple[int, int, int]) -> list[Lin]:
    """One combination per row of the result, each with n rows."""
    _, d, n = shape
    if not isinstance(result, Symbol):
        result = Symbol.constant(graph, np.asarray(result, dtype=np.float64))
    if result.shape != shape:
        raise Untraceable(
            f"target '{target.name}' returned shape {result.shape} on symbols for input shape {shape}; keep it."
        )
    if result.batch not in (None, 0):
        raise Untraceable(f"target '{target.name}' returns the batch along the wrong axis; it is the first.")
    result = per_sequence(result, 0)
    if result.values is not None:
        return [expanded(constant(row), n) for row in result.values[0]]
    if result.tokens not in ((), (2,)):
        raise Untraceable(
            f"target '{target.name}' returns tokens along the wrong axis; the last axis is that of the tokens."
        )
    if result.tokens == (2,):
        cells = result.cells[0, :, 0]
    else:  # columns that were built one by one
        cells = np.empty(d, dtype=object)
        for row in range(d):
            cells[row] = stacked(graph, list(result.cells[0, row]))
    return [expanded(cell.value(graph) if isinstance(cell, Waiting | Sign) else cell, n) for cell in cells]


def _lin(x: Lin) -> str:
    parts = [] if not x.constant.any() else [f"{x.constant[0]:.6g}" if len(x.constant) == 1 else "constant by position"]
    for i, term in x.terms.items():
        parts += [f"{term.own:.6g} * [{i}]"] if term.own else []
        if term.mix is not None:
            parts.append(f"{'mean-like' if len(term.mix) == 1 else 'matrix'} @ [{i}]")
    return " + ".join(parts) or "0"


def _shown(operation: object) -> str:
    arguments = ", ".join(_lin(lin) for lin in getattr(operation, "arguments", ()))
    formula = getattr(operation, "formula", None)
    return f"{type(operation).__name__.lower()}({arguments})" + (f" with z -> {formula}" if formula is not None else "")
