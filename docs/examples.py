"""The code of the pages, as it is run: by the tests, and when the site is built for the pictures of the guided tour.

A block is run unless the line above it is a comment `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+?) -->\n+)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)
CODE = ("python", "sh")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    reason: str | None  # why it is not run


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    found = FENCE.finditer(page.read_text())
    return [Block(m["language"], m["code"], m["reason"]) for m in found if m["language"] in CODE]


def run_python(page: Path, folder: Path, names: dict[str, Any] | None = None) -> None:
    """All Python blocks of a page, in order, in one namespace and in `folder`."""
    code = "\n".join(b.code for b in blocks(page) if b.language == "python" and b.reason is None)
    with contextlib.chdir(folder):
        exec(compile(code, page.name, "exec"), {} if names is None else names)
