"""What the commands share: the options, where they print, and what they read and write."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.files import parse_json
from provenformer.bounds.integrals import Kind
from provenformer.functions import programs, targets
from provenformer.functions.targets import Target
from provenformer.functions.tokens import TokenProgram
from provenformer.storage import Saved, import_function

# No markup: names come from users and from folders, and "[green]holds[/green]" in one of them is only a name.
console = Console(markup=False, emoji=False)
errors = Console(stderr=True, markup=False, emoji=False)

TargetName = Annotated[str, typer.Argument(help="A built-in target (see `targets`), or module:function.")]
TokenDim = Annotated[int, typer.Option("--token-dim", "-d", help="Numbers per token.")]
SeqLen = Annotated[int, typer.Option("--seq-len", "-n", help="Tokens per sequence.")]
Cells = Annotated[int, typer.Option("--cells", "-N", help="Cells per axis, 1/delta.")]
How = Annotated[str, typer.Option("--construction", help="sum (ours, the default), paper or wide.")]
HowOrDefault = Annotated[
    str | None,
    typer.Option("--construction", help="circuit, sum, paper or wide. Default: circuit if f can be traced, else sum."),
]
Depth = Annotated[int, typer.Option("--depth", help="Of a circuit: fold squares so often; deeper, with fewer units.")]
MaxUnits = Annotated[int, typer.Option("--max-units", help="The most ReLUs of a circuit.")]
KindOption = Annotated[Kind | None, typer.Option("--kind", help="Of a table's certificate. Default: the strongest.")]
Norm = Annotated[float, typer.Option("--norm", "-p", help="Norm order p >= 1; inf for the sup norm of a circuit.")]
Support = Annotated[str, typer.Option("--support", help="The box, LOW,HIGH.")]
Positional = Annotated[bool, typer.Option("--positional", help="A function of your own that is not equivariant.")]
Vouched = Annotated[
    bool,
    typer.Option(
        "--vouched", help="Your word that a function of your own is equivariant: its table needs fewer cubes."
    ),
]
Lipschitz = Annotated[float | None, typer.Option("--lipschitz", help="A Lipschitz constant you claim.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Folder = Annotated[Path, typer.Argument(help="A folder written by `compile` or `memorize`.")]
Against = Annotated[
    str | None, typer.Option("--target", help="The function to check against, yours: built-in name or module:function.")
]
Trust = Annotated[
    bool, typer.Option("--trust-target", help="Import the function that the folder names. This runs its module.")
]
ItsLipschitz = Annotated[
    float | None, typer.Option("--lipschitz", help="A Lipschitz constant of the --target, if the claim rests on one.")
]
ItsVouched = Annotated[bool, typer.Option("--vouched", help="Your word that the --target is equivariant.")]
Vanishes = Annotated[bool, typer.Option("--vanishes-outside", help="The --target is 0 outside its box.")]
Sequences = Annotated[
    str, typer.Option("--input", "-i", help="Sequences: a .json or .npy file, '-' for JSON on standard input.")
]


def target_of(
    name: str, d: int, n: int, support: str, positional: bool, lipschitz: float | None, vouched: bool = False
) -> Target:
    try:
        low, high = (float(v) for v in support.split(","))
    except ValueError as error:
        raise ProvenformerError(f"--support {support} is not LOW,HIGH; for example --support -1,1.") from error
    if ":" not in name:
        return targets.get(name, d, n, (low, high))
    return Target(typed_function(name), d, n, not positional, lipschitz, (low, high), name, vouched=vouched)


def function_of(
    saved: Saved, name: str, lipschitz: float | None = None, vanishes_outside: bool = False, vouched: bool = False
) -> Target | TokenProgram:
    """The function, or the program on tokens, that the user names for a saved network."""
    spec = saved.manifest["target"]
    if spec["source"] == "program":
        return program_of(name, spec["vocab_size"], spec["seq_len"])
    return against(saved, name, lipschitz, vanishes_outside, vouched)


def against(
    saved: Saved, name: str, lipschitz: float | None = None, vanishes_outside: bool = False, vouched: bool = False
) -> Target:
    """The function that the user names for a saved network: sizes and box are the folder's, facts about it the user's.

    A network without positions is about functions that are equivariant, so that is assumed; the claim says so.
    """
    spec = saved.manifest["target"]
    if spec["source"] == "data":
        raise ProvenformerError(
            "the network was made from pairs of sequences, not from a function; leave --target out."
        )
    if spec["source"] == "program":
        raise ProvenformerError("the network was made from a program on tokens, not from a function on numbers.")
    net, support = saved.network, (tuple(spec["support"][0]), tuple(spec["support"][1]))
    if ":" not in name:
        return targets.get(name, net.token_dim, net.seq_len, support)
    return Target(
        typed_function(name), net.token_dim, net.seq_len, net.positions is None, lipschitz, support, name, vanishes_outside,
        vouched,
    )  # fmt: skip


def program_of(name: str, vocab_size: int, seq_len: int) -> TokenProgram:
    """A program on tokens as the user names it: of the library, or module:function."""
    if ":" not in name:
        return programs.get(name, vocab_size, seq_len)
    return TokenProgram(typed_function(name), vocab_size, seq_len, name)


def typed_function(name: str) -> Any:
    """`module:function` as the user typed it, also from the current folder."""
    return import_function(name, current_folder=True)


def read_sequences(source: str) -> FloatArray:
    x: FloatArray
    if source == "-" and sys.stdin.isatty():
        errors.print("waiting for sequences as JSON, one token per column: [[[0.2, 0.9, 0.55]]]; end with Ctrl-D.")
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


def read_pairs(path: Path) -> dict[str, Any]:
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


def print_sequences(x: FloatArray, y: FloatArray, as_json: bool) -> None:
    if as_json:
        print_json(y.tolist())
        return
    table = Table("input", "output", box=None)
    for a, b in zip(x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:]), strict=True):
        table.add_row(*(np.array2string(v, precision=5, suppress_small=True) for v in (a, b)))
    console.print(table)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


@contextmanager
def working(what: str) -> Iterator[Any]:
    """A spinner with what is being done, on standard error; nothing when that is not a terminal."""
    what = one_line(what)
    with errors.status(Text(what)) as status:
        yield lambda message: status.update(Text(f"{what}: {one_line(message)}"))
