"""Values as text for the terminal."""

from __future__ import annotations

import math
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
        f"{one_line(name)}={one_line(value)}" for name, value in payload.items() if name not in _ENVELOPE
    )


def one_line(value: object) -> str:
    """The value in one line. A long one is cut."""
    text = sanitize(" ".join(str("" if value is None else value).split()))
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"


def format_usage(usage: Mapping[str, Any]) -> str:
    """What calls of a model have used: `2 calls, 310 + 95 tokens, up to 0.000041 USD`."""
    calls = f"{count(usage['calls'], 'call')}, " if "calls" in usage else ""
    tokens = f"{usage.get('input_tokens', '?')} + {usage.get('output_tokens', '?')} tokens"
    return f"{calls}{tokens}, {format_cost(usage.get('cost_usd'), is_limit=bool(usage.get('cost_estimated')))}"


def format_cost(usd: object, *, is_limit: bool = False) -> str:
    """`0.000041 USD`, with three significant digits or in cents. `is_limit`: the cost may be lower."""
    if not isinstance(usd, int | float):
        return "cost unknown"
    decimals = max(2, 2 - math.floor(math.log10(usd))) if 0 < usd < math.inf else 0
    amount = f"{usd:.{decimals}f}"
    return f"{'up to ' if is_limit else ''}{amount.rstrip('0').rstrip('.') if decimals else amount} USD"


def count(number: object, noun: str) -> str:
    """`1 part`, `12 parts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
