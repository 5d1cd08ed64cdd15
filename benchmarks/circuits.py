"""Circuits: sizes, certified and measured errors, seconds, for the built-in targets unmodified and for Transformer blocks.

Every case runs in this process on one thread; seconds are of processor time. Results are written after every case: a run that is
stopped goes on from there when it is started again at the same commit, and rows of earlier commits stay until then. `table()` is
what docs/circuits-howto.md shows.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

import provenformer as pf
from benchmarks.measuring import about, seconds
from provenformer.symbols.trace import samples

RESULTS = Path(__file__).parent / "results" / "circuits.json"
PAGE = Path(__file__).parents[1] / "docs" / "circuits-howto.md"
BEGIN, END = "<!-- circuits: begin -->\n", "<!-- circuits: end -->"
INPUTS = 10_000  # at least; random, corners, of few values, nearly constant, ramps, sorted, the edges
INPUTS_FLOAT32 = 100
PAIRS = 1 << 18  # numbers of a target's largest array, which should fit a cache: functions compare tokens
SIZES = [(1, 3), (1, 16), (1, 64), (1, 512), (4, 64)]
TOLERANCES = (1e-2, 1e-4)
LIMITS = {"sort": 3.0}  # seconds to build at n = 512; 1 for the others
VERIFY_LIMIT = 3.0  # seconds, the Transformer block
SEED = 0


@dataclass(frozen=True)
class Case:
    """A function and the tolerance that is asked for, in the sup norm."""

    target: pf.Target
    tolerance: float

    @property
    def key(self) -> list[Any]:
        return [self.target.name, self.target.token_dim, self.target.seq_len, self.tolerance]


def transformer_block(d: int, hidden: int, seed: int) -> Callable[[Any], Any]:
    """Softmax attention, layer norm over the features (epsilon 0.1), a tanh layer; both with a skip."""
    rng = np.random.default_rng(seed)
    W_Q, W_K, W_V = (rng.normal(size=(d, d)) / np.sqrt(d) for _ in range(3))
    W_1, b_1 = rng.normal(size=(hidden, d)) / np.sqrt(d), rng.normal(size=(hidden, 1))
    W_2 = rng.normal(size=(d, hidden)) / hidden

    def block(x: Any) -> Any:
        scores = np.swapaxes(W_Q @ x, -1, -2) @ (W_K @ x) / np.sqrt(d)
        powers = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        weights = powers / np.sum(powers, axis=-1, keepdims=True)
        h = x + (W_V @ x) @ np.swapaxes(weights, -1, -2)
        z = h - np.mean(h, axis=-2, keepdims=True)
        z = z / np.sqrt(np.mean(np.square(z), axis=-2, keepdims=True) + 0.1)
        return z + W_2 @ np.tanh(W_1 @ z + b_1)

    return block


def stack(count: int, d: int, hidden: int) -> Callable[[Any], Any]:
    """Blocks one after the other."""
    blocks = [transformer_block(d, hidden, SEED + i) for i in range(count)]

    def function(x: Any) -> Any:
        for block in blocks:
            x = block(x)
        return x

    return function


def cases() -> Iterator[Case]:
    """All of them, in the order of the table."""
    for d, n in SIZES:
        for name in pf.targets.names():
            for tolerance in TOLERANCES:
                yield Case(pf.targets.get(name, d, n), tolerance)
    yield Case(pf.Target(stack(1, 4, 4), 4, 512, name="Transformer block"), 1e-3)
    yield Case(pf.Target(stack(2, 4, 4), 4, 16, name="two Transformer blocks"), 1e-2)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("target", "d", "n", "tolerance"))


def _work(case: Case) -> float:
    """About how long it takes: what compares all pairs of tokens comes last."""
    f = case.target
    pairs = f.name in ("softmax-mean", "rank") or "block" in f.name
    return float(f.token_dim * f.seq_len * (f.seq_len if pairs else 10))


def measured(f: pf.Target, c: pf.CompiledCircuit, count: int, dtype: type) -> tuple[float, int]:
    """The largest error of an entry, and on how many inputs."""
    kinds = 7  # of samples(), beside the two edges
    x = samples(f, -(-count // kinds), seed=17)
    at_once = max(1, PAIRS // (f.token_dim * f.seq_len**2))
    worst = 0.0
    for i in range(0, len(x), at_once):
        part = x[i : i + at_once]
        worst = max(worst, float(np.abs(c.network.run(part, dtype) - f(part)).max()))
    return worst, len(x)


def run(case: Case, earlier: dict[str, tuple[float, int]] | None = None) -> dict[str, Any]:
    """One line of the table; a refusal is its sentence. `earlier` has what was measured for networks, by their weights."""
    earlier = {} if earlier is None else earlier
    f, tolerance = case.target, case.tolerance
    row: dict[str, Any] = {"target": f.name, "d": f.token_dim, "n": f.seq_len, "tolerance": tolerance}
    made: list[Any] = []
    try:
        row["plan (s)"] = seconds(lambda: pf.plan(f, tolerance=tolerance, norm_order=np.inf, construction="circuit"))
        row["build (s)"] = seconds(
            lambda: made.append(pf.compile(f, tolerance=tolerance, norm_order=np.inf, construction="circuit"))
        )
    except pf.ProvenformerError as refusal:
        return row | {"refused": str(refusal)}
    c: pf.CompiledCircuit = made[0]
    with tempfile.TemporaryDirectory() as folder:
        c.save(Path(folder) / "net")
        row["verify (s)"] = seconds(lambda: made.append(pf.verify(Path(folder) / "net", f)))
    plan, bounds = c.plan, c.certificate.bounds
    row |= {"blocks": plan.blocks, "heads": plan.heads, "units": plan.units, "parameters": plan.parameters}
    row |= {"certified": c.certificate.bound, "certified float32": bounds.get("float32"), "terms": c.certificate.terms}
    weights = f.name.encode() + b"".join(v.tobytes() for v in (c.network.positions, *c.network.tensors().values()))
    row["weights"] = hashlib.sha256(weights).hexdigest()
    if row["weights"] not in earlier:  # what is exact is the same for every tolerance
        earlier[row["weights"]] = measured(f, c, INPUTS, np.float64)
    row["measured"], row["inputs"] = earlier[row["weights"]]
    row["measured float32"], row["inputs float32"] = measured(f, c, INPUTS_FLOAT32, np.float32)
    row["ratio"] = row["certified"] / row["measured"] if row["measured"] else None
    row["holds"] = bool(made[1] and row["measured"] <= row["certified"] + 1e-12)  # f itself is computed in float64
    if bounds.get("float32") is not None:
        row["holds"] = bool(row["holds"] and row["measured float32"] <= bounds["float32"] + 1e-12)
    return row


def table(results: dict[str, Any]) -> str:
    """The rows in Markdown."""
    heads = (
        "target", "d", "n", "tolerance", "blocks / heads / units", "parameters", "certified", "measured", "ratio",
        "certified, float32", "build s", "verify s",
    )  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for r in results["rows"]:
        start = [r["target"], r["d"], r["n"], f"{r['tolerance']:.0e}"]
        if "refused" in r:
            cells = [*start, "refused", *[""] * 7]
        else:
            ratio = "" if r["ratio"] is None or r["measured"] < 1e-2 * r["certified"] else f"{r['ratio']:.1f}"
            single = "none" if r["certified float32"] is None else f"{r['certified float32']:.1e}"
            sizes = f"{r['blocks']}/{r['heads']}/{r['units']:,}"
            cells = [
                *start, sizes, f"{r['parameters']:,}", f"{r['certified']:.1e}", f"{r['measured']:.1e}", ratio, single,
                f"{r['build (s)']:.2f}", f"{r['verify (s)']:.2f}",
            ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page(text: str, results: dict[str, Any]) -> str:
    """The page with the table of these results in its place."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table(results) + "\n" + END + rest.split(END)[1]


def main() -> bool:
    """Run all, print, save; True if every bound holds and the limits are met."""
    torch.set_num_threads(1)
    console, here = Console(), about("circuits", SEED)
    order = [tuple(case.key) for case in cases()]
    found = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = {key: row for row in found if (key := _key(row)) in order}
    enough = [row for row in rows.values() if "weights" in row and row["inputs"] >= INPUTS]
    earlier = {row["weights"]: (row["measured"], row["inputs"]) for row in enough}
    results: dict[str, Any] = {"about": here, "rows": list(rows.values())}
    for case in sorted(cases(), key=_work):
        key = tuple(case.key)
        if key in rows and rows[key].get("commit") == here["commit"]:
            continue
        rows[key] = run(case, earlier) | {"commit": here["commit"]}
        console.print(rows[key])
        results["rows"] = [rows[key] for key in order if key in rows]
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), results))
    made = [row for row in rows.values() if "refused" not in row]
    fast = all(r["build (s)"] <= LIMITS.get(r["target"], 1.0) for r in made if r["d"] == 1 and r["n"] == 512)
    checked = all(r["verify (s)"] <= VERIFY_LIMIT for r in made if r["target"] == "Transformer block")
    return all(row["holds"] for row in made) and fast and checked
