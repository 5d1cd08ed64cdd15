"""What the page may ask for: every field of a request, checked strictly, and the limits of the explorer.

A field that is wrong raises `FieldError`, which carries the field's name, so that the page can put the sentence beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.base.errors import ProvenformerError
from provenformer.bounds.integrals import Kind
from provenformer.compiler.tables import plan_for
from provenformer.constructions import registry
from provenformer.constructions.plan import Plan
from provenformer.functions import targets
from provenformer.functions.targets import Target

LAYER_LIMIT = 600  # layers of a network that is built: one token move must follow all of them within 100 ms
UNIT_LIMIT = 1_200  # hidden units of a wide network: two per step, and its steps are followed one at a time
LIMITS = {"layers": LAYER_LIMIT, "hidden units": UNIT_LIMIT}  # of what a plan counts (`Plan.size`)
DRAWN_DIM = 2  # a token is drawn on a line or in a square
DRAWN_LEN = 6
SIZES = {"token_dim": (1, DRAWN_DIM), "seq_len": (2, DRAWN_LEN)}
FEWEST_CELLS, PLANNED_CELLS = 2, 4096  # a plan costs nothing, but must print
TOLERANCE_RANGE = (1e-9, 1e9)
OUTSIDE = 0.25  # how far a token may be dragged out of the box, of its width
OPENED = "network"  # the target's name for the network that the explorer was started with
TEMPERATURE_RANGE = (-6.0, 14.0)  # log2 of the inverse temperature
RAMP_RANGE = (-40.0, 0.0)  # log2 of the quantiser's ramp, in cells

KINDS: tuple[Kind, ...] = ("rigorous", "lipschitz")  # what a built-in target can have
LABELS = {
    "target": "the target",
    "token_dim": "numbers per token d",
    "seq_len": "tokens n",
    "vocab_size": "tokens of the alphabet V",
    "by": "the choice between cells and tolerance",
    "cells": "cells per axis N",
    "tolerance": "the tolerance",
    "construction": "the construction",
    "norm_order": "the norm p",
    "kind": "the kind of certificate",
    "token": "the number of the token",
    "temperature": "the temperature",
    "ramp": "the ramp",
    "mode": "the kind of network",
}

LONGEST_NUMBER = 40
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?\s*", flags=re.IGNORECASE | re.ASCII)

Choice = TypeVar("Choice", bound=str)
Fields = Mapping[str, Any]
Box = tuple[Sequence[float], Sequence[float]]  # low and high, per row of a token


class FieldError(ProvenformerError):
    """Bad input in one field of the page."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, str(self))


@dataclass(frozen=True)
class Settings:
    """A network that the page asks for: give cells_per_axis or tolerance, the other is None."""

    target: str = "softmax-mean"
    token_dim: int = 1
    seq_len: int = 3
    cells_per_axis: int | None = 6
    tolerance: float | None = None
    construction: str = "sum"
    norm_order: float = 2.0
    kind: Kind = "rigorous"

    def function(self) -> Target:
        """The built-in target at this size."""
        return targets.get(self.target, self.token_dim, self.seq_len)


@dataclass(frozen=True)
class Knobs:
    """Lemma 9's sharpness as the page sets it, as powers of two; None is what the certificate uses."""

    temperature: float | None = None
    ramp: float | None = None


def read_settings(fields: Fields, opened: Settings | None = None) -> Settings:
    """Settings from the form, as text or as numbers. Of the network that was opened nothing else is asked."""
    name = choice(fields, "target", [*targets.names(), *([OPENED] if opened is not None else [])])
    if name == OPENED and opened is not None:
        return opened
    by = choice(fields, "by", ("cells", "tolerance"))
    tolerance = None
    if by == "tolerance":
        tolerance = number(fields, "tolerance")
        if tolerance <= 0:
            raise FieldError(
                "tolerance", f"The tolerance {tolerance:g} is not a positive distance; give a number like 0.05."
            )
        if not TOLERANCE_RANGE[0] <= tolerance <= TOLERANCE_RANGE[1]:
            low, high = TOLERANCE_RANGE
            raise FieldError(
                "tolerance", f"The tolerance {tolerance:g} is outside {low:g} to {high:g}; give a number like 0.05."
            )
    asked = Settings(
        target=name,
        token_dim=whole(fields, "token_dim", *SIZES["token_dim"]),
        seq_len=whole(fields, "seq_len", *SIZES["seq_len"]),
        tolerance=tolerance,
        construction=choice(fields, "construction", registry.NAMES),
        norm_order=number(fields, "norm_order", 1.0, 16.0),
        kind=choice(fields, "kind", KINDS),
    )
    if by == "tolerance":
        return replace(asked, cells_per_axis=None)
    return replace(asked, cells_per_axis=whole(fields, "cells", FEWEST_CELLS, PLANNED_CELLS, most_cells(asked)))


@lru_cache(maxsize=256)
def most_cells(settings: Settings) -> int:
    """The finest grid that is built for such a function: the one limit of N that the page speaks of."""
    cells, f = FEWEST_CELLS, settings.function()
    while fits(plan_for(f, cells + 1, settings.construction)):
        cells += 1
    return cells


def fits(sizes: Plan) -> bool:
    """Whether the explorer builds a network of these sizes."""
    needed, of = sizes.size
    return needed <= LIMITS[of]


def read_tokens(fields: Fields, support: Box, seq_len: int, positional: bool) -> FloatArray:
    """The input, given as one list of numbers per token: (d, n). Positional targets have a closed box."""
    low, high = (np.asarray(end, dtype=np.float64)[:, None] for end in support)
    x = numbers_of_tokens(fields, len(low), seq_len)
    room = 0.0 if positional else OUTSIDE
    least, most = low - room * (high - low), high + room * (high - low)
    if not ((x >= least) & (x <= most)).all():
        raise FieldError("tokens", f"Every number of a token lies between {least.min():g} and {most.max():g}.")
    return x


def numbers_of_tokens(fields: Fields, token_dim: int, seq_len: int) -> FloatArray:
    """One list of finite numbers per token, as (d, n)."""
    tokens = fields.get("tokens")
    if not (
        isinstance(tokens, list)
        and len(tokens) == seq_len
        and all(isinstance(t, list) and len(t) == token_dim for t in tokens)
    ):
        raise FieldError("tokens", f"Give {seq_len} tokens of {token_dim} number(s) each.")
    if not all(_is_real(v) for token in tokens for v in token):
        raise FieldError("tokens", "A token is made of finite numbers.")
    return np.array(tokens, dtype=np.float64).T.copy()


def read_knobs(fields: Fields) -> Knobs:
    """The knobs; a missing one stays where the certificate has it."""
    ranges = {"temperature": TEMPERATURE_RANGE, "ramp": RAMP_RANGE}
    return Knobs(**{name: number(fields, name, *ends) for name, ends in ranges.items() if fields.get(name) is not None})


def choice(fields: Fields, name: str, options: Sequence[Choice]) -> Choice:
    """One of a list of words."""
    value = fields.get(name)
    for option in options:
        if value == option:
            return option
    raise FieldError(name, f"{_label(name)} is one of: {', '.join(options)}.")


def whole(fields: Fields, name: str, low: int, high: int, said: int | None = None) -> int:
    """A whole number between two limits; `said` is the upper one in messages where it is lower than what is read."""
    value = fields.get(name)
    most = high if said is None else said
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,9}\s*", value, flags=re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldError(name, f"{_label(name)} is a whole number from {low} to {most:,}.")
    if not low <= value <= high:
        raise FieldError(name, f"{_label(name)} is {value:,}; give a whole number from {low} to {most:,}.")
    return value


def number(fields: Fields, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number between two limits."""
    value: Any = fields.get(name)
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER and NUMBER.fullmatch(value):
        value = float(value)
    if not _is_real(value):
        ends = "" if low == -math.inf else f" from {low:g} to {high:g}"
        raise FieldError(name, f"{_label(name)} is a number{ends}, for example {_example(name)}.")
    if not low <= value <= high:
        raise FieldError(name, f"{_label(name)} is {value:g}; give a number from {low:g} to {high:g}.")
    return float(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and value == value


def _label(name: str) -> str:
    text = LABELS.get(name, name)
    return text[0].upper() + text[1:]


def _example(name: str) -> str:
    return {"tolerance": "0.05", "norm_order": "2", "temperature": "11", "ramp": "-10"}.get(name, "1")
