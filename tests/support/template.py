"""CloudFormation's intrinsic functions, as far as CDK templates use them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

NO_VALUE = object()
PLACEHOLDER = re.compile(r"\$\{(!?)([^}]+)\}")
# Written to be fully escaped once in the template: ${!Literal} yields ${Literal}.
Lookup = Callable[[str], Any]


class Unsupported(Exception):
    """The template asks for something that this cloud does not have."""


class Resolver:
    """Evaluates values of one template. `reference` and `attribute` create resources when first asked."""

    def __init__(
        self,
        template: dict[str, Any],
        *,
        reference: Lookup,
        attribute: Callable[[str, str], Any],
        imported: Lookup,
    ) -> None:
        self._template = template
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
            if name in ("Ref", "Condition") or name.startswith("Fn::"):
                return self._function(name, operand)
        resolved = {key: self.resolve(one) for key, one in value.items()}
        return {key: one for key, one in resolved.items() if one is not NO_VALUE}

    def holds(self, condition: str) -> bool:
        return bool(self.resolve(self._template["Conditions"][condition]))

    def _function(self, name: str, operand: Any) -> Any:
        if name == "Ref":
            return self._reference(operand)
        if name == "Condition":
            return self.holds(operand) if isinstance(operand, str) else {name: self.resolve(operand)}
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

    def _base64(self, operand: Any) -> str:
        return base64.b64encode(str(self.resolve(operand)).encode()).decode()

    def _findinmap(self, operand: Any) -> Any:
        name, first, second = self.resolve(operand)
        return self._template["Mappings"][name][first][second]

    def _if(self, operand: Any) -> Any:
        condition, then, otherwise = operand
        return self.resolve(then if self.holds(condition) else otherwise)

    def _equals(self, operand: Any) -> bool:
        left, right = self.resolve(operand)
        return bool(left == right)

    def _not(self, operand: Any) -> bool:
        return not self.resolve(operand[0])

    def _and(self, operand: Any) -> bool:
        return all(map(self.resolve, operand))

    def _or(self, operand: Any) -> bool:
        return any(map(self.resolve, operand))


def folder(handler: str) -> str:
    """`worker` for `jobs.worker.handler.handler`, `search` for `kinds.document.search.handler.handler`."""
    return handler.replace("/", ".").split(".")[-3]
