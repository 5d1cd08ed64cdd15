"""The pages about the paper and the targets: code blocks run, and every function and test they name exists."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from named_tests import functions_of, named_tests

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["paper.md", "targets.md"]
STATEMENTS = [
    "Definition 5.1", "Claim 1", "Theorem 2", "Theorem 3", "Proposition 4", *(f"Lemma {i}" for i in range(5, 11)),
    "Appendix C.1", "Appendix C.2", "Appendix C.3", "Section 5.2", "Section 5.4",
]  # fmt: skip


@pytest.mark.parametrize("page", [*PAGES, "width.md", "circuits.md"])
def test_code_blocks_run(
    page: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All Python blocks of a page, in order, in one namespace; what is printed is what the comment below says."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert blocks
    code = "\n".join(blocks)
    exec(compile(code, page, "exec"), {})
    for line in capsys.readouterr().out.splitlines():
        assert f"# {line}\n" in code


@pytest.mark.parametrize("page", [*PAGES, "circuits.md"])
def test_every_test_named_exists(page: str) -> None:
    """`file.py::function` and bare file names."""
    named = named_tests((DOCS / page).read_text())
    assert named
    for file, function in named:
        assert not function or function in functions_of(file), f"{file}::{function}"


@pytest.mark.parametrize("page", PAGES)
def test_every_function_in_the_tables_exists(page: str) -> None:
    """`room.module.name` in a table row is an attribute of provenformer.room.module."""
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| ")]
    for module, name in re.findall(r"`([a-z.]+)\.(\w+)`", "\n".join(rows)):
        assert getattr(importlib.import_module(f"provenformer.{module}"), name)


def test_every_statement_of_the_paper_has_a_row() -> None:
    """The table is complete: statement, at least one function, at least one test."""
    rows = [line.split("|")[1:4] for line in (DOCS / "paper.md").read_text().splitlines() if line.startswith("| ")]
    for statement in STATEMENTS:
        found = [row for row in rows if row[0].strip().startswith((statement + ",", statement + " "))]
        assert len(found) == 1, statement
        assert "`" in found[0][1]
        assert "test_" in found[0][2]
    text = (DOCS / "paper.md").read_text()
    assert all(f"**{i}. " in text for i in range(1, 7))


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two blocks: a formula, whose circuit is the picture, and a program with what it prints."""
    monkeypatch.chdir(tmp_path)
    readme = (DOCS.parent / "README.md").read_text()
    assert len(readme.splitlines()) < 120
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile("\n".join(blocks[:2]), "README.md", "exec"), found)
    assert (tmp_path / "net" / "manifest.json").is_file()
    assert found["c"].circuit.to_svg() == (DOCS / "_static" / "layer-norm.svg").read_text().rstrip("\n")
    assert f"# {''.join(found['s']('hgfaabcbed'))} {found['s'].circuit.looks[5, 0]}\n" in readme
