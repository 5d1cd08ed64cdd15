"""Where a result comes from: the commit of the code and the versions of what it runs on."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


def provenance() -> dict[str, str]:
    """Commit and versions, for the JSON beside a run."""
    packages = ("provenformer", "torch", "transformers", "tokenizers", "numpy")
    return {"commit": _commit(), "python": platform.python_version()} | {name: version(name) for name in packages}


def _commit() -> str:
    """The commit that this file is of, marked if the tree has changes; an installed copy has none."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        return head + ("-changed" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "not a git checkout"


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
