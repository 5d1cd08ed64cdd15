"""Arrays that stand for tokens: numpy's operations on them draw the graph.

An array has a batch axis, which nothing may touch, and trailing axes: none, tokens (m,) on the first m positions, the same
for all (1,), or pairs
of tokens: a query (n, 1), a key (1, n), both (n, n). Everything else is refused in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from provenformer.base.errors import ProvenformerError
from provenformer.symbols.tokens import lower
from provenformer.symbols.tokens.graph import Lin, TokenGraph
from provenformer.symbols.tokens.selectors import Selector, related


class Refused(ProvenformerError):  # noqa: N818  (a verdict, as base.errors.Rejected)
    """The program does something that cannot be traced. A program that goes on all the same goes another way than on numbers."""

    raised = 0  # how many there have been

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        Refused.raised += 1


@dataclass(frozen=True, eq=False)
class Tokens(np.lib.mixins.NDArrayOperatorsMixin):
    """Numbers at tokens (lin), or a sum of a number of the query and one of the key (lin, key), or what a selector picks."""

    graph: TokenGraph
    trailing: tuple[int, ...]
    lin: Lin | None = None
    key: Lin | None = None  # pairs only: lin_j + key_k
    selector: Selector | None = None  # pairs only: selector ? chosen : otherwise
    chosen: Lin | None = None  # a number of the key; None: true or false
    otherwise: Fraction = Fraction(0)
    truth: bool = False  # true or false rather than a number
    sample: NDArray[Any] | None = None  # what numpy gives for a few sequences; None only inside of rules
    noise: float = 0.0  # how far numpy's numbers may be from these (numbers.py)
    once: bool = True  # whether they are these, rounded once

    def __post_init__(self) -> None:
        """A number without an axis of tokens, or with one of length 1, stands beside every token: it must be the same there."""
        single = self.graph.seq_len > 1 and all(size == 1 for size in self.trailing)
        if single and self.lin is not None and not self.graph.uniform(self.lin):
            raise Refused(
                "one number of a sequence would depend on the token; write it for all tokens, x + 0 * number."
            )

    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """A program that asks whether it has an array goes the same way as with numbers."""
        return np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (1 if self.sample is None else len(self.sample), *self.trailing)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return np.dtype(np.int64) if self.sample is None else self.sample.dtype

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") or hasattr(np.ndarray, name):
            raise AttributeError(str(Refused(f"tokens have no attribute {name}; docs/tokens.md lists what is traced.")))
        raise AttributeError(name)

    def __len__(self) -> int:
        raise Refused("the number of sequences is not known; use x.shape[-1] for that of tokens.")

    def __bool__(self) -> bool:
        raise Refused("a Python 'if', 'and', 'or' or 'while' asks for one sequence's value; use np.where, & and |.")

    __float__ = __int__ = __index__ = __iter__ = __bool__

    def __copy__(self) -> Tokens:
        return self  # nothing changes it

    def __deepcopy__(self, _: Any) -> Tokens:
        return self

    def copy(self, order: str = "C") -> Tokens:
        del order  # of numbers in memory
        return self

    # Whatever arrays take, so that an argument that is not traced is refused and no TypeError which a program may catch.

    def astype(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, _numbers().cast_to(self, args, kwargs))

    def sum(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.sum(self, *args, **kwargs))

    def mean(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.mean(self, *args, **kwargs))

    def max(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.max(self, *args, **kwargs))

    def min(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.min(self, *args, **kwargs))

    def any(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.any(self, *args, **kwargs))

    def all(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.all(self, *args, **kwargs))

    def cumsum(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.cumsum(self, *args, **kwargs))

    def argmax(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.argmax(self, *args, **kwargs))

    def argsort(self, *args: Any, **kwargs: Any) -> Tokens:
        return cast(Tokens, np.argsort(self, *args, **kwargs))

    def __pow__(self, exponent: Any) -> Tokens:
        return cast(Tokens, _numbers().power(self, exponent))

    def __getitem__(self, item: Any) -> Tokens:
        return cast(Tokens, _numbers().item(self, item))

    def __setitem__(self, item: Any, value: Any) -> None:
        raise Refused("item assignment is not traced; use np.where or np.concatenate.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Refused(
            "this operation turns the tokens into plain numbers; use numpy functions that docs/tokens.md lists."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _numbers().ufunc_of(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        return _numbers().function_of(function, args, kwargs)


def _numbers() -> Any:
    from provenformer.symbols.tokens import numbers  # noqa: PLC0415  (what is done to arrays is made of arrays)

    return numbers


def tokens_like(like: Tokens, value: Any) -> Tokens:
    """Tokens from plain numbers, or as they are."""
    if isinstance(value, Tokens):
        return value
    graph, n = like.graph, like.graph.seq_len
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or not np.isfinite(array.astype(float)).all():
        raise Refused(f"{value!r:.40} is not an array of finite numbers.")
    while (
        array.ndim > max(1, len(like.trailing))
        and len(array)
        and (array == array[:1]).all()
        and len(array) in (1, like.shape[0])
    ):
        array = array[0]  # the same for every sequence
    truth = array.dtype.kind == "b"
    exact = [Fraction(v) for v in array.ravel().tolist()]
    if array.size == 1:
        return Tokens(graph, (1,) * array.ndim, lower.constant(graph, exact[0]), truth=truth)
    if array.ndim == 1 and array.size <= n:
        return Tokens(graph, array.shape, lower.known(graph, exact + [Fraction(0)] * (n - array.size)), truth=truth)
    if array.shape == (n, 1):
        return Tokens(graph, (n, 1), lower.known(graph, exact), truth=truth)
    if array.shape == (1, n):
        return Tokens(graph, (1, n), key=lower.known(graph, exact), truth=truth)
    if array.shape == (n, n) and truth:
        zero = lower.constant(graph, 0)
        relation = array.astype(np.int64)
        mask = Selector(graph, relation, zero, zero, np.array([[[False]], [[True]]]), related(array)[0])
        return Tokens(graph, (n, n), selector=mask, truth=True)
    raise Refused(f"an array of shape {array.shape} does not fit {n} tokens.")


def spread(first: Tokens, second: Tokens) -> tuple[tuple[int, ...], Tokens, Tokens]:
    """Both with the axes that numpy's broadcasting gives; tokens (n,) beside pairs are keys."""
    n = first.graph.seq_len
    depth = max(len(first.trailing), len(second.trailing))

    def deep(array: Tokens) -> Tokens:
        if depth < 2 or len(array.trailing) == 2:
            return array
        if array.trailing == (n,):
            return Tokens(array.graph, (1, n), key=array.lin, truth=array.truth)
        if array.trailing in ((), (1,)):
            return Tokens(array.graph, (1, 1), array.lin, truth=array.truth)
        raise Refused(f"{array.trailing[0]} of {n} tokens do not make pairs with all.")

    first, second = deep(first), deep(second)
    try:
        shape = np.broadcast_shapes(first.trailing, second.trailing)
    except ValueError as error:
        raise Refused(f"arrays of {first.trailing} and {second.trailing} tokens do not fit together.") from error
    return shape, first, second


def number(array: Tokens) -> Tokens:
    """True and false as 1 and 0."""
    if not array.truth:
        return array
    g = array.graph
    if array.selector is not None:
        return Tokens(g, array.trailing, selector=array.selector, chosen=lower.constant(g, 1))
    return Tokens(g, array.trailing, array.lin, array.key)
