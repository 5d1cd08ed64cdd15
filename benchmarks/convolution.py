"""The three ways to convolve tokens, forward and backward: is the one that `convolve` chooses the faster?"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from torch.nn.functional import conv1d, pad

from benchmarks.measuring import about, seconds
from provenformer.bert.model.mixers.convolution import convolve_fft, convolve_toeplitz, fft_is_faster, taps_before

RESULTS = Path(__file__).parent / "results" / "convolution.json"
SIZES = [  # batch, tokens, dim, taps; 16 filters
    (16, 128, 256, 128),
    (8, 512, 256, 31),
    (8, 512, 768, 128),
    (8, 512, 256, 256),
    (4, 1024, 256, 512),
    (1, 4096, 256, 1024),
]
FILTERS, ROUNDS, SEED = 16, 9, 0
SLACK = 1.25  # the chosen way may take this much longer than the other: the rule is one line, the machine noisy


def convolve_conv1d(x: Tensor, filters: Tensor) -> Tensor:
    taps, dim = filters.shape[1], x.shape[2]
    padded = pad(x.transpose(1, 2), (taps_before(taps), taps - 1 - taps_before(taps)))
    kernels = filters.repeat_interleave(dim // filters.shape[0], dim=0).unsqueeze(1)
    return conv1d(padded, kernels, groups=dim).transpose(1, 2)


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "toeplitz": convolve_toeplitz,
    "fft": convolve_fft,
    "conv1d": convolve_conv1d,
}


def forth_and_back(way: Callable[[Tensor, Tensor], Tensor], x: Tensor, filters: Tensor, towards: Tensor) -> None:
    way(x, filters).backward(towards)


def measure(batch: int, tokens: int, dim: int, taps: int) -> dict[str, Any]:
    torch.manual_seed(SEED)
    x, towards = torch.randn(batch, tokens, dim, requires_grad=True), torch.randn(batch, tokens, dim)
    filters = torch.randn(FILTERS, taps, requires_grad=True)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS + 1):
        for name, way in WAYS.items():
            times[name].append(seconds(partial(forth_and_back, way, x, filters, towards)))
    chosen = "fft" if fft_is_faster(tokens, taps) else "toeplitz"
    sizes = {"batch": batch, "tokens": tokens, "dim": dim, "taps": taps, "chosen": chosen}
    return sizes | {name: 1e3 * median(rounds[1:]) for name, rounds in times.items()}  # the first round warms up


def main() -> bool:
    """Measure, print, save; True if the chosen way is nowhere much slower than the other."""
    torch.set_num_threads(1)
    rows = [measure(*size) for size in track(SIZES, description="convolution", transient=True)]
    RESULTS.write_text(json.dumps({"about": about("convolution", SEED), "rows": rows}, indent=2) + "\n")
    table = Table(
        "batch, tokens, dim", "taps", *WAYS, "chosen", title="CPU milliseconds on one thread, forward and backward"
    )
    for row in rows:
        size = f"{row['batch']}, {row['tokens']}, {row['dim']}"
        table.add_row(size, str(row["taps"]), *(f"{row[name]:.1f}" for name in WAYS), row["chosen"])
    Console().print(table)
    return all(row[row["chosen"]] <= SLACK * min(row["toeplitz"], row["fft"]) for row in rows)
