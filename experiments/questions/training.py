"""Question 3: does training find such networks?

Networks of the paper's class are trained on three tasks and put beside constructed ones, all errors in d_2: a smooth
equivariant function, a function that needs positions, and a table of random pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from experiments.questions.learned import Shape, error_on_table, measured, random_table, train_on, train_on_table

import provenformer as pf


def constructed(f: pf.Target, grids: list[int]) -> list[dict[str, Any]]:
    """Compiled networks with their certificates, measured."""
    rows = []
    for cells in grids:
        c = pf.compile(f, cells_per_axis=cells)
        rows.append(
            {
                "cells": cells,
                "blocks": c.network.blocks,
                "parameters": c.network.parameters,
                "error": measured(f, c.network, cells),
                "certified": c.certificate.bound,
            }
        )
    return rows


def learned(shape: Shape, result: Any) -> dict[str, Any]:
    """One line of the table of trained networks."""
    return {
        "blocks": shape.blocks, "hidden_dim": shape.hidden_dim, "parameters": shape.parameters(1, 3), "rate": result.rate,
        "errors": result.errors, "diverged": result.diverged,
    }  # fmt: skip


def run(quick: bool) -> dict[str, Any]:
    """Learned and constructed networks for each task."""
    steps, seeds = (30, 2) if quick else (1000, 3)
    shapes = [(1, 4)] if quick else [(1, 4), (2, 4), (4, 4), (8, 4), (2, 32)]
    tasks: list[dict[str, Any]] = []
    for name, grids in (("softmax-mean", [2, 3, 4, 6, 8, 12, 16]), ("sort", [2, 3, 4, 6, 8, 11])):
        f = pf.targets.get(name, token_dim=1, seq_len=3)
        rows = []
        for blocks, hidden in shapes:
            shape = Shape(blocks, hidden_dim=hidden, positions=not f.equivariant)
            rows.append(learned(shape, train_on(f, shape, steps, seeds)))
        norm = measured(f, np.zeros_like)
        tasks.append(
            {"task": name, "norm": norm, "learned": rows, "constructed": constructed(f, grids[:2] if quick else grids)}
        )

    inputs, outputs = random_table()
    rows = []
    for blocks, hidden in shapes:
        shape = Shape(blocks, hidden_dim=hidden, positions=True)
        rows.append(learned(shape, train_on_table(shape, steps, seeds)))
    m = pf.memorize(inputs, outputs, positional=True)
    exact = {
        "blocks": m.network.blocks, "parameters": m.network.parameters, "error": error_on_table(m.network),
        "certified": float(m.certificate.bound * np.sqrt(3)),  # the certificate bounds every entry
    }  # fmt: skip
    mean = float(np.sqrt(((outputs - outputs.mean(axis=0)) ** 2).sum(axis=(1, 2)).mean()))
    tasks.append(
        {
            "task": f"{len(inputs)} random pairs",
            "norm": error_on_table(np.zeros_like),
            "mean": mean,
            "learned": rows,
            "constructed": [exact],
        }
    )
    return {"steps": steps, "seeds": seeds, "tasks": tasks}
