"""What manifest.json and certificate.json may hold: every entry by name, type and range, checked before anything is built.

A folder may come from anybody. What passes here has sizes that fit a machine, numbers that are finite, and words that a
terminal can print; whether the claim is true is the checker's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from provenformer.base.errors import BadFolder, one_line
from provenformer.bounds.integrals import KINDS, NORM_LIMIT
from provenformer.functions.targets import SIZE_LIMIT
from provenformer.functions.tokens import LENGTH_LIMIT, VOCAB_LIMIT
from provenformer.networks.circuit import DEEPEST

FORMAT = 1
NETWORK, CERTIFICATE, MANIFEST = "network.safetensors", "certificate.json", "manifest.json"
COUNT_LIMIT = 10**9  # layers of a run, hidden units of a layer
CELLS_LIMIT = 10**6
WORD_LIMIT = 1000  # characters
DEPTH_LIMIT = 20  # of what a certificate records beside its claim

Check = Callable[[str, Any], None]  # of an entry's place and value; raises BadFolder


def wrong(place: str, value: object, expected: str) -> BadFolder:
    """One line: which entry, what it is, what it should be."""
    shown = one_line(repr(value))
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return BadFolder(f"{one_line(place)[:200]} is {shown}, not {expected}; save the network again.")


# Rules for single values.


def whole(low: int, high: int, place: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise wrong(place, value, f"a whole number from {low:,} to {high:,}")


def number(low: float, high: float, place: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or not _finite(value):
        raise wrong(place, value, "a finite number" if high == math.inf else f"a number from {low:g} to {high:g}")


def word(place: str, value: Any) -> None:
    if not isinstance(value, str) or not value.isprintable() or len(value) > WORD_LIMIT:
        raise wrong(place, value, f"at most {WORD_LIMIT:,} characters that can be printed")


def token(place: str, value: Any) -> None:
    """A word or a number, never shown but by its repr: what it is made of does not matter."""
    if not isinstance(value, str):
        number(-math.inf, math.inf, place, value)
    elif len(value) > WORD_LIMIT:
        raise wrong(place, value, f"at most {WORD_LIMIT:,} characters")


def flag(place: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise wrong(place, value, "true or false")


def one_of(choices: Sequence[object], place: str, value: Any) -> None:
    if isinstance(value, bool) or not any(type(value) is type(choice) and value == choice for choice in choices):
        raise wrong(place, value, " or ".join(map(str, choices)))


def plain(place: str, value: Any, depth: int = DEPTH_LIMIT) -> None:
    """Any JSON, of words and finite numbers, not too deep."""
    if isinstance(value, Mapping | list):
        if not depth:
            raise wrong(place, "...", f"nested at most {DEPTH_LIMIT} deep")
        for key, entry in value.items() if isinstance(value, Mapping) else enumerate(value):
            plain(f"{place}.{key}", entry, depth - 1)
    elif isinstance(value, str):
        word(place, value)
    elif value is not None and not isinstance(value, bool):
        number(-math.inf, math.inf, place, value)


# Rules for values made of others.


def optional(check: Check, place: str, value: Any) -> None:
    if value is not None:
        check(place, value)


def each(check: Check, least: int, place: str, value: Any) -> None:
    """A list of at least so many."""
    if not isinstance(value, list) or len(value) < least:
        raise wrong(place, value, f"a list of at least {least}" if least else "a list")
    for i, entry in enumerate(value):
        check(f"{place}[{i}]", entry)


def mapping(check: Check, place: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong(place, value, "an object")
    for key, entry in value.items():
        word(place, key)
        check(f"{place}.{key}", entry)


def record(required: Mapping[str, Check], allowed: Mapping[str, Check], place: str, value: Any) -> None:
    """An object with all of these entries, and perhaps some of those; others are let be."""
    if not isinstance(value, Mapping):
        raise wrong(place, value, "an object")
    for name, check in required.items():
        if name not in value:
            raise BadFolder(f"{one_line(place)[:200]} has no entry '{name}'; save the network again.")
        check(f"{place}: {name}" if "." not in name else name, value[name])
    for name, check in allowed.items():
        if name in value:
            check(f"{place}: {name}", value[name])


# The two files.

finite: Check = partial(number, -math.inf, math.inf)
positive: Check = partial(number, 0.0, math.inf)
size: Check = partial(whole, 1, SIZE_LIMIT)
amount: Check = partial(whole, 0, COUNT_LIMIT)
row: Check = partial(each, finite, 1)

RUN: Check = partial(
    record, {"kind": word, "stage": word, "layers": amount}, {"hidden_dim": partial(whole, 1, COUNT_LIMIT)}
)
BLOCK: Check = partial(record, {"stage": word, "hidden_dim": partial(whole, 1, COUNT_LIMIT)}, {})
HEAD: Check = partial(each, amount, 2)  # sizes of queries and of values
CIRCUIT_BLOCK: Check = partial(record, {"hidden_dim": amount, "heads": partial(each, HEAD, 0)}, {})
CLAIM: Check = partial(each, amount, 4)  # channel, layers, atom, rows of its matrix (1, 1 for a diagonal one)
# How the tensors of each kind of network are laid out, by the entry that says so.
LAYOUTS: dict[str, dict[str, Check]] = {
    "runs": {"runs": partial(each, RUN, 1)},
    "wide_blocks": {"wide_blocks": partial(each, BLOCK, 1), "model_dim": partial(whole, 1, COUNT_LIMIT)},
    "circuit_blocks": {
        "circuit_blocks": partial(each, CIRCUIT_BLOCK, 0),
        "channels": partial(each, word, 1),
        "witness": partial(each, CLAIM, 0),
    },
}

# What a layout may have beside that.
FURTHER: dict[str, Check] = {"kernel_steps": partial(each, positive, 0), "square_depth": partial(whole, 0, DEEPEST)}

FUNCTION: dict[str, Check] = {
    "name": word,
    "token_dim": size,
    "seq_len": size,
    "equivariant": flag,
    "lipschitz": partial(optional, positive),
    "support": partial(each, row, 2),
    "vanishes_outside": flag,
}
TARGETS: dict[str, dict[str, Check]] = {
    "built-in": FUNCTION,
    "import": {**FUNCTION, "import": word},
    "opaque": FUNCTION,
    "data": {},
    "program": {"name": word, "vocab_size": partial(whole, 1, VOCAB_LIMIT), "seq_len": partial(whole, 1, LENGTH_LIMIT)},
}


def _target(place: str, value: Any) -> None:
    record({"source": partial(one_of, list(TARGETS))}, {}, place, value)
    further: dict[str, Check] = {
        "source_sha256": word,
        "import": word,
        "vouched": flag,
        "tokens": partial(each, word, 1),
        "vocab": partial(each, token, 1),
        "padded": flag,
        "output": partial(one_of, ["tokens", "numbers"]),
    }
    record(TARGETS[value["source"]], further, place, value)


MANIFEST_ENTRIES: dict[str, Check] = {
    "format": partial(one_of, [FORMAT]),
    "token_dim": size,
    "seq_len": size,
    "positional": flag,
    "blocks": partial(whole, 0, 10**18),
    "parameters": partial(whole, 0, 10**18),
    "construction": word,
    "target": _target,
    "versions": partial(mapping, word),
    "sha256": partial(record, {NETWORK: word, CERTIFICATE: word}, {}),
    "manifest_sha256": word,
}
# What a certificate records beside its claim is free, but for what is read again.
RECORDED: dict[str, Check] = {
    "bounds": partial(mapping, positive),
    "id_bits": partial(whole, 0, 2**31),
    "margin": finite,
    "step": positive,
    "tolerance": positive,
}


def _details(place: str, value: Any) -> None:
    mapping(plain, place, value)
    record({}, RECORDED, place, value)


CERTIFICATE_ENTRIES: dict[str, Check] = {
    "bound": positive,
    "terms": partial(mapping, positive),
    "kind": partial(one_of, KINDS),
    "norm_order": partial(optional, partial(number, 1, NORM_LIMIT)),
    "domain": partial(one_of, ["box", "space", "data", "tokens"]),
    "basis": word,
    "ramp": positive,
    "clip_low": row,
    "clip_high": row,
    "details": _details,
}


def require_manifest(place: str, value: Any) -> None:
    """Raise BadFolder unless it describes one network and its target."""
    record(MANIFEST_ENTRIES, {"cells_per_axis": partial(whole, 2, CELLS_LIMIT)}, place, value)
    found = [name for name in LAYOUTS if name in value]
    if len(found) != 1:
        raise BadFolder(f"{place} describes {len(found)} networks ({' or '.join(LAYOUTS)}), not one; save it again.")
    record(LAYOUTS[found[0]], FURTHER, place, value)


def require_certificate(place: str, value: Any) -> None:
    """Raise BadFolder unless it has the entries of a certificate and no others."""
    record(CERTIFICATE_ENTRIES, {}, place, value)
    if unknown := sorted(value.keys() - CERTIFICATE_ENTRIES.keys()):
        raise BadFolder(f"{place} has an unknown entry {one_line(unknown[0])[:60]!r}; save the network again.")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False
