"""A job's input on the command line: --input, --set, --schema, and standard input."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn


def parse_input(text: str) -> dict[str, Any]:
    """The value of --input: a JSON object, or @ and the name of a file with one. Raises ArgumentTypeError."""
    try:
        found = _parse_json(Path(text[1:]).read_text(encoding="utf-8-sig") if text.startswith("@") else text)
    except OSError as error:
        raise ArgumentTypeError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentTypeError(f"the value is not JSON: {error}. Pass a JSON object or @FILE") from None
    if not isinstance(found, dict):
        raise ArgumentTypeError("the value is not a JSON object. Pass a JSON object or @FILE")
    return found


def parse_schema(text: str) -> dict[str, Any]:
    """The value of --schema: a JSON object, or the name of a file with one. Raises ArgumentTypeError."""
    return parse_input(text if text.lstrip().startswith("{") else f"@{text}")


def parse_field(text: str) -> dict[str, Any]:
    """The value of --set: `a.b=1` is {"a": {"b": 1}}. What is not JSON is text. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    parts = name.split(".")
    if not equals or not all(parts):
        raise ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    found = _json_or_text(value)
    for part in reversed(parts):
        found = {part: found}
    fields: dict[str, Any] = found
    return fields


def read_stdin() -> bytes:
    """All of standard input; nothing if it is closed."""
    return sys.stdin.buffer.read() if sys.stdin else b""


def merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All fields of these objects, recursively. Raises ValueError with the name of a field that two have."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged = _merge_two(merged, part, "")
    return merged


def _merge_two(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = dict(one)
    for name, value in other.items():
        if name not in merged:
            merged[name] = value
        elif isinstance(merged[name], Mapping) and isinstance(value, Mapping):
            merged[name] = _merge_two(merged[name], value, f"{path}{name}.")
        else:
            raise ValueError(f"{path}{name} is given twice.")
    return merged


def _json_or_text(text: str) -> Any:
    try:
        return _parse_json(text)
    except ValueError:
        return text


def _parse_json(text: str) -> Any:
    """Raises ValueError, also for numbers that are valid in Python and not in JSON, and for deep nesting."""
    try:
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite_number)
    except RecursionError:
        raise ValueError("the nesting is too deep") from None


def _finite_number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")
