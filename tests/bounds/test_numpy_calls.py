"""The front door: every numpy call means what numpy means by it, or is refused. No argument is dropped."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provenformer as pf
from provenformer.bounds import composites, numpy_calls
from provenformer.bounds.intervals import Interval
from provenformer.bounds.slopes import slopes_of

Function = Callable[[Any], Any]
LOW, HIGH = np.linspace(0.1, 0.6, 6).reshape(1, 2, 3), np.linspace(0.3, 0.8, 6).reshape(1, 2, 3)
MASK = np.array([True, False, True])
# Called in ways that numpy takes, or may take one day, and its type stubs do not know.
ADD: Any = np.add
EXP: Any = np.exp
VECDOT: Any = np.vecdot


def refused(f: Function) -> None:
    """By intervals and by slopes, in one line that names the operation."""
    for run in (lambda: f(Interval(LOW, HIGH)), lambda: slopes_of(f, LOW, HIGH)):
        with pytest.raises(TypeError) as refusal:
            run()
        assert "\n" not in str(refusal.value)


# Arguments that would change the result, each of which was once dropped or could be.
CHANGING: dict[str, Function] = {
    "add where": lambda x: np.add(x, 1.0, where=MASK, out=None),
    "add dtype": lambda x: np.add(x, 1.0, dtype=np.float32),
    "add out": lambda x: np.add(x, 1.0, out=np.zeros(x.shape)),
    "add casting": lambda x: np.add(x, 1.0, casting="unsafe"),
    "exp where": lambda x: np.exp(x, where=MASK),
    "power where": lambda x: np.power(x, 2, where=MASK),
    "matmul axes": lambda x: np.matmul(x, np.eye(3), axes=[(-1, -2), (-2, -1), (-2, -1)]),
    "sum where": lambda x: np.sum(x, axis=-1, keepdims=True, where=MASK) + 0 * x,
    "sum initial": lambda x: np.sum(x, axis=-1, keepdims=True, initial=5.0) + 0 * x,
    "sum dtype": lambda x: np.sum(x, axis=-1, keepdims=True, dtype=np.float32) + 0 * x,
    "sum dtype by position": lambda x: np.sum(x, -1, np.float32, None, True) + 0 * x,
    "sum out": lambda x: np.sum(x, axis=-1, keepdims=True, out=np.zeros((1, 2, 1))) + 0 * x,
    "method sum where": lambda x: x.sum(axis=-1, keepdims=True, where=MASK) + 0 * x,
    "method max initial": lambda x: x.max(axis=-1, keepdims=True, initial=5.0) + 0 * x,
    "method mean dtype": lambda x: x.mean(axis=-1, keepdims=True, dtype=np.float32) + 0 * x,
    "mean dtype": lambda x: np.mean(x, axis=-1, keepdims=True, dtype=np.float32) + 0 * x,
    "mean where": lambda x: np.mean(x, axis=-1, keepdims=True, where=MASK) + 0 * x,
    "max initial": lambda x: np.max(x, axis=-1, keepdims=True, initial=5.0) + 0 * x,
    "min where": lambda x: np.min(x, axis=-1, keepdims=True, where=MASK, initial=5.0) + 0 * x,
    "var mean": lambda x: np.var(x, axis=-1, keepdims=True, mean=np.zeros((1, 2, 1))) + 0 * x,
    "var correction": lambda x: np.var(x, axis=-1, keepdims=True, correction=1) + 0 * x,
    "std where": lambda x: np.std(x, axis=-1, keepdims=True, where=MASK) + 0 * x,
    "prod initial": lambda x: np.prod(x, axis=-1, keepdims=True, initial=2.0) + 0 * x,
    "cumsum dtype": lambda x: np.cumsum(x, axis=-1, dtype=np.float32),
    "reduce initial": lambda x: np.add.reduce(x, axis=-1, keepdims=True, initial=5.0) + 0 * x,
    "reduce dtype": lambda x: np.add.reduce(x, axis=-1, keepdims=True, dtype=np.float32) + 0 * x,
    "reduce dtype by position": lambda x: ADD.reduce(x, -1, np.float32, None, True) + 0 * x,
    "reduce where": lambda x: np.minimum.reduce(x, axis=-1, keepdims=True, where=MASK, initial=np.inf) + 0 * x,
    "accumulate dtype": lambda x: np.add.accumulate(x, axis=-1, dtype=np.float32),
    "accumulate out": lambda x: np.maximum.accumulate(x, axis=-1, out=np.zeros(x.shape)),
    "reduceat": lambda x: np.add.reduceat(x, [0, 1], axis=-1),
    "outer": lambda x: np.multiply.outer(x, x),
    "at": lambda x: np.add.at(x, 0, 1.0),
    "clip out": lambda x: np.clip(x, 0.2, 0.5, out=np.zeros(x.shape)),
    "clip where": lambda x: np.clip(x, 0.2, 0.5, where=MASK),
    "concatenate dtype": lambda x: np.concatenate([x[..., :1], x[..., 1:]], axis=-1, dtype=np.float32),
    "stack casting": lambda x: np.stack([x, x], axis=-1, casting="unsafe")[..., 0],
    "sort order": lambda x: np.sort(x, axis=-1, order="a"),
    "take out": lambda x: np.take(x, [0, 1, 2], axis=-1, out=np.zeros(x.shape)),
    "einsum dtype": lambda x: np.einsum("...dn->...dn", x, dtype=np.float32),
    "einsum out": lambda x: np.einsum("...dn->...dn", x, out=np.zeros(x.shape)),
    "zeros_like dtype": lambda x: np.zeros_like(x, dtype=np.float32) + x,
    "full_like shape": lambda x: np.full_like(x, 1.0, shape=(1, 2, 1)) + x,
    "median overwrite": lambda x: np.median(x, axis=-1, keepdims=True, overwrite_input=True) + 0 * x,
    "norm of order 3": lambda x: x * np.linalg.norm(x, 3, axis=-1, keepdims=True),
    "an argument numpy may invent": lambda x: ADD(x, 1.0, rounding="down"),
}


@pytest.mark.parametrize("name", CHANGING)
def test_an_argument_that_is_not_understood_is_refused(name: str) -> None:
    refused(CHANGING[name])


# Arguments at their defaults, in every position and by every name, mean nothing and are accepted.
AT_DEFAULT: dict[str, Function] = {
    "ufunc": lambda x: np.add(x, 1.0, where=True, casting="same_kind", order="K", dtype=None, subok=True, out=None),
    "out in a tuple": lambda x: EXP(x, out=(None,)),
    "sum": lambda x: np.sum(x, -1, None, None, True) * x,
    "mean by names": lambda x: np.mean(a=x, axis=-1, dtype=None, out=None, keepdims=True) * x,
    "method": lambda x: x * x.sum(-1, None, None, True) * x.max(-1, None, True),
    "reduce by position": lambda x: ADD.reduce(x, -1, None, None, True) * x,
    "accumulate by position": lambda x: np.add.accumulate(x, -1, None, None),
    "reduce's own axis": lambda x: np.add.reduce(np.moveaxis(x, -1, 0))[..., None] * x,
    "flip by name": lambda x: np.flip(m=x, axis=-1),
    "clip by its other names": lambda x: np.clip(x, min=0.2, max=0.5),
    "clip from one side": lambda x: np.clip(x, None, 0.5),
    "reshape in another order": lambda x: np.reshape(np.reshape(x, (1, 6), order="F"), (1, 2, 3)),
    "sort's algorithm": lambda x: np.sort(x, axis=-1, kind="stable"),
    "several axes": lambda x: x * np.sum(x, axis=(-1, -2), keepdims=True) + x.mean(axis=(1, 2))[:, None, None],
    "no keepdims": lambda x: x - np.max(x, axis=-1)[..., None],
}


@pytest.mark.parametrize("name", AT_DEFAULT)
def test_arguments_bind_as_numpy_binds_them(name: str) -> None:
    f = AT_DEFAULT[name]
    point = (LOW + HIGH) / 2
    for found in (f(Interval(point, point)), slopes_of(f, point, point).value[0]):
        np.testing.assert_allclose(found.lo, f(point), rtol=1e-12)
        np.testing.assert_allclose(found.hi, f(point), rtol=1e-12)


TABLE = sorted([*numpy_calls._FUNCTIONS, *numpy_calls._MOVES], key=lambda f: f.__name__)


@pytest.mark.parametrize("function", TABLE, ids=lambda f: f.__name__)
def test_every_function_of_the_table_has_a_signature_and_only_numpys_names(function: Any) -> None:
    known = inspect.signature(function).parameters
    rule = numpy_calls._FUNCTIONS.get(function)
    if rule is not None:
        assert set(inspect.signature(rule).parameters) <= set(known)


def test_the_false_bounds_that_dropped_arguments_gave() -> None:
    """`initial=`, `where=`, `dtype=` of reductions: rigorous bounds of 1e-12 against measured 91."""

    def masked_penalty(x: Any) -> Any:
        both = np.stack([1e4 * np.maximum(x - 0.95, 0.0), np.zeros_like(x)], axis=-1)
        return np.minimum.reduce(both, axis=-1, where=[True, False], initial=np.inf)

    def single_precision(x: Any) -> Any:
        return np.mean(x + 2.0**22, axis=-1, keepdims=True, dtype=np.float32) + 0.0 * x

    for fn in (masked_penalty, single_precision):
        c = pf.compile(pf.Target(fn, 1, 2), cells_per_axis=4)
        assert c.certificate.kind == "statistical"


def test_the_page_for_users_names_every_function() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-function.md").read_text()
    operators = {"add", "subtract", "multiply", "divide", "negative", "power"}
    for names in numpy_calls.supported().values():
        for name in set(names) - operators:
            assert re.search(rf"\b{name}\b", page), name


def test_helpers_agree_with_scipy() -> None:
    special = pytest.importorskip("scipy.special")
    x = np.random.default_rng(0).uniform(-900.0, 900.0, size=(4, 2, 5))
    np.testing.assert_allclose(pf.softmax(x, axis=-1), special.softmax(x, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(pf.logsumexp(x, axis=-2), special.logsumexp(x, axis=-2), rtol=1e-12)
    np.testing.assert_allclose(pf.logsumexp(x, keepdims=True), special.logsumexp(x, axis=-1, keepdims=True), rtol=1e-12)


def test_the_definitions_mean_what_numpy_means_on_plain_arrays() -> None:
    """Composites that need no primitive of an interpretation run on plain arrays, too."""
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    w = np.random.default_rng(2).normal(size=(4, 5))
    for found, expected in (
        (composites.var(x, axis=-1, ddof=1), np.var(x, axis=-1, ddof=1)),
        (composites.median(x, axis=1), np.median(x, axis=1)),
        (composites.norm(x, axis=0), np.linalg.norm(x, axis=0)),
        (composites.matmul(x, w), x @ w),
        (composites.matmul(x[0, 0], w), x[0, 0] @ w),
        (composites.matmul(x, w[:, 0]), x @ w[:, 0]),
        (composites.tensordot(x, w, axes=1), np.tensordot(x, w, axes=1)),
        (composites.tensordot(x, x, axes=((0, 1), (0, 1))), np.tensordot(x, x, axes=((0, 1), (0, 1)))),
        (composites.inner(x, w.T), np.inner(x, w.T)),
        (composites.vecdot(x, x[:1], axis=1), VECDOT(x, x[:1], axis=1)),
        (composites.diff(x, n=2), np.diff(x, n=2)),
        (composites.diff(x, prepend=0.5, append=x[..., :1]), np.diff(x, prepend=0.5, append=x[..., :1])),
        *((composites.einsum(s, x, y), np.einsum(s, x, y)) for s, y in (
            ("abc,cd", w), ("abc,cd->dab", w), ("...c,cd->...d", w), ("a...,cd->c...", w), ("abc,abc->b", x), ("...,...", x),
        )),
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("axis", [-1, 1, (-1,), (1, 2), (2, 1), (-1, -2)])
def test_weights_of_an_average_belong_to_the_axes_in_the_order_in_which_they_are_named(axis: Any) -> None:
    """Weights of axis=(-1, -2) were read as those of (-2, -1), which fit where d = n."""
    x = np.random.default_rng(3).random((2, 3, 3))
    w = np.arange(9.0).reshape(3, 3) if isinstance(axis, tuple) and len(axis) == 2 else np.arange(3.0)
    found, expected = np.average(Interval(x, x), axis=axis, weights=w), np.average(x, axis=axis, weights=w)
    assert found.shape == expected.shape
    assert ((found.lo <= expected) & (expected <= found.hi)).all()
