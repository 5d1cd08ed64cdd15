"""The four pages that each show one idea: Theorem 2, Theorem 3, repeated tokens, and the infinite distance."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.constructions.lemmas import is_permutation_equivariant
from provenformer.constructions.paper import quantize
from provenformer.explore.building import Workshop, columns_of, relaxed
from provenformer.explore.settings import Fields, Knobs, Settings, choice, number, read_tokens, whole
from provenformer.explore.views import along, heat_map, measured
from provenformer.functions import targets
from provenformer.functions.distance import distance
from provenformer.functions.grid import Grid
from provenformer.look.slices import moved
from provenformer.networks.base import FloatNetwork
from provenformer.networks.stages import CLIP

THREE = 3  # tokens on the pages that show some
UNIT = ([0.0], [1.0])  # their box
EQUIVARIANT = "softmax-mean"
POSITIONAL = [name for name in targets.names() if not targets.get(name).equivariant]
MOST_CELLS = 8
FAR_RANGE = (0.5, 7.0)  # log10 of the token that is far away
STRIP_SHARPNESS = (4.0, 12.0)  # log2 of the inverse temperature
STRIP_CELLS, STRIP_POINTS, FAR_POINTS = 4, 121, 21


def theorem_2(workshop: Workshop, fields: Fields) -> dict[str, Any]:
    """A finer grid brings the staircase closer to f; swapping tokens swaps outputs, bit for bit."""
    cells = whole(fields, "cells", 2, MOST_CELLS)
    x = read_tokens(fields, UNIT, THREE, positional=False)
    built = workshop.get(Settings(EQUIVARIANT, cells_per_axis=cells, construction="sum"))
    c, batch = built.compiled, along(built, x, 0)
    return {
        "target": columns_of(c.target(x)),
        "output": columns_of(c.network(x)),
        "slice": {
            "at": batch[:, 0, 0].tolist(),
            "target": c.target(batch)[:, 0, 0].tolist(),
            "output": c.piecewise(batch)[:, 0, 0].tolist(),
        },
        "bound": c.certificate.bound,
        "measured": measured(built),
        "blocks": c.network.blocks,
        "equivariant": bool(is_permutation_equivariant(c.network, x[None])),
    }


def theorem_3(workshop: Workshop, fields: Fields) -> dict[str, Any]:
    """What positions buy: the network with them beside the best that any network without them can do."""
    name = choice(fields, "target", POSITIONAL)
    x = read_tokens(fields, UNIT, THREE, positional=True)
    built = workshop.get(Settings(name, cells_per_axis=4, construction="sum"))
    c = built.compiled
    return {
        "moved": columns_of(x if c.network.positions is None else x + c.network.positions),
        "target": columns_of(c.target(x)),
        "output": columns_of(c.network(x)),
        "without": columns_of(best_without_positions(name, x)),
        "bound": c.certificate.bound,
        "without_distance": distance_without_positions(name),
        "refusal": refusal_without_positions(name),
    }


def best_without_positions(name: str, x: FloatArray) -> FloatArray:
    """The equivariant function nearest to f in d_2: the mean over all orders P of f(XP) P^-1."""
    f = targets.get(name, x.shape[-2], x.shape[-1])
    total = np.zeros_like(x)
    orders = [np.array(order) for order in permutations(range(x.shape[-1]))]
    for order in orders:
        total[..., order] += f(x[..., order])
    return np.asarray(total / len(orders))


@lru_cache
def distance_without_positions(name: str) -> float:
    """d_2 between f and that nearest equivariant function: no network without positions comes closer."""
    nearest = lambda x: best_without_positions(name, x)  # noqa: E731
    return distance(targets.get(name, 1, THREE), nearest, token_dim=1, seq_len=THREE, samples=1 << 12).value


@lru_cache
def refusal_without_positions(name: str) -> str:
    """What the compiler says when such a target is declared equivariant."""
    try:
        replace(targets.get(name, 1, THREE), equivariant=True).require_equivariance()
    except ProvenformerError as error:
        return str(error)
    return ""


def repeats(workshop: Workshop, fields: Fields) -> dict[str, Any]:
    """The same input in the paper's construction and in ours; the plane of the first two tokens."""
    cells = whole(fields, "cells", 3, MOST_CELLS)
    x = read_tokens(fields, UNIT, THREE, positional=False)
    out: dict[str, Any] = {"constructions": {}}
    constructions = ("paper", "sum")
    for construction in constructions:
        built = workshop.get(Settings(EQUIVARIANT, cells_per_axis=cells, construction=construction))
        c = built.compiled
        out["constructions"][construction] = {
            "output": columns_of(c.modified(x)),
            "heat": heat_map(built, x),
            "bound": c.certificate.bound,
            "lost": str(c.plan.lost_share),
            "lost_share": float(c.plan.lost_share),
            "layers": c.plan.layers,
        }
        out["target"] = columns_of(c.target(x))
        tokens = c.piecewise.cells(x[None])[0, 0].tolist()
        out["tokens_in"] = tokens
        out["repeated"] = len(set(tokens)) < len(tokens)
    return out


def infinite(workshop: Workshop, fields: Fields) -> dict[str, Any]:
    """Finding 2: a strip just below x_1 = 0 on which the paper's network is not 0, however far away x_2 is."""
    far = number(fields, "far", *FAR_RANGE)
    sharpness = number(fields, "temperature", *STRIP_SHARPNESS)
    size = Settings("scaled-mean", seq_len=2, cells_per_axis=STRIP_CELLS, construction="paper")
    paper = workshop.get(size)
    ours = workshop.get(replace(size, construction="sum"))
    network = relaxed(paper, Knobs(temperature=sharpness)).network
    center, width = strip(paper.compiled.certificate.ramp, sharpness)
    x1 = center + width * np.linspace(-1.0, 1.0, STRIP_POINTS)
    x2 = 10.0 ** np.linspace(*FAR_RANGE, FAR_POINTS)
    tokens, anywhere = [(0, 0), (0, 1)], np.zeros((1, 2))
    plane = moved(anywhere, tokens, [x1, x2[:, None]])
    line = moved(anywhere, tokens, [x1, np.array(10.0**far)])

    def largest(output: FloatArray) -> FloatArray:
        return np.asarray(np.abs(output).max(axis=(-2, -1)))

    on_line = largest(network(line))
    return {
        "x1": x1.tolist(),
        "center": center,
        "x2": x2.tolist(),
        "far": 10.0**far,
        "paper_plane": largest(network(plane)).tolist(),
        "sum_largest": float(largest(ours.compiled.network(plane)).max()),
        "paper": on_line.tolist(),
        "sum": largest(ours.compiled.network(line)).tolist(),
        "raw": float(largest(before_clip(network, line)).max()),
        "strip_width": float((on_line > 0).mean() * 2 * width),
        "per_unit": float(np.trapezoid(on_line**2, x1)),
    }


def strip(ramp: float, sharpness: float) -> tuple[float, float]:
    """The middle of the strip below x_1 = 0 on which the sweep's first window is undecided, and how far around to look.

    The ramp leads from 0 to the marker, M cells below 0, so the id of x_1 is -1/2 at -ramp / (2 M). A little further the
    scores of the two tokens differ by lambda M |id + 1/2|; where that is of order 1, softmax mixes them. It is between 1.5
    and 3 on the strip, hence 2.25 in the middle.
    """
    grid = Grid(token_dim=1, seq_len=2, cells_per_axis=STRIP_CELLS)
    marker = -quantize.marker(grid) * STRIP_CELLS
    undecided = -ramp / (2 * marker)
    beyond = 2 * 2.25 / (marker * 2.0**sharpness)
    return undecided * (1 + beyond), abs(undecided) * beyond


def before_clip(network: FloatNetwork, x: FloatArray) -> FloatArray:
    """The state on sequences (batch, d, n) before the last layers, which bound the output."""
    return [state.values for state in network.states(x) if state.stage != CLIP][-1]
