"""What became of a random function."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """`wrong` is empty, or says what a certificate promised and was not so."""

    refused: str = ""
    wrong: str = ""
    kind: str = ""
    ratio: float = 0.0  # bound over measured
