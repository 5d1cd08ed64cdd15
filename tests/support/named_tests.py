"""Tests that a page names: `test_x.py` or `tests/room/test_x.py`, optionally `::function`."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def named_tests(text: str) -> list[tuple[str, str]]:
    """File and function ("" for the whole file) of every test that a text names."""
    return re.findall(r"`((?:tests/(?:\w+/)+)?test_\w+\.py)(?:::(\w+))?`", text)


def functions_of(file: str) -> set[str]:
    """The functions of a test file; there is one file of each name."""
    (path,) = TESTS.parent.glob(file) if "/" in file else TESTS.rglob(file)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
