"""EventBridge event patterns, as event rules and the filters of event source mappings use them.

A pattern may consist of fields, literal values and the operator `prefix`.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-patterns.html
"""

from __future__ import annotations

from typing import Any

MISSING = object()


def matches(pattern: dict[str, Any], event: Any) -> bool:
    """Whether the event has every field of the pattern, with one of the values in the pattern."""
    return all(_field(key, wanted, event) for key, wanted in pattern.items())


def _field(key: str, wanted: Any, event: Any) -> bool:
    value = event.get(key, MISSING) if isinstance(event, dict) else MISSING
    if isinstance(wanted, dict):
        return matches(wanted, value)
    values = value if isinstance(value, list) else [value]
    return any(_value(test, one) for test in wanted for one in values)


def _value(test: Any, value: Any) -> bool:
    if isinstance(test, dict):
        return isinstance(value, str) and value.startswith(test["prefix"])
    return type(test) is type(value) and bool(test == value)


def check(pattern: dict[str, Any]) -> None:
    """Raise ValueError for a pattern with operators that `matches` does not know."""
    for key, wanted in pattern.items():
        if key == "$or":
            raise ValueError("unknown operator in a pattern: $or")
        if isinstance(wanted, dict):
            check(wanted)
            continue
        for test in wanted:
            if isinstance(test, dict) and set(test) != {"prefix"}:
                raise ValueError(f"unknown operator in a pattern: {test}")
