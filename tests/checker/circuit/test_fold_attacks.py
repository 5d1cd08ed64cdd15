"""Folds: whatever is altered in a combination of folds or in the weights that make one, the checker sees it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from circuit_mutations import arrays, with_array

import provenformer as pf
from provenformer.base.errors import Rejected
from provenformer.checker.circuit.folds import fold_gap
from provenformer.checker.circuit.ranges import ranges_of
from provenformer.checker.circuit.walk import circuit_bound
from provenformer.symbols.evaluate import evaluate
from provenformer.symbols.formula import SQUARE, VARIABLE, apply, constant
from provenformer.symbols.graph import Apply, Graph, Lin, Pieces, Product, Term
from provenformer.symbols.linear import of_atom
from provenformer.symbols.trace import Traced, samples, trace


def of_a_square(x: np.ndarray) -> np.ndarray:
    first = np.square(x) + np.mean(x, axis=-1, keepdims=True)
    return np.square(first) + np.square(x) * np.mean(x, axis=-1, keepdims=True)


TARGETS = {
    "product": pf.targets.get("scaled-mean", 1, 3),
    "quadratic": pf.Target(lambda x: np.square(x - 0.3) + x, 1, 2, support=(-2, 3)),
    "of a square": pf.Target(of_a_square, 1, 3),
    "by position": pf.Target(
        lambda x: np.square(x + np.linspace(0, 1, 3)) + x * np.flip(x, -1), 1, 3, equivariant=False
    ),
}


def altered_lins(lin: Lin, rng: np.random.Generator) -> Iterator[Lin]:
    """Every coefficient a little larger, much larger, gone; the constant; two terms exchanged."""
    for i, term in lin.terms.items():
        for own in (term.own * (1 + 1e-7), term.own * 1.5 + 0.1, -term.own, 0.0):
            yield replace(lin, terms={**lin.terms, i: Term(own, term.mix)})
    yield replace(lin, constant=lin.constant + 1e-6)
    a, b = rng.choice(list(lin.terms), size=2, replace=False)
    yield replace(lin, terms={**lin.terms, a: lin.terms[b], b: lin.terms[a]})


@pytest.mark.parametrize("name", TARGETS)
def test_an_altered_combination_is_as_far_off_as_the_gap_says(name: str) -> None:
    target, rng = TARGETS[name], np.random.default_rng(1)
    traced = trace(target, depth=3)
    graph, x = traced.graph, samples(target, 40)
    ranges = ranges_of(graph, target.low, target.high)
    tried = 0
    for atom in graph.atoms:
        operation = atom.operation
        if not isinstance(operation, Apply | Product) or operation.folded is None:
            continue
        wanted = evaluate(graph, [of_atom(graph, atom)], x)
        stored = replace(operation.folded, slack=0.0)
        assert fold_gap(graph, operation, stored, ranges) < 1e-13 * max(1.0, atom.size)
        for lin in altered_lins(stored, rng):
            off = np.abs(evaluate(graph, [lin], x) - wanted).max()
            assert off <= fold_gap(graph, operation, lin, ranges) + 1e-15
            tried += 1
    assert tried >= 20


def with_operation(traced: Traced, number: int, operation: object) -> Traced:
    """The graph with one atom that does something else."""
    atoms = list(traced.graph.atoms)
    atoms[number] = replace(atoms[number], operation=operation)  # type: ignore[arg-type]
    graph = Graph(traced.graph.token_dim, traced.graph.seq_len, atoms, depth=traced.graph.depth)
    return Traced(graph, traced.outputs)


def test_folds_that_are_none_leave_a_gap() -> None:
    """A fold at another knot, of another slope, without a kink; a last square that is something else."""
    target = TARGETS["product"]
    traced = trace(target, depth=3)
    (number,) = [
        a.number for a in traced.graph.atoms if isinstance(a.operation, Product) and a.operation.folded is not None
    ]
    product = traced.graph.atoms[number].operation
    assert isinstance(product, Product)
    assert product.folded is not None
    stored, x = replace(product.folded, slack=0.0), samples(target, 40)
    tried = 0
    for atom in traced.graph.atoms[:number]:
        others: list[object] = []
        if isinstance(atom.operation, Pieces):
            others += [
                replace(atom.operation, curve=replace(atom.operation.curve, **change))
                for change in ({"knots": (0.01,)}, {"slopes": (-1.0, 0.9)}, {"slopes": (1.0, 1.0)}, {"start": 0.01})
            ]
        elif isinstance(atom.operation, Apply):
            others += [
                replace(atom.operation, formula=apply("multiply", constant(0.9), SQUARE)),
                replace(atom.operation, formula=VARIABLE), replace(atom.operation, slack=0.01),
            ]  # fmt: skip
        for other in others:
            changed = with_operation(traced, atom.number, other)
            ranges = ranges_of(changed.graph, target.low, target.high)
            found = fold_gap(changed.graph, product, stored, ranges)
            whole, wanted = (
                evaluate(changed.graph, [lin], x)
                for lin in (stored, of_atom(changed.graph, changed.graph.atoms[number]))
            )
            assert np.abs(whole - wanted).max() <= found + 1e-15
            tried += 1
    assert tried >= 20


def test_a_formula_that_is_no_quadratic_has_no_folds() -> None:
    target = TARGETS["quadratic"]
    traced = trace(target, depth=2)
    atom = next(a for a in traced.graph.atoms if isinstance(a.operation, Apply) and a.operation.folded is not None)
    operation = atom.operation
    assert isinstance(operation, Apply)
    assert operation.folded is not None
    ranges = ranges_of(traced.graph, target.low, target.high)
    for formula in (apply("tanh", VARIABLE), apply("multiply", SQUARE, VARIABLE), apply("divide", SQUARE, VARIABLE)):
        with pytest.raises(Rejected, match="no quadratic"):
            fold_gap(traced.graph, replace(operation, formula=formula), replace(operation.folded, slack=0.0), ranges)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ("of a square", "by position"))) for n in TARGETS]
)
def test_every_weight_of_a_folded_circuit_altered(name: str) -> None:
    """Each nonzero weight in three ways, and some zeros: rejected, or the bound is true."""
    target, rng = TARGETS[name], np.random.default_rng(2)
    c = pf.compile(target, tolerance=1e-2, norm_order=np.inf, construction="circuit", depth=2)
    traced, x = c.traced, samples(target, 16)
    wanted, seen = target(x), Counter[str]()
    for place, array in arrays(c.network).items():
        every = np.argwhere(array != 0)
        zeros = np.argwhere(array == 0)
        some = zeros[rng.permutation(len(zeros))[:2]]
        for index in map(tuple, np.concatenate([every, some])):
            value = array[index]
            kinds = (value * 1.01, -value, value + 0.3) if value else (0.3,)
            altered = array.copy()
            altered[index] = kinds[int(rng.integers(len(kinds)))]
            network = with_array(c.network, place, altered)
            try:
                found = circuit_bound(network, traced.graph, traced.outputs, target.low, target.high)
            except Rejected:
                seen["rejected"] += 1
                continue
            with np.errstate(all="ignore"):
                off = np.abs(network(x) - wanted).max()
                single = np.abs(network.run(x, np.float32) - wanted).max()
            assert off <= found.float64, (place, index)
            assert single <= found.float32 or found.float32 == np.inf, (place, index)
            seen["a bound"] += 1
    assert seen["a bound"] >= 50
