"""`provenformer bert ...`: the bench of mixers. Imported only when asked for, since it needs torch."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from provenformer.bert.claims import check_all
from provenformer.bert.parameters import parameter_table

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.callback()
def _root() -> None:
    """BERT with cheaper token mixers in place of self-attention (Section 6)."""


@app.command()
def params(as_json: AsJson = False) -> None:
    """Parameter counts of BERT_BASE with each mixer, beside the paper's."""
    rows = parameter_table()
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    table = Table("model", "parameters", "paper", "what it is", title="BERT_BASE, masked language model, tied decoder")
    table.columns[1].justify = table.columns[2].justify = "right"
    for row in rows:
        table.add_row(row.model, f"{row.count:,}", row.paper or "", row.note)
    Console().print(table)


@app.command()
def claims(as_json: AsJson = False) -> None:
    """Check what the paper says about the mixers; exit code 1 if a check fails."""
    found = check_all()
    if as_json:
        print(json.dumps([dataclasses.asdict(claim) for claim in found], indent=2))
    else:
        table = Table("", "claim", "evidence", show_lines=True)
        for claim in found:
            table.add_row("holds" if claim.holds else "FAILS", claim.statement, claim.evidence)
        Console().print(table)
    if not all(claim.holds for claim in found):
        raise typer.Exit(1)
