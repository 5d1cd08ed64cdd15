"""From a program to its graph, and the comparison of both: the graph is what a certificate rests on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.functions.tokens import TokenProgram
from provenformer.symbols.tokens.arrays import Refused, Tokens
from provenformer.symbols.tokens.graph import Ints, Lin, TokenGraph, evaluate, numerator
from provenformer.symbols.tokens.lower import ends
from provenformer.symbols.tokens.numbers import start

EVERY = 20_000  # sequences up to which all are compared
DRAWN = 2_000
BATCHES = (1, 2)  # sequences at once that a program is traced with; neither may matter
NOISE = 1e-9  # of quotients that float64 rounds; less than what is compared


@dataclass(frozen=True, eq=False)
class TracedProgram:
    """The graph of a program and its output, a number at every token."""

    graph: TokenGraph
    output: Lin

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal graphs."""
        return tuple((type(a.operation), a.operation.key) for a in self.graph.atoms), self.output.key

    @property
    def whole_tokens(self) -> bool:
        """Whether every output is a token of the alphabet, whatever the input."""
        low, high = ends(self.graph, self.output)
        return self.output.den == 1 and low >= 0 and high <= self.graph.vocab_size - 1


def trace(program: TokenProgram) -> TracedProgram:
    """The graph, drawn by running the program on symbols; twice, for it must depend on nothing but the tokens."""
    first, second = (_drawn(program, batch) for batch in BATCHES)
    if first.key != second.key:
        raise Refused(
            f"program '{program.name}' does something else every time, or for another number of sequences; it must depend on "
            "nothing but the tokens."
        )
    return first


def _drawn(program: TokenProgram, batch: int) -> TracedProgram:
    graph = TokenGraph(program.vocab_size, program.seq_len)
    x, refused = start(graph, batch), Refused.raised
    try:
        found = program.fn(x)
    except ProvenformerError:
        raise
    except RecursionError:
        raise
    except Exception as error:
        reason = one_line(f"{type(error).__name__}: {error}")[:200]
        raise Refused(f"program '{program.name}' cannot be run on symbols ({reason}); write it in numpy.") from error
    if Refused.raised > refused:
        raise Refused(
            f"program '{program.name}' catches what is refused on symbols, and goes another way than on numbers."
        )
    if not isinstance(found, Tokens):
        plain = np.asarray(found)
        if plain.dtype.kind not in "biuf" or plain.shape[-1:] not in ((program.seq_len,), (1,)):
            raise Refused(f"program '{program.name}' returns {type(found).__name__}, not a number for every token.")
        from provenformer.symbols.tokens.arrays import tokens_like  # noqa: PLC0415

        found = tokens_like(x, plain)
    if found.selector is not None or found.lin is None or found.trailing not in ((program.seq_len,), (1,)):
        raise Refused(
            f"program '{program.name}' returns an array of {found.trailing} per sequence, not {program.seq_len} numbers."
        )
    if found.noise > NOISE:
        raise Refused(
            f"program '{program.name}' rounds: numpy's numbers may be off by {found.noise:.2g} (limit {NOISE}); use smaller "
            "numbers, or divide last."
        )
    return TracedProgram(graph, found.lin)


def require_same(program: TokenProgram, traced: TracedProgram) -> None:
    """Raise where the program gives other numbers than its graph: on all sequences if they are few, else on samples."""
    x = samples(program)
    wanted = program(x)
    found = numerator(traced.output, evaluate(traced.graph, x)) / traced.output.den
    room = np.minimum(NOISE * np.maximum(1.0, np.abs(wanted)), 0.25 / traced.output.den)  # outputs lie 1 / den apart
    wrong = ~(np.abs(found - wanted) <= room)  # nan is wrong too
    if wrong.any():
        i = int(np.argwhere(wrong)[0][0])
        raise ProvenformerError(
            f"program '{program.name}' gives {wanted[i].tolist()!s:.100} on {x[i].tolist()!s:.100}, its graph "
            f"{found[i].tolist()!s:.100}: it "
            "computes something else on symbols than on numbers, or rounds; write it with whole numbers."
        )


def samples(program: TokenProgram, drawn: int = DRAWN) -> Ints:
    """All sequences if they are few; else random, constant, sorted, alternating, few-valued and extreme ones."""
    size, n = program.vocab_size, program.seq_len
    if n * np.log(size) <= np.log(EVERY):
        return np.array(list(product(range(size), repeat=n)), dtype=np.int64)
    drawn = max(200, min(drawn, drawn * 512 // (n * n)))  # a graph looks at all pairs of tokens
    rng = np.random.default_rng(0)
    some = rng.integers(0, size, (drawn, n))
    some[drawn // 2 :] = rng.integers(0, 2, (drawn - drawn // 2, n)) * rng.integers(0, size, (drawn - drawn // 2, 1))
    some[drawn // 2 : drawn // 2 + drawn // 8] = np.sort(rng.integers(0, size, (drawn // 8, n)), axis=1)
    constant = np.repeat(np.arange(size)[:, None], n, axis=1)
    k = np.arange(n)
    special: list[Any] = [
        constant,
        k[None] % size,
        k[None, ::-1] % size,
        np.where(k % 2, size - 1, 0)[None],
        np.where(k % 2, 0, size - 1)[None],
    ]
    special += [np.where(k < cut, 0, size - 1)[None] for cut in range(n + 1)]
    special += [np.where(k == cut, size - 1, 0)[None] for cut in range(n)] + [
        np.where(k == cut, 0, size - 1)[None] for cut in range(n)
    ]
    special += [
        np.sort(some[:50], axis=1),
        -np.sort(-some[:50], axis=1),
        (k[None] * np.arange(1, 4)[:, None]) // max(1, n // size) % size,
    ]
    return np.concatenate([some, *special]).astype(np.int64)
