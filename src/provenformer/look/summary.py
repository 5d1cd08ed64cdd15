"""Tables for people: plans, certificates, traces."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from provenformer.base.exact import size_of
from provenformer.certificates.certificate import Certificate
from provenformer.certificates.claim import Claim
from provenformer.constructions.plan import CircuitPlan, Plan
from provenformer.networks.modified import Step


def number(value: float) -> str:
    """A number with as many digits as help."""
    return f"{value:.3g}" if value else "0"


def plan_table(plan: Plan | CircuitPlan) -> Table:
    """Layers per stage and the totals."""
    if isinstance(plan, CircuitPlan):
        return circuit_table(plan)
    g = plan.grid
    theorem = "Theorem 3" if plan.positional else "Theorem 2"
    title = f"{plan.construction} construction, {theorem}: d={g.token_dim}, n={g.seq_len}, N={g.cells_per_axis}"
    table = Table("quantity", "value", title=title, title_justify="left", box=None)
    for stage, layers in plan.stages.items():
        table.add_row(f"layers: {stage}", size_of(layers))
    table.add_row(f"blocks, {size_of(plan.hidden_dim)} hidden units", size_of(plan.blocks))
    table.add_row("parameters", size_of(plan.parameters))
    table.add_row("contexts", size_of(plan.contexts))
    table.add_row("id bits", f"{plan.id_bits:,}")
    table.add_row("cubes lost (output 0)", f"{float(plan.lost_share):.2%}")
    table.add_row("residual network (Lin & Jegelka): layers", size_of(plan.residual_layers))
    table.add_row("residual network: parameters", size_of(plan.residual_parameters))
    return table


def circuit_table(plan: CircuitPlan) -> Table:
    """The sizes of a circuit."""
    table = Table("quantity", "value", title=f"d={plan.token_dim}, n={plan.seq_len}", title_justify="left", box=None)
    table.add_row("blocks", size_of(plan.blocks))
    table.add_row("heads", size_of(plan.heads))
    table.add_row(
        "hidden units", f"{size_of(plan.units)}, at most {size_of(max(plan.hidden_units, default=0))} in a block"
    )
    table.add_row("channels", size_of(plan.channels))
    table.add_row("parameters", size_of(plan.parameters))
    table.add_row("bytes, float64", size_of(plan.bytes))
    return table


def certificate_text(certificate: Certificate, claim: Claim | None = None) -> str:
    """The bound with its terms; with the claim, in full: of which function, where, and what it rests on."""
    head = str(claim) if claim else f"certificate: {certificate.short}\n  {certificate.basis}"
    terms = "".join(f"\n  {name:<10}  {number(value)}" for name, value in certificate.terms.items())
    return f"{head}{terms}"


def trace_table(steps: Sequence[Step]) -> Table:
    """The first sequence after every step, one row per step."""
    table = Table("after", "layers", "tokens", box=None)
    for step in steps:
        tokens = step.floats()[0].T
        shown = "  ".join("(" + ", ".join(f"{v:.6g}" for v in token) + ")" for token in tokens)
        table.add_row(step.stage, f"{step.layer:,}", shown)
    return table
