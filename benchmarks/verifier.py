"""What a public verifier proves of `provenformer benchmark`: bounds of auto_LiRPA by IBP and CROWN, beside the known answers."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import provenformer as pf
from provenformer.instances.problems import Problem
from provenformer.instances.write import write_benchmark

METHODS = ("IBP", "CROWN")


def main() -> bool:
    """Print a row per network; True unless a property that fails was proved."""
    if importlib.util.find_spec("auto_LiRPA") is None:
        print("auto_LiRPA is not installed (docs/benchmark.md); nothing is measured")
        return True
    sound = True
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "problems"
        found = write_benchmark(folder)
        print("| network | holds | " + " | ".join(f"proved by {m} | seconds" for m in METHODS) + " |")
        for name in dict.fromkeys(problem.network for problem in found):
            about = [problem for problem in found if problem.network == name]
            module: Any = pf.load(folder / "networks" / name).to_torch().float()
            cells = [name, str(sum(problem.answer == "unsat" for problem in about))]
            for method in METHODS:
                start = time.process_time()
                verdicts = [(problem, proves(module, problem, method)) for problem in about]
                proved = [problem for problem, safe in verdicts if safe]
                sound &= all(problem.answer == "unsat" for problem in proved)
                cells += [str(len(proved)), f"{time.process_time() - start:.2f}"]
            print("| " + " | ".join(cells) + " |", flush=True)
    print("no property that fails was proved" if sound else "A PROPERTY THAT FAILS WAS PROVED")
    return sound


def proves(module: Any, problem: Problem, method: str) -> bool:
    """Whether the verifier's bounds on the box keep every output from its threshold."""
    import auto_LiRPA as lirpa  # noqa: PLC0415  (not part of any extra)

    low, high = (torch.from_numpy(v[None]).float() for v in (problem.low, problem.high))
    bounded = lirpa.BoundedModule(module, low)
    box = lirpa.BoundedTensor((low + high) / 2, lirpa.PerturbationLpNorm(norm=np.inf, x_L=low, x_U=high))
    with torch.no_grad():
        least, most = (end.flatten() for end in bounded.compute_bounds(x=(box,), method=method))
    return all(bool(most[u.index] < u.value if u.side == ">=" else least[u.index] > u.value) for u in problem.unsafe)


if __name__ == "__main__":
    main()
