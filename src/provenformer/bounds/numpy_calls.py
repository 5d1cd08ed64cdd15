"""One front door for numpy: every call on an abstract array is bound to numpy's own signature, or refused.

An *abstract array* stands for something else than numbers: all arrays of a box (intervals.py), values with derivatives
(slopes.py), expressions. numpy hands every call that meets one to `AbstractArray`, and here

1. a refusal is final, whatever the function does about it (`run`);
2. the call is bound to numpy's signature; an argument that no rule understands must be at its default, else `TypeError`.
   So `where=`, `initial=`, `dtype=`, `out=` and whatever numpy will invent are refused, never dropped;
3. composite functions (composites.py) become primitives, and an interpretation gets those alone:

   elementwise   add subtract multiply divide maximum minimum, and the functions of one variable in `UNARY`;
   whole_power   x ** k for a whole k >= 1;
   along         sum, max, min, sort, cumsum, cummax, cummin along one axis (counted from the end, kept with length 1);
   rearranged    everything that only moves entries: each entry of the result is one entry of the operands;
   lift          a plain array as a constant.

An interpretation with a tighter rule than the composite puts it into `own_rules`, under the composite's name and with its
parameters. To add a function: a name in `UNARY` and a rule in each interpretation, or one definition in composites.py.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, ClassVar, Self

import numpy

from provenformer.bounds import composites, further
from provenformer.bounds.composites import Move

np: Any = numpy  # numpy dispatches its functions to abstract arrays; its type stubs know only arrays

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
UNARY = (
    "negative", "absolute", "square", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "sinh", "cosh",
    "tanh", "arctan", "expit", "erf", "sign",
)  # fmt: skip
ALONG = ("sum", "max", "min", "sort", "cumsum", "cummax", "cummin")
SCIPY = ("expit", "erf", "ndtr")  # ufuncs of scipy.special, which is not loaded unless the user does
_REFUSALS: ContextVar[list[Exception] | None] = ContextVar("refusals", default=None)


def run(function: Callable[[Any], Any], x: Any) -> Any:
    """function(x) of an abstract array. What was refused on the way is raised, also if the function caught it and went another
    way than it goes on numbers."""
    refusals: list[Exception] = []
    outside = _REFUSALS.set(refusals)
    try:
        result = function(x)
    finally:
        _REFUSALS.reset(outside)
    if refusals:
        raise refusals[0]
    return result


def _for_good(method: Callable[..., Any]) -> Any:
    """The method; what it refuses, `run` gets to know."""

    @wraps(method)
    def noted(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            refusals = _REFUSALS.get()
            if refusals is not None:
                refusals.append(error)
            raise

    return noted


class AbstractArray(numpy.lib.mixins.NDArrayOperatorsMixin, ABC):
    """What runs a numpy function without numbers. Everything that is not a primitive is decided here, once."""

    __slots__ = ()
    __array_priority__ = 1000
    plural: ClassVar[str]  # how messages call such arrays
    own_rules: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape that numpy would see."""

    @abstractmethod
    def lift(self, value: Any) -> Self:
        """A constant (or already abstract) operand; `constant` turns what is not a plain array of reals away."""

    @abstractmethod
    def elementwise(self, name: str, *operands: Any) -> Self:
        """A function of `BINARY` or `UNARY` of lifted operands, which broadcast."""

    @abstractmethod
    def whole_power(self, exponent: int) -> Self:
        """self ** exponent, exponent >= 1."""

    @abstractmethod
    def along(self, name: str, axis: int) -> Self:
        """A function of `ALONG` along one axis, -ndim <= axis < 0; reductions keep it with length 1."""

    @abstractmethod
    def rearranged(self, parts: Sequence[Any], move: Move) -> Self:
        """`move` of the lifted parts: a numpy function of plain arrays that only moves (or repeats, or drops) entries."""

    @abstractmethod
    def extent(self) -> tuple[float, float]:
        """Between what all entries lie."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    @property
    def dtype(self) -> numpy.dtype[numpy.float64]:
        return numpy.dtype(numpy.float64)

    @property
    def T(self) -> Any:
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        return np.matrix_transpose(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __copy__(self) -> Self:
        return self  # nothing changes it

    def __deepcopy__(self, _: Any) -> Self:
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance(x, np.ndarray) is what it is on numbers
        return numpy.ndarray

    def __getattr__(self, name: str) -> Any:
        if hasattr(numpy.ndarray, name):
            self._refuse_attribute(name)
        raise AttributeError(f"arrays have no attribute '{name}'")

    @_for_good
    def _refuse_attribute(self, name: str) -> None:
        raise AttributeError(f"the attribute '{name}' of arrays is not available on {self.plural}")

    @_for_good
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"{self.plural} cannot become plain arrays, as in np.asarray or scipy.special.logsumexp; use functions of numpy, "
            "pf.softmax, pf.logsumexp, pf.attend, pf.normalize"
        )

    @_for_good
    def __bool__(self) -> bool:
        raise TypeError(f"{self.plural} have no truth value; a comparison can be undecided")

    @_for_good
    def __float__(self) -> Any:
        raise TypeError(f"{self.plural} are not numbers: float(), int() and the functions of math are not available")

    __int__ = __index__ = __complex__ = __float__

    @_for_good
    def __contains__(self, _: Any) -> bool:
        raise TypeError(f"`in` is not available on {self.plural}; a comparison can be undecided")

    @_for_good
    def __setitem__(self, _: Any, __: Any) -> None:
        raise TypeError(f"item assignment is not available on {self.plural}; build the result with np.concatenate")

    @_for_good
    def __getitem__(self, index: Any) -> Self:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, AbstractArray) for part in parts):
            raise TypeError(f"an index that depends on the input is not available on {self.plural}")
        return self.rearranged([self], lambda a: a[index])

    @_for_good
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        if method == "__call__":
            rule = _ufunc_rules().get(ufunc)
            if rule is not None:
                extra = {key: value for key, value in kwargs.items() if key not in inspect.signature(rule).parameters}
                _require_defaults(name, extra, _UFUNC_DEFAULTS, self.plural)
                return self._run(rule, inputs, {key: value for key, value in kwargs.items() if key not in extra})
        rule = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {}).get(ufunc)
        if rule is None:
            raise TypeError(f"{name} is not available on {self.plural}")
        form = _reduce_form if method == "reduce" else _accumulate_form
        known = _understood(name, form, rule, inputs, kwargs, self.plural)
        return self._run(rule, (), {"axis": 0, **known})

    @_for_good
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        name = f"{func.__module__}.{func.__name__}"
        if func in _MOVES:
            return _moved_by_numpy(name, func, args, kwargs)
        if func not in _FUNCTIONS:
            raise TypeError(f"{name} is not available on {self.plural}{further.instead_of(name)}")
        rule = _FUNCTIONS[func]
        known = _understood(name, func, rule, args, kwargs, self.plural)
        return self._run(rule, known.pop("operands", ()), known)

    def _run(self, rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.own_rules.get(rule.__name__, rule)(*args, **kwargs)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Any) -> Any:
        return np.transpose(self, axes[0] if len(axes) == 1 else axes or None)

    @_for_good
    def astype(self, dtype: Any) -> Self:
        if numpy.dtype(dtype) != self.dtype:
            raise TypeError(f"astype({numpy.dtype(dtype)}) is not available on {self.plural}, which stand for float64")
        return self


def _method(function: Any) -> Any:
    """The method of an array that is the numpy function with the array first."""
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


for _name in (
    "sum", "mean", "max", "min", "prod", "var", "std", "cumsum", "cumprod", "clip", "swapaxes", "squeeze", "ravel", "take",
    "repeat", "dot", "copy",
):  # fmt: skip
    setattr(AbstractArray, _name, _method(getattr(np, _name)))
AbstractArray.flatten = AbstractArray.ravel  # type: ignore[attr-defined]


def constant(value: Any, plural: str) -> Any:
    """A plain array of real numbers as float64; anything that would mean something else beside arrays is refused."""
    if isinstance(value, numpy.ndarray) and type(value) is not numpy.ndarray:
        raise TypeError(f"cannot mix {type(value).__name__} with {plural}")
    array = numpy.asarray(value)
    if array.dtype == object or not numpy.can_cast(array.dtype, numpy.float64):
        raise TypeError(f"cannot mix {array.dtype} with {plural}")
    return array.astype(numpy.float64)


_UFUNC_DEFAULTS: dict[str, Any] = {
    "out": None, "where": True, "casting": "same_kind", "order": "K", "dtype": None, "subok": True, "keepdims": False,
}  # fmt: skip


def _require_defaults(name: str, given: dict[str, Any], defaults: Mapping[str, Any], plural: str) -> None:
    for key, value in given.items():
        if key == "out" and isinstance(value, tuple) and all(one is None for one in value):
            continue
        default = defaults.get(key, inspect.Parameter.empty)
        same = value is default or (isinstance(value, str | bool) and type(value) is type(default) and value == default)
        if not same:
            raise TypeError(f"{name}: the argument {key}= is not available on {plural}")


def _understood(name: str, function: Any, rule: Any, args: Any, kwargs: Any, plural: str) -> dict[str, Any]:
    """The arguments of a call that its rule understands, by numpy's names; all others must be at their defaults."""
    signature = _signature(function) or _signature(rule)
    if signature is None:
        raise TypeError(f"{name} has no signature that could be read")
    given = signature.bind(*args, **kwargs).arguments
    known = inspect.signature(rule).parameters
    for key, parameter in signature.parameters.items():
        if key in given and key not in known:
            value, default = given.pop(key), parameter.default
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                _require_defaults(name, value, {}, plural)
            else:
                _require_defaults(name, {key: value}, {key: default}, plural)
    return {key: value for key, value in given.items() if value is not np._NoValue}


@cache
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _reduce_form(
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> None:
    """The signature of ufunc.reduce, which numpy does not tell. (Called for its parameters alone.)"""


def _accumulate_form(a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> None:
    """The signature of ufunc.accumulate."""


def _moved_by_numpy(name: str, function: Any, args: Any, kwargs: Any) -> Any:
    """A function of one array that only moves its entries: numpy itself does it, with whatever else the call says."""
    signature = _signature(function)
    if signature is None:
        raise TypeError(f"{name} has no signature that could be read")
    bound = signature.bind(*args, **kwargs)
    if bound.arguments.get("out") is not None:
        raise TypeError(f"{name}: the argument out= is not available")
    (first, array), *rest = bound.arguments.items()
    for _, value in rest:
        composites.require_constant(name.removeprefix("numpy."), value)

    def move(plain: Any) -> Any:
        again = signature.bind(*args, **kwargs)
        again.arguments[first] = plain
        return function(*again.args, **again.kwargs)

    return composites.moved([array], move)


def _primitive(name: str) -> Callable[..., Any]:
    def rule(*operands: Any) -> Any:
        one = composites.like(operands)
        if name == "multiply" and operands[0] is operands[1]:
            return one.elementwise("square", one)  # the same thing twice: no box is needed to know that it is >= 0
        return one.elementwise(name, *(one.lift(value) for value in operands))

    rule.__name__ = name
    return rule


_PRIMITIVES = {name: _primitive(name) for name in (*BINARY, *UNARY)}
_UFUNCS: dict[Any, Callable[..., Any]] = {
    **{getattr(np, name): rule for name, rule in _PRIMITIVES.items() if name not in SCIPY},
    np.fabs: _PRIMITIVES["absolute"],
    np.positive: composites.positive,
    np.reciprocal: composites.reciprocal,
    np.power: composites.power,
    np.hypot: composites.hypot,
    np.arctan2: further.arctan2,
    np.logaddexp: further.logaddexp,
    np.log10: further.log10,
    np.radians: further.radians,
    np.deg2rad: further.radians,
    np.degrees: further.degrees,
    np.rad2deg: further.degrees,
    np.matmul: composites.matmul,
    np.vecdot: composites.vecdot,
}
_REDUCE: dict[Any, Callable[..., Any]] = {
    np.add: composites.sum,
    np.multiply: composites.prod,
    np.maximum: composites.max,
    np.minimum: composites.min,
}
_ACCUMULATE: dict[Any, Callable[..., Any]] = {
    np.add: composites.cumsum,
    np.multiply: composites.cumprod,
    np.maximum: composites.cummax,
    np.minimum: composites.cummin,
}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{
        getattr(np, name): getattr(composites, name)
        for name in (
            "sum", "max", "min", "prod", "mean", "var", "std", "ptp", "median", "sort", "cumsum", "cumprod", "diff", "clip",
            "dot", "inner", "tensordot", "einsum", "concatenate", "stack", "hstack", "vstack", "where", "tril", "triu",
            "zeros_like", "ones_like", "full_like", "split", "shape", "ndim", "size",
        )
    },
    **{getattr(np, name): getattr(further, name) for name in ("pad", "quantile", "percentile", "interp", "average")},
    np.linalg.norm: composites.norm,
    np.lib.stride_tricks.sliding_window_view: further.sliding_window_view,
}  # fmt: skip
_MOVES = frozenset(
    getattr(np, name)
    for name in (
        "flip", "fliplr", "flipud", "roll", "reshape", "ravel", "swapaxes", "moveaxis", "transpose", "matrix_transpose",
        "expand_dims", "squeeze", "broadcast_to", "take", "take_along_axis", "repeat", "tile", "diagonal", "copy",
    )
)  # fmt: skip


def _ufunc_rules() -> dict[Any, Callable[..., Any]]:
    special = sys.modules.get("scipy.special")  # unless it is loaded, nobody has its functions
    if special is None:
        return _UFUNCS
    rules = {**_PRIMITIVES, "ndtr": further.ndtr}
    return {**_UFUNCS, **{getattr(special, name): rules[name] for name in SCIPY if hasattr(special, name)}}


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum of exp(x) along an axis: scipy.special.softmax, for plain arrays and for those that prove bounds."""
    if isinstance(x, AbstractArray):
        return x._run(composites.softmax, (x,), {"axis": axis})
    shifted = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return shifted / np.sum(shifted, axis=axis, keepdims=True)


def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    """log of the sum of exp(x) along an axis: scipy.special.logsumexp, likewise."""
    if isinstance(x, AbstractArray):
        return x._run(composites.logsumexp, (x,), {"axis": axis, "keepdims": keepdims})
    largest = np.max(x, axis=axis, keepdims=True)
    out = np.log(np.sum(np.exp(x - largest), axis=axis, keepdims=True)) + largest
    return out if keepdims else np.squeeze(out, axis=axis)


def supported() -> dict[str, list[str]]:
    """The numpy calls that abstract arrays understand, by kind: what the documentation lists and the tests go through."""
    return {
        "functions of numbers": sorted(ufunc.__name__ for ufunc in _UFUNCS) + sorted(SCIPY),
        "ufunc.reduce": sorted(ufunc.__name__ for ufunc in _REDUCE),
        "ufunc.accumulate": sorted(ufunc.__name__ for ufunc in _ACCUMULATE),
        "functions of arrays": sorted({rule.__name__ for rule in _FUNCTIONS.values()}),
        "moves": sorted({function.__name__ for function in _MOVES}),
        "helpers": ["logsumexp", "softmax"],
    }
