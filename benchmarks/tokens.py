"""Programs on tokens: compile time, sizes, bounds, and wrong answers on many sequences, for every program of the library.

Each circuit runs in numpy (float64), torch, onnxruntime and, where the extra `lens` is installed, TransformerLens (all float32),
on one thread; seconds are of processor time. Sequences that were tried belong to the weights of a network: every run compiles all
programs again, and a row whose weights are the same goes on where it was stopped. Results are written after every part.
What is soon done comes first. `table()` is what docs/programs.md shows.
"""

import hashlib
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from functools import cache
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
TURN = 20.0  # CPU seconds of trying after which another row has its turn
PAIRS = 1 << 18  # numbers of a batch's largest array, which should fit a cache: programs compare tokens
SEED = 1
MEASURED = {"tried": 0, "wrong": 0, "largest error": 0.0, "run (s)": 0.0}  # of every way
LENS = "TransformerLens float32"
WAYS = {
    "float64": "float64",
    "torch float32": "float32",
    "onnxruntime float32": "float32",
    LENS: "float32",
}  # and the bound
Way = Callable[[np.ndarray], np.ndarray]


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


@cache
def sequences(size: int, n: int) -> np.ndarray:
    """All if they are few; else constant, sorted, alternating and extreme ones, then random ones."""
    if size**n <= FEW:
        return np.array(list(product(range(size), repeat=n)), dtype=np.int8)
    special = samples(pf.programs.get("sort", size, n))
    return np.concatenate([special, drawn(size, n)])[:DRAWN].astype(np.int8)


def in_torch(network: CircuitNetwork, _: int) -> Way:
    module = network.to_torch().float()

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(module(torch.tensor(x[:, None, :], dtype=torch.float32)).numpy()[:, 0])

    return run


def in_onnxruntime(network: CircuitNetwork, _: int) -> Way:
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        network.to_onnx(Path(folder) / "model.onnx", np.float32)
        session = InferenceSession((Path(folder) / "model.onnx").read_bytes(), options, ["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name
    return lambda x: np.asarray(session.run(None, {entry: x[:, None, :].astype(np.float32)})[0][:, 0])


def in_lens(network: CircuitNetwork, vocab_size: int) -> Way:
    bridge = network.to_transformer_lens(np.arange(vocab_size, dtype=np.float64), np.float32)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(bridge(torch.from_numpy(x)).numpy()[..., 0])

    return run


def in_numpy(network: CircuitNetwork, _: int) -> Way:
    return lambda x: network.run(x[:, None, :].astype(np.float64))[:, 0]


RUNS: dict[str, Callable[[CircuitNetwork, int], Way]] = dict(
    zip(WAYS, (in_numpy, in_torch, in_onnxruntime, in_lens), strict=True)
)


def installed() -> list[str]:
    """Ways to run a circuit that there are here."""
    return [way for way in WAYS if way != LENS or importlib.util.find_spec("transformer_lens")]


def fingerprint(network: CircuitNetwork) -> str:
    """Equal for equal weights."""
    found = hashlib.sha256()
    for name, value in sorted((network.tensors() | {"positions": network.positions}).items()):
        found.update(f"{name} {value.shape}".encode())
        found.update(np.ascontiguousarray(value, dtype=np.float64).tobytes())
    return found.hexdigest()[:16]


def compiled(program: pf.TokenProgram) -> tuple[CircuitNetwork, dict[str, Any]]:
    """The circuit, and its row before anything is tried."""
    found: list[pf.CompiledTokens] = []
    compiling = seconds(lambda: found.append(pf.compile_tokens(program)))
    network, size, n = found[0].network, program.vocab_size, program.seq_len
    assert isinstance(network, CircuitNetwork)
    return network, {
        "program": program.name, "V": size, "n": n, "weights": fingerprint(network),
        "compile (s)": round(compiling, 3), "parameters": network.parameters, "blocks": network.blocks,
        "heads": network.heads, "units": sum(network.hidden_units.values()), "bounds": found[0].certificate.bounds,
        "step": found[0].certificate.details["step"], "all": size**n if size**n <= FEW else DRAWN,
    } | {name: dict.fromkeys(WAYS, zero) for name, zero in MEASURED.items()}  # fmt: skip


def go_on(row: dict[str, Any], program: Way, x: np.ndarray, way: str, run: Way) -> None:
    """Try the sequences that the row has not seen that way, for one turn: how many answers are wrong, and how far off."""
    start, batch, step = time.process_time(), max(1, PAIRS // x.shape[1] ** 2), row["step"]
    while row["tried"][way] < len(x) and time.process_time() - start < TURN:
        part = x[row["tried"][way] : row["tried"][way] + batch].astype(np.int64)
        wanted, began = program(part), time.process_time()
        y = run(part).astype(np.float64)
        row["run (s)"][way] += time.process_time() - began
        row["wrong"][way] += int((np.rint(y / step) * step != wanted).any(axis=1).sum())
        row["largest error"][way] = max(row["largest error"][way], float(np.abs(y - wanted).max()))
        row["tried"][way] += len(part)


def complete(row: dict[str, Any], way: str) -> bool:
    return bool(row["tried"][way] == row["all"])


def certified(row: dict[str, Any], way: str) -> bool:
    """Whether the certificate says that answers are exact, run that way."""
    return row["bounds"].get(WAYS[way]) is not None


def holds(row: dict[str, Any]) -> bool:
    """Whether what is certified is what was seen."""
    seen = [way for way in WAYS if certified(row, way)]
    return all(row["wrong"][way] == 0 and row["largest error"][way] <= row["bounds"][WAYS[way]] for way in seen)


def table(results: dict[str, Any]) -> str:
    """The rows in Markdown."""
    heads = ("program", "V", "n", "parameters", "blocks", "compile s", "exact by certificate", "sequences", *WAYS)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for r in results["rows"]:
        proved = [kind for kind in ("float64", "float32") if r["bounds"].get(kind) is not None]
        cells = [
            r["program"], r["V"], r["n"], f"{r['parameters']:,}", r["blocks"], f"{r['compile (s)']:.2f}",
            ", ".join(proved) + ("" if len(proved) == 2 else " only"),
            f"{r['all']:,}", *(_wrong(r, way) for way in WAYS),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _wrong(row: dict[str, Any], way: str) -> str:
    """Wrong answers; of how many, if not all sequences were tried that way."""
    if complete(row, way):
        return f"{row['wrong'][way]:,}"
    return f"{row['wrong'][way]:,} of {row['tried'][way]:,}" if row["tried"][way] else "not run"


def page(text: str, results: dict[str, Any]) -> str:
    """The page with the table of these results in its place."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table(results) + "\n" + END + rest.split(END)[1]


def main() -> bool:
    """Whether all certificates hold, all sequences were tried, and programs of 16 tokens compile in time."""
    torch.set_num_threads(1)
    here = about("tokens", SEED)
    found = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    earlier = {(r["program"], r["V"], r["n"]): r for r in found}
    programs = [pf.programs.get(name, size, n) for name in pf.programs.names() for size, n in SIZES]
    networks, rows = [], []
    for program in programs:
        network, row = compiled(program)
        before = earlier.get((row["program"], row["V"], row["n"]), {})
        if before.get("weights") == row["weights"]:
            row |= {name: before[name] for name in MEASURED}
        networks.append(network)
        rows.append(row)
    while waiting := [(row, way) for row in rows for way in installed() if not complete(row, way)]:
        row, way = min(waiting, key=lambda one: left(*one))
        i = rows.index(row)
        go_on(row, programs[i], sequences(row["V"], row["n"]), way, RUNS[way](networks[i], row["V"]))
        write({"about": here, "rows": rows})
        what = f"{row['program']:<17} V={row['V']:<3} n={row['n']:<3} {row['parameters']:>8,} parameters"
        print(f"{what}  {way}: {row['wrong'][way]} wrong of {row['tried'][way]:,}", flush=True)
    write({"about": here, "rows": rows})
    fast = all(row["compile (s)"] <= LIMIT for row in rows if row["n"] == 16)
    return fast and all(holds(row) for row in rows)


def left(row: dict[str, Any], way: str) -> float:
    """About how many seconds it takes to try the rest: what is soon done comes first."""
    tried, each = row["tried"][way], row["parameters"] * row["n"] * 1e-9  # if nothing is known yet
    return float((row["all"] - tried) * (row["run (s)"][way] / tried if tried else each))


def write(results: dict[str, Any]) -> None:
    """The results, and the page that shows them."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), results))
