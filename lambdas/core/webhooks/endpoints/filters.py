"""Payload filters: the events that an endpoint subscribes to, by their payloads.

A filter is written as for SNS on message bodies, or as an EventBridge pattern:

    {
        "document_id": ["a", {"prefix": "x"}],
        "chunks": [{"numeric": [">=", 10, "<", 100]}],
        "error": {"code": [{"exists": true}]}
    }

Each field must match (AND) at least one condition of its list (OR). Objects nest as in the payload. If the payload
has a list, one matching element is enough, so all conditions of a nested object must match the same element.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_LEVELS = 5
MAX_CONDITIONS = 50
MAX_CHARACTERS = 256


def check_filter(tree: object) -> dict[str, Any]:
    """The filter itself. ValueError if it is not valid, with the path of the error in it, and what to do.

    Limits: 5 levels of objects, 50 conditions, 256 characters per string and name.
    """
    checked = _object(tree)
    count = _check_object(checked, "filter", level=1)
    if count > MAX_CONDITIONS:
        raise ValueError(f"filter: {count} conditions are too many; the limit is {MAX_CONDITIONS}")
    return checked


def passes(filter: Mapping[str, Any], payload: object) -> bool:
    """Whether the payload, any JSON value, matches a valid filter.

    A nested object that the payload lacks counts as an empty one, so that `exists: false` matches in it.
    """
    objects = [element for element in _elements(payload) if isinstance(element, dict)]
    return any(_object_passes(filter, found) for found in objects or [{}])


def _object(tree: object, path: str = "filter") -> dict[str, Any]:
    if not isinstance(tree, dict) or not tree:
        raise ValueError(f'{path}: give an object with at least one field, such as {{"document_id": ["a"]}}')
    return tree


def _check_object(tree: dict[str, Any], path: str, *, level: int) -> int:
    """The number of conditions in it."""
    if level > MAX_LEVELS:
        raise ValueError(f"{path}: this is level {level}; use at most {MAX_LEVELS} levels")
    return sum(_check_field(name, wanted, path, level=level) for name, wanted in tree.items())


def _check_field(name: str, wanted: object, path: str, *, level: int) -> int:
    _check_text(name, f"{path}, the field {name[:20]!a}…" if len(name) > MAX_CHARACTERS else path)
    if name == "$or":
        raise ValueError(f"{path}.$or: there is no $or; list the values of one field, or make another endpoint")
    path = f"{path}.{name}"
    if isinstance(wanted, dict):
        return _check_object(_object(wanted, path), path, level=level + 1)
    if not isinstance(wanted, list) or not wanted:
        raise ValueError(f'{path}: give a list with at least one value or condition, such as ["a"] or [true]')
    for index, condition in enumerate(wanted):
        _check_condition(condition, f"{path}[{index}]")
    return len(wanted)


def _check_condition(condition: object, path: str) -> None:
    match condition:
        case None | bool():
            pass
        case str():
            _check_text(condition, path)
        case int() | float():
            _check_number(condition, path)
        case dict() if len(condition) == 1 and condition.keys() <= _CHECKS.keys():
            [(name, operand)] = condition.items()
            _CHECKS[name](operand, f"{path}.{name}")
        case _:
            raise ValueError(
                f"{path}: give a string, number, true, false or null, or an object with just one of "
                f"{', '.join(_CHECKS)}"
            )


def _check_text(text: object, path: str) -> None:
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise ValueError(f"{path}: give a string of at most {MAX_CHARACTERS} characters")


def _check_number(number: object, path: str) -> None:
    # math.isfinite raises for an integer that no float can hold; a comparison does not.
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= sys.float_info.max:
        raise ValueError(f"{path}: give a finite number")


def _check_exists(operand: object, path: str) -> None:
    if not isinstance(operand, bool):
        raise ValueError(f"{path}: give true or false")


def _check_numeric(operand: object, path: str) -> None:
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        raise ValueError(f'{path}: give one comparison or two, such as [">=", 10] or [">=", 10, "<", 100]')
    for index in range(0, len(operand), 2):
        if not isinstance(operand[index], str) or operand[index] not in _COMPARISONS:
            raise ValueError(f"{path}[{index}]: give one of {' '.join(_COMPARISONS)}")
        _check_number(operand[index + 1], f"{path}[{index + 1}]")


_CHECKS: dict[str, Callable[[object, str], None]] = {
    "prefix": _check_text,
    "exists": _check_exists,
    "numeric": _check_numeric,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ABSENT = object()


def _elements(value: object) -> Iterator[object]:
    """The elements of a list and of the lists in it, or the value itself.

    Without recursion: a payload can nest deeper than Python's stack.
    """
    rest = [value]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        else:
            yield value


def _object_passes(filter: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(_field_passes(wanted, found.get(name, _ABSENT)) for name, wanted in filter.items())


def _field_passes(wanted: Any, value: object) -> bool:
    if isinstance(wanted, dict):
        return passes(wanted, value)
    return any(_matches(condition, value) for condition in wanted)


def _matches(condition: Any, value: object) -> bool:
    """`exists` is about the field, not its value: null and [] exist."""
    match condition:
        case {"exists": bool(wanted)}:
            return (value is not _ABSENT) == wanted
        case {"prefix": str(prefix)}:
            return any(isinstance(e, str) and e.startswith(prefix) for e in _elements(value))
        case {"numeric": comparisons}:
            return any(_compares(comparisons, element) for element in _elements(value))
        case _:
            return any(_equals(condition, element) for element in _elements(value))


def _compares(comparisons: list[Any], value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    pairs = zip(comparisons[::2], comparisons[1::2], strict=True)
    return all(_COMPARISONS[sign](value, number) for sign, number in pairs)


def _equals(wanted: object, value: object) -> bool:
    """As in JSON: 1 equals 1.0, but true does not equal 1."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    return wanted == value
