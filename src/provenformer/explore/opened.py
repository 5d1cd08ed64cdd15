"""Tables that the explorer is started with: a saved network, or one just compiled for a function of the user's own."""

from __future__ import annotations

from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import size_of
from provenformer.compiler.tables import Compiled, plan_for
from provenformer.constructions import registry
from provenformer.constructions.plan import Plan
from provenformer.explore.building import Built
from provenformer.explore.settings import DRAWN_DIM, DRAWN_LEN, LIMITS, OPENED, Settings, fits
from provenformer.functions.piecewise import PiecewiseConstant
from provenformer.functions.targets import Target
from provenformer.storage import Saved


def saved_table(saved: Saved, target: Target | None) -> Built:
    """A saved table beside its steps, which follow from function and grid; `target` is the function, where it is not built in."""
    f = target or saved.target
    if saved.grid is None:
        raise ProvenformerError(
            "the explorer shows networks of functions, and this one was made from data; use `report`."
        )
    if f is None:
        raise ProvenformerError(
            f"{saved.why_no_target}; name the function with --target, so that the explorer can show it."
        )
    grid, how = saved.grid, registry.get(saved.construction)
    sizes = plan_for(f, grid.cells_per_axis, how.name)
    require_shown(sizes)
    piecewise = PiecewiseConstant.of(f, grid, how.contexts(sizes.positional))
    p = saved.certificate.norm_order or 2.0
    made = Compiled(
        f, how.name, p, sizes, piecewise, how.build(piecewise).modified, saved.network, saved.certificate, "opened"
    )
    return opened(made)


def opened(made: Compiled) -> Built:
    """A compiled table as the network that the page opens with."""
    require_shown(made.plan)
    grid = made.grid
    settings = Settings(
        OPENED, grid.token_dim, grid.seq_len, grid.cells_per_axis, None, made.construction, made.norm_order
    )
    return Built(settings, made)


def require_shown(sizes: Plan) -> None:
    """Refuse, before the server starts, a table that is too large to draw or to follow."""
    d, n = sizes.grid.token_dim, sizes.grid.seq_len
    if d > DRAWN_DIM or n > DRAWN_LEN:
        raise ProvenformerError(
            f"the explorer draws tables of d <= {DRAWN_DIM} and n <= {DRAWN_LEN}, and this one has d = {d} and n = {n}; "
            "use `report`."
        )
    if not fits(sizes):
        needed, of = sizes.size
        raise ProvenformerError(
            f"the explorer follows tables of up to {LIMITS[of]:,} {of}, and this one has {size_of(needed)}; use `report`."
        )
