"""compile(): which construction, and why. The circuit where the formula can be followed, else the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.bounds.integrals import Kind
from provenformer.compiler.request import MAX_UNITS, Request, require_depth, require_norm_order, require_tolerance
from provenformer.compiler.tables import Compiled, compile_table
from provenformer.constructions import registry
from provenformer.constructions.plan import LAYER_LIMIT
from provenformer.constructions.relax import TINY_WIDTH
from provenformer.functions.targets import Target

if TYPE_CHECKING:
    from provenformer.compiler.circuit import CompiledCircuit

Way = Callable[[Target, Request, str], "Compiled | CompiledCircuit"]
TABLE, CIRCUIT = "sum", "circuit"  # what the default chooses from
FOLLOWED = "because its formula could be followed"
LONGEST_REASON = 300
NO_DEPTH = "depth={depth} is about the squares of a circuit, and a table has none; leave it out."


@overload
def compile(  # type: ignore[overload-overlap]  # a name in a variable is that of a table construction
    target: Target, *, construction: Literal["circuit"], tolerance: float, norm_order: float = ..., max_units: int = ...,
    depth: int = ..., progress: Callable[[str], object] = ...,
) -> CompiledCircuit: ...  # fmt: skip
@overload
def compile(
    target: Target, *, construction: str, tolerance: float | None = ..., norm_order: float = ...,
    cells_per_axis: int | None = ..., kind: Kind | None = ..., hidden_dim: int = ..., max_layers: int = ...,
    progress: Callable[[str], object] = ...,
) -> Compiled: ...  # fmt: skip
@overload
def compile(
    target: Target, *, cells_per_axis: int, construction: None = ..., norm_order: float = ..., kind: Kind | None = ...,
    hidden_dim: int = ..., max_layers: int = ..., progress: Callable[[str], object] = ...,
) -> Compiled: ...  # fmt: skip
@overload
def compile(
    target: Target, *, tolerance: float | None = ..., norm_order: float = ..., cells_per_axis: int | None = ...,
    construction: str | None = ..., kind: Kind | None = ..., hidden_dim: int = ..., max_layers: int = ...,
    max_units: int = ..., depth: int = ..., progress: Callable[[str], object] = ...,
) -> Compiled | CompiledCircuit: ...  # fmt: skip
def compile(
    target: Target,
    *,
    tolerance: float | None = None,
    norm_order: float = 2,
    cells_per_axis: int | None = None,
    construction: str | None = None,
    kind: Kind | None = None,
    hidden_dim: int = TINY_WIDTH,
    max_layers: int = LAYER_LIMIT,
    max_units: int = MAX_UNITS,
    depth: int = 0,
    progress: Callable[[str], object] = lambda _: None,
) -> Compiled | CompiledCircuit:
    """A network g with a certificate that d_p(target, g) <= tolerance, as small as certifies; or on a given grid.

    By default a circuit (docs/circuits.md: any n, norm_order up to np.inf, at most `max_units` ReLUs; with `depth` k squares and
    products take k + 2 blocks instead of one, and fewer units) where the formula can be followed, else a table,
    construction="sum"; `choice` of the result says which and why. `construction` asks for one of "circuit", "sum", "paper",
    "wide". The rest is about tables, and asks for one: `cells_per_axis` instead of a tolerance; a `kind` of certificate other
    than "rigorous", by default the strongest possible; `hidden_dim` = 4 W, which trades depth for width (2 W value layers become
    one). `max_layers` is their limit. `progress` is told in a few words what is being done.
    Raises ProvenformerError, one line with quantity, limit and remedy, where that cannot be had.
    """
    request = Request(tolerance, norm_order, cells_per_axis, kind, hidden_dim, max_layers, max_units, depth, progress)
    way = None if construction is None else _way(construction)
    target.require_pointwise()
    target.require_equivariance()
    if request.depth and (construction not in (None, CIRCUIT) or asks_for_a_table(target, request)):
        raise ProvenformerError(NO_DEPTH.format(depth=str(depth)[:40]))
    if way is not None:
        return way(target, request, f"{construction}, as asked for")
    if asked := asks_for_a_table(target, request):
        return _way(TABLE)(target, request, f"{TABLE}, because {asked}")
    return _circuit_or_table(target, request)


def asks_for_a_table(target: Target, request: Request) -> str | None:
    """What of a request only tables have; None if a circuit may answer it."""
    if request.cells_per_axis is not None or request.tolerance is None:
        return "circuits have no cells_per_axis"
    if request.hidden_dim != TINY_WIDTH:
        return "circuits have no hidden_dim"
    if request.kind not in (None, "rigorous"):
        return f"a circuit's certificate is rigorous, not {request.kind}"
    if target.vanishes_outside:
        return "it vanishes outside its box, and a circuit is about the box alone"
    return None


def _circuit_or_table(target: Target, request: Request) -> Compiled | CompiledCircuit:
    """The circuit; where there is none, the table; where that cannot be had either, both reasons."""
    require_tolerance(request.tolerance)
    require_depth(request.depth)
    sup = require_norm_order(request.norm_order, up_to_sup=True) == np.inf
    try:
        return _way(CIRCUIT)(target, request, f"{CIRCUIT}, {FOLLOWED}")
    except ProvenformerError as refusal:
        if sup:  # tables have no bound in the sup norm
            raise
        why = why_no_circuit(target, refusal)
    try:
        return _way(TABLE)(target, request, f"{TABLE}, because {why}")
    except ProvenformerError as refusal:
        raise type(refusal)(f"no circuit: {why}; no table: {refusal}") from refusal


def why_no_circuit(target: Target, refusal: ProvenformerError) -> str:
    """What the circuit was refused for, in one clause, and the line of the function at which that happened."""
    reason = one_line(refusal).removesuffix(".").removesuffix("; use construction='sum'")
    reason = reason.replace(f"target '{one_line(target.name)}' ", "it ", 1).removeprefix("it cannot be a circuit: ")
    reason = reason[:LONGEST_REASON]
    line = _line_of(target, refusal.__cause__)
    return reason if line is None else f"{reason} (line {line} of the function's file)"


def _line_of(target: Target, error: BaseException | None) -> int | None:
    """Where the function was when it raised."""
    file = getattr(getattr(target.fn, "__code__", None), "co_filename", None)
    frame, line = error.__traceback__ if error else None, None
    while frame is not None:
        if file is not None and frame.tb_frame.f_code.co_filename == file:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _circuit(target: Target, request: Request, choice: str) -> CompiledCircuit:
    from provenformer.compiler.circuit import compile_circuit  # noqa: PLC0415  (as large as the rest of the library)

    return compile_circuit(target, request, choice)


WAYS: dict[str, Way] = {CIRCUIT: _circuit} | {
    name: partial(compile_table, how) for name, how in registry.CONSTRUCTIONS.items()
}


def _way(construction: str) -> Way:
    """How a construction is made; a misspelt one is a ProvenformerError."""
    if not isinstance(construction, str) or construction not in WAYS:
        raise ProvenformerError(f"unknown construction '{construction}'; choose one of: {', '.join(WAYS)}.")
    return WAYS[construction]
