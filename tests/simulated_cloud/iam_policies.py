"""Matching of IAM policy statements, as far as authorizers and roles need it."""

from __future__ import annotations

import re
from typing import Any


def effect_of(policy: dict[str, Any], arn: str) -> str | None:
    """The effect of an authorizer's policy on a method: `Allow`, `Deny`, or None if no statement applies."""
    effects = {
        statement["Effect"]
        for statement in policy["Statement"]
        if any(covers(pattern, "execute-api:Invoke") for pattern in listed(statement["Action"]))
        and any(covers(pattern, arn) for pattern in listed(statement["Resource"]))
    }
    return "Deny" if "Deny" in effects else "Allow" if "Allow" in effects else None


def covers(pattern: str, value: str) -> bool:
    """Whether a pattern with `*` and `?` matches an action or an ARN."""
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, value, re.IGNORECASE) is not None


def listed(value: Any) -> list[str]:
    """The list that a statement may write as a single string."""
    return value if isinstance(value, list) else [value]
