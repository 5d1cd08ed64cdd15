"""Settings files and records: TOML or JSON to frozen dataclasses; unknown keys, wrong types and odd numbers are refused."""

import dataclasses
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_origin, get_type_hints

from provenformer.base import files
from provenformer.base.errors import ProvenformerError, one_line

Settings = TypeVar("Settings")
Range = tuple[str, Callable[[float], bool]]
CORRECT = "correct the settings"  # what a person who wrote a settings file is to do
SHOWN = 60  # characters of a value that does not fit
FROM_0: Range = ("at least 0", lambda value: value >= 0)
FROM_1: Range = ("at least 1", lambda value: value >= 1)
ABOVE_0: Range = ("above 0 and finite", lambda value: 0 < value < math.inf)
BELOW_1: Range = ("at least 0 and below 1", lambda value: 0 <= value < 1)
MEASURED: Range = ("from 0 to 1e15", lambda value: 0 <= value <= 1e15)  # metrics, counts, seconds


def ranged(default: Any, allowed: Range) -> Any:
    """A field whose number, or every number of its pair, must lie in a range."""
    return dataclasses.field(default=default, metadata={"range": allowed})


def needed(allowed: Range) -> Any:
    """The same without a default."""
    return dataclasses.field(metadata={"range": allowed})


def between(low: int, high: int) -> Range:
    """These and the numbers between them."""
    return f"from {low:,} to {high:,}", lambda value: low <= value <= high


def choice(default: str, *others: str) -> Any:
    """A field that is one of these words."""
    return dataclasses.field(default=default, metadata={"choices": (default, *others)})


def check_fields(settings: Any) -> None:
    """Refuse values outside what `ranged` and `choice` say of their fields."""
    for field in dataclasses.fields(settings):
        _check_field(field, getattr(settings, field.name), "", CORRECT)


def _check_field(field: "dataclasses.Field[Any]", value: Any, origin: str, remedy: str) -> None:
    choices = field.metadata.get("choices")
    if choices and value not in choices:
        raise ProvenformerError(f"{origin}unknown {field.name} {shown(value)}; choose one of {', '.join(choices)}")
    limit, inside = field.metadata.get("range", ("", None))
    if inside and value is not None and not all(map(inside, value if isinstance(value, tuple) else (value,))):
        raise ProvenformerError(f"{origin}{field.name}={shown(value)} must be {limit}; {remedy}")


def read_settings(kind: type[Settings], path: Path) -> Settings:
    """The settings of a file, `.toml` or `.json`; what it does not name keeps its default."""
    return build_settings(kind, read_table(path), str(path))


def read_table(path: Path) -> dict[str, Any]:
    """What a settings file says, as it stands there."""
    if path.suffix == ".json":
        return read_json(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProvenformerError(f"{path} is not a TOML file ({error}); see docs/training.md for one") from None


def read_json(path: Path, remedy: str = "write it again") -> dict[str, Any]:
    """The JSON object in a file."""
    return files.read_json(path, remedy)


def read_record(kind: type[Settings], path: Path, remedy: str) -> Settings:
    """What a file that a program wrote says, after a check of every entry; errors name file and entry."""
    return build_settings(kind, read_json(path, remedy), str(path), remedy)


def build_settings(kind: type[Settings], content: Any, origin: str, remedy: str = CORRECT) -> Settings:
    """`kind(**content)` after a check of every key and type; a nested dataclass is a table."""
    if not isinstance(content, dict):
        raise ProvenformerError(f"{origin} = {shown(content)} must be a table of settings; {remedy}")
    hints = get_type_hints(kind)
    values = {}
    for key, value in content.items():
        if key not in hints:
            raise ProvenformerError(f"{origin}: unknown setting {shown(key)}; known are {', '.join(hints)}")
        values[key] = _checked(hints[key], value, f"{origin}: {key}", remedy)
    known = dataclasses.fields(kind)  # type: ignore[arg-type]
    for field in (field for field in known if field.name in values):
        _check_field(field, values[field.name], f"{origin}: ", remedy)
    required = {field.name for field in known if _is_required(field)}
    if missing := sorted(required - values.keys()):
        raise ProvenformerError(f"{origin}: the setting {missing[0]!r} is missing; add it")
    try:
        return kind(**values)
    except ProvenformerError as error:  # what its fields must be together
        raise ProvenformerError(f"{origin}: {error}") from None


def shown(value: object) -> str:
    """A value for a message: on one line, cut if it is long."""
    text = one_line(repr(value))
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _checked(hint: Any, value: Any, origin: str, remedy: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return build_settings(hint, value, origin, remedy)  # type: ignore[arg-type]
    if isinstance(hint, UnionType):  # a number or a pair; a value or none
        single, other = hint.__args__
        if other is NoneType:
            return None if value is None else _checked(single, value, origin, remedy)
        return _checked(other if isinstance(value, list | tuple) else single, value, origin, remedy)
    if hint is float and type(value) is int and abs(value) < 2**1023:
        return float(value)
    plain = get_origin(hint) or hint
    if plain is tuple and isinstance(value, list | tuple):
        if ... not in hint.__args__ and len(value) != len(hint.__args__):
            raise ProvenformerError(f"{origin} = {shown(value)} must have {len(hint.__args__)} entries; {remedy}")
        return tuple(_checked(hint.__args__[0], item, f"{origin}[{i}]", remedy) for i, item in enumerate(value))
    # bool is an int in Python, but `steps = true` is a mistake.
    if plain is not Any and (not isinstance(value, plain) or (plain is int and isinstance(value, bool))):
        raise ProvenformerError(f"{origin} = {shown(value)} must be of type {plain.__name__}; {remedy}")
    if plain is dict:
        return {key: _entry(hint.__args__[1], item, f"{origin}.{key}", remedy) for key, item in value.items()}
    return value


def _entry(hint: Any, value: Any, origin: str, remedy: str) -> Any:
    """Of a table without ranges of its own: its numbers are measured ones."""
    checked = _checked(hint, value, one_line(origin)[:200], remedy)
    if hint is float and not MEASURED[1](checked):
        raise ProvenformerError(f"{one_line(origin)[:200]} = {shown(checked)} must be {MEASURED[0]}; {remedy}")
    return checked
