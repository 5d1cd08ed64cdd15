"""What became of a random function, and whether its network passes its own `verify`."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import provenformer as pf
from provenformer.compiler.circuit import CompiledCircuit

Built = pf.Compiled | CompiledCircuit


@dataclass(frozen=True)
class Outcome:
    """`wrong` is empty, or says what a certificate promised and was not so."""

    refused: str = ""
    wrong: str = ""
    kind: str = ""
    ratio: float = 0.0  # bound over measured


def rejected(c: Built) -> str:
    """Why `verify` rejects a network as it was made: empty, as it must be."""
    with tempfile.TemporaryDirectory() as folder:
        c.save(Path(folder) / "net")
        report = pf.verify(Path(folder) / "net", c.target)
    return "" if report else f"its own verify rejects it: {report.reason}"
