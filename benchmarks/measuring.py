"""What every benchmark records: how long, and on what."""

import platform
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def about(name: str, seed: int) -> dict[str, Any]:
    """Command, seed, commit, machine and versions, to stand beside the numbers."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "command": f"python -m benchmarks {name}",
        "seed": seed,
        "commit": commit,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
