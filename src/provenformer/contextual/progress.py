"""A progress bar on standard error, for work that takes more than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]


@contextmanager
def bar(what: str, total: int, shown: bool) -> Iterator[Advance]:
    """A function to call with how much was done; nothing is drawn unless `shown`, nor where no terminal is."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    console = Console(stderr=True)
    with Progress(
        *columns, TextColumn("left"), TimeRemainingColumn(), console=console, disable=not shown, transient=True
    ) as progress:
        task = progress.add_task(what, total=max(total, 1))
        yield lambda done: progress.advance(task, done)
