"""Malformed documents made from a sound one: every entry, at every depth, missing or of another kind."""

import copy
from collections.abc import Iterator
from typing import Any

MISSING = object()
DEEP: Any = []
for _ in range(50):
    DEEP = [DEEP]
# What an entry may be turned into. 1e400 is read as infinity; a string of control characters must not reach a terminal.
ODD: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "negative": -1,
    "huge": 10**30,
    "fraction": 0.5,
    "infinite": float("inf"),
    "nan": float("nan"),
    "text": "\x1b[31mred\nlines",
    "flag": True,
    "list": [1, {"a": []}],
    "nested": DEEP,
    "object": {"": {}},
}


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every entry of a JSON document is, inner ones too."""
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def malformed(document: Any) -> Iterator[tuple[str, Any]]:
    """A name and a document in which one entry is not what it was."""
    for path in places(document):
        for kind, value in ODD.items():
            changed = copy.deepcopy(document)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            before = holder[path[-1]]
            if kind == "missing":
                del holder[path[-1]]
            elif before == value and type(before) is type(value):
                continue
            else:
                holder[path[-1]] = copy.deepcopy(value)
            yield f"{'.'.join(map(str, path))}: {kind}", changed
        if isinstance(path[-1], str):
            changed = copy.deepcopy(document)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[f"{path[-1]}?"] = 1
            yield f"{'.'.join(map(str, path))}: another beside it", changed
