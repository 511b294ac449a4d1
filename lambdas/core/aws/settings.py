"""Typed environment variables. Each is read at its first use, and errors name the variable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class SettingsError(RuntimeError):
    """An environment variable is missing or has an invalid value."""


class Environment:
    """The settings of a function. A subclass declares them: `jobs_table = text()` reads JOBS_TABLE."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self.variables = os.environ if variables is None else variables


class Setting(Generic[T]):
    """One variable, parsed once. Raises SettingsError if it is missing or `parse` raises ValueError."""

    def __init__(self, form: str, parse: Callable[[str], T]) -> None:
        self._form, self._parse = form, parse

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self.variable = name, name.upper()

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Environment, owner: type) -> T: ...
    def __get__(self, instance: Environment | None, owner: type) -> Self | T:
        if instance is None:
            return self
        text = instance.variables.get(self.variable)
        if text is None:
            raise SettingsError(f"the environment variable {self.variable} is missing")
        try:
            value = self._parse(text)
        except ValueError as error:
            raise SettingsError(f"the environment variable {self.variable} is not {self._form}") from error
        vars(instance)[self._name] = value  # the next access finds it here
        return value


def text() -> Setting[str]:
    return Setting("a text", str)


def number() -> Setting[int]:
    return Setting("a whole number", int)


def flag() -> Setting[bool]:
    return Setting("true or false", lambda text: _json(text, bool))


def texts() -> Setting[tuple[str, ...]]:
    return Setting("a JSON list of texts", lambda text: tuple(_json(text, list, str)))


def numbers() -> Setting[tuple[int, ...]]:
    return Setting("a JSON list of whole numbers", lambda text: tuple(_json(text, list, int)))


def mapping() -> Setting[dict[str, str]]:
    """A JSON object with string values."""
    return Setting("a JSON object of texts", lambda text: _json(text, dict, str))


def _json(text: str, kind: type, item: type | None = None) -> Any:
    """JSON of exactly this type. `isinstance` would accept true as an int."""
    value = json.loads(text)
    if type(value) is not kind:
        raise ValueError(f"not a {kind.__name__}")
    if item is not None:
        _check_all(value.values() if isinstance(value, dict) else value, item)
    return value


def _check_all(parts: Any, item: type) -> None:
    if any(type(part) is not item for part in parts):
        raise ValueError(f"not all are {item.__name__}")
