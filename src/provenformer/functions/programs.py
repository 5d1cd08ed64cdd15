"""A library of programs on tokens, each a few lines of numpy on whole numbers (..., n): what compile_tokens takes.

`get(name, vocab_size, seq_len)` makes a TokenProgram of one. Programs that take `pad` treat that token, the last of the
alphabet, as the end of a shorter sequence: `get(..., pad=True)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from provenformer.base.errors import ProvenformerError
from provenformer.functions.tokens import TokenProgram

PADDED = ", padded"
Array = Any  # numbers, or the symbols that stand for them


def length(x: Array, pad: int | None = None) -> Array:
    """How many tokens there are; with `pad`, before the padding."""
    tokens = np.ones_like(x) if pad is None else np.where(x == pad, 0, 1)
    return np.sum(tokens, axis=-1, keepdims=True) + 0 * x


def histogram(x: Array, pad: int | None = None) -> Array:
    """How often the own token occurs."""
    count = np.sum(x[..., :, None] == x[..., None, :], axis=-1)
    return count if pad is None else np.where(x == pad, 0, count)


def reverse(x: Array, pad: int | None = None) -> Array:
    """The sequence backwards; padding stays at the end."""
    if pad is None:
        return np.flip(x, axis=-1)
    last = np.sum(x != pad, axis=-1, keepdims=True) - 1
    mirrored = last - np.arange(x.shape[-1])
    return np.where(mirrored >= 0, np.take_along_axis(x, np.maximum(mirrored, 0), axis=-1), pad)


def sort(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001  (padding is the largest token, and stays at the end)
    """The tokens in order."""
    return np.sort(x, axis=-1)


def sort_by_rank(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """The same by attention: the token of rank j goes to place j."""
    return np.take_along_axis(x, np.argsort(x, axis=-1, kind="stable"), axis=-1)


def _seen_before(x: Array) -> Array:
    """Whether the own token occurs earlier."""
    k = np.arange(x.shape[-1])
    return np.any((x[..., None, :] == x[..., :, None]) & (k < k[:, None]), axis=-1)


def unique_sort(x: Array, blank: int) -> Array:
    """The different tokens in order, then blanks: the largest token of the alphabet, which stands for nothing."""
    return np.sort(np.where(_seen_before(x), blank, x), axis=-1)


def most_frequent(x: Array, pad: int | None = None) -> Array:
    """The token that occurs most often; of several the smallest."""
    count = histogram(x, pad)
    most = np.max(count, axis=-1, keepdims=True)
    return np.min(np.where(count == most, x, 255), axis=-1, keepdims=True) + 0 * x


def shift(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """The token before the own one; 0 at the start."""
    return np.concatenate([np.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)


def running_count(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """How often token 0 has occurred so far."""
    return np.cumsum(x == 0, axis=-1)


def parity(x: Array, pad: int | None = None) -> Array:
    """Whether the number of odd tokens is odd, by counting them."""
    odd = (x % 2 == 1) if pad is None else (x % 2 == 1) & (x != pad)
    return np.sum(odd, axis=-1, keepdims=True) % 2 + 0 * x


def dyck_1(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """Whether the brackets so far (0 opens, 1 closes, others do nothing) are balanced: 2 yes, 1 not yet, 0 never again."""
    depth = np.cumsum(np.where(x == 0, 1, 0) - np.where(x == 1, 1, 0), axis=-1)
    broken = np.cumsum(depth < 0, axis=-1) > 0
    return np.where(broken, 0, np.where(depth == 0, 2, 1))


def dyck_2(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """The same with two kinds of brackets, 0 with 1 and 2 with 3: each must close the last that is open."""
    k = np.arange(x.shape[-1])
    opens, closes = (x == 0) | (x == 2), (x == 1) | (x == 3)
    depth = np.cumsum(np.where(opens, 1, 0) - np.where(closes, 1, 0), axis=-1)
    level = np.where(opens, depth, -x.shape[-1] - 1)  # where a bracket opens, on which level
    partner = np.max(np.where((level[..., None, :] == depth[..., :, None] + 1) & (k < k[:, None]), k, -1), axis=-1)
    kind = np.take_along_axis(x, np.maximum(partner, 0), axis=-1)
    wrong = closes & ((partner < 0) | (kind != x - 1))
    broken = np.cumsum(wrong, axis=-1) > 0
    return np.where(broken, 0, np.where(depth == 0, 2, 1))


def induction(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """What followed the own token the last time it occurred; 0 if it is new."""
    k = np.arange(x.shape[-1])
    following = np.roll(x, -1, axis=-1)
    last = np.max(np.where((x[..., None, :] == x[..., :, None]) & (k < k[:, None]), k, -1), axis=-1)
    return np.where(last >= 0, np.take_along_axis(following, np.maximum(last, 0), axis=-1), 0)


def double_histogram(x: Array, pad: int | None = None) -> Array:
    """How many different tokens occur as often as the own one."""
    count = histogram(x, pad)
    first = np.where(_seen_before(x), 0, count)  # every token once, by how often it occurs
    found = np.sum(first[..., None, :] == count[..., :, None], axis=-1)
    return found if pad is None else np.where(x == pad, 0, found)


def pattern_match(x: Array, pad: int | None = None) -> Array:  # noqa: ARG001
    """Whether the last three tokens, the own one included, are 0, 1, 0."""
    one, two = shift(x), np.concatenate([np.zeros_like(x[..., :2]) + 1, x[..., :-2]], axis=-1)
    return np.where((x == 0) & (one == 1) & (two == 0), 1, 0)


def addition(x: Array, base: int) -> Array:
    """Two numbers of n/2 digits, one after the other, lowest digits first: their sum, lowest first, then zeros."""
    half = x.shape[-1] // 2
    k = np.arange(x.shape[-1])
    other = np.where(k < half, np.roll(x, -half, axis=-1), 0)
    digits = np.where(k < half, x, 0) + other
    # a carry arrives where the last digit sum before that is not base - 1 is at least base
    decides = digits != base - 1
    last = np.max(np.where(decides[..., None, :] & (k < k[:, None]), k, -1), axis=-1)
    carries = np.take_along_axis(np.where(digits >= base, 1, 0), np.maximum(last, 0), axis=-1)
    carry = np.where((last >= 0) & (k <= half), carries, 0)
    return (digits + carry) % base


PROGRAMS: dict[str, Callable[..., Any]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        length, histogram, reverse, sort, sort_by_rank, unique_sort, most_frequent, shift, running_count, parity, dyck_1, dyck_2,
        induction, double_histogram, pattern_match, addition,
    )
}  # fmt: skip


def names() -> tuple[str, ...]:
    """What get() knows."""
    return tuple(PROGRAMS)


def describe(name: str) -> str:
    """One sentence."""
    return (inspect.getdoc(PROGRAMS[name]) or "").splitlines()[0]


def get(name: str, vocab_size: int, seq_len: int, pad: bool = False) -> TokenProgram:
    """A program of the library. `pad`: the last token of the alphabet ends shorter sequences."""
    if name not in PROGRAMS:
        raise ProvenformerError(f"unknown program '{name!s:.40}'; choose one of: {', '.join(PROGRAMS)}.")
    function, given = PROGRAMS[name], {}
    wants = inspect.signature(function).parameters
    if "base" in wants:
        given = {"base": vocab_size}
    elif "blank" in wants:
        given = {"blank": vocab_size - 1}
    if pad:
        if "pad" not in wants:
            raise ProvenformerError(f"program '{name}' takes whole sequences only; leave pad out.")
        given = {"pad": vocab_size - 1}
    return TokenProgram(partial(function, **given) if given else function, vocab_size, seq_len, name + PADDED * pad)


def is_built_in(program: TokenProgram) -> bool:
    """Whether it is what get() gives for its name and sizes."""
    name = program.name.removesuffix(PADDED)
    try:
        known = get(name, program.vocab_size, program.seq_len, pad=name != program.name)
    except ProvenformerError:
        return False
    return _call(known) == _call(program)


def _call(program: TokenProgram) -> tuple[Any, ...]:
    """Function and arguments."""
    fn = program.fn
    return (fn.func, fn.args, fn.keywords) if isinstance(fn, partial) else (fn, (), {})
