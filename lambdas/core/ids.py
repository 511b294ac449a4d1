"""Identifiers: a prefix and a ULID (https://github.com/ulid/spec), sortable by the millisecond they were made."""

from __future__ import annotations

import re

from ulid import ULID

_ULID = "[0-9A-HJKMNP-TV-Z]{26}"


def new(prefix: str) -> str:
    """A fresh id such as `job_01JDX…`. It has no dot, which Standard Webhooks forbids in a message id."""
    return f"{prefix}_{ULID()}"


def floor(prefix: str, seconds: float) -> str:
    """What sorts before every id made at this moment (epoch seconds) or later, and after all earlier ones."""
    milliseconds = int(round(seconds * 1000, 3))  # a float has 0.567 s as a little less
    return f"{prefix}_{ULID(milliseconds.to_bytes(6, 'big') + bytes(10))}"


def is_id(prefix: str, text: str) -> bool:
    """Whether `text` has the form of an id with this prefix."""
    return re.fullmatch(f"{prefix}_{_ULID}", text) is not None


def ulid_of(identifier: str) -> str:
    """The sortable part of an id."""
    return identifier.rpartition("_")[2]
