"""Is what a certificate about a program on tokens states true? Random programs, on all sequences or many, in both precisions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

import provenformer as pf
from fuzz.outcome import Outcome, program_circuit, rejected
from provenformer.networks.circuit import CircuitNetwork
from provenformer.symbols.tokens.trace import samples

# NUM, TRUE and PAIR stand for numbers at tokens, true or false at tokens, and at pairs of tokens.
NUM = (
    "(NUM + NUM)", "(NUM - NUM)", "(NUM * NUM)", "(CONST * NUM)", "(NUM + CONST)", "(-NUM)", "(NUM // SMALL)",
    "(NUM % SMALL)", "(NUM // -SMALL)", "(CONST // (1 + np.abs(NUM)))", "(NUM % (1 + np.abs(NUM)))", "np.abs(NUM)",
    "np.sign(NUM)", "NUM ** 2", "np.clip(NUM, -SMALL, SMALL)", "np.maximum(NUM, NUM)", "np.minimum(NUM, CONST)",
    "np.where(TRUE, NUM, NUM)", "(NUM / 2)", "np.where(TRUE, CONST, NUM)", "np.where(TRUE, 1, 0)", "(TRUE * NUM)",
    "TRUE.astype(int)", "(NUM * k)", "(TRUE + TRUE) * 2", "np.trunc(NUM / 2)", "np.floor(NUM / 4)", "(NUM / 2).astype(int)",
    "np.rint(NUM / 4)", "np.full_like(x, SMALL)",
)  # fmt: skip
OVER_TOKENS = (
    "(np.sum(NUM, axis=-1, keepdims=True) + 0 * x)", "(np.sum(TRUE, axis=-1, keepdims=True) + 0 * x)",
    "(np.max(NUM, axis=-1)[..., None] - x)", "(np.min(NUM, axis=-1, keepdims=True) + x)",
    "(np.argmax(NUM, axis=-1, keepdims=True) + 0 * x)", "(np.mean(NUM, axis=-1, keepdims=True) + 0 * x)",
    "(np.argmin(NUM, axis=-1, keepdims=True) * x)", "(np.count_nonzero(NUM, axis=-1, keepdims=True) - x)",
    "(np.max(NUM[..., 1:], axis=-1, keepdims=True) + 0 * x)", "(np.sum(NUM[..., :-1], axis=-1, keepdims=True) + 0 * x)",
    "(np.argmax(TRUE, axis=-1, keepdims=True) + 0 * x)", "np.cumsum(NUM, axis=-1)", "np.cumsum(TRUE, axis=-1)",
    "np.sort(NUM, axis=-1)", "np.argsort(NUM, axis=-1, kind='stable')", "np.flip(NUM, axis=-1)",
    "np.roll(NUM, SMALL, axis=-1)", "NUM[..., ::-1]", "(NUM[..., :1] + 0 * x)",
    "np.take_along_axis(NUM, np.clip(NUM, 0, n - 1), axis=-1)", "np.take_along_axis(NUM, NUM % n, axis=-1)",
    "np.concatenate([NUM[..., 1:], NUM[..., :1]], axis=-1)",
    "np.concatenate([np.zeros_like(x[..., :1]), NUM[..., :-1]], axis=-1)", "np.sum(PAIR, axis=-1)", "np.mean(PAIR, axis=-1)",
    "np.sum(np.where(PAIR, NUM[..., None, :], CONST), axis=-1)", "np.sum(PAIR * NUM[..., None, :], axis=-1)",
    "np.max(np.where(PAIR, k, -1), axis=-1)", "np.min(np.where(PAIR, k, n), axis=-1)", "np.argmax(PAIR, axis=-1)",
    "np.sum(NUM[..., :, None] - NUM[..., None, :], axis=-1)", "np.max(np.where(PAIR, -2 * k, -2 * n), axis=-1)",
)  # fmt: skip
TRUE = (
    "(NUM REL NUM)", "(NUM REL CONST)", "(NUM REL 0.5)", "(TRUE & TRUE)", "(TRUE | TRUE)", "(TRUE ^ TRUE)", "(~TRUE)",
    "(x REL k)", "np.any(PAIR, axis=-1)", "np.all(PAIR, axis=-1)", "(np.any(TRUE, axis=-1, keepdims=True) & TRUE)",
    "np.where(TRUE, TRUE, TRUE)", "np.all(TRUE, axis=-1, keepdims=True) | TRUE", "np.roll(TRUE, 1, axis=-1)",
    "np.maximum(TRUE, TRUE)", "(NUM).astype(bool)",
)  # fmt: skip
PAIR = (
    "(NUM[..., :, None] REL NUM[..., None, :])", "(NUM[..., :, None] REL NUM[..., None, :])", "(PAIR & PAIR)",
    "(PAIR | PAIR)", "(~PAIR)", "(PAIR & (k < k[:, None]))", "(PAIR & (k != k[:, None]))",
    "(TRUE[..., :, None] & TRUE[..., None, :])", "(NUM[..., :, None] + NUM[..., None, :] REL CONST)",
    "(PAIR & (k <= k[:, None]))",
)  # fmt: skip
LEAVES = {
    "NUM": ("x", "x", "x", "(k + 0 * x)", "(x - 1)"),
    "TRUE": ("(x REL SMALL)", "(x == 0)", "(k < SMALL) & (x >= 0)"),
    "PAIR": ("(x[..., :, None] REL x[..., None, :])",),
}
RULES = {"NUM": (NUM, OVER_TOKENS), "TRUE": (TRUE,), "PAIR": (PAIR,)}
WORD = re.compile(r"\b(NUM|TRUE|PAIR|REL|CONST|SMALL)\b")
DEPTHS = (1, 2, 2, 3, 3, 4)
SIZES = (
    *((2, n) for n in (2, 3, 5, 8)),
    *((3, n) for n in (2, 3, 4, 6)),
    *((4, n) for n in (2, 3, 5)),
    (6, 3),
    (9, 2),
    (1, 3),
)
LARGE = ((3, 12), (8, 8), (5, 30), (16, 6))
EVERY = 5000  # sequences up to which all are tried
MOST_PARAMETERS = 100_000
SUSPECT = ("something else on symbols", "fault of provenformer")  # the library saw a wrong graph or network itself


@dataclass(frozen=True)
class ProgramCase:
    """What to compile, as plain data: it can be kept as JSON."""

    program: str
    vocab_size: int
    seq_len: int

    @classmethod
    def random(cls, rng: np.random.Generator) -> ProgramCase:
        sizes = LARGE if rng.random() < 0.06 else SIZES
        size, n = sizes[rng.integers(len(sizes))]
        return cls(random_program(rng, "NUM", int(rng.choice(DEPTHS))), size, n)

    @property
    def target(self) -> pf.TokenProgram:
        return pf.TokenProgram(program_of(self.program, self.seq_len), self.vocab_size, self.seq_len, "random")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def compiled(self) -> pf.CompiledTokens:
        """Raises ProvenformerError where it is refused."""
        return pf.compile_tokens(self.target, construction="circuit", max_parameters=MOST_PARAMETERS)


def random_program(rng: np.random.Generator, kind: str, depth: int) -> str:
    """An expression in x (..., n), whole numbers; k = 0 .. n-1."""
    pools = RULES[kind]
    chosen = LEAVES[kind] if depth <= 0 or rng.random() < 0.08 else pools[rng.integers(len(pools))]

    def filled(found: re.Match[str]) -> str:
        word = found[0]
        if word == "REL":
            return str(rng.choice(["==", "!=", "<", "<=", ">", ">="]))
        if word in ("CONST", "SMALL"):
            return str(int(rng.integers(-3, 6) if word == "CONST" else rng.integers(1, 4)))
        return f"({random_program(rng, word, depth - 1 - int(rng.integers(2)))})"

    return WORD.sub(filled, str(rng.choice(chosen)))


def program_of(expression: str, seq_len: int) -> Callable[[Any], Any]:
    """The function of an expression."""
    found: Callable[[Any], Any] = eval(f"lambda x: {expression}", {"np": np, "n": seq_len, "k": np.arange(seq_len)})
    return found


def try_program(case: ProgramCase) -> tuple[Outcome, pf.CompiledTokens | None]:
    """Compile, verify, compare with the program."""
    try:
        c = case.compiled()
    except pf.ProvenformerError as error:
        reason = str(error)
        wrong = "a refusal of several lines" if "\n" in reason else ""
        if any(words in reason for words in SUSPECT):
            wrong = f"a program that depends on nothing but x, but: {reason}"
        return Outcome(refused=reason, wrong=wrong), None
    wrong = rejected(c) or untrue(case.target, program_circuit(c).network, c.certificate)
    return Outcome(kind="program", wrong=wrong), c


def sequences(program: pf.TokenProgram) -> np.ndarray:
    """All of them, or samples."""
    if program.vocab_size**program.seq_len <= EVERY:
        return np.array(list(product(range(program.vocab_size), repeat=program.seq_len)))
    return samples(program, EVERY // 5)


def untrue(program: pf.TokenProgram, network: CircuitNetwork, claim: pf.Certificate) -> str:
    """What of a certificate is not so, on all sequences or samples; empty if nothing is."""
    x = sequences(program)
    wanted = program(x)
    noise = 1e-14 * float(np.abs(wanted).max())  # of fractions in float64
    step, margin = (float(claim.details[name]) for name in ("step", "margin"))
    for name, bound in {"float64": claim.bound, **claim.bounds}.items():
        with np.errstate(all="ignore"):
            off = np.abs(network.run(x[:, None, :].astype(np.float64), name)[:, 0] - wanted)
        error = float(np.where(np.isfinite(off), off, np.inf).max())
        if not error <= bound + noise:
            return f"measured {error:.9g} in {name}, certified {bound:.9g}"
        if name == "float64" and not error <= min(step / 2 - margin, step / 2) + noise:
            return f"measured {error:.9g}, certified a margin of {margin:.9g}, steps of {step:.9g}"
    return ""
