"""Programs on tokens: compile time, sizes, bounds, and wrong answers on many sequences, for every program of the library.

`python -m benchmarks tokens`; results/tokens.json and the table of docs/programs.md.
"""

import json
import time
from itertools import product
from pathlib import Path

import numpy as np

import provenformer as pf
from benchmarks.measuring import about, seconds
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.tokens.trace import samples

RESULT = Path(__file__).parent / "results" / "tokens.json"
SIZES = [(size, n) for size in (8, 16) for n in (8, 16, 64)]
DRAWN = {8: 100_000, 16: 100_000, 64: 2_000}  # sequences that are tried, and the adversarial ones
FEW = 1_000_000  # sequences up to which all are tried
LIMIT = 2.0  # CPU seconds to compile at n = 16


def tried(program: pf.TokenProgram) -> np.ndarray:
    """All sequences if they are few, else random and adversarial ones."""
    size, n = program.vocab_size, program.seq_len
    if size**n <= FEW:
        return np.array(list(product(range(size), repeat=n)))
    drawn = np.random.default_rng(1).integers(0, size, (DRAWN[n], n))
    return np.concatenate([drawn, samples(program)])


def measured(name: str, size: int, n: int) -> dict[str, object]:
    """One row."""
    program = pf.programs.get(name, size, n)
    found: list[pf.CompiledTokens] = []
    compiling = seconds(lambda: found.append(pf.compile_tokens(program)))
    c = found[0]
    network = c.network
    assert isinstance(network, CircuitNetwork)
    x = tried(program)
    wanted = program(x)
    wrong = {}
    for dtype in ("float64", "float32"):
        y = network.run(x[:, None, :].astype(np.float64), dtype)[:, 0]
        step = c.certificate.details["step"]
        wrong[dtype] = int((np.rint(y / step) * step != wanted).any(axis=1).sum())
    batch = x[:256, None, :].astype(np.float64)
    network.run(batch, np.float32)
    start, runs = time.process_time(), 0
    while time.process_time() - start < 0.2:
        network.run(batch, np.float32)
        runs += 1
    rate = runs * len(batch) / (time.process_time() - start)
    return {
        "program": name, "vocab_size": size, "seq_len": n, "compile_seconds": round(compiling, 3),
        "parameters": network.parameters, "blocks": network.blocks, "heads": network.heads,
        "units": sum(network.hidden_units.values()),
        "bounds": c.certificate.bounds, "tried": len(x), "wrong": wrong, "sequences_per_second": round(rate),
    }  # fmt: skip


def main() -> bool:
    """Whether no answer is wrong, and programs of 16 tokens compile in time."""
    rows = []
    for name in pf.programs.names():
        for size, n in SIZES:
            row = measured(name, size, n)
            rows.append(row)
            sizes = f"{row['parameters']:>8,} parameters  {row['blocks']:>2} blocks"
            outcome = f"{row['tried']:>8,} tried, wrong {row['wrong']}  {row['sequences_per_second']:>9,} sequences/s"
            print(f"{name:<17} V={size:<3} n={n:<3} {row['compile_seconds']:>6} s  {sizes}  {outcome}", flush=True)
    RESULT.write_text(json.dumps({**about("tokens", 1), "rows": rows}, indent=1) + "\n")
    exact = not any(count for row in rows for count in row["wrong"].values())  # type: ignore[attr-defined]
    return exact and all(row["compile_seconds"] <= LIMIT for row in rows if row["seq_len"] == 16)  # type: ignore[operator]
