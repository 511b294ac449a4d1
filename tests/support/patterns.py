"""EventBridge patterns, as rules and event source mappings use them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MISSING = object()


def matches(pattern: dict[str, Any], event: Any) -> bool:
    """Whether the event has every field of the pattern, with one of the values given for it."""
    return all(_field(key, wanted, event) for key, wanted in pattern.items())


def _field(key: str, wanted: Any, event: Any) -> bool:
    if key == "$or":
        return any(matches(option, event) for option in wanted)
    value = event.get(key, MISSING) if isinstance(event, dict) else MISSING
    if isinstance(wanted, dict):
        return matches(wanted, value)
    values = value if isinstance(value, list) else [value]
    return any(_value(test, one) for test in wanted for one in values)


def _value(test: Any, value: Any) -> bool:
    if not isinstance(test, dict):
        return value is not MISSING and type(test) is type(value) and bool(test == value)
    ((name, operand),) = test.items()
    if name == "exists":
        return bool((value is not MISSING) == operand)
    if value is MISSING:
        return False
    matcher: Callable[[Any, Any], bool] = OPERATORS[name]
    return matcher(operand, value)


def _anything_but(operand: Any, value: Any) -> bool:
    if isinstance(operand, dict):
        return not _value(operand, value)
    return value not in (operand if isinstance(operand, list) else [operand])


def _numeric(operand: list[Any], value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    pairs = zip(operand[::2], operand[1::2], strict=True)
    return all(COMPARE[sign](value, bound) for sign, bound in pairs)


def _wildcard(operand: str, value: Any) -> bool:
    expression = ".*".join(re.escape(part) for part in operand.split("*"))
    return isinstance(value, str) and re.fullmatch(expression, value, re.DOTALL) is not None


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "prefix": lambda operand, value: isinstance(value, str) and value.startswith(operand),
    "suffix": lambda operand, value: isinstance(value, str) and value.endswith(operand),
    "equals-ignore-case": lambda operand, value: isinstance(value, str) and value.lower() == operand.lower(),
    "anything-but": _anything_but,
    "numeric": _numeric,
    "wildcard": _wildcard,
}


def check(pattern: dict[str, Any]) -> None:
    """Refuse what `matches` does not know, before anything depends on it."""
    for key, wanted in pattern.items():
        if isinstance(wanted, dict):
            check(wanted)
            continue
        for test in wanted:
            if key == "$or":
                check(test)
            elif isinstance(test, dict) and not set(test) <= {*OPERATORS, "exists"}:
                raise ValueError(f"unknown operator in a pattern: {test}")
