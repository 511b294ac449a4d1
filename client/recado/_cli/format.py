"""Values as text for the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

STYLES = {
    "completed": "green",
    "delivered": "green",
    "failed": "red",
    "canceled": "yellow",
    "discarded": "yellow",
    "running": "cyan",
    "queued": "blue",
}
MAX_VALUE_CHARACTERS = 200
_BIDI = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""The property Bidi_Control of Unicode, and the separators of lines and paragraphs."""
_CONTROL_CHARACTERS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}]")
_CONTROL_CHARACTERS_IN_JSON = re.compile(rf"[\x7f-\x9f{_BIDI}]")
"""JSON escapes those below U+0020 always."""
_ENVELOPE = frozenset({"event", "event_id", "job_id", "sequence", "timestamp", "status", "stage"})


def sanitize(value: object) -> str:
    """Text without control characters: text from documents must not control the terminal."""
    return "" if value is None else _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", str(value))


def escape_in_json(text: str) -> str:
    """The same JSON, with the characters that could control the terminal as `\\uXXXX`."""
    return _CONTROL_CHARACTERS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def styled(value: object) -> Text:
    return Text(sanitize(value), style=STYLES.get(str(value), ""))


def format_fields(payload: Mapping[str, Any]) -> str:
    """The fields beyond an event's envelope, as `name=value` in one line. Long values are cut."""
    return " ".join(
        f"{_one_line(name)}={_one_line(value)}" for name, value in payload.items() if name not in _ENVELOPE
    )


def _one_line(value: object) -> str:
    text = sanitize(" ".join(str("" if value is None else value).split()))
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"


def local_time(moment: str) -> str:
    """The local time of day of an RFC 3339 time."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return sanitize(moment)


def local_date(moment: str | None) -> str:
    """The local date and time of an RFC 3339 time, empty for None."""
    try:
        return datetime.fromisoformat(moment or "").astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return sanitize(moment)


def format_duration(seconds: float) -> str:
    """`42 s`, `3:20 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != whole else f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02} h"
