"""Pages are made once and shared by all tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from look_cases import made
from report_cases import Page, Reported

from provenformer.look.subject import Subject
from provenformer.report import report


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reported]:
    """A network by kind, and the page about its saved folder."""

    @cache
    def of(kind: str) -> Reported:
        folder: Path = tmp_path_factory.mktemp("report")
        made(kind).save(folder / "net")
        report(folder / "net", folder / "page.html")
        return Reported(made(kind), Subject.load(folder / "net"), Page((folder / "page.html").read_text()))

    return of
