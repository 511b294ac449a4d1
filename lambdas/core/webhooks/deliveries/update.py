"""Update expressions of DynamoDB.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Update:
    """The parts of an update. `defaults` are set if the item does not have the attribute."""

    sets: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    adds: dict[str, Any] = field(default_factory=dict)
    removes: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        return {f"#{name}": name for name in (*self.sets, *self.defaults, *self.adds, *self.removes)}

    @property
    def values(self) -> dict[str, Any]:
        return {f":{name}": value for name, value in (self.sets | self.defaults | self.adds).items()}

    @property
    def expression(self) -> str:
        sets = [f"#{name} = :{name}" for name in self.sets]
        sets += [f"#{name} = if_not_exists(#{name}, :{name})" for name in self.defaults]
        clauses = (
            ("SET", sets),
            ("ADD", [f"#{name} :{name}" for name in self.adds]),
            ("REMOVE", [f"#{name}" for name in self.removes]),
        )
        return " ".join(f"{clause} {', '.join(parts)}" for clause, parts in clauses if parts)
