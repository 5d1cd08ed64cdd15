"""numpy's functions on tokens, by name: reductions, sorting, moving and indexing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from provenformer.symbols.tokens import lower
from provenformer.symbols.tokens.arrays import Refused, Tokens, number, spread, tokens_like
from provenformer.symbols.tokens.graph import Ints, Lin
from provenformer.symbols.tokens.selectors import Selector
from provenformer.symbols.tokens.ufuncs import applied, selector_of

REDUCTIONS = {
    "add": "sum", "maximum": "max", "minimum": "min", "logical_or": "any", "logical_and": "all",
}  # fmt: skip


def reduced(how: str, array: Tokens, axis: Any, keepdims: bool) -> Tokens:
    """sum, mean, max, min, any, all or argmax over one axis of tokens."""
    place = _axis(array, axis)
    trailing = array.trailing
    g, n = array.graph, array.graph.seq_len
    if len(trailing) == 2:
        if trailing != (n, n) or place != 1:
            raise Refused(
                "pairs of tokens are reduced over keys, their last axis; write them as x[..., :, None] and x[..., None, :]."
            )
        lin, truth = _over_keys(how, array)
        return Tokens(g, (n, 1), lin, truth=truth) if keepdims else Tokens(g, (n,), lin, truth=truth)
    shape = (1,) if keepdims else ()
    if trailing == (1,):
        if how in ("any", "all") and not array.truth:
            array = applied("not_equal", array, 0)
        only = lower.constant(g, 0) if how.startswith("arg") else array.lin
        return Tokens(g, shape, only, truth=array.truth and how not in ("sum", "mean"))
    lin, truth = _over_tokens(how, array, trailing[0])
    return Tokens(g, shape, lin, truth=truth)


def _over_tokens(how: str, array: Tokens, size: int) -> tuple[Lin, bool]:
    g, n = array.graph, array.graph.seq_len
    lin = array.lin
    assert lin is not None
    weights = (np.arange(n) < size).astype(np.int64)[None]
    name = g.words(lin)
    if how in ("sum", "mean", "any", "all"):
        if how == "all":
            true = array.lin if array.truth else applied("not_equal", array, 0).lin
            assert true is not None
            lin = lower.add(g, (-1, true), (1, lower.constant(g, 1)))
        elif how == "any" and not array.truth:
            lin = applied("not_equal", array, 0).lin
        assert lin is not None
        what = "number of tokens with" if array.truth or how in ("any", "all") else "sum of"
        found = lower.total(g, weights, lin, lambda name: f"{what} {name}")
        if how == "mean":
            return lower.add(g, (Fraction(1, size), found)), False
        if how == "sum":
            return found, False
        words = f"[{name} at {'some' if how == 'any' else 'every'} token]"
        return lower.table(g, found, lambda v: (v > 0) if how == "any" else v == 0, words), True
    sign = -1 if how.endswith("min") else 1
    if size < n:  # tokens beyond the slice get what the first one has
        lin = lower.moved(g, lin, np.where(np.arange(n) < size, np.arange(n), 0), f"within the first {size} tokens")
    if how.startswith("arg"):
        return lower.first_largest(g, lin, sign), False
    return lower.largest(g, lin, sign), array.truth


def _over_keys(how: str, array: Tokens) -> tuple[Lin, bool]:
    """Over the tokens that a selector picks."""
    g, n = array.graph, array.graph.seq_len
    s = array.selector
    one, zero = lower.constant(g, 1), lower.constant(g, 0)
    if s is None:
        if how in ("sum", "mean") and not array.truth:
            parts = [(n, zero if array.lin is None else array.lin)]
            every = lower.total(
                g, np.ones((1, n), np.int64), zero if array.key is None else array.key, lambda name: f"sum of {name}"
            )
            found = lower.add(g, *parts, (1, every))
            return (found if how == "sum" else lower.add(g, (Fraction(1, n), found))), False
        raise Refused(
            f"np.{how} of numbers at pairs of tokens is not traced; compare them, or use np.where with a selector."
        )
    if how == "any" and array.chosen is None:
        return s.found(), True
    if how == "all" and array.chosen is None:
        return lower.add(g, (1, one), (-1, s.negated().found())), True
    if how in ("sum", "mean"):
        if array.chosen is None:
            found = s.counted()
        elif array.chosen.known and len(np.unique(array.chosen.constant)) == 1:
            found = lower.product(g, array.chosen, s.counted(), "")
        else:
            den = array.chosen.den
            found = lower.add(g, (Fraction(1, den), s.counted(lower.add(g, (den, array.chosen)))))
        if array.otherwise:
            found = lower.add(g, (1, found), (array.otherwise, s.negated().counted()))
        return (found if how == "sum" else lower.add(g, (Fraction(1, n), found))), False
    if how in ("argmax", "argmin") and array.chosen is None:
        at, there = (s if how == "argmax" else s.negated()).extreme(-1)
        return lower.gate(g, there, at, f"the place of the first token with {s.words}, or 0"), False
    if how in ("max", "min") and array.chosen is not None and array.chosen.known:
        return _extreme_position(array, s, array.chosen, how), False
    raise Refused(
        f"np.{how} over pairs of tokens is traced for positions alone, np.{how}(np.where(selected, np.arange(n), -1), axis=-1); "
        "then index with them."
    )


def _extreme_position(array: Tokens, s: Selector, chosen: Lin, how: str) -> Lin:
    """max(where(P, p_k, c)) for positions p_k that rise or fall with k, and c below all of them (above, for min)."""
    g = array.graph
    steps = np.diff(chosen.constant)
    outside = array.otherwise * chosen.den
    beyond = outside <= chosen.constant.min() if how == "max" else outside >= chosen.constant.max()
    if not ((steps > 0).all() or (steps < 0).all()) or not beyond:
        raise Refused(
            f"np.{how}(np.where(selected, p, c)) needs p that rises or falls with the position, and c beyond all p."
        )
    sign = 1 if (steps[0] > 0) == (how == "max") else -1
    at, there = s.extreme(sign)
    held = lower.table(g, at, lambda k: Fraction(int(chosen.constant[int(k)]), chosen.den), f"number of {g.words(at)}")
    above = lower.add(g, (1, held), (-array.otherwise, lower.constant(g, 1)))
    what = "place" if held.key == at.key else "number"
    which = f"the {what} of the {'last' if sign > 0 else 'first'} token with {s.words}"
    return lower.add(
        g,
        (array.otherwise, lower.constant(g, 1)),
        (1, lower.product(g, there, above, f"{which}, or 0")),
    )


def cumsum(array: Any, axis: Any = None, **unknown: Any) -> Tokens:
    _plain(unknown)
    _axis(array, axis)
    size, g = _tokens(array, "np.cumsum"), array.graph
    if size == 1:
        return number(array)
    n = g.seq_len
    weights = np.tril(np.ones((n, n), np.int64))
    what = "number so far of tokens with" if array.truth else "sum so far of"
    return Tokens(g, (size,), lower.total(g, weights, number(array).lin, lambda name: f"{what} {name}"))  # type: ignore[arg-type]


def where(condition: Any, first: Any, second: Any) -> Tokens:
    like = next(v for v in (condition, first, second) if isinstance(v, Tokens))
    c, a, b = (tokens_like(like, v) for v in (condition, first, second))
    g = like.graph
    if not c.truth:
        c = (c != 0) if c.noise else applied("not_equal", c, 0)
    if 2 in {len(v.trailing) for v in (c, a, b)}:
        return _where_pairs(c, a, b)
    shape, _, _ = spread(a, b)
    shape = np.broadcast_shapes(shape, c.trailing)
    assert a.lin is not None
    assert b.lin is not None
    assert c.lin is not None
    words = f"({g.words(a.lin)} where {g.words(c.lin)}, else {g.words(b.lin)})"
    return Tokens(g, shape, lower.choose(g, c.lin, a.lin, b.lin, words), truth=a.truth and b.truth)


def _where_pairs(c: Tokens, a: Tokens, b: Tokens) -> Tokens:
    """A number of the key where selected, else a constant."""
    g, n = c.graph, c.graph.seq_len
    _, c, a = spread(c, a)
    _, c, b = spread(c, b)
    selector = selector_of(c)
    fixed = b.key if b.key is not None and b.lin is None else b.lin
    if fixed is None or not (fixed.known and len(np.unique(fixed.constant)) == 1) or a.selector is not None:
        raise Refused(
            "np.where over pairs of tokens is traced with a number of the key and a constant: np.where(selected, "
            "v[..., None, :], 0)."
        )
    otherwise = Fraction(int(fixed.constant[0]), fixed.den)
    chosen = a.key if a.key is not None else a.lin
    assert chosen is not None
    if a.key is None and not (chosen.known and len(np.unique(chosen.constant)) == 1):
        raise Refused("np.where over pairs of tokens takes a number of the key, v[..., None, :], not of the query.")
    if a.key is not None and a.lin is not None and (a.lin.terms or a.lin.constant.any()):
        raise Refused("np.where over pairs of tokens takes a number of the key alone.")
    if a.truth and b.truth:
        raise Refused("np.where of true and false over pairs; use & and |.")
    return Tokens(g, (n, n), selector=selector, chosen=chosen, otherwise=otherwise)


# Sorting, moving, indexing.


def sort(array: Any, axis: Any = -1, **unknown: Any) -> Tokens:
    _plain(unknown, "kind", "stable")
    _axis(array, axis)
    return Tokens(array.graph, (_all_tokens(array, "np.sort"),), lower.sort(array.graph, array.lin), truth=array.truth)


def argsort(array: Any, axis: Any = -1, **given: Any) -> Tokens:
    """The tokens in the order of their values, equal ones from left to right."""
    stable = given.pop("kind", None) in ("stable", "mergesort") or given.pop("stable", None)
    _plain(given)
    _axis(array, axis)
    n, g = _all_tokens(array, "np.argsort"), array.graph
    query, key = Tokens(g, (n, 1), array.lin), Tokens(g, (1, n), key=array.lin)
    earlier = tokens_like(query, np.tri(n, k=-1, dtype=bool))
    equal = applied("logical_and", applied("equal", key, query), earlier)
    before = applied("logical_or", applied("less", key, query), equal)
    assert before.selector is not None
    ranks = before.selector.counted()
    if not stable:
        raise Refused("np.argsort may order equal tokens in any way; use kind='stable'.")
    return Tokens(
        g,
        (n,),
        lower.inverse(
            g, ranks, lower.position(g), f"the place of the token whose rank by {g.words(array.lin)} is the own place"
        ),
    )


def take_along_axis(array: Any, indices: Any, axis: Any = -1) -> Tokens:
    like = array if isinstance(array, Tokens) else indices
    array, indices = tokens_like(like, array), tokens_like(like, indices)
    _axis(array, axis)
    _all_tokens(array, "np.take_along_axis")
    if len(indices.trailing) != 1:
        raise Refused("np.take_along_axis needs an index for every token.")
    found = lower.gather(array.graph, array.lin, indices.lin)
    return Tokens(array.graph, indices.trailing, found, truth=array.truth)


def roll(array: Any, shift: Any, axis: Any = None) -> Tokens:
    _axis(array, axis)
    n = _all_tokens(array, "np.roll")
    return _known_move(array, (np.arange(n) - int(shift)) % n, n, _away(-int(shift)))


def flip(array: Any, axis: Any = None) -> Tokens:
    _axis(array, axis)
    size = _tokens(array, "np.flip")
    return _known_move(array, np.arange(size)[::-1], size, "at the mirrored token")


def _known_move(array: Tokens, source: Ints, size: int, words: str) -> Tokens:
    n = array.graph.seq_len
    full = np.concatenate([source, np.full(n - size, -1)])
    return Tokens(array.graph, (size,), lower.moved(array.graph, array.lin, full, words), truth=array.truth)  # type: ignore[arg-type]


def _away(steps: int) -> str:
    return f"{abs(steps)} token{'' if abs(steps) == 1 else 's'} {'before' if steps < 0 else 'later'}"


def concatenate(arrays: Sequence[Any], axis: Any = 0, **unknown: Any) -> Tokens:
    _plain(unknown)
    like = next(v for v in arrays if isinstance(v, Tokens))
    _axis(like, axis)
    g, n = like.graph, like.graph.seq_len
    made = [tokens_like(like, v) for v in arrays]
    start, found = 0, [(1, lower.constant(g, 0))]
    for array in made:
        size = _tokens(array, "np.concatenate")
        if start + size > n:
            raise Refused(f"np.concatenate makes {start + size} or more tokens of {n}; slice it.")
        k = np.arange(n)
        here = (k >= start) & (k < start + size)
        placed = array.lin
        assert placed is not None
        if start or size == 1:
            source = np.where(here, k - start if size > 1 else 0, -1)
            placed = lower.moved(g, placed, source, _away(-start))
        where = f"from place {start} on" if start + size == n else f"places {start} to {start + size - 1}"
        words = f"{g.words(placed)} ({where})"
        found.append((1, lower.product(g, g.lin(here.astype(np.int64)), placed, words)))
        start += size
    if start == 1:  # one number, which stands for all tokens
        return next(v for v in made if v.trailing == (1,))
    return Tokens(g, (start,), lower.add(g, *found), truth=all(v.truth for v in made))


def indexed(array: Tokens, item: Any) -> Tokens:
    """x[..., :, None], x[..., ::-1], x[..., 3], x[..., known array]."""
    items = list(item) if isinstance(item, tuple) else [item]
    named = sum(v is not None and v is not Ellipsis for v in items)
    if Ellipsis in [v for v in items if isinstance(v, type(Ellipsis))]:
        at = next(i for i, v in enumerate(items) if v is Ellipsis)
        items[at : at + 1] = [slice(None)] * (array.ndim - named)
    else:
        items += [slice(None)] * (array.ndim - named)
    if not items or items[0] != slice(None):
        raise Refused("the axis of sequences was indexed; index tokens: x[..., i].")
    rest, g, n = items[1:], array.graph, array.graph.seq_len
    if all(v is None or (isinstance(v, slice) and v == slice(None)) for v in rest):
        return _expanded(array, [v is None for v in rest])
    if len(rest) != 1 or len(array.trailing) != 1:
        raise Refused("slices of pairs of tokens are not traced; slice first.")
    size, chosen = array.trailing[0], rest[0]
    if isinstance(chosen, Tokens):
        return take_along_axis(array, chosen)
    kept = np.arange(size)[chosen]
    if kept.ndim > 1 or kept.size > n:
        raise Refused(f"an index of shape {kept.shape} does not fit {n} tokens.")
    words = f"at place {int(kept)}" if kept.ndim == 0 else "of a known token"
    if kept.ndim == 0 or kept.size == 1:
        weights = (np.arange(n) == int(kept.ravel()[0])).astype(np.int64)[None]
        lin = array.lin if size == 1 else lower.total(g, weights, array.lin, lambda name: f"{name} {words}")  # type: ignore[arg-type]
        return Tokens(g, kept.shape, lin, truth=array.truth)
    return _known_move(array, kept, kept.size, words)


def _expanded(array: Tokens, new: list[bool]) -> Tokens:
    """New axes."""
    g, n = array.graph, array.graph.seq_len
    if not any(new):
        return array
    if len(array.trailing) == 0:
        return Tokens(g, (1,) * len(new), array.lin, truth=array.truth)
    if len(new) == 2 and array.trailing == (1,):
        return Tokens(g, (1, 1), array.lin, truth=array.truth)
    if len(new) == 2 and array.trailing == (n,):
        if new[1]:
            return Tokens(g, (n, 1), array.lin, truth=array.truth)
        return Tokens(g, (1, n), key=array.lin, truth=array.truth)
    raise Refused("new axes make pairs of all tokens: x[..., :, None] and x[..., None, :].")


def expand_dims(array: Any, axis: Any) -> Tokens:
    place = axis % (array.ndim + 1) if isinstance(axis, int) else 0
    if place < max(1, array.ndim - 1):
        raise Refused("np.expand_dims is traced for tokens, with axis=-1 or axis=-2.")
    return indexed(array, (Ellipsis, None) if place == array.ndim else (Ellipsis, None, slice(None)))


def cast(array: Tokens, dtype: Any, **_: Any) -> Tokens:
    """Of another type: true where it is not 0, or without its fraction; numpy says the type (numbers.py)."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return array if array.truth else applied("not_equal", array, 0)
    if kind not in "iuf":
        raise Refused(f"astype({dtype}) is no number.")
    whole = array.selector is not None or kind == "f" or array.dtype.kind != "f"
    return number(array) if whole else applied("trunc", array)


def full_like(array: Any, fill: Any, **_: Any) -> Tokens:
    lin = tokens_like(array, fill).lin
    if lin is None:
        raise Refused("np.full_like is traced with a number.")
    return Tokens(array.graph, array.trailing, lin, truth=isinstance(fill, bool | np.bool_))


def clip(array: Any, low: Any = None, high: Any = None, **unknown: Any) -> Any:
    _plain(unknown)
    array = array if low is None else applied("maximum", array, low)
    return array if high is None else applied("minimum", array, high)


def broadcast_to(array: Any, shape: Any, **_: Any) -> Tokens:
    if array.trailing not in ((1,), ()) or shape[-1] != array.graph.seq_len:
        raise Refused("np.broadcast_to is traced from one number of a sequence to all its tokens.")
    return Tokens(array.graph, (array.graph.seq_len,), array.lin, truth=array.truth)


def _reduction(how: str) -> Callable[..., Tokens]:
    def rule(array: Any, axis: Any = None, *, keepdims: bool = False, **unknown: Any) -> Tokens:
        _plain(unknown)
        return reduced(how, array, axis, bool(keepdims))

    return rule


def _count_nonzero(array: Any, axis: Any = None, *, keepdims: bool = False) -> Tokens:
    return reduced("sum", array if array.truth else applied("not_equal", array, 0), axis, keepdims)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _reduction("sum"), "mean": _reduction("mean"), "max": _reduction("max"), "amax": _reduction("max"),
    "min": _reduction("min"), "amin": _reduction("min"), "any": _reduction("any"), "all": _reduction("all"),
    "argmax": _reduction("argmax"), "argmin": _reduction("argmin"), "count_nonzero": _count_nonzero, "cumsum": cumsum,
    "where": where, "sort": sort, "argsort": argsort, "take_along_axis": take_along_axis, "roll": roll, "flip": flip,
    "fliplr": lambda array: flip(array, -1), "concatenate": concatenate, "clip": clip, "broadcast_to": broadcast_to,
    "expand_dims": expand_dims,
    "zeros_like": lambda array, **_: full_like(array, 0), "ones_like": lambda array, **_: full_like(array, 1),
    "full_like": full_like, "shape": lambda array: array.shape, "ndim": lambda array: array.ndim,
}  # fmt: skip


def _axis(array: Any, axis: Any) -> int:
    """Which trailing axis; the axis of sequences is refused."""
    if not isinstance(array, Tokens):
        raise Refused("an argument that depends on tokens stands where numpy wants the array.")
    if axis is None or isinstance(axis, tuple) or not -array.ndim <= axis < array.ndim:
        raise Refused(f"axis={axis}: name the axis of tokens, axis=-1.")
    place = axis % array.ndim
    if place == 0:
        raise Refused("the axis of sequences was reduced or moved; use axis=-1.")
    return int(place) - 1


def _tokens(array: Any, name: str) -> int:
    if not isinstance(array, Tokens) or len(array.trailing) != 1:
        raise Refused(f"{name} is traced for tokens, not for pairs of them.")
    return array.trailing[0]


def _all_tokens(array: Any, name: str) -> int:
    size = _tokens(array, name)
    if size != array.graph.seq_len:
        raise Refused(f"{name} of {size} of {array.graph.seq_len} tokens is not traced; use all of them.")
    return size


def _plain(unknown: dict[str, Any], *allowed: str) -> None:
    given = {k: v for k, v in unknown.items() if v is not None and k not in allowed and "NoValue" not in repr(v)}
    if given:
        raise Refused(f"the argument {next(iter(given))} is not traced; leave it out.")
