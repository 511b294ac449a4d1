"""CloudFormation's intrinsic functions, without conditions and mappings.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/intrinsic-function-reference.html
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

NO_VALUE = object()
# In Fn::Sub, ${Name} is replaced, and ${!Literal} yields ${Literal}.
PLACEHOLDER = re.compile(r"\$\{(!?)([^}]+)\}")
Lookup = Callable[[str], Any]


class Unsupported(Exception):
    """The template uses something that the simulation lacks."""


class Resolver:
    """Evaluates the values of one template. `reference` and `attribute` look up (or create) resources."""

    def __init__(self, *, reference: Lookup, attribute: Callable[[str, str], Any], imported: Lookup) -> None:
        self._reference = reference
        self._attribute = attribute
        self._imported = imported

    def resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [one for one in map(self.resolve, value) if one is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, operand),) = value.items()
            if name == "Ref" or name.startswith("Fn::"):
                return self._function(name, operand)
        resolved = {key: self.resolve(one) for key, one in value.items()}
        return {key: one for key, one in resolved.items() if one is not NO_VALUE}

    def _function(self, name: str, operand: Any) -> Any:
        if name == "Ref":
            return self._reference(operand)
        method = getattr(self, f"_{name.removeprefix('Fn::').lower()}", None)
        if method is None:
            raise Unsupported(f"{name} in a template")
        return method(operand)

    def _getatt(self, operand: Any) -> Any:
        logical_id, attribute = operand.split(".", 1) if isinstance(operand, str) else operand
        return self._attribute(logical_id, self.resolve(attribute))

    def _importvalue(self, operand: Any) -> Any:
        return self._imported(self.resolve(operand))

    def _join(self, operand: Any) -> str:
        separator, parts = operand
        return str(separator).join(str(part) for part in self.resolve(parts))

    def _select(self, operand: Any) -> Any:
        index, values = operand
        return self.resolve(values)[int(self.resolve(index))]

    def _split(self, operand: Any) -> list[str]:
        separator, text = operand
        return str(self.resolve(text)).split(separator)

    def _sub(self, operand: Any) -> str:
        text, variables = (operand, {}) if isinstance(operand, str) else operand

        def value(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return f"${{{name}}}"
            if name in variables:
                return str(self.resolve(variables[name]))
            return str(self._getatt(name) if "." in name else self._reference(name))

        return PLACEHOLDER.sub(value, text)


def handler_folder(handler: str) -> str:
    """The folder of a handler's module, for example `b` for `a.b.module.function`."""
    return handler.replace("/", ".").split(".")[-3]
