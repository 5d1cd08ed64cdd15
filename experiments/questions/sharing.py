"""Question 1: why is parameter sharing a hurdle?

Tokens share all weights, so a network without positions is equivariant, and no training or construction takes it nearer to a
function than that function's symmetric part. Layers could share weights too: we count what the construction would lose.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from experiments.questions.learned import Shape, measured, train_on, train_on_table

import provenformer as pf
from provenformer.base.exact import ExactArray
from provenformer.constructions.lemmas import contextual_map_ids
from provenformer.constructions.paper.context import Sweep


def symmetric_part(f: pf.Target) -> Any:
    """The mean of f(XP)P^-1 over all P: in L_2 the orthogonal projection of f on the equivariant functions."""
    orders = [list(order) for order in permutations(range(f.seq_len))]

    def average(x: Any) -> Any:
        return np.mean([f(x[..., order])[..., np.argsort(order)] for order in orders], axis=0)

    return average


def distinct_layers(network: Any) -> dict[str, list[int]]:
    """Layers, and different ones among them, per stage."""
    out: dict[str, list[int]] = {}
    for run in network.runs:
        arrays = [v.reshape(len(run), -1) for v in vars(run).values() if isinstance(v, np.ndarray)]
        different = len(np.unique(np.concatenate(arrays, axis=1), axis=0))
        total = out.setdefault(run.stage, [0, 0])
        total[0], total[1] = total[0] + len(run), total[1] + different
    return out


class OneShift(Sweep):
    """The sweep with its selective shifts tied: every layer visits the same id."""

    visited = 1

    def layers(self, unit_width: Any) -> Any:
        sweep, last = super().layers(unit_width)
        bias = np.array([[1 - 2 * self.visited, -1 - 2 * self.visited]] * len(sweep)) * unit_width.numerator
        return [replace(sweep, b_Q=ExactArray(bias, 2 * unit_width.denominator)), last]


def run(quick: bool) -> dict[str, Any]:
    """Floor and errors across tokens; distinct layers and tied training across layers."""
    steps, seeds = (30, 1) if quick else (1000, 3)
    tokens = []
    for name in ("sort", "reverse", "cumulative-mean"):
        f = pf.targets.get(name, token_dim=1, seq_len=3)
        c = pf.compile(f, cells_per_axis=4 if quick else 8)
        row: dict[str, Any] = {
            "target": name,
            "floor": measured(f, symmetric_part(f)),
            "positions_blocks": c.network.blocks,
            "positions_measured": measured(f, c.network, c.grid.cells_per_axis),
            "positions_certified": c.certificate.bound,
        }
        if name == "sort":
            row["learned_without_positions"] = train_on(f, Shape(2), steps, seeds).errors
            row["learned_with_positions"] = train_on(f, Shape(2, positions=True), steps, seeds).errors
        tokens.append(row)

    counts = [
        {"seq_len": n, "shared": pf.plan(1, n, 8).blocks, "by_position": pf.plan(1, n, 8, positional=True).blocks}
        for n in range(2, 7)
    ]

    f = pf.targets.get("softmax-mean", token_dim=1, seq_len=3)
    c = pf.compile(f, cells_per_axis=7)
    grid = pf.Grid(1, 3, 4)
    sequences = grid.contexts("sets")[:, None, :]
    tied_map = pf.is_contextual_mapping(contextual_map_ids(OneShift(grid), sequences)[1], sequences)
    own_map = pf.is_contextual_mapping(contextual_map_ids(Sweep(grid), sequences)[1], sequences)
    depth = 2 if quick else 8
    shapes = {
        f"{depth} blocks": Shape(depth, positions=True),
        f"{depth} times one block": Shape(depth, positions=True, tied=True),
        "1 block": Shape(1, positions=True),
    }
    training = [
        {"shape": name, "parameters": s.parameters(1, 3), "errors": train_on_table(s, steps, seeds).errors}
        for name, s in shapes.items()
    ]
    return {
        "tokens": tokens,
        "counts": counts,
        "layers": {
            "distinct": distinct_layers(c.network),
            "own_biases": {"contextual": bool(own_map)},
            "tied_biases": {"contextual": bool(tied_map), "counterexample": tied_map.counterexample},
            "training": training,
        },
    }
