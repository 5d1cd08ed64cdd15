"""What became of a random function, and whether its network passes its own `verify`."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import provenformer as pf
from provenformer.compiler.circuit import CompiledCircuit
from provenformer.compiler.programs import ProgramCircuit

Built = pf.Compiled | CompiledCircuit | pf.CompiledTokens


@dataclass(frozen=True)
class Outcome:
    """`wrong` is empty, or says what a certificate promised and was not so."""

    refused: str = ""
    wrong: str = ""
    kind: str = ""
    ratio: float = 0.0  # bound over measured


def program_circuit(c: pf.CompiledTokens) -> ProgramCircuit:
    """The circuit of a program, which it must be."""
    if not isinstance(c.made, ProgramCircuit):
        raise TypeError("a table was asked for nowhere")
    return c.made


def target_of(c: Built) -> pf.Target | pf.TokenProgram:
    """What its certificate is about."""
    return program_circuit(c).program if isinstance(c, pf.CompiledTokens) else c.target


def rejected(c: Built) -> str:
    """Why `verify` rejects a network as it was made: empty, as it must be."""
    with tempfile.TemporaryDirectory() as folder:
        c.save(Path(folder) / "net")
        report = pf.verify(Path(folder) / "net", target_of(c))
    return "" if report else f"its own verify rejects it: {report.reason}"
