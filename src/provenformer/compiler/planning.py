"""plan(): how large a network would be, before anything is built."""

from __future__ import annotations

from typing import overload

from provenformer.base.errors import ProvenformerError
from provenformer.compiler.compile import CIRCUIT, FOLLOWED, NO_DEPTH, TABLE, asks_for_a_table, why_no_circuit
from provenformer.compiler.request import MAX_UNITS, Request, require_depth
from provenformer.compiler.tables import plan_for
from provenformer.constructions import registry
from provenformer.constructions.plan import CircuitPlan, Plan
from provenformer.functions.targets import Target


@overload
def plan(
    target: Target, /, *, tolerance: float | None = ..., norm_order: float = ..., cells_per_axis: int | None = ...,
    construction: str | None = ..., max_units: int = ..., depth: int = ...,
) -> Plan | CircuitPlan: ...  # fmt: skip
@overload
def plan(
    token_dim: int, seq_len: int, cells_per_axis: int, construction: str | None = ..., positional: bool = ...
) -> Plan: ...
def plan(
    token_dim: Target | int,
    seq_len: int | None = None,
    cells_per_axis: int | None = None,
    construction: str | None = None,
    positional: bool = False,
    *,
    tolerance: float | None = None,
    norm_order: float = 2,
    max_units: int = MAX_UNITS,
    depth: int = 0,
) -> Plan | CircuitPlan:
    """Sizes of a network, instantly, for any size; nothing is built. A ProvenformerError names a size out of range.

    Of a table: plan(token_dim, seq_len, cells_per_axis), or plan(target, cells_per_axis=...). Of a circuit: plan(target,
    tolerance=...), what compile() will build; its tables are fitted and checked for that, so a large one takes seconds.
    """
    if not isinstance(token_dim, Target):
        return registry.plan(token_dim, seq_len, cells_per_axis, construction or TABLE, positional)  # type: ignore[arg-type]
    target = token_dim
    require_depth(depth)
    request = Request(tolerance, norm_order, cells_per_axis, max_units=max_units, depth=depth)
    asked = asks_for_a_table(target, request)
    if construction == CIRCUIT or (construction is None and not asked):
        choice = f"{CIRCUIT}, {'as asked for' if construction else FOLLOWED}"
        return _of_circuit(target, request, choice, by_default=construction is None)
    if depth:
        raise ProvenformerError(NO_DEPTH.format(depth=str(depth)[:40]))
    if cells_per_axis is None:
        raise ProvenformerError("the size of a table follows from its grid; give cells_per_axis.")
    return plan_for(target, cells_per_axis, construction or TABLE)


def _of_circuit(target: Target, request: Request, choice: str, *, by_default: bool) -> CircuitPlan:
    from provenformer.compiler.circuit import plan_circuit  # noqa: PLC0415  (as large as the rest of the library)

    try:
        return plan_circuit(target, request, choice)
    except ProvenformerError as refusal:
        if not by_default:
            raise
        why = why_no_circuit(target, refusal)
        raise type(refusal)(
            f"no circuit: {why}; the size of a table follows from its grid: give cells_per_axis."
        ) from refusal
