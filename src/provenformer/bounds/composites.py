"""numpy functions that are made of others, each defined once for all interpretations of abstract arrays (numpy_calls.py).

A rule's parameters are those of the numpy function that it understands, by numpy's names. On plain arrays the definitions
mean what numpy means, up to rounding; on abstract arrays they reach the primitives through numpy itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from string import ascii_letters
from typing import Any

import numpy

np: Any = numpy  # numpy dispatches its functions to abstract arrays; its type stubs know only arrays
Move = Callable[..., Any]  # plain arrays -> plain array, each entry of which is an entry of one of them


def is_abstract(value: Any) -> bool:
    """Whether numpy would hand a call with this operand to an interpretation."""
    return hasattr(type(value), "rearranged")


def like(values: Sequence[Any]) -> Any:
    """The abstract array among the operands of a call."""
    return next(value for value in values if is_abstract(value))


def moved(parts: Sequence[Any], move: Move) -> Any:
    """`move` of the parts, some of them abstract."""
    one = like(parts)
    return one.rearranged([one.lift(part) for part in parts], move)


def require_constant(name: str, value: Any) -> Any:
    if any(is_abstract(part) for part in (value if isinstance(value, list | tuple) else [value])):
        raise TypeError(f"numpy.{name}: the choice depends on the input; it must be a constant")
    return value


def axes_of(a: Any, axis: Any) -> tuple[int, ...]:
    """The axes that `axis` names, counted from the end, from last to first."""
    count = np.ndim(a)
    every = range(count) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for one in every:
        if isinstance(one, bool) or not isinstance(one, int | numpy.integer) or not -count <= one < count:
            raise TypeError(f"axis {one!r} is not an axis of an array with {count}")
    found = sorted({int(one) % count - count for one in every}, reverse=True)
    if len(found) != len(tuple(every)):
        raise TypeError(f"axis {axis!r} names an axis twice")
    return tuple(found)


def one_axis(name: str, a: Any, axis: Any) -> int:
    if axis is None:
        raise TypeError(f"numpy.{name}: give the axis; over all entries it is not available")
    (found,) = axes_of(a, axis)
    return found


def _reduced(a: Any, axis: Any, keepdims: Any, along: Callable[[Any, int], Any]) -> Any:
    axes = axes_of(a, axis)
    for one in axes:
        a = along(a, one)
    return a if keepdims else np.squeeze(a, axis=axes)


def _count(a: Any, axis: Any) -> float:
    return float(numpy.prod([np.shape(a)[one] for one in axes_of(a, axis)]))


# Reductions.


def sum(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return _reduced(a, axis, keepdims, lambda b, one: b.along("sum", one))


def max(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return _reduced(a, axis, keepdims, lambda b, one: b.along("max", one))


def min(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return _reduced(a, axis, keepdims, lambda b, one: b.along("min", one))


def prod(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    def along(b: Any, one: int) -> Any:
        first, *rest = entries_along(b, one)
        for entry in rest:
            first = first * entry
        return first

    return _reduced(a, axis, keepdims, along)


def mean(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return np.sum(a, axis=axis, keepdims=keepdims) / _count(a, axis)


def var(a: Any, axis: Any = None, ddof: Any = 0, keepdims: Any = False) -> Any:
    off = np.square(a - np.mean(a, axis=axis, keepdims=True))
    return np.sum(off, axis=axis, keepdims=keepdims) / (_count(a, axis) - ddof)


def std(a: Any, axis: Any = None, ddof: Any = 0, keepdims: Any = False) -> Any:
    return np.sqrt(np.var(a, axis=axis, ddof=ddof, keepdims=keepdims))


def ptp(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


def median(a: Any, axis: Any = None, keepdims: Any = False) -> Any:
    at = one_axis("median", a, axis)
    entries = entries_along(np.sort(a, axis=at), at)
    low, high = entries[(len(entries) - 1) // 2], entries[len(entries) // 2]
    middle = low if low is high else (low + high) / 2.0
    return middle if keepdims else np.squeeze(middle, axis=at)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    """Norms of vectors; those of matrices (an axis of two, or ord without axis) are not defined here."""
    if isinstance(axis, tuple) or (axis is None and (ord is not None and np.ndim(x) > 1)):
        raise TypeError("numpy.linalg.norm: only norms of vectors are available; give one axis")
    if ord in (None, 2):
        return np.sqrt(np.sum(np.square(x), axis=axis, keepdims=keepdims))
    if ord == 1:
        return np.sum(np.absolute(x), axis=axis, keepdims=keepdims)
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(np.absolute(x), axis=axis, keepdims=keepdims)
    raise TypeError(f"numpy.linalg.norm: ord={ord!r} is not available; use 1, 2, inf or -inf")


# Along an axis.


def sort(a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Any:
    del kind, stable  # how it is sorted does not matter for the sorted numbers
    return a.along("sort", one_axis("sort", a, axis))


def cumsum(a: Any, axis: Any = None) -> Any:
    return a.along("cumsum", one_axis("cumsum", a, axis))


def cummax(a: Any, axis: Any = None) -> Any:
    return a.along("cummax", one_axis("maximum.accumulate", a, axis))


def cummin(a: Any, axis: Any = None) -> Any:
    return a.along("cummin", one_axis("minimum.accumulate", a, axis))


def cumprod(a: Any, axis: Any = None) -> Any:
    at = one_axis("cumprod", a, axis)
    out = entries_along(a, at)
    for i in range(1, len(out)):
        out[i] = out[i - 1] * out[i]
    return np.concatenate(out, axis=at)


def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Any:
    at = one_axis("diff", a, axis)
    whole = [part for part in (_beside(a, prepend, at), a, _beside(a, append, at)) if part is not None]
    a = np.concatenate(whole, axis=at) if len(whole) > 1 else a
    for _ in range(n):
        entries = entries_along(a, at)
        a = np.concatenate([second - first for first, second in pairwise(entries)], axis=at)
    return a


def _beside(a: Any, value: Any, axis: int) -> Any:
    """What is put before or after an array along an axis: an array, or a number for every line."""
    if value is None or np.ndim(value):
        return value
    shape = list(np.shape(a))
    shape[axis] = 1
    return numpy.full(shape, value)


def entries_along(a: Any, axis: int) -> list[Any]:
    """Slices along an axis, each of length one."""
    if not np.shape(a)[axis]:
        raise TypeError("an axis of length 0 is not available")
    return [a[(..., slice(i, i + 1), *(slice(None),) * (-1 - axis))] for i in range(np.shape(a)[axis])]


# Element by element.


def positive(x: Any) -> Any:
    return x


def reciprocal(x: Any) -> Any:
    return 1.0 / x


def power(x: Any, exponent: Any) -> Any:
    """x ** k by products; of a positive number x by roots and exp(k log x); b ** x of a constant b > 0."""
    if is_abstract(exponent):
        if is_abstract(x) or np.ndim(x) or not 0 < x < np.inf:
            raise TypeError("numpy.power: an exponent that depends on the input needs a constant base > 0; use np.exp")
        return np.exp2(exponent) if x == 2 else np.exp(exponent * np.log(exponent.lift(float(x))))
    if np.ndim(exponent) or not -(2**31) < exponent < 2**31 or exponent == 0:
        raise TypeError("numpy.power: the exponent must be one number other than 0, and not beyond 2^31")
    if exponent < 0:
        return np.reciprocal(power(x, -exponent))
    if exponent == exponent // 1:
        return x.whole_power(int(exponent))
    if 2 * exponent == 2 * exponent // 1:
        return np.sqrt(x).whole_power(int(2 * exponent)) if exponent != 0.5 else np.sqrt(x)
    return np.exp(float(exponent) * np.log(x))


def hypot(x1: Any, x2: Any) -> Any:
    return np.sqrt(np.square(x1) + np.square(x2))


def clip(a: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Any:
    low, high = (one if one is not None else other for one, other in ((a_min, min), (a_max, max)))
    out = a if low is None else np.maximum(a, low)
    return out if high is None else np.minimum(out, high)


def softmax(x: Any, axis: Any = -1) -> Any:
    """1 / sum_k exp(x_k - x_j): every other entry occurs once, so on boxes the bounds are the best there are."""
    at = one_axis("softmax", x, axis)
    x = np.moveaxis(x, at, -1)
    n = np.shape(x)[-1]
    off = moved([x[..., None, :] - x[..., :, None], 0.0], lambda a, zero: np.where(np.eye(n, dtype=bool), zero, a))
    return np.moveaxis(1.0 / np.sum(np.exp(off), axis=-1), -1, at)


def logsumexp(x: Any, axis: Any = -1, keepdims: Any = False) -> Any:
    at = one_axis("logsumexp", x, axis)
    return np.log(np.sum(np.exp(x), axis=at, keepdims=keepdims))


# Products of matrices.


def matmul(x1: Any, x2: Any) -> Any:
    if not (np.ndim(x1) and np.ndim(x2)):
        raise TypeError("numpy.matmul: an operand has no axes; use *")
    a = x1 if np.ndim(x1) > 1 else x1[None, :]
    b = x2 if np.ndim(x2) > 1 else x2[:, None]
    if np.shape(a)[-1] != np.shape(b)[-2]:
        raise TypeError(f"numpy.matmul: shapes {np.shape(x1)} and {np.shape(x2)} do not fit")
    out = np.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)
    gone = tuple(axis for axis, x in ((-2, x1), (-1, x2)) if np.ndim(x) == 1)
    return np.squeeze(out, axis=gone) if gone else out


def vecdot(x1: Any, x2: Any, axis: Any = -1) -> Any:
    return np.sum(np.moveaxis(x1, axis, -1) * np.moveaxis(x2, axis, -1), axis=-1)


def dot(a: Any, b: Any) -> Any:
    if not (np.ndim(a) and np.ndim(b)):
        return a * b
    if np.ndim(b) > 2:
        raise TypeError("numpy.dot: a second operand with more than two axes is not available; use @ or np.einsum")
    return np.matmul(a, b)


def inner(a: Any, b: Any) -> Any:
    if not (np.ndim(a) and np.ndim(b)):
        return a * b
    if np.ndim(b) > 2:
        raise TypeError("numpy.inner: a second operand with more than two axes is not available; use @ or np.einsum")
    return np.matmul(a, b if np.ndim(b) == 1 else np.swapaxes(b, 0, 1))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        axes = (range(np.ndim(a) - axes, np.ndim(a)), range(axes))
    first, second = (
        [int(i) % np.ndim(x) for i in ([at] if isinstance(at, int) else at)] for x, at in zip((a, b), axes, strict=True)
    )
    left, right = ascii_letters[: np.ndim(a)], list(ascii_letters[np.ndim(a) : np.ndim(a) + np.ndim(b)])
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    kept = "".join(c for c in [*left, *right] if not (c in left and c in right))
    return np.einsum(f"{left},{''.join(right)}->{kept}", a, b)


def einsum(*operands: Any) -> Any:
    """The string form, without repeated indices in one operand: one product, then sums over what the result lacks."""
    formula, *arrays = operands
    if not isinstance(formula, str):
        raise TypeError("numpy.einsum: only the form with a string is available")
    terms, result = _einsum_terms(formula.replace(" ", ""), arrays)
    labels = result + sorted({label for term in terms for label in term} - set(result))
    product = None
    for term, array in zip(terms, arrays, strict=True):
        here = [label for label in labels if label in term]
        aligned = np.transpose(array, [term.index(label) for label in here])
        aligned = aligned[tuple(slice(None) if label in term else None for label in labels)]
        product = aligned if product is None else product * aligned
    summed = tuple(range(len(result), len(labels)))
    return np.sum(product, axis=summed) if summed else product


def _einsum_terms(formula: str, arrays: Sequence[Any]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; those of an ellipsis are "...1" (last), "...2" and so on."""
    left, arrow, right = formula.partition("->")
    texts = left.split(",")
    if len(texts) != len(arrays):
        raise TypeError(f"numpy.einsum: '{formula}' does not fit {len(arrays)} operands")
    terms: list[list[str]] = []
    longest, sizes = 0, dict[str, int]()
    for text, array in zip(texts, arrays, strict=True):
        before, dots, after = text.partition("...")
        spare = np.ndim(array) - len(before) - len(after)
        term = [*before, *(f"...{k}" for k in range(spare, 0, -1)), *after]
        if spare < 0 or (spare and not dots) or len(set(term)) != len(term):
            raise TypeError(
                f"numpy.einsum: '{text}' does not fit an operand with {np.ndim(array)} axes, or repeats an index"
            )
        for label, size in zip(term, np.shape(array), strict=True):
            if sizes.setdefault(label, size) != size and not label.startswith("..."):
                raise TypeError(f"numpy.einsum: index '{label}' has two lengths, {sizes[label]} and {size}")
        terms.append(term)
        longest = spare if spare > longest else longest  # (max is numpy's here)
    ellipsis = [f"...{k}" for k in range(longest, 0, -1)]
    if not arrow:
        letters = left.replace(".", "").replace(",", "")
        return terms, ellipsis + sorted(c for c in set(letters) if letters.count(c) == 1)
    before, dots, after = right.partition("...")
    result = [*before, *(ellipsis if dots else []), *after]
    if len(set(result)) != len(result) or not set(result) <= {label for term in terms for label in term}:
        raise TypeError(f"numpy.einsum: the result '{right}' repeats an index or has one that no operand has")
    return terms, result


# What moves entries from several arrays.


def concatenate(arrays: Any, axis: Any = 0) -> Any:
    return moved(list(arrays), lambda *plain: numpy.concatenate(plain, axis=axis))


def stack(arrays: Any, axis: Any = 0) -> Any:
    return moved(list(arrays), lambda *plain: numpy.stack(plain, axis=axis))


def hstack(tup: Any) -> Any:
    return moved(list(tup), lambda *plain: numpy.hstack(plain))


def vstack(tup: Any) -> Any:
    return moved(list(tup), lambda *plain: numpy.vstack(plain))


def where(condition: Any, x: Any, y: Any) -> Any:
    mask = np.asarray(require_constant("where", condition))
    return moved([x, y], lambda a, b: np.where(mask, a, b))


def tril(m: Any, k: Any = 0) -> Any:
    return np.where(np.tri(*m.shape[-2:], k=k, dtype=bool), m, 0.0)


def triu(m: Any, k: Any = 0) -> Any:
    return np.where(np.tri(*m.shape[-2:], k=k - 1, dtype=bool), 0.0, m)


def zeros_like(a: Any) -> Any:
    return full_like(a, 0.0)


def ones_like(a: Any) -> Any:
    return full_like(a, 1.0)


def full_like(a: Any, fill_value: Any) -> Any:
    return like([a, fill_value]).lift(np.full(np.shape(a), require_constant("full_like", fill_value), dtype=float))


def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Any]:
    def parts(plain: Any) -> list[Any]:
        return list(np.split(plain, require_constant("split", indices_or_sections), axis=axis))

    return [moved([ary], lambda a, i=i: parts(a)[i]) for i in range(len(parts(np.empty(np.shape(ary)))))]


# What asks for the shape alone.


def shape(a: Any) -> tuple[int, ...]:
    return tuple(a.shape)


def ndim(a: Any) -> int:
    return len(a.shape)


def size(a: Any, axis: Any = None) -> int:
    return int(_count(a, axis))
