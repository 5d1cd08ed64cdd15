"""Bad input gets one line that names the quantity, the limit and the remedy, at the Python level."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import Case, build

import provenformer as pf
from provenformer.constructions import lemmas as checks


def identity(x: Any) -> Any:
    return x


def compile_it(
    fn: Any = identity, d: int = 1, n: int = 3, N: Any = 4, equivariant: bool = True, **more: Any
) -> pf.Compiled:
    return pf.compile(pf.Target(fn, d, n, equivariant), cells_per_axis=N, **more)


def fails(_: Any) -> Any:
    raise RuntimeError("out of\n  luck")


def nan_for_large(x: Any) -> Any:
    return np.where(x > 0.5, np.nan, x)


# (what is done, what the line must contain: the quantity with its value, the limit, the remedy)
CASES: list[tuple[str, Callable[[], Any], list[str]]] = [
    ("n=1", lambda: compile_it(n=1), ["seq_len=1", "limit 2", ">= 2"]),
    ("n=0 grid", lambda: pf.Grid(1, 0, 4), ["seq_len=0", "limit 2", "at least 2 tokens"]),
    ("n=1 plan", lambda: pf.plan(1, 1, 4), ["seq_len=1", "limit 2", "at least 2 tokens"]),
    ("n=2.5", lambda: pf.plan(1, 2.5, 4), ["seq_len=2.5", "whole number", "integer >= 2"]),  # type: ignore[call-overload]
    ("n=True", lambda: pf.plan(1, True, 4), ["seq_len=True", "whole number", "integer >= 2"]),
    ("n=2.5 target", lambda: pf.Target(identity, 1, 2.5), ["seq_len=2.5", ">= 2"]),  # type: ignore[arg-type]
    ("d=0", lambda: compile_it(d=0), ["token_dim=0", "limit 1", ">= 1"]),
    ("N=1", lambda: compile_it(N=1), ["cells_per_axis=1", "limit 2", "at least 2 cells"]),
    ("N=-3", lambda: pf.plan(1, 3, -3), ["cells_per_axis=-3", "limit 2", "at least 2 cells"]),
    ("N=4.0", lambda: compile_it(N=4.0), ["cells_per_axis=4.0", "whole number", "integer >= 2"]),
    ("p<1", lambda: compile_it(norm_order=0.5), ["norm_order=0.5", "[1, inf)", "finite p >= 1"]),
    ("p=inf", lambda: compile_it(norm_order=np.inf), ["norm_order=inf", "[1, inf)", "finite p >= 1"]),
    ("p=nan", lambda: compile_it(norm_order=np.nan), ["norm_order=nan", "[1, inf)", "finite p >= 1"]),
    ("p='2'", lambda: compile_it(norm_order="2"), ["norm_order=2", "[1, inf)", "finite p >= 1"]),
    ("shape", lambda: compile_it(lambda x: x[..., :1]), ["shape", "1, 1)", "1, 3)", "keep the shape"]),
    ("scalar", lambda: compile_it(lambda x: 0.0), ["shape ()", "keep the shape"]),  # noqa: ARG005
    ("nan", lambda: compile_it(nan_for_large), ["not finite", "X=[[", "define it there"]),
    ("inf", lambda: compile_it(lambda x: x / 0.0), ["not finite", "X=[[", "shrink its support"]),
    ("raises", lambda: compile_it(fails), ["RuntimeError: out of luck", "(..., token_dim, seq_len)"]),
    ("text", lambda: compile_it(lambda x: "abc"), ["they are no numbers", "(..., token_dim, seq_len)"]),  # noqa: ARG005
    ("not equivariant", lambda: compile_it(np.sort), ["declared equivariant", "X=[[", "order [", "equivariant=False"]),
    ("layers", lambda: compile_it(d=2, n=3, N=64), ["needs", "layers (limit 10,000,000", "use fewer cells"]),
    (
        "layers, paper",
        lambda: compile_it(n=4, N=500, construction="paper"),
        ["cells_per_axis=500", "layers (limit 10,000,000", "use fewer cells or construction='sum'"],
    ),
    (
        "attention layers",
        lambda: compile_it(d=6, n=2, N=16, construction="paper"),
        ["cells_per_axis=16", "16,777,217 attention layers (limit 100,000)", "construction='sum'"],
    ),
    ("own limit", lambda: compile_it(N=8, max_layers=50), ["layers (limit 50", "use fewer cells", "max_layers"]),
    ("codes", lambda: Case(1, 10, 12, "sum").build(), ["elements (limit 134,217,728)", "use fewer cells"]),
    (
        "range of values",
        lambda: build(pf.Target(lambda x: np.where(x < 0.5, 1e-300, 1e300), 1, 2), 3, "paper"),
        ["1.00e+300", "underflow", "make the target's values smaller"],
    ),
    ("support wide", lambda: pf.Target(identity, 1, 2, support=(np.zeros((9, 9)), 1)), ["support", "(low, high)"]),
    ("target", lambda: pf.targets.get("sorted"), ["unknown target 'sorted'", "scaled-mean", "sort"]),
    ("construction", lambda: compile_it(construction="tall"), ["unknown construction 'tall'", "sum, paper"]),
    ("plan's construction", lambda: pf.plan(1, 2, 2, "tall"), ["'tall'", "sum, paper"]),
    ("support order", lambda: pf.Target(identity, 1, 2, support=(1.0, 0.0)), ["support=(1.0, 0.0)", "low < high"]),
    ("support nan", lambda: pf.Target(identity, 1, 2, support=(0.0, np.nan)), ["support", "finite box", "(low, high)"]),
    ("support rows", lambda: pf.Target(identity, 2, 2, support=([0] * 3, [1] * 3)), ["support", "(low, high)"]),
    ("support parts", lambda: pf.Target(identity, 2, 2, support=(0, 1, 2)), ["support", "(low, high)"]),  # type: ignore[arg-type]
    ("support text", lambda: pf.Target(identity, 2, 2, support=("a", "b")), ["support", "(low, high)"]),
    ("lipschitz", lambda: pf.Target(identity, 1, 2, lipschitz=-1.0), ["lipschitz=-1.0", ">= 0", "leave it out"]),
    ("X shape", lambda: Case(1, 2, 2).build().modified(np.zeros((2, 1))), ["(2, 1)", "(1, 2)", "one token in each"]),
    ("X axes", lambda: Case(1, 2, 2).build().piecewise(np.zeros(2)), ["(2,)", "(1, 2)", "one token in each"]),
    ("X nan", lambda: Case(1, 2, 2).build().modified([[np.nan, 0.0]]), ["not finite", "real numbers"]),  # type: ignore[arg-type]
    ("X text", lambda: Case(1, 2, 2).build().modified([["a", "b"]]), ["not an array of numbers", "(..., d, n)"]),  # type: ignore[arg-type]
    ("X complex", lambda: Case(1, 2, 2).build().modified(np.array([[0.1j, 0.5]])), ["not an array of numbers", "complex"]),
    ("X masked", lambda: Case(1, 2, 2).build().modified(np.ma.masked_equal([[0.1, 0.2]], 0.1)), ["masked", "fill"]),
    ("X beyond float64", lambda: Case(1, 2, 2).build().modified([[10**400, 1]]), ["not an array of numbers", "(..., d, n)"]),  # type: ignore[arg-type]
    ("X ragged", lambda: Case(1, 2, 2).build().modified([[0.0], [1.0, 2.0]]), ["not an array of numbers", "d, n)"]),  # type: ignore[arg-type]
    ("X of target", lambda: pf.targets.get("sort")(np.zeros((3, 1))), ["(3, 1)", "(1, 3)"]),
    ("ids", lambda: pf.is_contextual_mapping([[1, 2]], np.zeros((2, 1, 2))), ["1 rows", "2 sequences", "one id per"]),
    ("sequences", lambda: pf.is_contextual_mapping([[1]], np.zeros((1, 2))), ["(1, 2)", "(count, token_dim, seq_len)"]),
    ("grid too large", lambda: checks.check_lemma_6(pf.Grid(3, 4, 4)), ["points (limit 1,000,000)", "fewer cells"]),
    ("layer", lambda: Case(1, 2, 2).build().modified.layer(-1), ["layer -1", "layers 0.."]),
]  # fmt: skip


@pytest.mark.parametrize(("act", "fragments"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_one_line_with_quantity_limit_and_remedy(act: Callable[[], Any], fragments: list[str]) -> None:
    """A ProvenformerError (never a bare numpy or Python error) whose message is one sentence-like line."""
    with pytest.raises(pf.ProvenformerError) as caught:
        act()
    line = str(caught.value)
    assert "\n" not in line
    assert line.endswith(".")
    assert all(fragment in line for fragment in fragments), line


def test_the_counterexample_in_the_message_is_one() -> None:
    """The X and the order shown for a function that is not equivariant do show it."""
    with pytest.raises(pf.ProvenformerError) as caught:
        compile_it(np.sort)
    line = str(caught.value)
    x = np.array(eval(line.split("X=")[1].split(" and column order")[0]))
    order = eval(line.split("column order ")[1].split(";")[0])
    assert not np.allclose(np.sort(x[:, order]), np.sort(x)[:, order])


def test_the_cause_of_a_raising_target_is_kept() -> None:
    """The original error is chained, for those who debug."""
    with pytest.raises(pf.ProvenformerError) as caught:
        compile_it(fails)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_bad_input_is_a_value_error() -> None:
    """Callers may catch ValueError."""
    assert issubclass(pf.ProvenformerError, ValueError)
