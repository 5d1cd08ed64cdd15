"""Settings files: TOML or JSON to frozen dataclasses; unknown keys and wrong types are refused."""

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_origin, get_type_hints

from provenformer.base.errors import ProvenformerError

Settings = TypeVar("Settings")
Range = tuple[str, Callable[[float], bool]]
FROM_0: Range = ("at least 0", lambda value: value >= 0)
FROM_1: Range = ("at least 1", lambda value: value >= 1)
ABOVE_0: Range = ("above 0 and finite", lambda value: 0 < value < math.inf)
BELOW_1: Range = ("at least 0 and below 1", lambda value: 0 <= value < 1)


def ranged(default: Any, allowed: Range) -> Any:
    """A field whose number, or every number of its pair, must lie in a range."""
    return dataclasses.field(default=default, metadata={"range": allowed})


def choice(default: str, *others: str) -> Any:
    """A field that is one of these words."""
    return dataclasses.field(default=default, metadata={"choices": (default, *others)})


def check_fields(settings: Any) -> None:
    """Refuse values outside what `ranged` and `choice` say of their fields."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        choices = field.metadata.get("choices")
        if choices and value not in choices:
            raise ProvenformerError(f"unknown {field.name} {value!r}; choose one of {', '.join(choices)}")
        limit, inside = field.metadata.get("range", ("", None))
        if inside and not all(map(inside, value if isinstance(value, tuple) else (value,))):
            raise ProvenformerError(f"{field.name}={value} must be {limit}; correct the settings")


def read_settings(kind: type[Settings], path: Path) -> Settings:
    """The settings of a file, `.toml` or `.json`; what it does not name keeps its default."""
    if path.suffix == ".json":
        return build_settings(kind, read_json(path), str(path))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProvenformerError(f"{path} is not a TOML file ({error}); see docs/training.md for one") from None
    return build_settings(kind, content, str(path))


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProvenformerError(f"{path} is not a JSON file ({error}); write it again") from None


def build_settings(kind: type[Settings], content: Any, origin: str) -> Settings:
    """`kind(**content)` after a check of every key and type; a nested dataclass is a table."""
    if not isinstance(content, dict):
        raise ProvenformerError(f"{origin} = {content!r} must be a table of settings; correct it")
    hints = get_type_hints(kind)
    values = {}
    for key, value in content.items():
        if key not in hints:
            raise ProvenformerError(f"{origin}: unknown setting {key!r}; known are {', '.join(hints)}")
        values[key] = _checked(hints[key], value, f"{origin}: {key}")
    required = {f.name for f in dataclasses.fields(kind) if _is_required(f)}  # type: ignore[arg-type]
    if missing := sorted(required - values.keys()):
        raise ProvenformerError(f"{origin}: the setting {missing[0]!r} is missing; add it")
    return kind(**values)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _checked(hint: Any, value: Any, origin: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build_settings(hint, value, origin)  # type: ignore[arg-type]
    if hint is float and type(value) is int:
        return float(value)
    if isinstance(hint, UnionType):  # a number or a pair
        single, pair = hint.__args__
        return _checked(pair if isinstance(value, list | tuple) else single, value, origin)
    plain = get_origin(hint) or hint
    if plain is tuple and isinstance(value, list | tuple):
        if ... not in hint.__args__ and len(value) != len(hint.__args__):
            raise ProvenformerError(f"{origin} = {value!r} must have {len(hint.__args__)} entries; correct it")
        return tuple(_checked(hint.__args__[0], item, origin) for item in value)
    # bool is an int in Python, but `steps = true` is a mistake.
    if plain is not Any and (not isinstance(value, plain) or (plain is int and isinstance(value, bool))):
        raise ProvenformerError(f"{origin} = {value!r} must be of type {plain.__name__}; correct it")
    if plain is dict:
        return {key: _checked(hint.__args__[1], item, f"{origin}.{key}") for key, item in value.items()}
    return value
