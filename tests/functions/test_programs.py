"""The library of programs: each against a plain definition on lists, and its circuit against it, on all sequences or on many."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import provenformer as pf
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.tokens.trace import samples


def circuit(c: pf.CompiledTokens) -> CircuitNetwork:
    assert isinstance(c.network, CircuitNetwork)
    return c.network


def brackets(s: list[int], pairs: dict[int, int]) -> list[int]:
    """2 balanced so far, 1 not yet, 0 never again; by a stack."""
    stack: list[int] = []
    broken, found = False, []
    for t in s:
        if t in pairs.values():
            stack.append(t)
        elif t in pairs:
            broken |= not stack or stack.pop() != pairs[t]
        found.append(0 if broken else 1 if stack else 2)
    return found


def followed(s: list[int]) -> list[int]:
    found = []
    for j, t in enumerate(s):
        earlier = [k for k in range(j) if s[k] == t]
        found.append(s[earlier[-1] + 1] if earlier else 0)
    return found


def added(s: list[int], base: int) -> list[int]:
    half = len(s) // 2
    total = sum(s[k] * base**k for k in range(half)) + sum(s[half + k] * base**k for k in range(half))
    return [total // base**k % base if k <= half else 0 for k in range(len(s))]


PLAIN: dict[str, Callable[[list[int], int], list[int]]] = {
    "length": lambda s, _: [len(s)] * len(s),
    "histogram": lambda s, _: [s.count(t) for t in s],
    "reverse": lambda s, _: s[::-1],
    "sort": lambda s, _: sorted(s),
    "sort-by-rank": lambda s, _: sorted(s),
    "unique-sort": lambda s, size: sorted(set(s) - {size - 1}) + [size - 1] * (len(s) - len(set(s) - {size - 1})),
    "most-frequent": lambda s, _: [min(set(s), key=lambda t: (-s.count(t), t))] * len(s),
    "shift": lambda s, _: [0, *s[:-1]],
    "running-count": lambda s, _: [s[: j + 1].count(0) for j in range(len(s))],
    "parity": lambda s, _: [sum(t % 2 for t in s) % 2] * len(s),
    "dyck-1": lambda s, _: brackets(s, {1: 0}),
    "dyck-2": lambda s, _: brackets(s, {1: 0, 3: 2}),
    "induction": lambda s, _: followed(s),
    "double-histogram": lambda s, _: [len({u for u in s if s.count(u) == s.count(t)}) for t in s],
    "pattern-match": lambda s, _: [int(s[max(j - 2, 0) : j + 1] == [0, 1, 0]) for j in range(len(s))],
    "addition": added,
}


@pytest.mark.parametrize("name", pf.programs.names())
@pytest.mark.parametrize(("size", "n"), [(4, 4), (5, 6)])
def test_every_sequence(name: str, size: int, n: int) -> None:
    """By the plain definition, by the program and by its circuit, in float64 and float32."""
    program = pf.programs.get(name, size, n)
    c = pf.compile_tokens(program)
    x = np.array(list(product(range(size), repeat=n)))
    x = x if len(x) < 1000 else x[:: len(x) // 997]
    wanted = np.array([PLAIN[name](s, size) for s in x.tolist()])
    assert (program(x) == wanted).all()
    for dtype, bound in c.certificate.bounds.items():
        assert np.abs(circuit(c).run(x[:, None, :].astype(float), dtype)[:, 0] - wanted).max() <= bound < 0.5
    assert set(c.certificate.bounds) == {"float64", "float32"}


@pytest.mark.parametrize("name", pf.programs.names())
def test_sixteen_tokens_of_sixteen(name: str) -> None:
    program = pf.programs.get(name, 16, 16)
    c = pf.compile_tokens(program)
    x = samples(program, 300)
    wanted = np.array([PLAIN[name](s, 16) for s in x.tolist()])
    for dtype, bound in c.certificate.bounds.items():
        assert np.abs(circuit(c).run(x[:, None, :].astype(float), dtype)[:, 0] - wanted).max() <= bound < 0.5
    assert set(c.certificate.bounds) == {"float64", "float32"}


PADDED = [name for name in pf.programs.names() if name not in ("unique-sort", "addition")]


@pytest.mark.parametrize("name", PADDED)
def test_every_length(name: str) -> None:
    """A shorter sequence, filled up, is answered as one of its own length."""
    size, n = 4, 4
    made = pf.compile_tokens(pf.programs.get(name, size + 1, n, pad=True)).made
    c = pf.compile_tokens(made.program.fn, size, n, pad="end", output="numbers")  # type: ignore[union-attr]
    for length in range(1, n + 1):
        for s in product(range(size), repeat=length):
            assert c(s) == PLAIN[name](list(s), size), s


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(pf.ProvenformerError, match="choose one of: length, histogram"):
        pf.programs.get("no-such", 4, 4)
    with pytest.raises(pf.ProvenformerError, match="whole sequences only"):
        pf.programs.get("addition", 4, 4, pad=True)
