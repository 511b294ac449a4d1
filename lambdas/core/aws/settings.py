"""Typed environment: a function names what it needs, and fails at start naming the key that is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def _json(text: str, kind: type, item: type | None = None) -> Any:
    """JSON of exactly this type: Python would take a string for a list of letters, and true for 1."""
    value = json.loads(text)
    parts = value if item and isinstance(value, list) else []
    if type(value) is not kind or any(type(part) is not item for part in parts):
        raise ValueError(f"not a {kind.__name__}")
    return value


def _mapping(text: str) -> dict[str, str]:
    value: dict[str, str] = _json(text, dict)
    return {key: _json(json.dumps(part), str) for key, part in value.items()}


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: _json(text, bool),
    "dict[str, str]": lambda text: _mapping(text),
    "tuple[str, ...]": lambda text: tuple(_json(text, list, str)),
    "tuple[int, ...]": lambda text: tuple(_json(text, list, int)),
}


class SettingsError(RuntimeError):
    """The function's environment lacks a key, or a value has the wrong form."""


def load(cls: type[T], environ: Mapping[str, str] | None = None) -> T:
    """Fill dataclass `cls` from the environment: field `jobs_table` is read from `JOBS_TABLE`."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        key = field.name.upper()
        if key not in environ:
            raise SettingsError(f"the environment variable {key} is missing")
        try:
            values[field.name] = _READERS[str(field.type)](environ[key])
        except ValueError as error:
            raise SettingsError(f"the environment variable {key} is not a valid {field.type}") from error
    return cls(**values)
