"""Optional libraries: one line that says which one is missing and how to get it, or why the one installed does not load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from traceback import walk_tb

from provenformer.base.errors import MissingExtra, ProvenformerError

OURS = __name__.partition(".")[0]
BETWEEN = {OURS, "importlib", "_frozen_importlib", "_frozen_importlib_external"}  # code between an import and a library


@contextmanager
def extra(name: str, needed_by: str) -> Iterator[None]:
    """Around imports that need the extra `name`, and around nothing else: a library that fails is a `MissingExtra`.

    What goes wrong in provenformer's own modules passes unchanged.
    """
    try:
        yield
    except ProvenformerError:
        raise
    except Exception as error:
        remedy = f"pip install '{OURS}[{name}]'"
        named = getattr(error, "name", None) or OURS
        if isinstance(error, ModuleNotFoundError) and "." not in named and named != OURS:
            raise MissingExtra(f"{needed_by} needs {named}, which is not installed; {remedy}", name=named) from None
        library = _broken(error)
        if library == OURS:
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise MissingExtra(
            f"{needed_by} needs {library}, which is installed but cannot be imported ({reason}); "
            f"repair it or install it again: {remedy} --force-reinstall",
            name=library,
        ) from error


def _broken(error: Exception) -> str:
    """The library that an error at import time comes from: the first one whose code ran, or the one that it names."""
    for frame, _ in islice(walk_tb(error.__traceback__), 2, None):  # after our own frame and that of the with statement
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        if library not in BETWEEN and (isinstance(error, ImportError) or frame.f_code.co_name == "<module>"):
            return library
    named = error.name if isinstance(error, ImportError) else None
    return (named or OURS).partition(".")[0]
