"""A program on tokens to look at, as circuits are: its values are whole numbers, its inputs indices of tokens with names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from provenformer.anatomy.tokens import circuit_of_tokens
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, ProvenformerError, one_line
from provenformer.certificates.claim import YOURS, Claim, claim_about_program
from provenformer.compiler.programs import ProgramCircuit
from provenformer.compiler.tokens import CompiledTokens
from provenformer.functions import programs
from provenformer.functions.tokens import TokenProgram
from provenformer.look.circuit import CircuitSubject
from provenformer.networks.circuit import CircuitNetwork
from provenformer.storage import Saved, built_in_program, program_spec, source_digest
from provenformer.symbols.tokens.graph import evaluate
from provenformer.symbols.tokens.trace import TracedProgram, samples, trace

MISSING = "the folder names a program that is not of the library, which is not imported unless you name it"


@dataclass(frozen=True, eq=False)
class ProgramSubject(CircuitSubject):
    """The circuit of a program; without the program there is the network alone."""

    program: TokenProgram | None = None
    followed: TracedProgram | None = None  # its graph

    @classmethod
    def of_folder(cls, saved: Saved, program: TokenProgram | None = None) -> ProgramSubject:
        """From what `load` returns; `program` where the folder does not name one of the library."""
        network, spec = saved.network, saved.manifest["target"]
        if not isinstance(network, CircuitNetwork):
            raise ProvenformerError("this network is not a circuit.")
        size = spec["vocab_size"]
        names = tuple(spec.get("tokens", map(str, range(size))))
        if len(names) != size or (network.token_dim, network.seq_len) != (1, spec["seq_len"]):
            raise BadFolder("the manifest names other sizes than the network has; save it again.")
        ends = np.zeros(1), np.array([size - 1.0])
        known = program or built_in_program(spec)
        if known is None:
            return cls(network, saved.certificate, str(spec["name"]), ends, missing=MISSING, token_names=names)
        if (known.vocab_size, known.seq_len) != (size, spec["seq_len"]):
            raise ProvenformerError(f"the network is for {size} tokens and n={spec['seq_len']}, and {known!r} is not.")
        return cls._of(network, saved, str(spec["name"]), names, known, trace(known))

    @classmethod
    def of_tokens(cls, made: CompiledTokens) -> ProgramSubject:
        """From what `compile_tokens` returns, without saving it."""
        found, names = made.made, tuple(one_line(str(token)) for token in made.vocab)
        if not isinstance(found, ProgramCircuit):
            raise ProvenformerError("this is a table, not a circuit.")
        return cls._of(found.network, found, found.program.name, names, found.program, found.traced)

    @classmethod
    def _of(
        cls,
        network: CircuitNetwork,
        certified: Saved | ProgramCircuit,
        name: str,
        names: tuple[str, ...],
        program: TokenProgram,
        traced: TracedProgram,
    ) -> ProgramSubject:
        circuit = circuit_of_tokens(network, traced.graph, traced.output)
        ends = np.zeros(1), np.array([len(names) - 1.0])
        return cls(
            network, certified.certificate, name, ends, circuit=circuit, token_names=names,
            answers_are_tokens=traced.whole_tokens, program=program, followed=traced,
        )  # fmt: skip

    def wanted(self, x: FloatArray) -> FloatArray | None:
        return None if self.program is None else self.program(x[:, 0].astype(np.int64))[:, None]

    def atoms(self, numbers: list[int], x: FloatArray) -> FloatArray:
        if self.followed is None:
            raise ProvenformerError(f"the graph of '{self.target_name}' is not known: {self.missing}.")
        found = evaluate(self.followed.graph, x[:, 0].astype(np.int64))
        return np.stack([found[atom] for atom in numbers]).astype(np.float64)

    def sequences(self, count: int) -> FloatArray:
        """Of all kinds: random, constant, sorted, alternating, of few values, extreme."""
        assert self.program is not None
        x = samples(self.program)
        chosen = np.random.default_rng(3).permutation(len(x))[:count]
        return x[np.sort(chosen), None].astype(np.float64)

    def claim(self) -> Claim | None:
        if self.program is None or self.followed is None:
            return None
        whose = YOURS if "import" in program_spec(self.program) else "of the library"
        step = 1 / self.followed.output.den
        return claim_about_program(self.certificate, self.program, whose, source_digest(self.program), step)

    @property
    def formula(self) -> str | None:
        known = self.program is not None and programs.is_built_in(self.program)
        return programs.describe(self.target_name.removesuffix(programs.PADDED)) if known else None

    @property
    def claimed(self) -> float | None:
        return self.certificate.bound

    def in_words(self, sequence: FloatArray) -> list[str]:
        return [self.token_names[int(i)] for i in sequence[0]]

    def require_inside(self, sequence: FloatArray) -> FloatArray:
        most = len(self.token_names) - 1
        if not ((sequence >= 0) & (sequence <= most) & (sequence == np.rint(sequence))).all():
            raise ProvenformerError(f"a sequence of tokens is given by their indices, whole numbers from 0 to {most}.")
        return sequence

    def example(self) -> FloatArray:
        """One sequence (1, n) that looks random; a padded one where the program knows padding."""
        padded = self.target_name.endswith(programs.PADDED)
        size, n = len(self.token_names) - padded, self.seq_len
        found = np.random.default_rng(5).integers(0, max(size, 1), n)
        if padded:
            found[n - n // 4 :] = size
        return found[None].astype(np.float64)
