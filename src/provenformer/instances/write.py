"""The benchmark as a folder: onnx, vnnlib, instances.csv, answers.csv, witnesses, networks with certificates, a README."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.extras import extra
from provenformer.base.files import atomic_path
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.compiler.compile import compile
from provenformer.instances.families import LARGEST, SMALLEST, families
from provenformer.instances.problems import Problem, is_unsafe, problems
from provenformer.instances.vnnlib import vnnlib_text, witness_text

SECONDS = 300  # what a verifier may take for one instance, as VNN-COMP states it


def write_benchmark(
    path: str | Path, largest: int = LARGEST, progress: Callable[[str], object] = lambda _: None
) -> list[Problem]:
    """All problems about networks of at most `largest` tokens, in a new folder. Needs the extra `onnx`."""
    if not isinstance(largest, int) or isinstance(largest, bool) or largest < SMALLEST:
        raise ProvenformerError(f"largest={largest!r} leaves no network; give a whole number from {SMALLEST} up.")
    if Path(path).exists() and (not Path(path).is_dir() or any(Path(path).iterdir())):
        raise ProvenformerError(f"{one_line(path)} is there already, and not an empty folder; choose another one.")
    with extra("onnx", "the benchmark"):
        import onnx  # noqa: F401, PLC0415
    found: list[Problem] = []
    rows: list[tuple[str, str, int, int, int, int, float]] = []
    with atomic_path(Path(path)) as folder:
        for name in ("onnx", "vnnlib", "witnesses", "networks"):
            (folder / name).mkdir(parents=True)
        for family in families(largest):
            progress(f"compiling {family.name}")
            made = compile(family.target, tolerance=family.tolerance, norm_order=np.inf, construction="circuit")
            bound = max(made.certificate.bounds.get(name, np.inf) for name in ("float64", "float32"))
            made.network.to_onnx(folder / "onnx" / f"{family.name}.onnx", np.float32, batch=1)
            made.save(folder / "networks" / family.name)
            net = made.network
            units = sum(net.hidden_units.values())
            rows.append((family.name, family.target.name, net.blocks, net.heads, units, net.parameters, bound))
            for question in family.questions:
                for margin in family.margins:
                    pair = problems(question, family.target, family.name, bound, margin)
                    found += [_named(problem, family.name, margin) for problem in pair]
                    for problem in found[-2:]:
                        _write(folder, problem, made)
        _tables(folder, found)
        (folder / "README.md").write_text(_readme(found, rows))
    return found


def _named(problem: Problem, family: str, margin: float) -> Problem:
    name = f"{family}-{problem.name}-{'loose' if margin > 0.1 else 'tight'}"
    return Problem(**{**vars(problem), "name": name})


def _write(folder: Path, problem: Problem, made: CompiledCircuit) -> None:
    (folder / "vnnlib" / f"{problem.name}.vnnlib").write_text(vnnlib_text(problem))
    if problem.witness is None:
        return
    y = made.network.run(problem.witness, np.float32)
    if not is_unsafe(problem, y) or not is_unsafe(problem, made.network(problem.witness)):
        raise ProvenformerError(
            f"the witness of {problem.name} is none; this is a fault of provenformer: please report it."
        )
    (folder / "witnesses" / f"{problem.name}.counterexample").write_text(witness_text(problem.witness, y))


def _tables(folder: Path, found: Iterable[Problem]) -> None:
    """instances.csv as VNN-COMP has it; answers.csv beside it."""
    with (folder / "instances.csv").open("w", newline="") as file:
        csv.writer(file).writerows((f"onnx/{p.network}.onnx", f"vnnlib/{p.name}.vnnlib", SECONDS) for p in found)
    with (folder / "answers.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("vnnlib", "answer", "margin", "witness", "why"))
        for p in found:
            witness = f"witnesses/{p.name}.counterexample" if p.witness is not None else ""
            out.writerow((f"vnnlib/{p.name}.vnnlib", p.answer, p.margin, witness, p.why))


def _readme(found: list[Problem], rows: list[tuple[str, str, int, int, int, int, float]]) -> str:
    table = "\n".join(
        f"| {name} | {target} | {blocks} | {heads} | {units:,} | {parameters:,} | {bound:.2g} |"
        for name, target, blocks, heads, units, parameters, bound in rows
    )
    unsat = sum(p.answer == "unsat" for p in found)
    return README.format(count=len(found), unsat=unsat, sat=len(found) - unsat, table=table)


README = """# Transformers with known answers

{count} verification problems about softmax/ReLU Transformers that were constructed, not trained: {unsat} properties hold (unsat),
{sat} fail (sat, with a witness). Made by `provenformer benchmark`.

- `instances.csv`: network, property, seconds, as in VNN-COMP. `onnx/*.onnx`: float32, input and output (1, d, n), X_i and Y_i
  row by row, opset 13; MatMul, Add, Transpose, Softmax, Relu, ReduceMean. Softmax weights depend on the input.
- `vnnlib/*.vnnlib`: a box of inputs, and thresholds that some output must not reach.
- `answers.csv`: the answer, how far every execution stays from the threshold (unsat) or goes beyond it (sat), a witness, and why.
- `witnesses/*`: counterexamples as VNN-COMP writes them. `networks/*`: each network with its certificate;
  `provenformer verify networks/NAME` (with `--trust-target` for layer-norm and block) derives it again from the weights.

Why the answers are right: each network g was compiled from a function f with a certificate |f - g| <= bound on the whole box, for
g executed in float64 or float32, sums in any order. What f does on the box is algebra (see `why`); thresholds are `bound` plus
`margin` away from that. Names end in `loose` (margin 1/8) or `tight` (margin 1/128).

| network | f | blocks | heads | ReLUs | parameters | bound, float32 |
|---|---|---|---|---|---|---|
{table}
"""
