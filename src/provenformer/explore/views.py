"""What the page shows, as plain JSON: plans, networks with their certificates, and one input on its way."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.base.exact import size_of
from provenformer.certificates.certificate import TERM_MEANINGS
from provenformer.compiler.tables import plan_for
from provenformer.constructions import registry
from provenformer.constructions.plan import Plan
from provenformer.explore import following
from provenformer.explore.building import Built, Relaxed, columns_of, relaxed, require_small
from provenformer.explore.formulas import formula, in_words
from provenformer.explore.settings import FEWEST_CELLS, OPENED, PLANNED_CELLS, Knobs, Settings
from provenformer.functions import targets
from provenformer.look.measured import measured_distance
from provenformer.look.slices import between, cell_edges, moved
from provenformer.look.summary import number

SLICE_POINTS = 97
UPRIGHT = 1e-6  # of a cell
START = [[0.13, 0.87, 0.47, 0.29, 0.68, 0.94], [0.57, 0.22, 0.81, 0.07, 0.38, 0.66]]  # as many rows and tokens as drawn


def targets_view() -> list[dict[str, Any]]:
    """The built-in targets."""
    return [
        {
            "name": name, "equivariant": targets.get(name).equivariant, "words": in_words(name),
            "math": formula(name),
        }
        for name in targets.names()
    ]  # fmt: skip


def plan_view(settings: Settings) -> dict[str, Any]:
    """Sizes, at once; with a tolerance for the grid that sampling predicts. `refused` says why it cannot be built here."""
    sizes = plan_for(settings.function(), cells_for(settings), settings.construction)
    refused: dict[str, str] | None = None
    try:
        require_small(sizes, settings)
    except ProvenformerError as error:
        refused = {"field": getattr(error, "field", "cells"), "error": str(error)}
    return {**_sizes(sizes), "predicted": settings.cells_per_axis is None, "refused": refused}


def opened_plan(built: Built) -> dict[str, Any]:
    """The plan of a network that is there."""
    return {**_sizes(built.compiled.plan), "predicted": False, "refused": None}


def _sizes(sizes: Plan) -> dict[str, Any]:
    return {
        "cells": sizes.grid.cells_per_axis,
        "positional": sizes.positional,
        "stages": [{"name": name, "layers": size_of(layers)} for name, layers in sizes.stages.items()],
        "layers": size_of(sizes.layers),
        "blocks": size_of(sizes.blocks),
        "parameters": size_of(sizes.parameters),
        "contexts": size_of(sizes.contexts),
        "id_bits": sizes.id_bits,
        "hidden_dim": size_of(sizes.hidden_dim),
        "lost": f"{float(sizes.lost_share):.1%}",
    }


@lru_cache(maxsize=256)
def cells_for(settings: Settings) -> int:
    """The cells asked for, or about as many as a tolerance needs, by sampling f against its value at cube centres."""
    if settings.cells_per_axis is not None:
        return settings.cells_per_axis
    if settings.tolerance is None:
        raise ProvenformerError("Give cells per axis or a tolerance.")
    target, p, n = settings.function(), settings.norm_order, settings.seq_len
    loses_cubes = registry.get(settings.construction).contexts(positional=not target.equivariant) == "sets"
    x = target.sample(512)
    f = target(x)

    def off(cells: int) -> float:
        centers = (np.minimum(np.floor(x * cells), cells - 1) + 0.5) / cells
        step = target(centers)
        if loses_cubes:
            same = [(centers[..., j] == centers[..., k]).all(axis=1) for j in range(n) for k in range(j)]
            step[np.any(same, axis=0)] = 0.0
        return float((np.abs(f - step) ** p).sum(axis=(1, 2)).mean() ** (1 / p))

    low, high = 1, FEWEST_CELLS
    while off(high) > settings.tolerance and high < PLANNED_CELLS:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if off(middle) <= settings.tolerance else (middle, high)
    return high


def network_view(built: Built) -> dict[str, Any]:
    """A network as compiled: sizes, certificate, context ids."""
    c, ids = built.compiled, built.naming
    return {
        "plan": {**_sizes(c.plan), "predicted": False},
        "built": {"blocks": size_of(c.network.blocks), "parameters": size_of(c.network.parameters)},
        "token_dim": c.grid.token_dim,
        "seq_len": c.grid.seq_len,
        "cells": c.grid.cells_per_axis,
        "construction": c.construction,
        "title": f"{_name(built)}, d = {c.grid.token_dim}, n = {c.grid.seq_len}, N = {c.grid.cells_per_axis}, {c.construction}",
        "low": c.target.low.tolist(),
        "high": c.target.high.tolist(),
        "by_layer": built.by_layer,
        "renames_tokens": len(ids.renamings) > 0,
        "positional": built.positional,
        "certificate": certificate_view(built),
        "context_ids": {"low": float(ids.id_low), "high": float(ids.id_high), "all": sorted(built.bump_ids.tolist())},
        "knobs": _knobs(relaxed(built, Knobs())),
    }  # fmt: skip


def _name(built: Built) -> str:
    return f"opened: {built.compiled.target.name}" if built.settings.target == OPENED else built.settings.target


def certificate_view(built: Built) -> dict[str, Any]:
    """The bound, its terms and the distance as measured."""
    certificate = built.compiled.certificate
    parts = certificate.contributions()
    return {
        "bound": certificate.bound,
        "text": number(certificate.bound),
        "norm_order": certificate.norm_order,
        "kind": certificate.kind,
        "basis": certificate.basis,
        "domain": certificate.domain,
        "terms": [
            {"name": name, "value": value, "part": parts[name], "text": number(value), "meaning": TERM_MEANINGS[name]}
            for name, value in certificate.terms.items()
        ],
        "measured": measured(built),
    }


@lru_cache(maxsize=64)
def measured(built: Built) -> float | None:
    """d_p between f and the network's values on cubes (the network itself differs from them on ramps only)."""
    found = measured_distance(built.subject, built.compiled.piecewise, samples=1 << 11, in_strata=False)
    return None if found is None else found.value


def start_tokens(built: Built) -> FloatArray:
    """Tokens to begin with, (d, n): spread over the box, off the edges of most grids."""
    grid = built.compiled.grid
    return built.subject.in_box(np.array(START)[: grid.token_dim, : grid.seq_len])


def counted(built: Built, x: FloatArray) -> FloatArray:
    """The target on sequences (..., d, n) as the theorem counts it: 0 where a token is outside the box of Theorem 2."""
    f, cells = built.compiled.target, built.compiled.piecewise.cells(x.reshape(-1, *x.shape[-2:]))
    low, high = (end[:, None] for end in built.subject.support)
    outside = ((cells < 0) | (cells >= built.compiled.grid.cells_per_axis)).any(axis=(1, 2))
    values = f(np.clip(x, low, high)).reshape(-1, *x.shape[-2:])
    values[outside] = 0.0
    return values.reshape(x.shape)


def look_view(built: Built, x: FloatArray, soft: bool, knobs: Knobs, token: int) -> dict[str, Any]:
    """Everything about one input x (d, n): cells, layers, bumps, output, error, and a slice through one token."""
    c = built.compiled
    chosen = relaxed(built, knobs) if soft else None
    # A wide network does many steps in one block; they are shown one at a time in the modified network.
    followed = chosen.network if chosen is not None and built.by_layer else None
    shown = following.follow(built, x, followed)
    cells = c.piecewise.cells(x[None])[0]
    f, modified = counted(built, x), c.piecewise(x)  # what the modified network computes, exactly (Proposition 4)
    output = shown.states[-1] if chosen is None or followed is not None else chosen.network(x)
    return {
        "cells": cells.T.tolist(),
        "inside": ((cells >= 0) & (cells < c.grid.cells_per_axis)).all(axis=0).tolist(),
        "names": _names(built, cells),
        "moments": following.moments_view(built, shown),
        "layers": len(shown.moved),
        "bumps": following.bumps_view(built, x, shown, followed),
        "collisions": following.collisions(built, cells, shown),
        "target": columns_of(f),
        "modified": columns_of(modified),
        "output": columns_of(output),
        "off_target": float(np.abs(output - f).max()),
        "against_modified": float(np.abs(output - modified).max()),
        "knobs": None if chosen is None else _knobs(chosen),
        "slice": slice_view(built, x, chosen, token),
    }


def _knobs(chosen: Relaxed) -> dict[str, Any]:
    return {"temperature": chosen.temperature, "ramp": chosen.ramp, "wrong_share": chosen.wrong_share}


def _names(built: Built, cells: Any) -> list[dict[str, Any]]:
    """Per token its grid id and, in the sum construction, its code; None outside the box."""
    grid = built.compiled.grid
    out: list[dict[str, Any]] = []
    for j, column in enumerate(cells.T):
        inside = bool(((column >= 0) & (column < grid.cells_per_axis)).all())
        id_ = int(np.array(grid.id_vector) @ column) if inside else None
        out.append({"id": id_, "code": None if id_ is None else built.naming.code(id_, j)})
    return out


def slice_view(built: Built, x: FloatArray, chosen: Relaxed | None, token: int) -> dict[str, Any]:
    """One token's first number moves through the box, everything else stays: its output beside the target's."""
    batch = along(built, x, token, None if chosen is None else 2.0**chosen.ramp)
    output = built.compiled.piecewise(batch) if chosen is None else chosen.network(batch)
    return {
        "token": token,
        "at": batch[:, 0, token].tolist(),
        "target": counted(built, batch)[:, 0, token].tolist(),
        "output": output[:, 0, token].tolist(),
    }


def along(built: Built, x: FloatArray, token: int, ramp: float | None = None) -> FloatArray:
    """Copies of x in which one token's first number runs through the box; closely on both sides of every edge of a cell (or of
    its ramp, given in cells), so that a step is drawn upright."""
    edges = cell_edges(built.subject, 0)
    reach = (edges[1] - edges[0]) * max(UPRIGHT, ramp or 0.0)
    near = np.concatenate([edges[:-1] + reach, edges[1:] - reach])
    at = np.concatenate([between(built.subject, 0, SLICE_POINTS), near])
    return moved(x, [(0, token)], [np.sort(at)])


def heat_map(built: Built, x: FloatArray) -> list[list[float]]:
    """The first token's output on the cubes of (token 1, token 2), the others as in x; d = 1."""
    centers = between(built.subject, 0, built.compiled.grid.cells_per_axis)
    batch = moved(x, [(0, 0), (0, 1)], [centers, centers[:, None]])
    values: list[list[float]] = built.compiled.piecewise(batch)[..., 0, 0].tolist()
    return values
