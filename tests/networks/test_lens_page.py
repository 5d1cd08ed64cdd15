"""docs/lens.md where the extra `lens` is installed: what it predicts of interventions is what happens, also in disguise."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import DOCS, blocks

import provenformer as pf

torch = pytest.importorskip("torch")
SECTIONS = ("## Token programs", "## Predict, then ablate and patch", "### Programs on tokens")


def test_the_worked_examples_are_true(tmp_path: Path) -> None:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    page = (DOCS / "lens.md").read_text()
    parts = []
    for title in SECTIONS:
        start = page.index(f"\n{title}\n")
        end = page.find("\n##", start + 1)
        parts.append(page[start : None if end < 0 else end])
    (tmp_path / "page.md").write_text("\n".join(parts))
    code = [b.code for b in blocks(tmp_path / "page.md") if b.language == "python" and "savefig" not in b.code]
    names: dict[str, Any] = {"pf": pf, "np": np, "torch": torch}
    with contextlib.chdir(tmp_path):
        exec(compile("\n".join(code), "lens.md", "exec"), names)
    assert names["foretold"] != names["patched"] != names["ablated"]
