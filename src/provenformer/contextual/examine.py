"""Everything that the command shows of a model: the measure, senses, and the two sentences of Section 5.2."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from provenformer.base.errors import ProvenformerError, one_line
from provenformer.base.version import __version__
from provenformer.contextual.measure import USUAL, Measurement, Mode, measure
from provenformer.contextual.models import load
from provenformer.contextual.reach import TwoSentences, two_sentences
from provenformer.contextual.samples import sentences
from provenformer.contextual.senses import Occurrence, Senses, sample, senses
from provenformer.contextual.states import MEMORY

EXAMPLE = ("I am happy", "I am Bob")  # Section 5.2
FEWEST_WORDS = 3


@dataclass(frozen=True)
class Examined:
    """What was found of a model and of its twin with random weights."""

    model: str
    text: str
    measurement: Measurement
    senses: Senses
    random_senses: Senses
    example: TwoSentences
    random_example: TwoSentences

    def to_json(self) -> dict[str, Any]:
        """All numbers but the directions and states themselves."""
        found = self.measurement.to_json()
        for part in (found["model"], found["random"]):
            for line in part["line"]:
                del line["direction"]
        return {
            "provenformer": __version__,
            "model": self.model,
            "text": self.text,
            "measurement": found,
            "senses": [asdict(layer) for layer in self.senses.layers],
            "random_senses": [asdict(layer) for layer in self.random_senses.layers],
            "example": asdict(self.example),
            "random_example": asdict(self.random_example),
        }


def examine(
    model: str | Path,
    texts: Sequence[str] | None = None,
    *,
    text_name: str = "the library's own sentences",
    modes: Sequence[Mode] = USUAL,
    occurrences: Sequence[Occurrence] | None = None,
    longest: int | None = 64,
    special_tokens: bool = False,
    memory: int = MEMORY,
    seed: int = 0,
    progress: bool = False,
) -> Examined:
    """Measure a saved model on texts, or on the library's own sentences."""
    read = load(model)
    found = measure(
        read, sentences() if texts is None else texts, modes=modes, longest=longest, special_tokens=special_tokens,
        memory=memory, seed=seed, progress=progress,
    )  # fmt: skip
    if read.random is None or found.random is None:
        raise ProvenformerError(f"{model} has no weights to draw at random; give a model of transformers.")
    twin, given = read.random(seed), list(occurrences) if occurrences is not None else sample()
    radii, random_radii = (
        [one.radius for one in next(iter(part.modes.values()))] for part in (found.model, found.random)
    )
    return Examined(
        str(model), text_name, found, senses(read, given, seed=seed), senses(twin, given, seed=seed),
        two_sentences(read, *EXAMPLE, radii), two_sentences(twin, *EXAMPLE, random_radii),
    )  # fmt: skip


def read_lines(path: Path, most: int) -> tuple[list[str], int]:
    """Lines of a text file (or .gz) with at least three words, at most so many, evenly spaced; and how many were too short."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = [line.strip() for line in content.decode().splitlines() if line.strip()]
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise ProvenformerError(
            f"cannot read {path} ({one_line(error)[:120]}); give a text file, one sentence a line."
        ) from None
    long = [line for line in lines if len(line.split()) >= FEWEST_WORDS]
    if len(long) < 2:
        raise ProvenformerError(
            f"{path} has {len(long)} lines of at least {FEWEST_WORDS} words; give at least 2 sentences."
        )
    chosen = np.unique(np.linspace(0, len(long) - 1, min(most, len(long))).round().astype(int))
    return [long[i] for i in chosen], len(lines) - len(long)
