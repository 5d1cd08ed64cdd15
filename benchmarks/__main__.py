"""Run the benchmarks named on the command line, or all."""

import importlib
import sys

BENCHMARKS = [
    "circuits",
    "convolution",
    "engine",
    "explorer",
    "growth",
    "mixers",
    "mkl",
    "neighbours",
    "pretraining",
    "bert_base",
    "report",
    "sharding",
    "tokens",
    "verifier",
]


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"error: unknown benchmark {unknown[0]!r}; choose among {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    met = [importlib.import_module(f"benchmarks.{name}").main() for name in names or BENCHMARKS]
    return 0 if all(met) else 1


sys.exit(main(sys.argv[1:]))
