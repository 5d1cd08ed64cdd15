"""Programs on tokens as circuits: what a compiled one and a loaded one have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from provenformer.anatomy.hooks import hook_names
from provenformer.anatomy.tokens import TokenCircuit, circuit_of_tokens
from provenformer.base.arrays import FloatArray
from provenformer.base.errors import BadFolder, ProvenformerError
from provenformer.certificates.certificate import Certificate
from provenformer.compiler.disguise import disguised_program
from provenformer.functions.tokens import TokenProgram
from provenformer.networks.base import FloatNetwork
from provenformer.networks.circuit import CircuitNetwork
from provenformer.networks.disguise import DisguisedProgram
from provenformer.networks.inside import named_states, patterns
from provenformer.storage import Saved, built_in_program, program_spec, save
from provenformer.symbols.tokens.trace import TracedProgram, trace

if TYPE_CHECKING:
    from torch import nn
    from transformer_lens.model_bridge import TransformerBridge

NO_PARTS = "a table has no parts with a meaning; write the program in numpy to get a circuit."


@dataclass(frozen=True, eq=False, repr=False)
class ProgramCircuit:
    """A program as a circuit."""

    program: TokenProgram
    traced: TracedProgram
    network: CircuitNetwork
    certificate: Certificate

    @cached_property
    def circuit(self) -> TokenCircuit:
        return circuit_of_tokens(self.network, self.traced.graph, self.traced.output)

    def save(self, path: str | Path, vocab: Sequence[Any] | None = None, facts: dict[str, Any] | None = None) -> None:
        """Write the folder; `facts`: what else is to be known of its tokens."""
        spec = program_spec(self.program, vocab) | (facts or {})
        save(path, self.network, self.certificate, {"construction": "tokens", "target": spec})


class OnTokens(ABC):
    """A function on token sequences as a network: call it with a list of tokens."""

    vocab: tuple[Any, ...]  # the tokens; with `pad`, which comes last, in all positions
    pad: Any  # the token that fills up shorter sequences; None: there are none
    numeric: bool  # whether outputs are numbers instead of tokens

    if TYPE_CHECKING:  # fields of one subclass, properties of the other

        @property
        def network(self) -> FloatNetwork: ...

        @property
        def certificate(self) -> Certificate: ...

    @property
    @abstractmethod
    def _program_circuit(self) -> ProgramCircuit:
        """The circuit and the graph of its program, or one line why there is none."""

    @property
    def _circuit_network(self) -> CircuitNetwork:
        if not isinstance(self.network, CircuitNetwork):
            raise ProvenformerError(NO_PARTS)
        return self.network

    @property
    def circuit(self) -> TokenCircuit:
        """What every head and every group of units does, in words: `print` it."""
        return self._program_circuit.circuit

    def __call__(self, tokens: Sequence[Any]) -> list[Any]:
        """Run the network on one sequence; outputs are tokens, or numbers."""
        return self._decoded(self.network(self.encode(tokens)[None])[0, 0])[: len(tokens)]

    def encode(self, tokens: Sequence[Any]) -> FloatArray:
        """(1, seq_len): a sequence as the network takes it, every token its index in the vocabulary."""
        n = self.network.seq_len
        places = {token: i for i, token in enumerate(self.vocab)}
        try:
            found = [float(places[token]) for token in tokens]
        except (TypeError, KeyError):  # no sequence, or one of something else
            found = []
        if not (1 <= len(found) <= n if self.pad is not None else len(found) == n):
            size = f"1 to {n}" if self.pad is not None else f"{n}"
            shown = list(tokens) if isinstance(tokens, str) else tokens
            shorter = 0 < len(found) < n and self.pad is None
            remedy = "; compile with pad= for shorter ones" if shorter else ""
            raise ProvenformerError(
                f"tokens {shown!s:.100} are not {size} tokens of the vocabulary {list(self.vocab)!s:.100}{remedy}."
            )
        return np.array([found + [float(len(self.vocab) - 1)] * (n - len(found))])

    def _decoded(self, y: FloatArray) -> list[Any]:
        step = self.certificate.details.get("step") if isinstance(self.network, CircuitNetwork) else None
        values = [float(v) if step is None else round(float(v) / step) * step for v in y]
        if not self.numeric:
            return [self.vocab[round(v)] for v in values]
        return [int(v) if step == 1 else v for v in values]

    def attention(self, tokens: Sequence[Any]) -> tuple[FloatArray, ...]:
        """Per block the attention weights (heads, query, key) on a sequence."""
        return tuple(patterns(self._circuit_network, self.encode(tokens)))

    def states(self, tokens: Sequence[Any]) -> tuple[dict[str, FloatArray], ...]:
        """At the start and after every block, each channel (n,) by its name."""
        return tuple(named_states(self._circuit_network, self.encode(tokens)))

    @property
    def hook_names(self) -> dict[str, tuple[str, ...]]:
        """By hook name of TransformerLens: what each channel holds there, and what each head and each unit adds to, in words."""
        return hook_names(self._circuit_network, self.circuit)

    def disguised(
        self, *, seed: int = 0, rotate: bool = True, compress: bool = False, within: float | None = None
    ) -> DisguisedProgram:
        """The circuit with weights as trained models have them, still exact on all sequences in the precisions of its `bounds`.

        `rotate` turns the residual stream by a random rotation; `compress` leaves out directions that nothing writes or reads;
        `within` adds to every weight as much noise as keeps outputs that near, in float64. See docs/lens.md.
        """
        made = disguised_program(self._program_circuit, seed=seed, rotate=rotate, compress=compress, within=within)
        return DisguisedProgram(**vars(made), vocab=self.vocab, pad=self.pad, numeric=self.numeric)

    def to_torch(self) -> nn.Module:
        """The network as a torch module: (..., 1, seq_len), every token its index in the vocabulary, to the same shape."""
        return self.network.to_torch()

    def to_transformer_lens(self, dtype: DTypeLike = np.float64) -> TransformerBridge:
        """A model of TransformerLens; token ids are indices in the vocabulary. Needs the extra `lens`, and a circuit.

        Every sequence has seq_len tokens, any other is refused; `circuit.looks` names the heads that are no padding.

        Logits are scores of all tokens, the answer's the largest, or (batch, n, 1), the numbers, where outputs are numbers.
        """
        tokens = np.arange(len(self.vocab), dtype=np.float64)
        return self._circuit_network.to_transformer_lens(tokens, dtype, answers=None if self.numeric else tokens)


@dataclass(frozen=True, eq=False, repr=False)
class SavedProgram(Saved, OnTokens):
    """What the folder of a program holds, and what `compile_tokens` gives; `circuit` and `hook_names` trace the program."""

    vocab: tuple[Any, ...]
    pad: Any
    numeric: bool
    program: TokenProgram | None  # of the library, or given; else it is out of reach

    @classmethod
    def of(cls, saved: Saved, given: TokenProgram | None = None) -> SavedProgram:
        """`given` where the folder does not name a program of the library."""
        network, spec = saved.network, saved.manifest["target"]
        size, n = spec["vocab_size"], spec["seq_len"]
        vocab = tuple(spec.get("vocab", spec.get("tokens", range(size))))
        if (network.token_dim, network.seq_len) != (1, n) or not len(set(vocab)) == len(vocab) == size:
            raise BadFolder("the manifest names another vocabulary or length than the network has; save it again.")
        program = given or built_in_program(spec)
        if program is not None and (program.vocab_size, program.seq_len) != (size, n):
            raise ProvenformerError(
                f"the network is for {size} tokens and n={n}, and {program!r} is not; give its own."
            )
        pad = vocab[-1] if spec.get("padded", False) else None
        numeric = spec.get("output", "numbers") == "numbers"  # which all networks give, if the folder says nothing
        return cls(network, saved.certificate, saved.manifest, saved.data, vocab, pad, numeric, program)

    @cached_property
    def _program_circuit(self) -> ProgramCircuit:
        if self.program is None:
            raise ProvenformerError(
                "the folder does not hold its program, which says what is where; give it: "
                "pf.load(folder, target=pf.TokenProgram(fn, vocab_size, seq_len))."
            )
        made = ProgramCircuit(self.program, trace(self.program), self._circuit_network, self.certificate)
        off = made.circuit["y"].error
        if off is None or not off.float64 < 0.5 / made.traced.output.den:  # words would be about another network
            why = made.circuit.rejected or f"outputs may be off by {off.float64 if off else np.inf:.3g}"
            raise ProvenformerError(
                f"the network does not compute {self.program!r} ({why}); give the program that it was made from."
            )
        return made
