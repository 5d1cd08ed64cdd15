"""How every benchmark measures, and what it records beside its numbers."""

import platform
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers


def seconds(run: Callable[[], Any]) -> float:
    """CPU time of one call. On one thread it hardly depends on what else the machine does; set that first."""
    start = time.process_time()
    run()
    return time.process_time() - start


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
