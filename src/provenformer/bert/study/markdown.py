"""Tables as Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """With a newline at its end."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def bold_if(important: bool, text: str) -> str:
    """The text, marked or as it is."""
    return f"**{text}**" if important else text
