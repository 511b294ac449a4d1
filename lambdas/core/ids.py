"""Ids: a prefix and a ULID (https://github.com/ulid/spec). They sort by time in milliseconds."""

from __future__ import annotations

import re

from ulid import ULID

_ULID = "[0-9A-HJKMNP-TV-Z]{26}"


def new(prefix: str) -> str:
    """A new id such as `job_01JDX…`. It has no dot, because Standard Webhooks forbids dots in message ids."""
    return f"{prefix}_{ULID()}"


def floor(prefix: str, seconds: float) -> str:
    """The lowest possible id of this moment (epoch seconds): it sorts after all earlier ids."""
    milliseconds = int(round(seconds * 1000, 3))  # 0.567 as a float is a little less
    return f"{prefix}_{ULID(milliseconds.to_bytes(6, 'big') + bytes(10))}"


def is_id(prefix: str, text: str) -> bool:
    """Whether `text` has the form of an id with this prefix."""
    return re.fullmatch(f"{prefix}_{_ULID}", text) is not None


def ulid_of(identifier: str) -> str:
    """The ULID of an id, without the prefix."""
    return identifier.rpartition("_")[2]
