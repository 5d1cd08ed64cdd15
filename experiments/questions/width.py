"""Question 5: do bigger blocks mean fewer?

Blocks against hidden units for one function and grid, every network with its certificate, saved and verified.
"""

from __future__ import annotations

import tempfile
from typing import Any

import provenformer as pf


def row(c: pf.Compiled) -> dict[str, Any]:
    """Sizes and certificate of a network, and the verdict of the independent check."""
    with tempfile.TemporaryDirectory() as folder:
        c.save(f"{folder}/net")
        verified = bool(pf.verify(f"{folder}/net"))
    return {
        "construction": c.construction, "hidden_dim": c.network.hidden_dim, "blocks": c.network.blocks,
        "parameters": c.network.parameters, "certified": c.certificate.bound, "verified": verified,
    }  # fmt: skip


def run(quick: bool) -> dict[str, Any]:
    """Width for depth on two grids, and how the counts grow with the length."""
    f = pf.targets.get("scaled-mean", token_dim=1, seq_len=3)
    grids = []
    for cells in (4,) if quick else (6, 8, 12):
        networks = [pf.compile(f, cells_per_axis=cells, hidden_dim=4 * w) for w in (1, 2, 4, 8, 16, 32)]
        networks.append(pf.compile(f, cells_per_axis=cells, construction="wide"))
        grids.append({"cells": cells, "contexts": networks[0].plan.contexts, "networks": [row(c) for c in networks]})
    lengths = [
        {"seq_len": n, "thin_blocks": pf.plan(1, n, 8).blocks, "wide_blocks": wide.blocks, "wide_units": sum(wide.hidden_units),
         "thin_parameters": pf.plan(1, n, 8).parameters, "wide_parameters": wide.parameters}
        for n, wide in ((n, pf.plan(1, n, 8, "wide")) for n in range(2, 9))
    ]  # fmt: skip
    return {"target": f.name, "grids": grids, "lengths": lengths}
