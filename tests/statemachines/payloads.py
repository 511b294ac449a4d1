"""What passes between the states of a definition: paths and parameters evaluated, results given from outside.

Knows what document.asl.json uses, and raises on anything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

State = Mapping[str, Any]
Data = Any
RANGE = re.compile(r"States\.ArrayRange\((\d+), (\$[\w.]+), (\d+)\)")


def path(expression: str, data: Data, context: Data) -> Any:
    """`$.a.b` in the state's data, `$$.A.B` in the context object. Raises KeyError where there is nothing."""
    source, names = (context, expression[3:]) if expression.startswith("$$.") else (data, expression[2:])
    for name in names.split("."):
        source = source[name]
    return source


def template(value: Any, data: Data, context: Data) -> Any:
    """`Parameters` or `ItemSelector`, filled in."""
    if isinstance(value, list):
        return [template(item, data, context) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key.removesuffix(".$"): expression(item, data, context)
        if key.endswith(".$")
        else template(item, data, context)
        for key, item in value.items()
    }


def expression(text: str, data: Data, context: Data) -> Any:
    if text.startswith("$"):
        return path(text, data, context)
    match = RANGE.fullmatch(text)
    if match is None:
        raise NotImplementedError(text)
    first, last, step = match.groups()
    return list(range(int(first), path(last, data, context) + 1, int(step)))


def sent(state: State, data: Data, context: Data) -> Any:
    """What a Task or Pass is given to work with."""
    return template(state["Parameters"], data, context) if "Parameters" in state else data


def output(state: State, data: Data, result: Any) -> Data:
    """The state's input with its result put in at `ResultPath`; null drops the result."""
    if "ResultSelector" in state:
        result = template(state["ResultSelector"], result, {})
    return placed(data, state.get("ResultPath", "$"), result)


def placed(data: Data, where: str | None, result: Any) -> Data:
    if where is None:
        return data
    if where == "$":
        return result
    name = where.removeprefix("$.")
    if "." in name:
        raise NotImplementedError(where)
    return deepcopy(data) | {name: result}
