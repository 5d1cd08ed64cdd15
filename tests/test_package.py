"""The package as a user meets it: importable, and the core free of torch."""

import subprocess
import sys
from pathlib import Path

from cases import thin

import provenformer as pf
from provenformer.base import version


def test_core_imports_without_torch() -> None:
    code = "import sys, provenformer; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_the_installed_one() -> None:
    assert pf.__version__ == version.__version__


def test_the_package_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "provenformer", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"provenformer {pf.__version__}\n"


def test_everything_public_is_shown_in_one_line(tmp_path: Path) -> None:
    f = pf.targets.get("softmax-mean", token_dim=1, seq_len=3)
    c = pf.compile(f, cells_per_axis=6)
    c.save(tmp_path / "net")
    wide = pf.compile(f, cells_per_axis=3, construction="wide").network
    x = f.sample(2)
    memorized = pf.memorize(x, f(x))
    tokens = pf.compile_tokens(lambda s: s[::-1], vocab="ab", seq_len=3)
    saved, report = pf.load(tmp_path / "net"), pf.verify(tmp_path / "net")
    parts = [
        c.plan,
        c.piecewise,
        c.modified,
        c.network,
        c.certificate,
        c.grid,
        wide,
        *thin(c.network).runs,
        *c.modified.runs,
    ]
    for shown in [f, c, *parts, saved, report, memorized, tokens, pf.distance(f, c.network, samples=64)]:
        assert len(repr(shown)) < 600
        assert "\n" not in repr(shown)
        assert shown == shown
