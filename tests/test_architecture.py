"""The rooms of ARCHITECTURE.md are a fact: pyproject.toml's import contracts hold, and break when an import breaks them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def broken_contracts(tree: Path) -> str:
    """What `lint-imports` has to say of a tree with src/ and pyproject.toml; nothing when all contracts hold."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or "Contracts:" not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout if done.returncode else ""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src" / "provenformer", tmp_path / "src" / "provenformer")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_import_is_one_that_the_rooms_allow() -> None:
    assert broken_contracts(ROOT) == ""


@pytest.mark.parametrize(
    ("module", "imports", "contract"),
    [
        ("checker/walk.py", "from provenformer.constructions.sum import codes", "Each room"),
        ("checker/verify.py", "import provenformer.constructions.relax", "Each room"),
        ("constructions/relax.py", "import provenformer.checker.verify", "Each room"),
        ("networks/thin.py", "from provenformer.bounds import intervals", "Each room"),
        ("base/files.py", "from provenformer.functions import grid", "Each room"),
        ("report/__init__.py", "import provenformer.explore", "Each room"),
        ("bert/__init__.py", "from provenformer.functions import targets", "bert stands on base alone"),
        ("bert/training/loop.py", "from provenformer.contextual import measure", "bert stands on base alone"),
        ("report/page.py", "import provenformer.contextual.measure", "Each room"),
        ("bert/data/order.py", "from provenformer.bert.training import loop", "Inside bert"),
        ("networks/stages.py", "import provenformer.networks.wide", "No cycles"),
        # An import within a function counts as any other.
        ("checker/growth.py", "def late():\n    import provenformer.constructions.plan", "Each room"),
    ],
)
def test_a_forbidden_import_is_named(copy: Path, module: str, imports: str, contract: str) -> None:
    file = copy / "src" / "provenformer" / module
    file.write_text(f"{file.read_text()}\n{imports}\n")
    verdict = broken_contracts(copy)
    assert re.search(f"^{contract}.* BROKEN", verdict, re.MULTILINE)
    assert file.with_suffix("").name.replace("__init__", file.parent.name) in verdict


def test_a_new_room_needs_its_place(copy: Path) -> None:
    (copy / "src" / "provenformer" / "attic.py").write_text("")
    assert "provenformer.attic" in broken_contracts(copy)
