"""Tables for people: plans, certificates, traces."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from provenformer.certificates.certificate import Certificate
from provenformer.certificates.claim import Claim
from provenformer.constructions.plan import Plan
from provenformer.networks.base import FloatNetwork
from provenformer.networks.modified import Step


def number(value: float) -> str:
    """A number with as many digits as help."""
    return f"{value:.3g}" if value else "0"


def count(value: int) -> str:
    """An integer with separators, or its size when it would fill the line."""
    return (
        f"{value:,}" if value < 10**15 else f"{value:.3e}" if value < 10**300 else f"about 2^{value.bit_length() - 1}"
    )


def plan_table(plan: Plan) -> Table:
    """Layers per stage and the totals."""
    g = plan.grid
    theorem = "Theorem 3" if plan.positional else "Theorem 2"
    title = f"{plan.construction} construction, {theorem}: d={g.token_dim}, n={g.seq_len}, N={g.cells_per_axis}"
    table = Table("quantity", "value", title=title, title_justify="left", box=None)
    for stage, layers in plan.stages.items():
        table.add_row(f"layers: {stage}", count(layers))
    table.add_row(f"blocks, {count(plan.hidden_dim)} hidden units", count(plan.blocks))
    table.add_row("parameters", count(plan.parameters))
    table.add_row("contexts", count(plan.contexts))
    table.add_row("id bits", str(plan.id_bits))
    table.add_row("cubes lost (output 0)", f"{float(plan.lost_share):.2%}")
    table.add_row("residual network (Lin & Jegelka): layers", count(plan.residual_layers))
    table.add_row("residual network: parameters", count(plan.residual_parameters))
    return table


def network_table(network: FloatNetwork) -> Table:
    """The sizes of a network that is there already."""
    heads, _, hidden_dim = network.shape
    table = Table(
        "quantity", "value", title=f"d={network.token_dim}, n={network.seq_len}", title_justify="left", box=None
    )
    table.add_row("blocks", count(network.blocks))
    table.add_row("heads of a block", f"at most {heads}")
    table.add_row(
        "hidden units", f"{count(sum(network.hidden_units.values()))}, at most {count(hidden_dim)} in a block"
    )
    table.add_row("parameters", count(network.parameters))
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
