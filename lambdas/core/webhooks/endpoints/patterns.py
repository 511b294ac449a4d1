"""Which events an endpoint wants: by their names, and by what their payloads say.

A filter is written as for SNS on message bodies, or as an EventBridge pattern:

    {
        "document_id": ["a", {"prefix": "x"}],
        "chunks": [{"numeric": [">=", 10, "<", 100]}],
        "error": {"code": [{"exists": true}]}
    }

Every key must hold (AND), by any condition of its list (OR). Objects nest as the payload's do. Where the payload
has a list, one element that fits is enough, so conditions in one nested object must hold for the same element.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from core import events
from core.events import Event
from core.jobs import Kind

PING = "ping"
COMPLETED = "*.completed"
"""Every kind's good end, whatever its verb is."""

MAX_LEVELS = 5
MAX_CONDITIONS = 50
MAX_CHARACTERS = 256


def event_names(kinds: Iterable[Kind]) -> tuple[str, ...]:
    """Every event that can be subscribed to."""
    of_owners = (name for name in events.OWNER_EVENTS if name != PING)
    return (*(name for kind in kinds for name in kind.names), *of_owners)


def all_patterns(kinds: Collection[Kind]) -> tuple[str, ...]:
    """Every pattern there is: an event name, `<kind>.*`, `*.<verb>` and `*`."""
    names = event_names(kinds)
    of_kinds = (f"{name}.*" for name in (*(kind.name for kind in kinds), events.OWNER_KIND))
    of_verbs = dict.fromkeys((*(f"*.{name.partition('.')[2]}" for name in names), COMPLETED))
    return (*names, *of_kinds, *of_verbs, "*")


def check_pattern(text: str, kinds: Collection[Kind]) -> str:
    """The pattern as it is. ValueError lists what there is."""
    if text == PING:
        raise ValueError("ping goes to the endpoint under test alone, which needs no subscription to get it")
    known = all_patterns(kinds)
    if text not in known:
        raise ValueError(f"{text[:80]!a} names no event: choose from {', '.join(known)}")
    return text


def matches(patterns: Iterable[str], event: Event) -> bool:
    """Whether any of these (checked) patterns covers the event. None covers `ping`, not even `*`."""
    kind, _, verb = event.name.partition(".")
    covering = {event.name, f"{kind}.*", f"*.{verb}", "*"}
    if event.final_status == "completed":
        covering.add(COMPLETED)
    return event.name != PING and not covering.isdisjoint(patterns)


def check_filter(tree: object) -> dict[str, Any]:
    """The filter as it is. ValueError names the path in it that is wrong, and what to do.

    At most 5 levels of objects, 50 conditions, and strings and names of 256 characters.
    """
    checked = _object(tree)
    count = _check_object(checked, "filter", level=1)
    if count > MAX_CONDITIONS:
        raise ValueError(f"filter: {count} conditions are too many; keep to {MAX_CONDITIONS}")
    return checked


def passes(filter: Mapping[str, Any], payload: object) -> bool:
    """Whether the payload, any JSON value, meets a filter that `check_filter` has seen.

    What the payload lacks is an object without fields, so that `exists: false` holds in it.
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
        raise ValueError(f"{path}: this is level {level}; nest at most {MAX_LEVELS} levels")
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
    """What is in a list and in the lists in it, or the value itself. A payload may nest deeper than the stack."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        else:
            yield value


def _object_passes(filter: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(_field_passes(wanted, found.get(name, _ABSENT)) for name, wanted in filter.items())


def _field_passes(wanted: Any, value: object) -> bool:
    if isinstance(wanted, dict):
        return passes(wanted, value)
    return any(_holds(condition, value) for condition in wanted)


def _holds(condition: Any, value: object) -> bool:
    """`exists` asks whether the field is there, whatever it holds: null and [] are there."""
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
    """As JSON has it: 1 is 1.0, but true is not 1."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    return wanted == value
