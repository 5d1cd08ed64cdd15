"""Benchmarks: `make bench` runs all, `python -m benchmarks mixers` one; each writes benchmarks/results/<name>.json."""
