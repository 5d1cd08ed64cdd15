"""depth=: squares and products by folds. The identity, the sizes, and what is refused."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import provenformer as pf
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.folds import quadratic
from provenformer.symbols.formula import SQUARE, VARIABLE, apply, constant
from provenformer.symbols.graph import Apply, Product
from provenformer.symbols.linear import of_atom
from provenformer.symbols.trace import Traced, samples, trace


def centred_quadratic(x: np.ndarray) -> np.ndarray:
    return np.square(x - 0.3) + 0.5 * x * (1 - x) / 3 + 7


def chain(x: np.ndarray) -> np.ndarray:
    mean = np.mean(x, axis=-1, keepdims=True)
    return x * mean * np.mean(np.square(x), axis=-1, keepdims=True)


def by_position(x: np.ndarray) -> np.ndarray:
    return np.square(x + np.linspace(0, 1, x.shape[-1])) + x * np.flip(x, -1)


def features(x: np.ndarray) -> np.ndarray:
    z = x - np.mean(x, axis=-2, keepdims=True)
    return z / np.sqrt(np.mean(np.square(z), axis=-2, keepdims=True) + 0.1)


def of_a_square(x: np.ndarray) -> np.ndarray:
    """Squares of squares, with the same squares beside them."""
    first = np.square(x) + np.mean(x, axis=-1, keepdims=True)
    return np.square(first) + np.square(x) * np.mean(x, axis=-1, keepdims=True)


TARGETS = {
    "scaled-mean": pf.targets.get("scaled-mean", 1, 5),
    "quadratic": pf.Target(centred_quadratic, 1, 3, support=(-2, 3)),
    "chain": pf.Target(chain, 1, 6, support=(-1, 1)),
    "by position": pf.Target(by_position, 1, 5, equivariant=False),
    "features": pf.Target(features, 3, 4, support=(-1, 1)),
    "of a square": pf.Target(of_a_square, 1, 4),
}


def folded_atoms(traced: Traced) -> list[int]:
    return [
        atom.number for atom in traced.graph.atoms
        if isinstance(atom.operation, Apply | Product) and atom.operation.folded is not None
    ]  # fmt: skip


def test_lemma_13_a_fold_is_exact_for_all_numbers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        w, r = (Fraction(float(v)) for v in rng.normal(size=2) * 10.0 ** rng.integers(-3, 4, size=2))
        assert w * w == r * abs(w) + ((r - 2 * abs(w)) ** 2 - r * r) / 4


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("depth", [1, 4, 24])
def test_folded_values_are_the_values(name: str, depth: int) -> None:
    target = TARGETS[name]
    traced = trace(target, depth=depth)
    numbers = folded_atoms(traced)
    assert numbers
    x = samples(target, 30)
    for number in numbers:
        atom = traced.graph.atoms[number]
        folded = atom.operation.folded  # type: ignore[union-attr]
        assert folded is not None
        whole = evaluate(traced.graph, [folded], x)
        wanted = evaluate(traced.graph, [of_atom(traced.graph, atom)], x)
        room = folded.slack + 2.0**-44 * max(1.0, atom.size) * target.seq_len
        assert np.abs(whole - wanted).max() <= room


def test_quadratics_are_recognised() -> None:
    shifted = apply("square", apply("add", VARIABLE, constant(0.5)))
    assert quadratic(shifted) == tuple(map(Fraction, (1, 1, 0.25)))
    assert quadratic(
        apply("multiply", VARIABLE, apply("add", constant(1.0), apply("multiply", constant(-1.0), VARIABLE)))
    ) == tuple(map(Fraction, (-1, 1, 0)))
    assert quadratic(apply("divide", SQUARE, constant(4.0))) == tuple(map(Fraction, (0.25, 0, 0)))
    assert quadratic(apply("divide", SQUARE, constant(0.0))) is None
    for other in (
        apply("multiply", SQUARE, VARIABLE),
        apply("tanh", VARIABLE),
        apply("square", SQUARE),
        apply("divide", SQUARE, VARIABLE),
    ):
        assert quadratic(other) is None


def test_depth_trades_blocks_for_units() -> None:
    """x times the mean within 1e-6: 1,009 units in one block, 38 in ten."""
    f, sizes, bounds = pf.targets.get("scaled-mean", 1, 512), {}, {}
    x = f.sample(200)
    for depth in (0, 8):
        c = pf.compile(f, tolerance=1e-6, norm_order=np.inf, depth=depth)
        assert isinstance(c, pf.CompiledCircuit)
        assert np.abs(c.network(x) - f(x)).max() <= c.certificate.bound <= 1e-6
        sizes[depth] = c.network.blocks, sum(c.network.hidden_units.values())
        bounds[depth] = c.certificate.bounds["float32"]
    assert sizes[0][0] == 1
    assert sizes[8][0] == 10
    assert sizes[8][1] <= 40 < sizes[0][1] / 20
    assert bounds[8] < bounds[0]


@pytest.mark.parametrize("name", TARGETS)
def test_folded_circuits_hold_and_verify(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    plain, deep = (
        pf.compile(target, tolerance=1e-3, norm_order=np.inf, construction="circuit", depth=depth) for depth in (0, 4)
    )
    x = samples(target, 60)
    assert np.abs(deep.network(x) - target(x)).max() <= deep.certificate.bound <= 1e-3
    assert np.abs(deep.network.run(x, np.float32) - target(x)).max() <= deep.certificate.bounds["float32"]
    assert deep.plan.units < plain.plan.units
    planned = pf.plan(target, tolerance=1e-3, norm_order=np.inf, depth=4)
    assert isinstance(planned, pf.CircuitPlan)
    assert planned.blocks == deep.plan.blocks
    deep.save(tmp_path / "net")
    again = pf.load(tmp_path / "net").network
    assert getattr(again, "square_depth", None) == 4
    assert pf.verify(tmp_path / "net", target)
    assert "square" in str(deep.circuit) or "*" in str(deep.circuit)


@pytest.mark.parametrize("depth", [-1, 25, 1.5, True, "3", None, 10**9])
def test_a_bad_depth_is_one_line(depth: object) -> None:
    f = pf.targets.get("scaled-mean")
    for call in (pf.compile, pf.plan):
        with pytest.raises(pf.ProvenformerError, match="depth=") as refusal:
            call(f, tolerance=1e-2, norm_order=np.inf, depth=depth)  # type: ignore[call-overload]
        assert "\n" not in str(refusal.value)


def test_tables_have_no_depth() -> None:
    f = pf.targets.get("scaled-mean")
    with pytest.raises(pf.ProvenformerError, match="a table has none; leave it out"):
        pf.compile(f, tolerance=0.1, construction="sum", depth=3)
    with pytest.raises(pf.ProvenformerError, match="a table has none; leave it out"):
        pf.compile(f, cells_per_axis=4, depth=3)
    with pytest.raises(pf.ProvenformerError, match="a table has none; leave it out"):
        pf.plan(f, cells_per_axis=4, depth=3)
