"""The pages about certificates, the sum construction and numerics: code runs, prints what the page says, names exist."""

import re
from pathlib import Path

import pytest
from named_tests import functions_of, named_tests

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["certificates.md", "sum.md", "numerics.md"]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_print_what_the_page_says(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables are what the code above them prints, comments below a print are its output."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines
    stated = {line.removeprefix("# ") for line in text.splitlines()}
    assert [line for line in lines if line not in stated] == []


@pytest.mark.parametrize("page", PAGES)
def test_tests_and_pages_that_are_named_exist(page: str) -> None:
    text = (DOCS / page).read_text()
    for file, function in named_tests(text):
        assert not function or function in functions_of(file), f"{file}::{function}"
    for link in re.findall(r"\]\((\w+\.md)\)", text):
        assert (DOCS / link).is_file(), link
