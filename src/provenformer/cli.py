"""The command line: `provenformer COMMAND`. Each command is a thin wrapper around one public function."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import provenformer as pf
from provenformer import demo as demonstration
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.extras import extra
from provenformer.base.files import parse_json
from provenformer.certificates.claim import YOURS, claim_about, claim_about_pairs
from provenformer.compiler.compile import CIRCUIT
from provenformer.compiler.request import MAX_UNITS
from provenformer.constructions import registry
from provenformer.functions import targets
from provenformer.functions.targets import Target
from provenformer.look.summary import certificate_text, number, plan_table, trace_table
from provenformer.storage import Saved, import_function, source_digest

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
# No markup: names come from users and from folders, and "[green]holds[/green]" in one of them is only a name.
console = Console(markup=False, emoji=False)
errors = Console(stderr=True, markup=False, emoji=False)

TargetName = Annotated[str, typer.Argument(help="A built-in target (see `targets`), or module:function.")]
TokenDim = Annotated[int, typer.Option("--token-dim", "-d", help="Numbers per token.")]
SeqLen = Annotated[int, typer.Option("--seq-len", "-n", help="Tokens per sequence.")]
Cells = Annotated[int, typer.Option("--cells", "-N", help="Cells per axis, 1/delta.")]
How = Annotated[str, typer.Option("--construction", help="sum (ours), paper or wide.")]
HowOrDefault = Annotated[
    str | None,
    typer.Option("--construction", help="circuit, sum, paper or wide. Default: circuit if f can be traced, else sum."),
]
Depth = Annotated[int, typer.Option("--depth", help="Of a circuit: fold squares so often; deeper, with fewer units.")]
MaxUnits = Annotated[int, typer.Option("--max-units", help="The most ReLUs of a circuit.")]
Norm = Annotated[float, typer.Option("--norm", "-p", help="Norm order p >= 1; inf for the sup norm of a circuit.")]
Support = Annotated[str, typer.Option("--support", help="The box, LOW,HIGH.")]
Positional = Annotated[bool, typer.Option("--positional", help="A function of your own that is not equivariant.")]
Lipschitz = Annotated[float | None, typer.Option("--lipschitz", help="A Lipschitz constant you claim.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Folder = Annotated[Path, typer.Argument(help="A folder written by `compile` or `memorize`.")]
Against = Annotated[
    str | None, typer.Option("--target", help="The function to check against, yours: built-in name or module:function.")
]
Trust = Annotated[
    bool, typer.Option("--trust-target", help="Import the function that the folder names. This runs its module.")
]
Vouched = Annotated[
    float | None, typer.Option("--lipschitz", help="A Lipschitz constant of the --target, if the claim rests on one.")
]
Vanishes = Annotated[bool, typer.Option("--vanishes-outside", help="The --target is 0 outside its box.")]
Sequences = Annotated[
    str, typer.Option("--input", "-i", help="Sequences: a .json or .npy file, '-' for JSON on standard input.")
]


@app.callback()
def _root() -> None:
    """Construct Transformers that provably approximate a function."""


@app.command()
def demo() -> None:
    """Compile a built-in target both ways, measure, and show one sequence on its way through the network."""
    demonstration.run(console)


@app.command("targets")
def list_targets(as_json: AsJson = False) -> None:
    """The built-in targets."""
    rows = [(name, targets.get(name), targets.describe(name)) for name in targets.names()]
    if as_json:
        _print_json(
            [{"name": a, "equivariant": t.equivariant, "lipschitz": t.lipschitz, "formula": f} for a, t, f in rows]
        )
        return
    table = Table("name", "theorem", "Lipschitz (n=3)", "formula", box=None)
    for name, target, formula in rows:
        theorem = "2 (equivariant)" if target.equivariant else "3 (positions)"
        table.add_row(name, theorem, f"{target.lipschitz:.3g}", formula)
    console.print(table)


@app.command()
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
        f = _target(target, token_dim, seq_len, support, positional, None)
        sizes = pf.plan(
            f, tolerance=tolerance, norm_order=norm, cells_per_axis=cells, construction=construction,
            max_units=max_units, depth=depth,
        )  # fmt: skip
    if as_json:
        _print_json(sizes.to_json())
        return
    if isinstance(sizes, pf.CircuitPlan):
        console.print(f"construction: {one_line(sizes.choice)}", soft_wrap=True)
    console.print(plan_table(sizes))


@app.command("compile")
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
    lipschitz: Lipschitz = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Save to this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Construct a network with a certificate; save it with -o DIR."""
    f = _target(target, token_dim, seq_len, support, positional, lipschitz)
    with _working(f"compiling {f.name}") as say:
        c = pf.compile(
            f, tolerance=tolerance, cells_per_axis=cells, norm_order=norm, construction=construction,
            max_units=max_units, depth=depth, hidden_dim=hidden_dim, progress=say,
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
        _print_json({**parts, "folder": output and str(output)})
        return
    console.print(f"construction: {one_line(c.choice)}", soft_wrap=True)
    console.print(plan_table(c.plan))
    console.print(certificate_text(c.certificate, claim), soft_wrap=True)
    if output is not None:
        where, named = one_line(output), f" --target {one_line(target)}" if ":" in target else ""
        named += f" --lipschitz {f.lipschitz!r}" if named and c.certificate.kind == "lipschitz" else ""
        console.print(f"saved to {where}; check it with: provenformer verify {where}{named}", soft_wrap=True)


@app.command()
def run(folder: Folder, inputs: Sequences = "-", as_json: AsJson = False) -> None:
    """Run a saved network on sequences."""
    saved = pf.load(folder)
    x = _read_sequences(inputs)
    with _working(f"{saved.network.layers:,} layers"):
        y = saved.network(x)
    _print_sequences(x, y, as_json)


@app.command()
def verify(
    folder: Folder,
    target: Against = None,
    lipschitz: Vouched = None,
    vanishes_outside: Vanishes = False,
    trust_target: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Check a saved network independently: re-derive the bound from the weights. Exit code 1 if it does not hold."""
    if target is None and (lipschitz is not None or vanishes_outside):
        raise ProvenformerError("--lipschitz and --vanishes-outside are what you say of the --target; name it, too.")
    given = None
    if target is not None:
        given = _against(pf.load(folder, check_hashes=False), target, lipschitz, vanishes_outside)
    with _working(f"verifying {folder}"):
        report = pf.verify(folder, given, trust_target=trust_target)
    if as_json:
        _print_json(report.to_json())
    else:
        verdict = Text("holds", "green") if report else Text("rejected", "red")
        console.print(verdict.append_text(Text(f": {one_line(report.reason)}", "default")), soft_wrap=True)
        for name, value in report.terms.items():
            console.print(f"  {name:<10} {number(value)}")
        console.print(str(report.claim), soft_wrap=True)
    raise typer.Exit(0 if report else 1)


@app.command()
def trace(
    target: TargetName,
    inputs: Sequences = "-",
    token_dim: TokenDim = 1,
    seq_len: SeqLen = 3,
    cells: Cells = 4,
    construction: How = "paper",
    support: Support = "0,1",
    positional: Positional = False,
    every: Annotated[str, typer.Option(help="stage or layer.")] = "stage",
    as_json: AsJson = False,
) -> None:
    """Show sequences after every stage (or layer) of the modified network, exactly."""
    f = _target(target, token_dim, seq_len, support, positional, None)
    x = _read_sequences(inputs)
    c = pf.compile(f, cells_per_axis=cells, construction=_construction(construction))
    if every not in ("stage", "layer"):
        raise ProvenformerError(f"every='{every}' is not known; use stage or layer.")
    moments: Literal["stage", "layer"] = "layer" if every == "layer" else "stage"
    steps = list(c.modified.trace(x.reshape(-1, *x.shape[-2:]), every=moments))
    if as_json:
        exact = [[[str(v) for v in row] for row in s.values().reshape(-1, s.num.shape[-1])] for s in steps]
        _print_json([{"stage": s.stage, "layer": s.layer, "state": e} for s, e in zip(steps, exact, strict=True)])
        return
    console.print(trace_table(steps))


@app.command()
def memorize(
    data: Annotated[
        Path, typer.Argument(help="An .npz or .json file with `inputs` and `outputs`, (count, d, n) each.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Save to this folder.")],
    positional: Annotated[bool, typer.Option("--positional", help="Use positions: order matters.")] = False,
    as_json: AsJson = False,
) -> None:
    """A network that reproduces given pairs of sequences."""
    pairs = _read_pairs(data)
    with _working("memorising"):
        c = pf.memorize(pairs["inputs"], pairs["outputs"], positional=positional)
        c.save(output)
    claim = claim_about_pairs(c.certificate, c.inputs, c.outputs, f"from {one_line(data)}")
    if as_json:
        parts = {"layers": c.network.layers, "certificate": c.certificate.to_json(), "claim": claim.to_json()}
        _print_json({**parts, "folder": str(output)})
    else:
        console.print(f"{c.network.layers:,} layers, saved to {one_line(output)}\n{claim}", soft_wrap=True)


@app.command()
def distance(
    folder: Folder,
    norm: Norm = 2,
    samples: Annotated[int, typer.Option(help="How many sequences to try.")] = 1 << 14,
    target: Against = None,
    trust_target: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Measure the distance between a saved network and its target, beside the certified bound."""
    saved = pf.load(folder)
    f = saved.target if target is None else _against(saved, target)
    if f is None and trust_target:
        f = saved.import_target()
    if f is None:
        raise ProvenformerError(
            f"{saved.why_no_target}; name the target yourself with --target, or use --trust-target."
        )
    with _working("measuring"):
        measured = pf.distance(
            f, saved.network, token_dim=f.token_dim, seq_len=f.seq_len, norm_order=norm, support=f.support,
            samples=samples, cells_per_axis=saved.manifest.get("cells_per_axis"),
        )  # fmt: skip
    if as_json:
        _print_json({**vars(measured), "bound": saved.certificate.bound, "bound_norm": saved.certificate.norm_order})
        return
    console.print(f"d_{norm:g} = {measured.value:.6g} +- {measured.error:.2g} ({measured.samples:,} sequences)")
    if saved.certificate.norm_order == norm:
        console.print(f"certified: <= {number(saved.certificate.bound)} ({saved.certificate.kind})")


@app.command()
def explore(
    folder: Annotated[Path | None, typer.Argument(help="A saved circuit to open.")] = None,
    target: Against = None,
    port: Annotated[int, typer.Option(help="Where to listen on this machine; 0 finds a free port.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Play with the construction in a browser, on this machine only."""
    with extra("explore", "`provenformer explore`"):
        from provenformer.explore.circuits import open_circuit  # noqa: PLC0415
        from provenformer.explore.server import serve  # noqa: PLC0415
    if folder is None and target is not None:
        raise ProvenformerError("--target is the function of a saved circuit; give its folder, too.")
    function = None if folder is None or target is None else _against(pf.load(folder), target)
    given = None if folder is None else open_circuit(folder, function)
    serve(port, open_browser, console.print, given)


@app.command("report")
def write_report(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML page to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Write each figure to this folder, too.")] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="svg, png or pdf; may be given several times. Default: svg.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option("--input", "-i", help="The sequence to follow: a .json or .npy file, '-' for JSON.")
    ] = None,
    target: Against = None,
) -> None:
    """One self-contained page about a saved network: certificate, sizes, pictures of every stage."""
    from provenformer.report import known_formats, report  # noqa: PLC0415

    if formats and figures is None:
        raise ProvenformerError("--format is for the files of --figures; give their folder with --figures DIR.")
    kinds = known_formats(formats or ["svg"])
    sequence = None if inputs is None else _read_sequences(inputs)
    given = None if target is None else _against(pf.load(folder), target)
    with _working(f"looking at {folder}"):
        written = report(folder, output, figures=figures, formats=kinds, sequence=sequence, target=given)
    more = f" and {len(written) - 1} figures to {figures}" if figures is not None else ""
    console.print(one_line(f"wrote {output}{more}"))


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help="BERT with cheaper token mixers in place of self-attention (Section 6).",
)
def bert(context: typer.Context) -> None:
    # Imported here, so that the rest of the command line starts fast and works without torch.
    with extra("bert", "`provenformer bert`"):
        from provenformer.bert.cli import app as bert_app  # noqa: PLC0415
    bert_app(context.args, prog_name="provenformer bert")


def main() -> None:
    """Run the app; bad input is one line on stderr and exit code 2, never a stack trace."""
    try:
        app()
    except ProvenformerError as error:
        _fail(str(error))
    except (MemoryError, RecursionError) as error:
        _fail(f"this needs more than this machine has ({error}); use smaller sizes.")
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(reason: str) -> None:
    print(f"error: {one_line(reason)}", file=sys.stderr)
    sys.exit(2)


def _target(name: str, d: int, n: int, support: str, positional: bool, lipschitz: float | None) -> Target:
    try:
        low, high = (float(v) for v in support.split(","))
    except ValueError as error:
        raise ProvenformerError(f"support '{support}' is not LOW,HIGH; for example --support -1,1.") from error
    if ":" not in name:
        return targets.get(name, d, n, (low, high))
    return Target(_typed_function(name), d, n, not positional, lipschitz, (low, high), name)


def _against(saved: Saved, name: str, lipschitz: float | None = None, vanishes_outside: bool = False) -> Target:
    """The function that the user names for a saved network: sizes and box are the folder's, facts about it the user's.

    A network without positions is about functions that are equivariant, so that is assumed; the claim says so.
    """
    spec = saved.manifest["target"]
    if spec["source"] == "data":
        raise ProvenformerError(
            "the network was made from pairs of sequences, not from a function; leave --target out."
        )
    net, support = saved.network, (tuple(spec["support"][0]), tuple(spec["support"][1]))
    if ":" not in name:
        return targets.get(name, net.token_dim, net.seq_len, support)
    return Target(
        _typed_function(name), net.token_dim, net.seq_len, net.positions is None, lipschitz, support, name, vanishes_outside
    )  # fmt: skip


def _typed_function(name: str) -> Any:
    """`module:function` as the user typed it, also from the current folder."""
    return import_function(name, current_folder=True)


def _construction(name: str) -> str:
    return registry.get(name).name


def _read_sequences(source: str) -> FloatArray:
    x: FloatArray
    try:
        if source.endswith(".npy"):
            x = _numbers(np.load(source, allow_pickle=False))
        else:
            x = _numbers(parse_json(sys.stdin.read() if source == "-" else Path(source).read_bytes(), "the input"))
    except Exception as error:  # a file may be anything
        raise ProvenformerError(
            f"cannot read sequences from '{source}' ({one_line(error)[:200]}); give JSON or .npy (..., d, n)."
        ) from error
    if x.ndim < 2:
        raise ProvenformerError(
            f"sequences have shape {x.shape}; give (..., token_dim, seq_len), one token per column."
        )
    return x


def _numbers(value: Any) -> FloatArray:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" and array.dtype != object:  # object: whole numbers beyond int64
        raise ValueError(f"{array.dtype} is not a type of real numbers")
    return np.asarray(array, dtype=np.float64)


def _read_pairs(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as data:
                return {name: _numbers(data[name]) for name in ("inputs", "outputs")}
        read = parse_json(path.read_bytes(), "the file")
        return {name: _numbers(read[name]) for name in ("inputs", "outputs")}
    except Exception as error:  # a file may be anything
        reason = one_line(f"{type(error).__name__}: {error}")[:200]
        raise ProvenformerError(
            f"cannot read inputs and outputs from {path} ({reason}); give .npz or .json."
        ) from error


def _print_sequences(x: FloatArray, y: FloatArray, as_json: bool) -> None:
    if as_json:
        _print_json(y.tolist())
        return
    table = Table("input", "output", box=None)
    for a, b in zip(x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:]), strict=True):
        table.add_row(*(np.array2string(v, precision=5, suppress_small=True) for v in (a, b)))
    console.print(table)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


@contextmanager
def _working(what: str) -> Iterator[Any]:
    """A spinner with what is being done, on standard error; nothing when that is not a terminal."""
    what = one_line(what)
    with errors.status(Text(what)) as status:
        yield lambda message: status.update(Text(f"{what}: {one_line(message)}"))
