"""Exact nearest neighbours and the closest pair of a million vectors: processor time, and memory beside the vectors."""

import time
import tracemalloc
from dataclasses import dataclass

import numpy as np

from provenformer.contextual.closest import closest_pair, nearest

COUNT, WIDTH, QUERIES = 10**6, 32, 1000
FIXED = 64 << 20  # bytes: the blocks, whatever the number of vectors
PER_VECTOR = 512  # bytes, beside twice the vector itself


@dataclass(frozen=True)
class Found:
    """What was found, in which time, with how many bytes beside the vectors."""

    x: np.ndarray
    pair: set[int]
    nearest: dict[int, float]
    pair_seconds: float
    nearest_seconds: float
    peak: int

    @property
    def limit(self) -> int:
        """What docs/contextual.md promises."""
        return 2 * self.x.nbytes + PER_VECTOR * len(self.x) + FIXED


def vectors(count: int) -> np.ndarray:
    """Fifty occurrences of every word, and one pair that is much closer than all others."""
    rng = np.random.default_rng(5)
    words = rng.standard_normal((count // 50, WIDTH)).astype(np.float32)
    x = words[rng.integers(len(words), size=count)]
    x += 0.1 * rng.standard_normal(x.shape, dtype=np.float32)
    x[-1] = x[123] + np.float32(1e-4)
    return x


def measured(count: int) -> Found:
    """The closest pair of all, and the nearest neighbours of a few."""
    x = vectors(count)
    tracemalloc.start()
    start = time.process_time()
    pair = closest_pair(x)
    middle = time.process_time()
    queries = np.arange(0, count, count // QUERIES)
    found = nearest(x, queries)
    end = time.process_time()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    distances = dict(zip(queries.tolist(), found.distance.tolist(), strict=True))
    return Found(x, {pair.first, pair.second}, distances, middle - start, end - middle, peak)


def main() -> bool:
    """Print the numbers; True if the pair was found within the memory promised."""
    found = measured(COUNT)
    size, peak, limit = (value / 2**20 for value in (found.x.nbytes, found.peak, found.limit))
    print(f"{COUNT:,} vectors of width {WIDTH} ({size:,.0f} MiB)")
    print(f"closest pair: {found.pair_seconds:.1f} s; {QUERIES} nearest neighbours: {found.nearest_seconds:.1f} s")
    print(f"beside the vectors: {peak:,.0f} MiB (promised: at most {limit:,.0f})")
    return found.pair == {123, COUNT - 1} and found.peak <= found.limit
