"""From a function or from data to a network: `demo`, `targets`, `plan`, `compile`, `memorize`, `tokens`, `benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import provenformer as pf
from provenformer import demo as demonstration
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.certificates.claim import YOURS, claim_about, claim_about_pairs
from provenformer.cli.options import (
    AsJson,
    Depth,
    HowOrDefault,
    KindOption,
    Lipschitz,
    MaxUnits,
    Norm,
    Positional,
    SeqLen,
    Support,
    TargetName,
    TokenDim,
    Vouched,
    console,
    print_json,
    program_of,
    read_pairs,
    target_of,
    working,
)
from provenformer.compiler.compile import CIRCUIT
from provenformer.compiler.request import MAX_UNITS
from provenformer.functions import programs, targets
from provenformer.look.summary import certificate_text, plan_table
from provenformer.storage import source_digest


def demo() -> None:
    """Compile a built-in target both ways, measure, and show one sequence on its way through the network."""
    demonstration.run(console)


def list_targets(as_json: AsJson = False) -> None:
    """The built-in targets."""
    rows = [(name, targets.get(name), targets.describe(name)) for name in targets.names()]
    if as_json:
        print_json(
            [{"name": a, "equivariant": t.equivariant, "lipschitz": t.lipschitz, "formula": f} for a, t, f in rows]
        )
        return
    table = Table("name", "theorem", "Lipschitz (n=3)", "formula", box=None)
    for name, target, formula in rows:
        theorem = "2 (equivariant)" if target.equivariant else "3 (positions)"
        table.add_row(name, theorem, f"{target.lipschitz:.3g}", formula)
    console.print(table)


def plan(
    target: Annotated[
        str | None, typer.Argument(help="The function of a circuit; a table needs sizes only. As for `compile`.")
    ] = None,
    token_dim: TokenDim = 1,
    seq_len: SeqLen = 3,
    tolerance: Annotated[float | None, typer.Option(help="The distance you can accept, of a circuit.")] = None,
    cells: Annotated[int | None, typer.Option("--cells", "-N", help="Cells per axis of a table; 8 by default.")] = None,
    norm: Norm = 2,
    construction: HowOrDefault = None,
    max_units: MaxUnits = MAX_UNITS,
    depth: Depth = 0,
    support: Support = "0,1",
    positional: Positional = False,
    as_json: AsJson = False,
) -> None:
    """Sizes of a network, exactly and at once, without building it."""
    sizes: pf.Plan | pf.CircuitPlan
    if target is None:
        if tolerance is not None or construction == CIRCUIT:
            raise ProvenformerError("a circuit is planned for a function; name it, as for `provenformer compile`.")
        sizes = pf.plan(token_dim, seq_len, 8 if cells is None else cells, construction, positional)
    else:
        f = target_of(target, token_dim, seq_len, support, positional, None)
        sizes = pf.plan(
            f, tolerance=tolerance, norm_order=norm, cells_per_axis=cells, construction=construction,
            max_units=max_units, depth=depth,
        )  # fmt: skip
    if as_json:
        print_json(sizes.to_json())
        return
    if isinstance(sizes, pf.CircuitPlan):
        console.print(f"construction: {one_line(sizes.choice)}", soft_wrap=True)
    console.print(plan_table(sizes))


def compile_target(
    target: TargetName,
    token_dim: TokenDim = 1,
    seq_len: SeqLen = 3,
    tolerance: Annotated[float | None, typer.Option(help="The distance you can accept.")] = None,
    cells: Annotated[int | None, typer.Option("--cells", "-N", help="Cells per axis instead of a tolerance.")] = None,
    norm: Norm = 2,
    construction: HowOrDefault = None,
    max_units: MaxUnits = MAX_UNITS,
    depth: Depth = 0,
    hidden_dim: Annotated[int, typer.Option(help="Hidden units per layer of a table, 4 W: width for depth.")] = 4,
    support: Support = "0,1",
    positional: Positional = False,
    vouched: Vouched = False,
    lipschitz: Lipschitz = None,
    kind: KindOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Save to this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Construct a network with a certificate; save it with -o DIR."""
    f = target_of(target, token_dim, seq_len, support, positional, lipschitz, vouched)
    with working(f"compiling {f.name}") as say:
        c = pf.compile(
            f, tolerance=tolerance, cells_per_axis=cells, norm_order=norm, construction=construction,
            max_units=max_units, depth=depth, hidden_dim=hidden_dim, kind=kind, progress=say,
        )  # fmt: skip
        if output is not None:
            say("saving")
            c.save(output)
    claim = claim_about(c.certificate, f, YOURS, source_digest(f))
    if as_json:
        parts = {
            "choice": c.choice,
            "plan": c.plan.to_json(),
            "certificate": c.certificate.to_json(),
            "claim": claim.to_json(),
        }
        print_json({**parts, "folder": output and str(output)})
        return
    console.print(f"construction: {one_line(c.choice)}", soft_wrap=True)
    console.print(plan_table(c.plan))
    console.print(certificate_text(c.certificate, claim), soft_wrap=True)
    if output is not None:
        where, named = one_line(output), f" --target {one_line(target)}" if ":" in target else ""
        named += f" --lipschitz {f.lipschitz!r}" if named and c.certificate.kind == "lipschitz" else ""
        named += " --vouched" if named and f.vouched else ""
        console.print(f"saved to {where}; check it with: provenformer verify {where}{named}", soft_wrap=True)


def memorize(
    data: Annotated[
        Path, typer.Argument(help="An .npz or .json file with `inputs` and `outputs`, (count, d, n) each.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Save to this folder.")],
    positional: Annotated[bool, typer.Option("--positional", help="Use positions: order matters.")] = False,
    as_json: AsJson = False,
) -> None:
    """A network that reproduces given pairs of sequences."""
    pairs = read_pairs(data)
    with working("memorising"):
        c = pf.memorize(pairs["inputs"], pairs["outputs"], positional=positional)
        c.save(output)
    claim = claim_about_pairs(c.certificate, c.inputs, c.outputs, f"from {one_line(data)}")
    if as_json:
        parts = {"layers": c.network.layers, "certificate": c.certificate.to_json(), "claim": claim.to_json()}
        print_json({**parts, "folder": str(output)})
    else:
        console.print(f"{c.network.layers:,} layers, saved to {one_line(output)}\n{claim}", soft_wrap=True)


def compile_program(
    program: Annotated[str, typer.Argument(help="A program of the library, or module:function on arrays (..., n).")],
    vocab: Annotated[int, typer.Option("--vocab", "-V", help="Tokens of the alphabet, 0 to V - 1.")] = 8,
    seq_len: SeqLen = 8,
    pad: Annotated[bool, typer.Option("--pad", help="The last token ends shorter sequences (library only).")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Save to this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """A program on tokens as a Transformer that answers every sequence exactly; what each head does, in words."""
    with working(f"compiling {program}") as say:
        asked = (
            programs.get(program, vocab, seq_len, pad) if ":" not in program else program_of(program, vocab, seq_len)
        )
        c = pf.compile_tokens(asked, construction="circuit", progress=say)
        if output is not None:
            c.save(output)
    if as_json:
        sizes = {"parameters": c.network.parameters, "blocks": c.network.blocks, "heads": c.circuit.heads}
        print_json({**sizes, "certificate": c.certificate.to_json(), "folder": output and str(output)})
        return
    console.print(str(c.circuit), soft_wrap=True)
    bounds = ", ".join(f"{value:.2g} in {name}" for name, value in c.certificate.bounds.items())
    console.print(
        f"{c.network.parameters:,} parameters; {c.certificate.short}; errors at most {bounds}", soft_wrap=True
    )
    if output is not None:
        where, named = one_line(output), f" --target {one_line(program)}" if ":" in program else ""
        console.print(f"saved to {where}; check it with: provenformer verify {where}{named}", soft_wrap=True)


def benchmark(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    largest: Annotated[int, typer.Option("--largest", help="Tokens of the largest network, 3 to 32.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Verification problems with known answers: ONNX, VNN-LIB, instances.csv, witnesses, a README."""
    from provenformer.instances.write import write_benchmark  # noqa: PLC0415  (circuits are loaded when they are needed)

    with working("compiling networks"):
        found = write_benchmark(folder, largest)
    hold = sum(problem.answer == "unsat" for problem in found)
    if as_json:
        print_json({"folder": str(folder), "instances": len(found), "unsat": hold, "sat": len(found) - hold})
    else:
        networks = len({problem.network for problem in found})
        counts = (
            f"{len(found)} problems about {networks} networks, {hold} hold, {len(found) - hold} fail with a witness"
        )
        console.print(f"{counts}: {one_line(folder)}", soft_wrap=True)
