"""The demonstration behind `make demo`: one target, both constructions, certificates, measurements, one sequence."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import provenformer as pf
from provenformer.certificates.claim import BUILT_IN, claim_about
from provenformer.look.summary import certificate_text, plan_table, trace_table
from provenformer.storage import source_digest

TARGET, TOKENS, RELATIVE = "softmax-mean", 3, 0.05


def run(console: Console) -> None:
    """Print the demonstration."""
    f = pf.targets.get(TARGET, token_dim=1, seq_len=TOKENS)
    norm = float(pf.distance(f, np.zeros_like, token_dim=1, seq_len=TOKENS))
    console.print(f"target: {TARGET}, {pf.targets.describe(TARGET)}")
    console.print(
        f"asked for: {RELATIVE:.0%} of its norm {norm:.4f} in d_2, over sequences of {TOKENS} scalar tokens\n"
    )
    c = pf.compile(f, tolerance=RELATIVE * norm, construction="sum")
    console.print(plan_table(c.plan), "")
    console.print(
        certificate_text(c.certificate, claim_about(c.certificate, f, BUILT_IN, source_digest(f))), "", soft_wrap=True
    )
    with tempfile.TemporaryDirectory() as folder:
        c.save(Path(folder) / "net")
        report = pf.verify(Path(folder) / "net")
    console.print(f"independent check of the saved weights: {'holds' if report else 'REJECTED'} ({report.reason})\n")
    _compare(console, f, c)
    x = np.array([[[0.2, 0.9, 0.55]]])
    console.print(f"\none sequence through the modified network (N={c.grid.cells_per_axis}, exact)")
    console.print(trace_table(list(c.modified.trace(x))))
    console.print(f"network, float64: {np.round(c.network(x)[0, 0], 6).tolist()}")
    console.print(f"target:           {np.round(f(x)[0, 0], 6).tolist()}")


def _compare(console: Console, f: pf.Target, c: pf.Compiled) -> None:
    """The same grid by the paper's construction, and what the paper's would need for the same tolerance."""
    p = pf.compile(f, cells_per_axis=c.grid.cells_per_axis, construction="paper")
    table = Table("construction", "blocks", "cubes lost", "measured d_2", "certified", box=None)
    for name, each in (("sum", c), ("paper", p)):
        measured = pf.distance(
            f, each.network, token_dim=1, seq_len=TOKENS, cells_per_axis=each.grid.cells_per_axis, samples=1 << 14
        )
        table.add_row(
            name, f"{each.network.blocks:,}", f"{float(each.plan.lost_share):.1%}",
            f"{measured.value:.4f} +- {measured.error:.0e}", f"{each.certificate.bound:.4f}",
        )  # fmt: skip
    console.print(table)
    try:
        pf.compile(f, tolerance=c.certificate.bound, construction="paper")
    except pf.ProvenformerError as refusal:
        console.print(f"the paper's construction at the same tolerance: {refusal}")
