"""What was found, kept as JSON in tests/fuzz/found, and tried again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.circuits import CircuitCase, try_circuit
from fuzz.forgeries import genuine, try_forgery
from fuzz.functions import Case, try_case
from fuzz.outcome import Built, Outcome
from fuzz.programs import ProgramCase, try_program

FOUND = Path(__file__).parents[2] / "fuzz" / "found"
AnyCase = Case | CircuitCase | ProgramCase
CASES: dict[str, type[AnyCase]] = {"table": Case, "circuit": CircuitCase, "program": ProgramCase}


def random_case(rng: np.random.Generator, kind: str) -> AnyCase:
    return CASES[kind].random(rng)


def tried(case: AnyCase) -> tuple[Outcome, Built | None]:
    """What became of a random function, and its network if there is one."""
    if isinstance(case, ProgramCase):
        return try_program(case)
    return try_circuit(case) if isinstance(case, CircuitCase) else try_case(case)


def keep(kind: str, finding: dict[str, Any]) -> None:
    """Write a finding to a file of its own, named by what it holds: processes side by side share a folder. `again` reads it."""
    text = json.dumps(finding, indent=1) + "\n"
    FOUND.mkdir(exist_ok=True)
    place = FOUND / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    place.write_text(text)
    print(f"FOUND {place}: {finding['found']}", flush=True)


def again(finding: dict[str, Any]) -> str:
    """What is wrong now with a finding: empty if nothing is."""
    kept = finding.get("case")
    built = genuine(finding["ours"]) if "ours" in finding else None
    if kept is not None:
        kind = "program" if "program" in kept else "table" if "construction" in kept else "circuit"
        outcome, built = tried(CASES[kind](**kept))
        if outcome.wrong or built is None or "seed" not in finding:
            return outcome.wrong
    return try_forgery(tuple(finding["seed"]), built).wrong
