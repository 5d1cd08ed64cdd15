"""One small network of every kind that report and explorer look at."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import provenformer as pf


def keep_positive(x: Any) -> Any:
    return np.maximum(x - np.mean(x, axis=-1, keepdims=True), 0.0)


def memorized() -> pf.Memorized:
    rng = np.random.default_rng(3)
    return pf.memorize(rng.random((5, 2, 3)).round(2), rng.normal(size=(5, 2, 3)).round(2))


NETWORKS: dict[str, Callable[[], pf.Compiled | pf.Memorized]] = {
    "sum": lambda: pf.compile(pf.targets.get("softmax-mean", 1, 3), tolerance=0.15, construction="sum"),
    "paper": lambda: pf.compile(pf.targets.get("softmax-mean", 1, 3), cells_per_axis=4, construction="paper"),
    "wide": lambda: pf.compile(pf.targets.get("scaled-mean", 1, 3), cells_per_axis=3, construction="wide"),
    "merged": lambda: pf.compile(pf.targets.get("centered", 1, 2, (-1, 2)), cells_per_axis=4, hidden_dim=8),
    "rows": lambda: pf.compile(pf.targets.get("scaled-mean", 2, 2), cells_per_axis=2),
    "wide rows": lambda: pf.compile(pf.targets.get("sort", 2, 2), cells_per_axis=2, construction="wide"),
    "positional": lambda: pf.compile(pf.targets.get("sort", 1, 2), cells_per_axis=3),
    "positional paper": lambda: pf.compile(pf.targets.get("reverse", 1, 2), cells_per_axis=3, construction="paper"),
    "nothing distinct": lambda: pf.compile(pf.targets.get("rank", 1, 3), cells_per_axis=2, construction="paper"),
    "opaque": lambda: pf.compile(pf.Target(lambda x: keep_positive(x), 1, 2), cells_per_axis=3),
    "data": memorized,
}
KINDS = list(NETWORKS)


@cache
def made(kind: str) -> pf.Compiled | pf.Memorized:
    return NETWORKS[kind]()
