"""compile_tokens(): a function on token sequences as a network, exact on all of them.

A program in numpy is traced and becomes a circuit (docs/tokens.md); any other function is run on every sequence, and the
table is memorised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from provenformer.base.errors import ProvenformerError, Rejected, one_line
from provenformer.base.extras import extra
from provenformer.certificates.certificate import TOKEN_BASIS, Certificate
from provenformer.checker.tokens.walk import token_bound
from provenformer.compiler.memorize import Memorized, memorize
from provenformer.compiler.programs import NO_PARTS, OnTokens, ProgramCircuit
from provenformer.compiler.request import require_whole
from provenformer.constructions.plan import LAYER_LIMIT
from provenformer.constructions.tokens.build import PARAMETER_LIMIT, build_tokens
from provenformer.functions.tokens import TokenProgram
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.thin import Network
from provenformer.symbols.tokens.trace import EVERY, require_same, samples, trace

MOST_BITS = 64  # of the number of sequences: more cannot be listed anyway
CHECKED = 200  # sequences that are tried twice; orders in which an equivariant function is tried, of more than EVERY
MEANT = 50  # random sequences on which a function that takes both tokens and their indices is asked for both
CIRCUIT, TABLE = "circuit", "table"
ROOM = 1e-9  # stated beyond what the checker finds, as of circuits: on another machine its sums may be taken in another order
Say = Callable[[str], object]
_SHOWN = Console(stderr=True)


@dataclass(frozen=True, eq=False, repr=False)
class CompiledTokens(OnTokens):
    """A function on token sequences as a network: call it with a list of tokens."""

    vocab: tuple[Any, ...]
    pad: Any
    numeric: bool
    choice: str  # which construction, and why
    made: Memorized | ProgramCircuit

    @property
    def network(self) -> Network | CircuitNetwork:
        return self.made.network

    @property
    def certificate(self) -> Certificate:
        return self.made.certificate

    @property
    def memorized(self) -> Memorized:
        """The table, if it is one."""
        if not isinstance(self.made, Memorized):
            raise ProvenformerError("this is a circuit, not a table; see .circuit.")
        return self.made

    @property
    def _program_circuit(self) -> ProgramCircuit:
        if isinstance(self.made, Memorized):
            raise ProvenformerError(NO_PARTS)
        return self.made

    def save_pretrained(self, path: str | Path) -> None:
        """Write config.json and model.safetensors of the torch module, which `pf.from_pretrained(path)` reads; no certificate."""
        circuit = self._program_circuit
        with extra("torch", "save_pretrained()"):
            from provenformer.networks.export.torch_module import CircuitBlocks  # noqa: PLC0415
        CircuitBlocks(circuit.network).save_pretrained(path)

    def save(self, path: str | Path) -> None:
        """Write network, certificate and manifest to a folder; of a table also its data."""
        if isinstance(self.made, ProgramCircuit):
            output = "numbers" if self.numeric else "tokens"
            self.made.save(path, self.vocab, {"padded": self.pad is not None, "output": output})
        else:
            self.made.save(path)

    def __repr__(self) -> str:
        return f"CompiledTokens({len(self.vocab):,} tokens, {self.network!r}, {self.certificate.short}; {self.choice})"


def compile_tokens(
    fn: Callable[[Any], Any] | TokenProgram,
    vocab: int | Sequence[Any] | None = None,
    seq_len: int | None = None,
    *,
    pad: Any = None,
    output: str | None = None,
    equivariant: bool = False,
    construction: str | None = None,
    max_layers: int = LAYER_LIMIT,
    max_parameters: int = PARAMETER_LIMIT,
    progress: Say | bool = False,
) -> CompiledTokens:
    """A network for a function on all sequences of `seq_len` tokens of a vocabulary, or of a number of tokens.

    A program in numpy on whole numbers (..., seq_len), the indices of tokens, becomes a circuit whose certificate says that
    every sequence
    is answered exactly. Any other function gets lists of tokens, is run on all sequences and becomes a table; on all
    multisets with
    `equivariant=True`, which is tried. `choice` of the result says which and why; `construction` asks for "circuit" or "table",
    which a function that answers tokens and their indices differently needs.
    `pad`: one more token, the last, that fills up shorter sequences; programs see it as the number len(vocab). `output`:
    "tokens" or
    "numbers"; by default tokens where all outputs are. `progress`: a function that is told what is going on, or True: sizes
    and a bar are shown.
    Raises ProvenformerError, one line with quantity, limit and remedy, where that cannot be had.
    """
    if isinstance(fn, TokenProgram):
        vocab = fn.vocab_size if vocab is None else vocab
        seq_len = fn.seq_len if seq_len is None else seq_len
        if (seq_len, len(_vocabulary(vocab, pad))) != (fn.seq_len, fn.vocab_size):
            raise ProvenformerError(
                f"{fn!r} has other sizes than the vocabulary and seq_len={seq_len}; leave them out."
            )
    if construction not in (None, CIRCUIT, TABLE) or output not in (None, "tokens", "numbers"):
        raise ProvenformerError(
            "construction is 'circuit' or 'table', output 'tokens' or 'numbers'; leave them out for the default."
        )
    symbols = _vocabulary(vocab, pad)
    if seq_len is None or require_whole("seq_len", seq_len) < 2:
        raise ProvenformerError(f"seq_len={seq_len} is below the limit 2; use at least 2 tokens.")
    why = "as asked for"
    say: Say = progress if callable(progress) else _SHOWN.log if progress else lambda _: None
    if construction != TABLE:
        try:
            program = fn if isinstance(fn, TokenProgram) else TokenProgram(fn, len(symbols), seq_len, _name(fn))
            made = _circuit(program, output, max_parameters, say)
        except ProvenformerError as refusal:
            if construction == CIRCUIT or isinstance(fn, TokenProgram) or isinstance(refusal, _Final):
                raise
            why = f"because {one_line(refusal).removesuffix('.')[:300]}"
        else:
            numeric = output == "numbers" or (output is None and not made.traced.whole_tokens)
            because = "because the program could be followed" if construction is None else why
            found = CompiledTokens(symbols, pad, numeric, f"{CIRCUIT}, {because}", made)
            if construction is None and not isinstance(fn, TokenProgram):
                _require_one_meaning(fn, found)
            return found
    function = fn.fn if isinstance(fn, TokenProgram) else fn
    try:
        numeric, memorized = _table(function, symbols, seq_len, equivariant, output, max_layers, say, progress is True)
    except ProvenformerError as refusal:
        if why == "as asked for":
            raise
        raise type(refusal)(f"no circuit: {why.removeprefix('because ')}; no table: {refusal}") from refusal
    return CompiledTokens(symbols, pad, numeric, f"{TABLE}, {why}", memorized)


class _Final(ProvenformerError):  # noqa: N818
    """Refused whatever the construction."""


def _vocabulary(vocab: int | Sequence[Any] | None, pad: Any) -> tuple[Any, ...]:
    if isinstance(vocab, int | np.integer) and not isinstance(vocab, bool):
        if not 1 <= vocab <= 1 << 20:
            raise ProvenformerError(f"vocab={vocab} is not a number of tokens; give 1 or more, or list them.")
        vocab = range(int(vocab))
    try:
        found = tuple(vocab) + (() if pad is None else (pad,))  # type: ignore[arg-type]
        distinct = len(set(found))
    except TypeError as error:
        raise ProvenformerError(
            f"vocab is not a list of tokens that can be told apart ({error}); use strings."
        ) from error
    if distinct != len(found) or not found:
        raise ProvenformerError(f"vocab={found!s:.100} is empty or has a token twice; list each token once.")
    return found


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", "program")).strip("<>")


def _circuit(program: TokenProgram, output: str | None, max_parameters: int, progress: Say) -> ProgramCircuit:
    """The circuit and its certificate: the checker's bounds, derived from the finished weights."""
    progress("tracing the program")
    traced = trace(program)
    require_same(program, traced)
    if output == "tokens" and not traced.whole_tokens:
        from provenformer.symbols.tokens.lower import ends  # noqa: PLC0415

        low, high = ends(traced.graph, traced.output)
        raise _Final(
            f"program '{program.name}' leaves the alphabet: its outputs range from {low} to {high}, in steps of "
            f"1/{traced.output.den}, and tokens "
            f"from 0 to {program.vocab_size - 1}; use output='numbers', or np.clip."
        )
    progress("building the circuit")
    network = build_tokens(traced.graph, traced.output, max_parameters)
    progress("checking the circuit")
    try:
        found = token_bound(network, traced.graph, traced.output)
    except Rejected as verdict:
        raise ProvenformerError(
            f"the checker does not accept this circuit ({verdict}); use smaller numbers, or construction='table'."
        ) from verdict
    step = Fraction(1, traced.output.den)
    if not found.float64 < step / 2:
        raise ProvenformerError(
            f"outputs of '{program.name}' lie {float(step):.3g} apart, and float64 may be off by {found.float64:.3g}; "
            f"use shorter sequences."
        )
    stated = {name: value * (1 + ROOM) for name, value in vars(found).items()}
    bound = stated["float64"]
    details = {
        "bounds": {name: value for name, value in stated.items() if value < step / 2}, "vocab_size": program.vocab_size,
        "seq_len": program.seq_len, "step": float(step), "margin": float(step) / 2 - bound,
        "units": sum(network.hidden_units.values()),
    }  # fmt: skip
    certificate = Certificate(
        bound, {"rounding": bound}, "rigorous", None, "tokens", TOKEN_BASIS, 0.0, (0.0,), (0.0,), details
    )
    x = samples(program)
    wrong = np.abs(network(x[:, None, :].astype(np.float64))[:, 0] - program(x)).max()
    if not wrong <= bound + 1e-9:
        raise ProvenformerError(
            f"the circuit of '{program.name}' is {wrong:.3g} away from it; this is a fault of provenformer: report the program."
        )
    return ProgramCircuit(program, traced, network, certificate)


def _table(
    fn: Callable[[Any], Any],
    vocab: tuple[Any, ...],
    n: int,
    equivariant: bool,
    output: str | None,
    max_layers: int,
    progress: Say,
    bar: bool,
) -> tuple[bool, Memorized]:
    """Whether outputs are numbers, and the memorised table of all sequences, or of all multisets."""
    size = len(vocab)
    if n * np.log2(size) > MOST_BITS and not equivariant:
        raise ProvenformerError(
            f"{size} tokens at seq_len={n:,} give more than 2^{MOST_BITS} sequences; use a smaller vocabulary or "
            f"shorter sequences."
        )
    count = comb(size + n - 1, n) if equivariant else size**n
    what = "multisets" if equivariant else "sequences"
    if 3 * count * n > max_layers:
        more = "" if equivariant else ", or equivariant=True if it is"
        raise ProvenformerError(
            f"{size} tokens at seq_len={n} give {count:,} {what}, up to {3 * count * n:,} layers (limit "
            f"{max_layers:,}); use a smaller "
            f"vocabulary or shorter sequences{more}."
        )
    progress(f"{count:,} {what}, up to {3 * count * n:,} layers")
    indices = list(combinations_with_replacement(range(size), n) if equivariant else product(range(size), repeat=n))
    results = []
    for i, row in enumerate(track(indices, what, console=_SHOWN, transient=True) if bar else indices):
        results.append(_call(fn, [vocab[k] for k in row]))
        if i % 1000 == 999 and not bar:
            progress(f"{i + 1:,} of {count:,} {what}")
    for i in range(0, count, -(-count // CHECKED)):
        if repr(_call(fn, tokens := [vocab[k] for k in indices[i]])) != repr(results[i]):
            raise ProvenformerError(
                f"the function gives two results for {tokens!s:.100}; it must depend on nothing but the tokens."
            )
    if equivariant:
        _require_equivariant(fn, vocab, indices, results)
    try:
        numeric = output == "numbers" or not all(v in vocab for row in results for v in row)
        if output == "tokens" and numeric:
            other = next(v for row in results for v in row if v not in vocab)
            raise ProvenformerError(
                f"the function leaves the alphabet: it returns {other!r:.40}; use output='numbers'."
            )
        encoded = np.array([[_number(v) if numeric else float(vocab.index(v)) for v in row] for row in results])
    except (TypeError, ValueError, OverflowError) as error:
        raise ProvenformerError(f"the function must return tokens of the vocabulary or numbers ({error}).") from error
    _require_lists_like_arrays(fn, vocab, indices, results)
    progress("memorising")
    inputs = np.array(indices, dtype=np.float64)
    return numeric, memorize(inputs[:, None, :], encoded[:, None, :], positional=not equivariant, max_layers=max_layers)


def _require_one_meaning(fn: Callable[[Any], Any], found: CompiledTokens) -> None:
    """Raise where the function takes the tokens themselves, too, and answers otherwise than the circuit, which took indices."""
    vocab, n = found.vocab, found.network.seq_len
    numbers = all(isinstance(token, int | float | np.number) for token in vocab)
    if numbers and vocab == tuple(range(len(vocab))):
        return
    some = np.random.default_rng(0).integers(0, len(vocab), (MEANT, n))
    constant = np.repeat(np.arange(len(vocab))[:, None], n, axis=1)
    drawn = [[vocab[k] for k in row] for row in np.concatenate([some, constant])]
    for shaped in (list, lambda tokens: np.array([tokens])) if numbers else (list,):
        answers = [_answer(fn, shaped(tokens), n) for tokens in drawn]
        if not all(row and (numbers or set(row) <= set(vocab)) for row in answers):
            continue  # it does not take tokens
        for tokens, row in zip(drawn, answers, strict=True):
            if not _alike(row, circuit := found(tokens)):
                raise ProvenformerError(
                    f"the function answers the tokens {tokens!s:.60} with {row!s:.60}, and their indices in the vocabulary with "
                    f"{circuit!s:.60}; ask for construction='circuit' if it means indices, 'table' if tokens."
                )


def _require_lists_like_arrays(
    fn: Callable[[Any], Any], vocab: tuple[Any, ...], indices: list[tuple[int, ...]], results: list[list[Any]]
) -> None:
    """Raise where a function in numpy answers arrays of tokens otherwise than lists, which a table is made from and in which
    [0, 1] == 0 is False."""
    numbers = all(isinstance(token, int | float | np.number) for token in vocab)
    alphabet = np.array(vocab) if numbers else np.fromiter(vocab, dtype=object, count=len(vocab))
    arrays = alphabet[np.array(indices)]
    answers, some = _answers(fn, arrays), range(0, len(arrays), -(-len(arrays) // CHECKED))
    if not answers or any(_answers(fn, arrays[i : i + 1]) != answers[i : i + 1] for i in some):
        return  # it does not take a batch of arrays, or mixes what is in it
    for row, listed, answer in zip(indices, results, answers, strict=True):
        if not _alike(listed, answer):
            raise ProvenformerError(
                f"the function answers the list {[vocab[k] for k in row]!s:.60} with {np.asarray(listed).tolist()!s:.60}, and "
                f"the array with {answer!s:.60}; start it with x = np.asarray(x), or with x = list(x)."
            )


def _answers(fn: Callable[[Any], Any], arrays: Any) -> list[Any]:
    """What the function says to a batch of sequences; nothing if it does not take one."""
    try:
        found = np.asarray(fn(arrays.copy()))
    except Exception:
        return []
    return found.tolist() if found.shape == arrays.shape else []


def _answer(fn: Callable[[Any], Any], tokens: Any, n: int) -> list[Any]:
    """What the function says to a list or an array of tokens; nothing if it does not take them."""
    try:
        row: list[Any] = np.squeeze(np.asarray(fn(tokens))).tolist()
        return row if len(row) == n else []
    except Exception:
        return []


def _alike(first: list[Any], second: list[Any]) -> bool:
    """Equal, or numbers that are equal up to rounding."""
    return first == second or all(
        isinstance(a, int | float) and isinstance(b, int | float) and abs(a - b) <= 1e-9 * max(1.0, abs(b))
        for a, b in zip(first, second, strict=True)
    )


def _number(value: Any) -> float:
    """A number that float64 holds, so that the table is the function's own."""
    if isinstance(value, str | bytes):
        raise TypeError(f"not {value!r:.40}")
    value = value.item() if isinstance(value, np.generic) else value
    held = float(value)
    if np.isfinite(held) and held != value:
        raise ValueError(f"float64 holds {held!r}, not {value!s:.40}")
    return held


def _require_equivariant(
    fn: Callable[[Any], Any], vocab: tuple[Any, ...], indices: list[tuple[int, ...]], results: list[list[Any]]
) -> None:
    """Raise where another order of a sequence does not give the answer in that order; all are tried if they are few."""
    size, n = len(vocab), len(indices[0])
    answers = dict(zip(indices, results, strict=True))
    rng = np.random.default_rng(0)
    some = (rng.permutation(indices[i]).tolist() for i in rng.integers(0, len(indices), CHECKED))
    for row in product(range(size), repeat=n) if n * np.log(size) <= np.log(EVERY) else some:
        answer, places = answers[tuple(sorted(row))], np.argsort(np.argsort(row, kind="stable"))
        tokens = [vocab[k] for k in row]
        if _call(fn, tokens) != [answer[place] for place in places]:
            raise ProvenformerError(
                f"the function is not equivariant: see its answer to {tokens!s:.100}; leave equivariant=True out."
            )


def _call(fn: Callable[[Any], Any], tokens: list[Any]) -> list[Any]:
    try:
        row = list(fn(list(tokens)))
    except Exception as error:
        raise ProvenformerError(f"the function raised {type(error).__name__}: {error} on {tokens}.") from error
    if len(row) != len(tokens):
        raise ProvenformerError(f"the function returned {len(row)} items for {len(tokens)} tokens {tokens}.")
    return row
