"""What is said over a WebSocket: one JSON object a message, with a `type`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from core import events
from core.events import Event
from core.jobs.kind import ENVELOPE

# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
FRAME_BYTES = 32 * 1024
"""What a message costs is counted in these; clients may send no larger frame."""
MESSAGE_BYTES = 128 * 1024
"""No message can be larger."""

_OPENING, _CLOSING = '{"type":"events","events":[', "]}"
_ROOM = len(_OPENING) + len(_CLOSING)
_TEXT_BYTES = FRAME_BYTES - 512  # leaves subscribers for what stands around a text

PING = '{"type":"ping"}'
PONG = '{"type":"pong"}'


def of_events(log: Iterable[Event]) -> list[str]:
    """These events in order, in as few messages as they fit in; one that fits in none is cut to its envelope."""
    packed: list[str] = []
    bodies: list[str] = []
    size = _ROOM
    for body in map(_fitting, log):
        if bodies and size + len(body) + 1 > FRAME_BYTES:
            packed.append(_events(bodies))
            bodies, size = [], _ROOM
        bodies.append(body)
        size += len(body) + 1
    return [*packed, _events(bodies)] if bodies else packed


def _events(bodies: Iterable[str]) -> str:
    """A body goes out as it was stored, which is ASCII: characters are bytes."""
    return f"{_OPENING}{','.join(bodies)}{_CLOSING}"


def _fitting(event: Event) -> str:
    if len(event.body) + _ROOM <= MESSAGE_BYTES:
        return event.body
    payload = event.payload
    return events.encode({key: payload[key] for key in ENVELOPE if key in payload} | {"truncated": True})


def of_snapshot(job_id: str, index: int, text: str) -> list[str]:
    """A text so far, through delta number `index`, in as many parts as it takes; at least one."""
    parts = pieces(text)
    facts = {"job_id": job_id, "index": index, "parts": len(parts)}
    return [about("snapshot", **facts, part=part, text=piece) for part, piece in enumerate(parts)]


def of_delta(job_id: str, index: int, text: str) -> str:
    """What has been added to a text: one of its `pieces`."""
    return about("delta", job_id=job_id, index=index, text=text)


def pieces(text: str) -> list[str]:
    """The text, in halves of halves until each fits into one frame as JSON."""
    if len(text) <= 1 or len(_json(text).encode()) <= _TEXT_BYTES:
        return [text]
    half = len(text) // 2
    return pieces(text[:half]) + pieces(text[half:])


def about(type: str, /, **facts: Any) -> str:
    """A message of this type."""
    return _json({"type": type, **facts})


def of_error(code: str, message: str, **facts: Any) -> str:
    """`code` is stable; `message` says what to do."""
    return about("error", code=code, message=message, **facts)


def _json(value: Any) -> str:
    """Not escaped, as events are: a text in another script would take three times the subscribers.

    Half of a surrogate pair is, since UTF-8 has no such thing; Python and JSON escape it alike.
    """
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
