"""Which figures a network has, in the order of the proof, each with the words that go with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from provenformer.anatomy.circuit import Circuit
from provenformer.base.exact import size_of
from provenformer.constructions.relax import TINY_WIDTH
from provenformer.look.context_ids import OUTSIDE, REPEATED
from provenformer.look.slices import Surface
from provenformer.networks.stages import VALUES
from provenformer.report import figures, figures_ids
from provenformer.report.figures import MOST_EDGES, entry_name, sequence_name
from provenformer.report.figures_ids import MOST_TOKENS
from provenformer.report.findings import Findings
from provenformer.report.style import short


@dataclass(frozen=True)
class Picture:
    """A figure that can be drawn, and its words: `alt` says what is in it, `caption` what to see."""

    name: str  # also the file name
    title: str
    alt: str
    caption: str
    draw: Callable[[], Figure | Circuit]


def pictures(found: Findings) -> dict[str, Picture]:
    """All figures that apply to this network, by name."""
    made = [
        _certificate(found), _stages(found), _cubes(found), _curve(found), _maps(found), _error(found), _data(found),
        _journeys(found), _intervals(found), _leaps(found), _bumps(found), _path(found),
    ]  # fmt: skip
    return {picture.name: picture for picture in made if picture is not None}


def _certificate(found: Findings) -> Picture | None:
    certificate = found.subject.certificate
    if certificate.norm_order is None:
        return None
    p = f"{certificate.norm_order:g}"
    marks = {"measured": found.measured.value} if found.measured else {}
    if "tolerance" in certificate.details:
        marks["asked"] = certificate.details["tolerance"]
    parts = ", ".join(f"{name} {value:.3g}" for name, value in found.contributions.items())
    return Picture(
        "certificate", "The bound and its terms",
        f"One stacked bar of length {certificate.bound:.4g}, split into {parts}.",
        f"Terms add up in powers of {p}, so each gets its share of the bound and small ones nearly vanish; "
        "the legend has the terms themselves, and lines mark other distances.",
        lambda: figures.certificate_bar(found.contributions, certificate.terms, marks),
    )  # fmt: skip


def _stages(found: Findings) -> Picture:
    unit, stages = found.stages.unit, found.stages.stages
    listed = ", ".join(f"{stage} {count:,}" for stage, count in stages.items())
    return Picture(
        "stages", "Sizes per stage", f"Bars of {unit} per stage: {listed}.",
        f"{stages[VALUES] / sum(stages.values()):.0%} of the {unit} hold values, since every token of "
        "every context has its own; the scale is logarithmic.",
        lambda: figures.stage_bars(stages, unit),
    )  # fmt: skip


def _cubes(found: Findings) -> Picture | None:
    data = found.quantised
    if data is None:
        return None
    cells = len(data.edges[0]) - 1
    return Picture(
        "cubes", "Cubes and quantising",
        f"Left: points of a plane with arrows to the lower corner of their cube. Right: a staircase of {cells} steps.",
        "The first layers move every token to the corner of its cube, so all inputs of a cube look alike from there on.",
        lambda: figures.cubes(data),
    )  # fmt: skip


def _curve(found: Findings) -> Picture | None:
    data = found.curve
    if data is None:
        return None
    lines = "The target as a smooth line and the network as a staircase" if data.target is not None else "The network"
    return Picture(
        "curve", "Target and network along a line", f"{lines}, while {entry_name(data.moves)} moves over its range.",
        "The network is constant on every cell, at the target's value in the centre of the cube"
        f"{_others(found, 1)}.{_lost_note(found)}",
        lambda: figures.slice_curve(data),
    )  # fmt: skip


def _maps(found: Findings) -> Picture | None:
    data = found.surface
    if data is None:
        return None
    what = "Heat maps of target and network" if data.target is not None else "A heat map of the network"
    return Picture(
        "heatmaps", "Target and network over a plane",
        f"{what} over {entry_name(data.moves[0])} and {entry_name(data.moves[1])}.",
        f"The network has one colour per cube{_others(found, 2)}.{_lost_note(found)}{_coarse_note(found, data)}",
        lambda: figures.slice_maps(data),
    )  # fmt: skip


def _error(found: Findings) -> Picture | None:
    data = found.surface
    if data is None or data.error is None:
        return None
    error = data.error
    largest = float(np.abs(error).max())
    edges = "" if len(data.edges[0]) <= MOST_EDGES + 1 else " Cube edges are not drawn: there are too many."
    return Picture(
        "error", "Error over a plane, with the edges of the cubes",
        f"Heat map of network minus target over the same plane; the largest absolute value is {largest:.3g}.",
        f"White is no error; it is at most {largest:.3g} here, largest at the edges of cubes or where cubes are lost."
        f"{edges}{_coarse_note(found, data)}",
        lambda: figures.error_map(data, error),
    )  # fmt: skip


def _data(found: Findings) -> Picture | None:
    pair = found.data
    if pair is None:
        return None
    wanted, got = pair
    total = len(found.subject.data[0]) if found.subject.data else 0
    some = f" The first {len(wanted)} of {total:,} pairs are shown." if total > len(wanted) else ""
    return Picture(
        "data", "Given outputs and the network's",
        f"Two scatter plots: outputs on the diagonal, and errors of at most {np.abs(got - wanted).max():.2g}.",
        f"Every given number is reproduced up to float64 rounding.{some}", lambda: figures.data_fit(wanted, got),
    )  # fmt: skip


def _journeys(found: Findings) -> Picture:
    table = found.ids
    inside = int((table.inside & table.valid).sum())
    stray = int((table.inside & ~table.valid).sum())
    others = int((~table.valid).sum())
    seen = f"{inside} of {int(table.valid.sum())} contexts with a value end inside [id_low, id_high)"
    out = f"; of {others} other{'s' if others > 1 else ''}, {stray or 'none'}" if others else ""
    return Picture(
        "ids", "Ids, from quantising to the last attention layer",
        f"Ids of tokens at {len(table.moments)} moments, joined by lines. {seen}{out}.",
        f"{seen}{out}.{_sample_note(found)}", lambda: figures_ids.id_journeys(table),
    )  # fmt: skip


def _intervals(found: Findings) -> Picture | None:
    table = found.ids
    final = table.ids[-1][table.valid]
    if not len(final):
        return None
    final = final[np.argsort(final.min(axis=1))]
    gaps = final.min(axis=1)[1:] - final.max(axis=1)[:-1]
    owners = [set(row) for row in final.tolist()]
    if len(gaps) and gaps.min() > 0:
        widest = short(float(np.ptp(final, axis=1).max()))
        seen = f"No two intervals meet: the widest is {widest} wide and the closest two are {short(gaps.min())} apart"
    elif len(set.union(*owners)) == sum(map(len, owners)):
        seen = "No id belongs to two contexts"
    else:
        seen = "Some contexts share an id"
    return Picture(
        "intervals", "Each context has ids of its own",
        f"One horizontal interval of ids per context, all between {short(table.low)} and {short(table.high)}.",
        f"{seen}, so an id tells token and context.{_context_note(found)}",
        lambda: figures_ids.context_intervals(table),
    )  # fmt: skip


def _leaps(found: Findings) -> Picture | None:
    data = found.leaps
    if data is None:
        return None
    return Picture(
        "leaps", "Ids leap over one another in the selective shifts",
        f"Step lines of the ids of one sequence over {len(data.ids) - 1} attention layers.",
        "When the window reaches the id of a token, that token leaps above all others; the last layer moves all of them by "
        f"a multiple of the largest.{_token_note(found)}",
        lambda: figures_ids.id_leaps(data),
    )  # fmt: skip


def _bumps(found: Findings) -> Picture | None:
    data = found.bumps
    if data is None:
        return None
    wide = found.subject.how.has_channels
    merged = not wide and found.subject.network.hidden_dim > TINY_WIDTH
    shape = (
        "One staircase has a flat step at every id"
        if wide
        else "A layer is a staircase with a flat step at each of its ids"
        if merged
        else "A layer adds nothing below its id and all of (value - id) at it; it need not come down again, since ids above "
        "are already done"
    )
    some = f" {len(data.all_ids):,} of {data.total:,} ids are shown." if len(data.all_ids) < data.total else ""
    return Picture(
        "bumps", "Value layers turn ids into outputs",
        "Top: what single value layers add near their id. Bottom: a line from 0 to the output, for every id.",
        f"{shape}. Below, the output that each id gets, first row.{some}", lambda: figures_ids.value_bumps(data),
    )  # fmt: skip


def _path(found: Findings) -> Picture:
    return Picture(
        "path", "One sequence through all stages",
        f"Lines of the tokens of the sequence {sequence_name(found.sequence)} over {len(found.moments)} moments.",
        f"Tokens become cells, cells become ids that know the context, ids become outputs.{_token_note(found)}",
        lambda: figures_ids.sequence_path(found.moments),
    )  # fmt: skip


def _others(found: Findings, moving: int) -> str:
    """Where the entries that do not move are."""
    d, n = found.sequence.shape
    return "" if d * n == moving else f" (other entries as in {sequence_name(found.subject.example())})"


def _lost_note(found: Findings) -> str:
    lost = " It is 0 where two tokens share a cell: the paper's construction loses those cubes."
    return lost if found.subject.loses_cubes else ""


def _coarse_note(found: Findings, data: Surface) -> str:
    """Say when a cell shows with less than one point."""
    grid = found.subject.grid
    points = len(data.network)
    if grid is None or points >= grid.cells_per_axis:
        return ""
    return f" Sampled at {points} x {points} points, coarser than the {grid.cells_per_axis} cells, to save time."


def _context_note(found: Findings) -> str:
    """Say when not all contexts are drawn."""
    table, shown = found.ids, int(found.ids.valid.sum())
    if shown == table.contexts:
        return ""
    return f" {shown} of {size_of(table.contexts)} contexts are drawn, evenly spread."


def _sample_note(found: Findings) -> str:
    """Say what else is drawn, and what is not."""
    table = found.ids
    notes = [_context_note(found)]
    repeated = sum(kind == REPEATED for kind in table.kinds)
    if repeated < table.repeated:
        notes.append(f" {repeated} of {size_of(table.repeated)} contexts with repeated tokens are drawn.")
    if OUTSIDE in table.kinds:
        notes.append(" One sequence has a token outside the box.")
    if table.moments_left_out:
        notes.append(f" {table.moments_left_out} shifts are left out.")
    return "".join(notes)


def _token_note(found: Findings) -> str:
    tokens = found.sequence.shape[1]
    return f" The first {MOST_TOKENS} of {tokens} tokens are drawn." if tokens > MOST_TOKENS else ""
