"""Messages of the library in the words of the command line: `--cells 4`, not `cells_per_axis=4`."""

from __future__ import annotations

import re

OPTIONS = {
    "cells_per_axis": "--cells",
    "norm_order": "--norm",
    "token_dim": "--token-dim",
    "seq_len": "--seq-len",
    "hidden_dim": "--hidden-dim",
    "max_units": "--max-units",
    "trust_target": "--trust-target",
    "tolerance": "--tolerance",
    "construction": "--construction",
    "support": "--support",
    "lipschitz": "--lipschitz",
    "samples": "--samples",
    "depth": "--depth",
    "kind": "--kind",
}
WITH_VALUE = re.compile(rf"\b({'|'.join(OPTIONS)})=(\([^()]*\)|'[^']*'|[^\s,;.()]+(?:\.\d[^\s,;()]*)?)")
NAME = re.compile(rf"(?<![-\w'])({'|'.join(name for name in OPTIONS if '_' in name)})\b")


def in_options(message: str) -> str:
    """Every name of a parameter as the option; what is a word as well (a larger tolerance) stays one without a value."""
    named = NAME.sub(lambda found: OPTIONS[found[1]], WITH_VALUE.sub(_option, message))
    return named.replace("either tolerance or", "either --tolerance or").replace("np.inf", "inf")


def _option(found: re.Match[str]) -> str:
    value = found[2].strip("'")
    if value.startswith("("):  # a pair, as `--support` takes it
        value = value.strip("()").replace(" ", "")
    return f"{OPTIONS[found[1]]} {value}"
