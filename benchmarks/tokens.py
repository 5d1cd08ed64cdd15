"""Programs on tokens: compile time, sizes, bounds, and wrong answers on many sequences, for every program of the library.

Each circuit runs in numpy (float64), torch (float32) and onnxruntime (float32), on one thread; seconds are of processor time.
Results are written after every part of a row: a run that is stopped goes on from there when it is started again at the same
commit, and rows of earlier commits stay until then. Every row is tried for a while first, then those that have not seen
all their sequences go on. `table()` is what docs/programs.md shows.
"""

import json
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnxruntime import InferenceSession, SessionOptions

import provenformer as pf
from benchmarks.measuring import about, seconds
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.tokens.trace import samples

RESULTS = Path(__file__).parent / "results" / "tokens.json"
PAGE = Path(__file__).parents[1] / "docs" / "programs.md"
BEGIN, END = "<!-- tokens: begin -->\n", "<!-- tokens: end -->"
SIZES = [(size, n) for size in (8, 16) for n in (8, 16, 64)]
DRAWN = 100_000  # sequences that are tried, if not all
FEW = 1_000_000  # sequences up to which all are tried
LIMIT = 2.0  # CPU seconds to compile at n = 16
TURN = 8.0  # CPU seconds of trying after which another row has its turn
PAIRS = 1 << 16  # numbers of a batch's largest array, which should fit a cache: programs compare tokens
SEED = 1
WAYS = {"float64": "float64", "torch float32": "float32", "onnxruntime float32": "float32"}  # and the bound that it has


def nested(rng: np.random.Generator, count: int, size: int, n: int) -> np.ndarray:
    """Brackets (0 with 1, 2 with 3) that match, but for a few that do not: random ones are broken after a few tokens."""
    found, rows = np.empty((count, n), dtype=np.int64), np.arange(count)
    stack, depth = np.zeros((count, n + 1), dtype=np.int64), np.zeros(count, dtype=np.int64)
    for k in range(n):
        opening, kind = rng.random(count) < rng.choice([0.4, 0.5, 0.6]), 2 * rng.integers(0, 2, count)
        opening |= depth == 0
        found[:, k] = np.where(opening, kind, stack[rows, np.maximum(depth - 1, 0)] + 1)
        stack[rows[opening], depth[opening]] = kind[opening]
        depth += np.where(opening, 1, -1)
    wrong = rng.random((count, n)) < rng.choice([0, 0.3 / n, 2 / n], (count, 1))
    return np.where(wrong, rng.integers(0, size, (count, n)), found)


def drawn(size: int, n: int, count: int = DRAWN) -> np.ndarray:
    """Random sequences, half of them adversarial: of few values, sorted, periodic, all but equal, of brackets."""
    rng, k = np.random.default_rng(SEED), np.arange(n)
    some = rng.integers(0, size, (count, n))
    part = count // 12
    palette = rng.integers(0, size, (5 * part, 4))
    few = np.take_along_axis(palette, rng.integers(0, rng.integers(1, 5, (5 * part, 1)), (5 * part, n)), axis=1)
    few[:part] = np.sort(few[:part], axis=1)
    few[part : 2 * part] = -np.sort(-some[:part], axis=1)
    few[2 * part : 3 * part] = np.take_along_axis(palette[:part], k % rng.integers(1, 5, (part, 1)), axis=1)
    alone = rng.integers(0, n, (part, 1)) == k
    few[3 * part : 4 * part] = np.where(alone, palette[:part, :1], rng.choice([0, 1, size - 1], (part, 1)))
    some[: 5 * part], some[5 * part : 6 * part] = few, nested(rng, part, size, n)
    return rng.permutation(some)


def sequences(program: pf.TokenProgram) -> np.ndarray:
    """All if they are few; else constant, sorted, alternating and extreme ones, then random ones."""
    size, n = program.vocab_size, program.seq_len
    if size**n <= FEW:
        return np.array(list(product(range(size), repeat=n)))
    return np.concatenate([samples(program), drawn(size, n)])[:DRAWN]


def ways(network: CircuitNetwork) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """How to run it, by name."""
    module = network.to_torch().float()
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        network.to_onnx(Path(folder) / "model.onnx", np.float32)
        session = InferenceSession((Path(folder) / "model.onnx").read_bytes(), options, ["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name

    def in_torch(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(module(torch.tensor(x, dtype=torch.float32)).numpy(), dtype=np.float64)

    def in_onnxruntime(x: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {entry: x.astype(np.float32)})[0], dtype=np.float64)

    return dict(zip(WAYS, (network.run, in_torch, in_onnxruntime), strict=True))


def compiled(program: pf.TokenProgram) -> tuple[pf.CompiledTokens, dict[str, Any]]:
    """The circuit, and its row before anything is tried."""
    found: list[pf.CompiledTokens] = []
    compiling = seconds(lambda: found.append(pf.compile_tokens(program)))
    network = found[0].network
    assert isinstance(network, CircuitNetwork)
    return found[0], {
        "compile (s)": round(compiling, 3), "parameters": network.parameters, "blocks": network.blocks,
        "heads": network.heads, "units": sum(network.hidden_units.values()), "bounds": found[0].certificate.bounds,
        "step": found[0].certificate.details["step"], "tried": 0, "all": 0,
        "wrong": dict.fromkeys(WAYS, 0), "largest error": dict.fromkeys(WAYS, 0.0), "run (s)": dict.fromkeys(WAYS, 0.0),
    }  # fmt: skip


def go_on(
    row: dict[str, Any],
    program: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    running: dict[str, Callable[[np.ndarray], np.ndarray]],
) -> None:
    """Try the sequences that the row has not seen, for one turn: how many answers are wrong, and how far outputs are away."""
    start, batch, step = time.process_time(), max(1, PAIRS // x.shape[1] ** 2), row["step"]
    row["all"] = len(x)
    while row["tried"] < len(x) and time.process_time() - start < TURN:
        part = x[row["tried"] : row["tried"] + batch]
        wanted = program(part)
        for way, run in running.items():
            began = time.process_time()
            y = run(part[:, None, :].astype(np.float64))[:, 0]
            row["run (s)"][way] += time.process_time() - began
            row["wrong"][way] += int((np.rint(y / step) * step != wanted).any(axis=1).sum())
            row["largest error"][way] = max(row["largest error"][way], float(np.abs(y - wanted).max()))
        row["tried"] += len(part)


def complete(row: dict[str, Any]) -> bool:
    return bool(0 < row["all"] == row["tried"])


def certified(row: dict[str, Any], way: str) -> bool:
    """Whether the certificate says that answers are exact, run that way."""
    return row["bounds"].get(WAYS[way]) is not None


def holds(row: dict[str, Any]) -> bool:
    """Whether what is certified is what was seen."""
    seen = [way for way in WAYS if certified(row, way)]
    return all(row["wrong"][way] == 0 and row["largest error"][way] <= row["bounds"][WAYS[way]] for way in seen)


def table(results: dict[str, Any]) -> str:
    """The rows in Markdown."""
    heads = ("program", "V", "n", "parameters", "blocks", "compile s", "exact by certificate", "tried", *WAYS)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for r in results["rows"]:
        proved = [kind for kind in ("float64", "float32") if r["bounds"].get(kind) is not None]
        cells = [
            r["program"], r["V"], r["n"], f"{r['parameters']:,}", r["blocks"], f"{r['compile (s)']:.2f}",
            ", ".join(proved) + ("" if len(proved) == 2 else " only"),
            f"{r['tried']:,}" if complete(r) else f"**{r['tried']:,}**", *(f"{r['wrong'][way]:,}" for way in WAYS),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page(text: str, results: dict[str, Any]) -> str:
    """The page with the table of these results in its place."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table(results) + "\n" + END + rest.split(END)[1]


def main() -> bool:
    """Whether all certificates hold, all sequences were tried, and programs of 16 tokens compile in time."""
    torch.set_num_threads(1)
    here = about("tokens", SEED)
    order = [(name, size, n) for name in pf.programs.names() for size, n in SIZES]
    found = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    earlier: dict[tuple[str, int, int], dict[str, Any]] = {(r["program"], r["V"], r["n"]): r for r in found}
    rows = {key: row for key, row in earlier.items() if row["commit"] == here["commit"]}
    while waiting := [key for key in order if key not in rows or not complete(rows[key])]:
        # new ones first, short ones before long ones; then those that were tried least
        for key in sorted(waiting, key=lambda key: (key in rows, rows[key]["tried"] if key in rows else key[2])):
            name, size, n = key
            program = pf.programs.get(name, size, n)
            c, fresh = compiled(program)
            row = rows.setdefault(key, {"program": name, "V": size, "n": n, "commit": here["commit"]} | fresh)
            assert isinstance(c.network, CircuitNetwork)
            x, running = sequences(program), ways(c.network)
            go_on(row, program, x, running)
            shown = earlier | rows
            results = {"about": here, "rows": [shown[key] for key in order if key in shown]}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            PAGE.write_text(page(PAGE.read_text(), results))
            what = f"{name:<17} V={size:<3} n={n:<3} {row['compile (s)']:>6} s  {row['parameters']:>8,} parameters"
            print(f"{what}  {row['tried']:>8,} of {row['all']:,} tried, wrong {row['wrong']}", flush=True)
    fast = all(row["compile (s)"] <= LIMIT for row in rows.values() if row["n"] == 16)
    return fast and all(holds(row) for row in rows.values())
