"""A job's input, as it is said on a command line: whole, and field by field."""

from __future__ import annotations

import json
import math
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn


def whole(text: str) -> dict[str, Any]:
    """A JSON object, or that in the file which @FILE names. Raises ArgumentTypeError."""
    try:
        found = _strict(Path(text[1:]).read_text(encoding="utf-8-sig") if text.startswith("@") else text)
    except OSError as error:
        raise ArgumentTypeError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentTypeError(f"not JSON: {error}. Give a JSON object, or @FILE that has one") from None
    if not isinstance(found, dict):
        raise ArgumentTypeError("give a JSON object: fields in {}, or @FILE that has them")
    return found


def field(text: str) -> dict[str, Any]:
    """`a.b=1` is {"a": {"b": 1}}. The value is JSON if it can be read as JSON, else text.

    Raises ArgumentTypeError.
    """
    name, equals, value = text.partition("=")
    parts = name.split(".")
    if not equals or not all(parts):
        raise ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    found = _value(value)
    for part in reversed(parts):
        found = {part: found}
    fields: dict[str, Any] = found
    return fields


def joined(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All fields of these objects, and of the objects in them.

    Raises ValueError, which names the field, where two of them have the same.
    """
    together: dict[str, Any] = {}
    for part in parts:
        together = _added(together, part, "")
    return together


def _added(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> dict[str, Any]:
    together = dict(one)
    for name, value in other.items():
        if name not in together:
            together[name] = value
        elif isinstance(together[name], Mapping) and isinstance(value, Mapping):
            together[name] = _added(together[name], value, f"{path}{name}.")
        else:
            raise ValueError(f"{path}{name} is given twice")
    return together


def _value(text: str) -> Any:
    try:
        return _strict(text)
    except ValueError:
        return text


def _strict(text: str) -> Any:
    """What the text says in JSON. Raises ValueError, also for numbers that JSON has not."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is too deep") from None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")
