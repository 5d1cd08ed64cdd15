"""What to do with a network: `run`, `verify`, `distance`; and `trace`, which follows sequences through a construction."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import typer
from rich.text import Text

import provenformer as pf
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError, one_line
from provenformer.cli.options import (
    Against,
    AsJson,
    Cells,
    Folder,
    How,
    ItsLipschitz,
    ItsVouched,
    Positional,
    SeqLen,
    Sequences,
    Support,
    TargetName,
    TokenDim,
    Trust,
    Vanishes,
    against,
    console,
    errors,
    function_of,
    print_json,
    print_sequences,
    read_sequences,
    target_of,
    working,
)
from provenformer.compiler.compile import TABLE
from provenformer.constructions import registry
from provenformer.look.summary import number, trace_table
from provenformer.storage import Saved

MOST_SAMPLES = 1 << 14
PAIRS = 1 << 27  # of tokens in all samples of `distance` together: some seconds


def run(folder: Folder, inputs: Sequences = "-", as_json: AsJson = False) -> None:
    """Run a saved network on sequences."""
    saved = pf.load(folder)
    x = read_sequences(inputs)
    with working(f"{saved.network.layers:,} layers"):
        y = saved.network(x)
    print_sequences(x, y, as_json)
    if remark := _outside(saved, x):
        errors.print(remark, soft_wrap=True)


def _outside(saved: Saved, x: FloatArray) -> str | None:
    """What to say of sequences that the certificate is not about."""
    spec = saved.manifest["target"]
    if spec["source"] == "program":
        tokens = ((x >= 0) & (x < spec["vocab_size"]) & (x == np.rint(x))).all(axis=(-2, -1))
        words = f"not of tokens 0 to {spec['vocab_size'] - 1}; the certificate is not about them."
        return None if tokens.all() else f"note: {np.sum(~tokens):,} of {tokens.size:,} sequences are {words}"
    if spec["source"] == "data" or spec["vanishes_outside"]:  # pairs, or the whole space
        return None
    low, high = (np.asarray(end)[:, None] for end in spec["support"])
    outside = np.any(((x < low) | (x > high)).reshape(-1, x.shape[-2] * x.shape[-1]), axis=1)
    if not outside.any():
        return None
    box = " x ".join(dict.fromkeys(f"[{a:g}, {b:g}]" for a, b in zip(low[:, 0], high[:, 0], strict=True)))
    return f"note: {outside.sum():,} of {len(outside):,} sequences lie outside the box {box}; the certificate is not about them."


def verify(
    folder: Folder,
    target: Against = None,
    lipschitz: ItsLipschitz = None,
    vanishes_outside: Vanishes = False,
    vouched: ItsVouched = False,
    trust_target: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Check a saved network independently: re-derive the bound from the weights. Exit code 1 if it does not hold."""
    if target is None and (lipschitz is not None or vanishes_outside or vouched):
        raise ProvenformerError(
            "--lipschitz, --vanishes-outside and --vouched are what you say of the --target; name it, too."
        )
    given: pf.Target | pf.TokenProgram | None = None
    if target is not None:
        given = function_of(pf.load(folder, check_hashes=False), target, lipschitz, vanishes_outside, vouched)
    with working(f"verifying {folder}"):
        report = pf.verify(folder, given, trust_target=trust_target)
    if as_json:
        print_json(report.to_json())
    else:
        agrees = Text("agrees", "yellow") if report.claim.kind == "statistical" else Text("holds", "green")
        verdict = agrees if report else Text("rejected", "red")
        console.print(verdict.append_text(Text(f": {one_line(report.reason)}", "default")), soft_wrap=True)
        for name, value in report.terms.items():
            console.print(f"  {name:<10} {number(value)}")
        console.print(str(report.claim), soft_wrap=True)
    raise typer.Exit(0 if report else 1)


def distance(
    folder: Folder,
    norm: Annotated[
        float | None, typer.Option("--norm", "-p", help="Norm order p >= 1, or inf; that of the certificate.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="How many sequences to try; 16,384, or fewer of more than 90 tokens.")
    ] = None,
    target: Against = None,
    trust_target: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Measure the distance between a saved network and its target, beside the certified bound."""
    saved = pf.load(folder)
    f = saved.target if target is None else against(saved, target)
    if f is None and trust_target:
        f = saved.import_target()
    if f is None:
        raise ProvenformerError(
            f"{saved.why_no_target}; name the target yourself with --target, or use --trust-target."
        )
    certified = np.inf if saved.certificate.norm_order is None else saved.certificate.norm_order
    norm = certified if norm is None else norm
    if samples is None:
        samples = min(MOST_SAMPLES, max(64, PAIRS // (f.token_dim * f.seq_len**2)))
    with working("measuring"):
        measured = pf.distance(
            f, saved.network, token_dim=f.token_dim, seq_len=f.seq_len, norm_order=norm, support=f.support,
            samples=samples, cells_per_axis=saved.manifest.get("cells_per_axis"),
        )  # fmt: skip
    if as_json:
        orders = {"norm": norm, "bound_norm": certified}
        names = {key: "inf" if value == np.inf else value for key, value in orders.items()}  # JSON has no infinity
        print_json({**vars(measured), "bound": saved.certificate.bound, **names})
        return
    tried = f"({measured.samples:,} sequences)"
    if norm == np.inf:
        console.print(f"sup |f - g| >= {measured.value:.6g}, the largest difference found {tried}")
    else:
        console.print(f"d_{norm:g} = {measured.value:.6g} +- {measured.error:.2g} {tried}")
    said = "sup |f - g|" if certified == np.inf else f"d_{certified:g}"
    console.print(f"certified: {said} <= {number(saved.certificate.bound)} ({saved.certificate.kind})")


def trace(
    target: TargetName,
    inputs: Sequences = "-",
    token_dim: TokenDim = 1,
    seq_len: SeqLen = 3,
    cells: Cells = 4,
    construction: How = TABLE,
    support: Support = "0,1",
    positional: Positional = False,
    every: Annotated[str, typer.Option(help="stage or layer.")] = "stage",
    as_json: AsJson = False,
) -> None:
    """Show sequences after every stage (or layer) of the modified network, exactly."""
    f = target_of(target, token_dim, seq_len, support, positional, None)
    x = read_sequences(inputs)
    c = pf.compile(f, cells_per_axis=cells, construction=registry.get(construction).name)
    if every not in ("stage", "layer"):
        raise ProvenformerError(f"--every {every} is not known; use stage or layer.")
    moments: Literal["stage", "layer"] = "layer" if every == "layer" else "stage"
    steps = list(c.modified.trace(x.reshape(-1, *x.shape[-2:]), every=moments))
    if as_json:
        exact = [[[str(v) for v in row] for row in s.values().reshape(-1, s.num.shape[-1])] for s in steps]
        print_json([{"stage": s.stage, "layer": s.layer, "state": e} for s, e in zip(steps, exact, strict=True)])
        return
    console.print(trace_table(steps))
