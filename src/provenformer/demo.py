"""The demonstration behind `make demo`: a formula over 512 tokens as a circuit, then tables as in the paper."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import provenformer as pf
from provenformer.certificates.claim import BUILT_IN, YOURS, claim_about
from provenformer.look.summary import certificate_text, plan_table, trace_table
from provenformer.storage import source_digest

LONG, WITHIN = 512, 1e-3
TARGET, TOKENS, RELATIVE = "softmax-mean", 3, 0.05


def layer_norm(x: Any) -> Any:
    """(x_j - mean) / sqrt(variance + 0.1), over the tokens."""
    z = x - np.mean(x, axis=-1, keepdims=True)
    return z / np.sqrt(np.mean(np.square(z), axis=-1, keepdims=True) + 0.1)


def run(console: Console) -> None:
    """Print the demonstration."""
    _circuit(console)
    _table(console)


def _circuit(console: Console) -> None:
    """Plan, certificate, independent check and measured error of a function of many tokens."""
    f = pf.Target(layer_norm, token_dim=1, seq_len=LONG, name="layer norm")
    console.print(f"target: {f.name}, {layer_norm.__doc__} {LONG} tokens; within {WITHIN:g} of it for every sequence\n")
    c = pf.compile(f, tolerance=WITHIN, norm_order=np.inf, construction="circuit")
    console.print(plan_table(c.plan), "")
    console.print(
        certificate_text(c.certificate, claim_about(c.certificate, f, YOURS, source_digest(f))), "", soft_wrap=True
    )
    with tempfile.TemporaryDirectory() as folder:
        c.save(Path(folder) / "net")
        report = pf.verify(Path(folder) / "net", f)
    console.print(f"independent check of the saved weights: {'holds' if report else 'REJECTED'} ({report.reason})")
    x = f.sample(1000)
    console.print(f"largest error on {len(x):,} random sequences: {np.abs(c.network(x) - f(x)).max():.2g}\n")


def _table(console: Console) -> None:
    """The paper's way: a table of the function, in blocks of two heads of size one and four ReLUs."""
    f = pf.targets.get(TARGET, token_dim=1, seq_len=TOKENS)
    norm = float(pf.distance(f, np.zeros_like, token_dim=1, seq_len=TOKENS))
    console.print(f"as a table: {TARGET}, {pf.targets.describe(TARGET)}")
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
