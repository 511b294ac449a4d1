"""What a client of the WebSocket API that follows the rules makes of what it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def text_of(messages: Iterable[Mapping[str, Any]]) -> str:
    """The text that snapshots and deltas give; fails where a delta is missing."""
    text, index = "", 0
    for message in messages:
        if message["type"] == "snapshot":
            text, index = ("" if message["part"] == 0 else text) + message["text"], message["index"]
        if message["type"] == "delta" and message["index"] > index:
            assert message["index"] == index + 1
            text, index = text + message["text"], message["index"]
    return text
