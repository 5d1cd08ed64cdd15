"""A claim in full: of which function and whose, how the distance is measured, where it holds, and what it rests on."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from provenformer.base.arrays import FloatArray
from provenformer.bounds.integrals import Kind
from provenformer.certificates.certificate import (
    BASIS,
    CIRCUIT_BASIS,
    TOKEN_BASIS,
    Certificate,
    Domain,
    in_full,
    rounded_up,
)
from provenformer.functions.targets import Target, is_built_in
from provenformer.functions.tokens import TokenProgram

YOURS = "the function you gave"
BUILT_IN = "built in"


@dataclass(frozen=True)
class Claim:
    """What is claimed; `str()` says it in words."""

    bound: float
    norm_order: float | None  # None: the largest entry
    domain: Domain
    kind: Kind
    target: str  # the name of the function, or "stored pairs"
    whose: str  # who said that this is the function: you, this version's built-in list, the folder
    digest: str | None  # sha256 of the function's source, or of the pairs
    token_dim: int
    seq_len: int
    support: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    lipschitz: float | None = None
    pairs: int | None = None
    declared_by: str = "you"  # whose word facts about the function are
    equivariant: bool = False  # the claim rests on it, and it is somebody's word
    vouched: bool = field(default=False, repr=False)  # and was not looked at in every order of the tokens
    notes: tuple[str, ...] = field(default=(), repr=False)  # what else one should know
    traced: bool = field(default=False, repr=False)  # the network is a circuit
    vocab_size: int | None = field(default=None, repr=False)  # of a program on tokens
    step: float | None = field(default=None, repr=False)  # between neighbouring outputs of a program

    def __str__(self) -> str:
        return "\n".join((f"claim:  {self.sentence}", f"target: {self.about}", f"basis:  {self.basis}", *self.notes))

    @property
    def sentence(self) -> str:
        """The inequality, and where it holds; an estimate says that it is one."""
        sizes = f"{self.seq_len} tokens of {self.token_dim} number{'s' if self.token_dim > 1 else ''}"
        if self.domain == "data":
            return f"largest error of an entry <= {rounded_up(self.bound)} on the {self.pairs:,} stored pairs only ({sizes})"
        if self.domain == "tokens":
            return (
                f"every one of the {self.vocab_size}^{self.seq_len} sequences of {self.seq_len} tokens out of "
                f"{self.vocab_size} is "
                f"answered exactly: outputs lie {self.step:g} apart, and the largest error of one is <= {rounded_up(self.bound)}"
            )
        place = f"the box {_box(self.support)}" if self.domain == "box" else "the whole space"
        if self.norm_order is None:
            return f"largest error of an entry <= {rounded_up(self.bound)} over {place} ({sizes})"
        relation = "estimated, not bounded, at" if self.kind == "statistical" else "<="
        return f"d_{in_full(self.norm_order)}(f, g) {relation} {rounded_up(self.bound)} over {place} ({sizes})"

    @property
    def about(self) -> str:
        """The function and whose it is."""
        digest = f"sha256 {self.digest[:12]}" if self.digest else "no source to take a digest of"
        return f"{self.target} ({self.whose}; {digest})"

    @property
    def basis(self) -> str:
        """What the claim rests on, in our own words: those in a folder are anybody's."""
        if self.domain == "data":
            return (
                "the network was run on these pairs, by numpy in float64; nothing is said of any other input, nor of engines "
                "that take sums in another order."
            )
        if self.domain == "tokens":
            return f"{self.kind}: {TOKEN_BASIS}"
        words = f"{self.kind}: {CIRCUIT_BASIS if self.traced else BASIS[self.kind]}"
        if self.kind == "lipschitz":
            words += f" The constant is {self.lipschitz:g}, declared by {self.declared_by}."
        if self.domain == "space":
            words += (
                f" That f vanishes outside the box {_box(self.support)} is declared by {self.declared_by}, not proved; "
            )
            words += "its border was tried."
        if self.equivariant:
            words += (
                f" That f(XP) = f(X)P for every order P of the tokens is assumed by {self.declared_by}, not proved; "
            )
            words += "samples were tried"
            words += "; every cube was looked at in one order of its tokens only." if self.vouched else "."
        return words

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and strings, the sentences included."""
        return {**asdict(self), "sentence": self.sentence, "basis": self.basis}


def claim_about(
    certificate: Certificate, target: Target, whose: str, digest: str | None, declared_by: str = "you",
    notes: tuple[str, ...] = (),
) -> Claim:  # fmt: skip
    """The claim of a certificate about a function; `declared_by`: whose word the facts are that the target states of itself."""
    traced = "piecewise" not in certificate.terms  # circuits have no such term
    assumed = target.equivariant and not traced
    if is_built_in(target):
        whose = f"{BUILT_IN}, and {whose}" if whose == YOURS else BUILT_IN
        declared_by, assumed = "this version's list of targets", False
    return Claim(
        float(certificate.bound), certificate.norm_order, certificate.domain, certificate.kind, target.name, whose, digest,
        int(target.token_dim), int(target.seq_len), target.support, target.lipschitz, None, declared_by, assumed,
        assumed and target.vouched, notes, traced,
    )  # fmt: skip


def claim_about_program(
    certificate: Certificate,
    program: TokenProgram,
    whose: str,
    digest: str | None,
    step: float,
    notes: tuple[str, ...] = (),
) -> Claim:
    """The claim of a certificate about a program on tokens."""
    return Claim(
        float(certificate.bound), None, "tokens", certificate.kind, program.name, whose, digest, 1, program.seq_len, notes=notes,
        traced=True, vocab_size=program.vocab_size, step=step,
    )  # fmt: skip


def claim_about_pairs(certificate: Certificate, inputs: FloatArray, outputs: FloatArray, whose: str) -> Claim:
    """The claim of a certificate about a finite data set, (count, d, n) each."""
    count, d, n = inputs.shape
    return Claim(
        float(certificate.bound), None, "data", certificate.kind, "stored pairs", whose, pairs_digest(inputs, outputs), d, n,
        pairs=count,
    )  # fmt: skip


def pairs_digest(inputs: FloatArray, outputs: FloatArray) -> str:
    """sha256 of the shape and the numbers of a data set, in order."""
    digest = hashlib.sha256(repr(inputs.shape).encode())
    for array in (inputs, outputs):
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()


def _box(support: tuple[tuple[float, ...], tuple[float, ...]] | None) -> str:
    """All of it: a claim about a box whose last rows nobody sees would say little."""
    low, high = support or ((), ())
    runs = [(ends, len(list(same))) for ends, same in groupby(zip(low, high, strict=True))]
    shown = [f"[{in_full(a)}, {in_full(b)}]" for (a, b), _ in runs]
    return (
        shown[0]
        if len(runs) == 1
        else " x ".join(text if count == 1 else f"{text}^{count}" for text, (_, count) in zip(shown, runs, strict=True))
    )
