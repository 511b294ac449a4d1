"""Idempotency keys: one job for each key, and one request body for each key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A caller's key and the fingerprint of the request that it was sent with. Valid for `seconds`."""

    key: str
    fingerprint: str
    seconds: int


def fingerprint(body: Any) -> str:
    """The SHA-256 of a JSON value. The order of keys does not matter, and 1 equals 1.0."""
    return hashlib.sha256(json.dumps(_normalized(body), sort_keys=True).encode()).hexdigest()


def _normalized(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normalized(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normalized(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
