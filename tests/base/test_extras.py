"""Optional libraries: a missing one, one that is broken in any of the usual ways, and errors that are our own."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provenformer.base.errors import MissingExtra, ProvenformerError
from provenformer.base.extras import extra


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The __init__.py of a package `flaky_library` that is installed."""
    package = tmp_path / "flaky_library"
    package.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield package / "__init__.py"
    for name in [name for name in sys.modules if name.startswith("flaky_library")]:
        del sys.modules[name]


def use(name: str = "flaky_library") -> None:
    with extra("torch", "to_torch()"):
        importlib.import_module(name)


def test_a_library_that_is_not_installed() -> None:
    with pytest.raises(MissingExtra) as missing:
        use("no_such_library.part")
    line = "to_torch() needs no_such_library, which is not installed; pip install 'provenformer[torch]'"
    assert str(missing.value) == line
    assert missing.value.name == "no_such_library"
    assert isinstance(missing.value, ImportError)
    assert isinstance(missing.value, ProvenformerError)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('numpy is too new')", "numpy is too new"),
        ("import flaky_library.gone", "flaky_library.gone"),
        ("from flaky_library import gone", "cannot import name"),
        ("import ctypes; ctypes.CDLL('libgone.so.12')", "libgone.so.12"),
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12"),
        ("raise RuntimeError('driver too old;\\nsee the manual')", "driver too old; see the manual"),
        ("import numpy; numpy.gone", "gone"),
    ],
)
def test_a_library_that_is_installed_but_broken(source: str, reason: str, library: Path) -> None:
    """It is not called missing, and the line says why it does not load."""
    library.write_text(source)
    with pytest.raises(MissingExtra) as broken:
        use()
    line = str(broken.value)
    assert line.startswith("to_torch() needs flaky_library, which is installed but cannot be imported (")
    assert reason in line
    assert "\n" not in line
    assert "not installed" not in line


def test_a_library_whose_own_requirement_is_missing(library: Path) -> None:
    library.write_text("import no_such_requirement")
    with pytest.raises(MissingExtra, match="needs no_such_requirement, which is not installed"):
        use()


@pytest.mark.parametrize("error", [ImportError("ours"), OSError("ours"), KeyError("ours"), ProvenformerError("ours")])
def test_what_is_our_own_fault_is_not_blamed_on_a_library(error: Exception) -> None:
    with pytest.raises(type(error), match="ours") as raised, extra("torch", "to_torch()"):
        raise error
    assert raised.value is error


def test_a_module_of_ours_that_is_gone() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        use("provenformer.gone")
    assert not isinstance(raised.value, MissingExtra)


def test_what_is_there_is_imported() -> None:
    use("json")
