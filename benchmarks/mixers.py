"""Speed of each mixer's sublayer (mixer, W_O, skip, LayerNorm), forward and backward, against transformers' SDPA one.

One run, all mixers in turn within each round, so that a change of the machine's load meets all alike; a ratio is the
median over rounds of (mixer's time / attention's time in the same round). Each round also times a large matrix
product, the peak; a mixer's share of it counts the matrix products that it executes, and an FFT as nothing.
No dropout, no padding, float32; CPU time of one thread.
"""

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertAttention

from benchmarks.measuring import about, seconds
from provenformer.bert import MIXERS
from provenformer.bert.model.slot import MixerSlot, mixer_for

RESULTS = Path(__file__).parent / "results" / "mixers.json"
SEED = 0
ROUNDS = {(8, 512, 768): 9, (16, 128, 256): 41}  # (batch, tokens, dim)
LIMITS = {
    (8, 512, 768): {"average": 0.25, "bproj": 0.35, "sepconv": 0.72},
    (16, 128, 256): {"average": 0.25, "bproj": 0.35, "sepconv": 0.75},
}
PEAK_SIZE = 1536


def sublayer(name: str, config: BertConfig) -> nn.Module:
    attention: nn.Module = BertAttention(config)
    if name != "attention":
        attention.self = MixerSlot(mixer_for(name, config))
    return attention


def forth_and_back(module: nn.Module, x: Tensor, towards: Tensor) -> None:
    module(x)[0].backward(towards)


def measure(batch: int, tokens: int, dim: int) -> list[dict[str, Any]]:
    torch.manual_seed(SEED)
    config = BertConfig(
        hidden_size=dim, num_attention_heads=dim // 64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    config._attn_implementation = "sdpa"
    x, towards = torch.randn(batch, tokens, dim, requires_grad=True), torch.randn(batch, tokens, dim)
    square = torch.randn(PEAK_SIZE, PEAK_SIZE)
    runs: dict[str, Callable[[], Any]] = {"peak": lambda: square @ square}
    products: dict[str, int] = {"peak": 2 * PEAK_SIZE**3}
    for name in MIXERS:
        module = sublayer(name, config)
        runs[name] = partial(forth_and_back, module, x, towards)
        products[name] = executed_products(runs[name])
    # FlopCounterMode does not know the CPU kernel of SDPA: two products forward, four backward, of 2 batch n^2 d each.
    products["attention"] += 6 * 2 * batch * tokens**2 * dim

    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():  # warm up
        run()
    for _ in track(range(ROUNDS[batch, tokens, dim]), description=f"({batch}, {tokens}, {dim})", transient=True):
        for name, run in runs.items():
            times[name].append(seconds(run))

    peak = products["peak"] / statistics.median(times["peak"])
    return [
        {
            "batch": batch,
            "tokens": tokens,
            "dim": dim,
            "mixer": name,
            "ratio": statistics.median(a / b for a, b in zip(times[name], times["attention"], strict=True)),
            "limit": LIMITS[batch, tokens, dim].get(name),
            "milliseconds": 1e3 * statistics.median(times[name]),
            "gflop_in_products": products[name] / 1e9,
            "share_of_peak": products[name] / statistics.median(times[name]) / peak,
            "peak_gflops": peak / 1e9,
        }
        for name in MIXERS
    ]


def executed_products(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def main() -> bool:
    """Measure, print, save; True if every limit is met."""
    torch.set_num_threads(1)
    rows = [row for size in ROUNDS for row in measure(*size)]
    RESULTS.write_text(json.dumps({"about": about("mixers", SEED), "rows": rows}, indent=2) + "\n")
    table = Table("batch, tokens, dim", "mixer", "time / attention", "limit", "ms", "share of peak")
    for row in rows:
        size = f"{row['batch']}, {row['tokens']}, {row['dim']}"
        limit = "" if row["limit"] is None else f"{row['limit']:.2f}"
        numbers = f"{row['ratio']:.3f}", limit, f"{row['milliseconds']:.1f}", f"{row['share_of_peak']:.0%}"
        table.add_row(size, row["mixer"], *numbers)
    peaks = dict.fromkeys(f"{row['peak_gflops']:.0f}" for row in rows)
    table.caption = f"peak of a matrix product: {' and '.join(peaks)} GFLOP/s on one thread"
    Console().print(table)
    missed = [row for row in rows if row["limit"] is not None and row["ratio"] > row["limit"]]
    for row in missed:
        print(f"error: {row['mixer']} takes {row['ratio']:.3f} of attention, limit {row['limit']}", file=sys.stderr)
    return not missed
