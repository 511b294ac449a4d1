"""The messages of a WebSocket: each is a JSON object with a `type`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from core import events
from core.events import Event
from core.jobs.kind import ENVELOPE

# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
FRAME_BYTES = 32 * 1024
"""API Gateway bills messages in units of this size, and clients may not send larger frames."""
MESSAGE_BYTES = 128 * 1024
"""The largest message that API Gateway sends."""

_OPENING, _CLOSING = '{"type":"events","events":[', "]}"
_FRAME_OVERHEAD = len(_OPENING) + len(_CLOSING)
_TEXT_BYTES = FRAME_BYTES - 512  # the rest is for the fields around the text

PING = '{"type":"ping"}'
PONG = '{"type":"pong"}'


def of_events(log: Iterable[Event]) -> list[str]:
    """These events in order, in as few messages as possible. Of an event that is too large, only the envelope."""
    packed: list[str] = []
    bodies: list[str] = []
    size = _FRAME_OVERHEAD
    for body in map(_body, log):
        if bodies and size + len(body) + 1 > FRAME_BYTES:
            packed.append(_events(bodies))
            bodies, size = [], _FRAME_OVERHEAD
        bodies.append(body)
        size += len(body) + 1
    return [*packed, _events(bodies)] if bodies else packed


def _events(bodies: Iterable[str]) -> str:
    """Bodies are sent as they were stored, in ASCII, so their length in characters is their size in bytes."""
    return f"{_OPENING}{','.join(bodies)}{_CLOSING}"


def _body(event: Event) -> str:
    if len(event.body) + _FRAME_OVERHEAD <= MESSAGE_BYTES:
        return event.body
    payload = event.payload
    return events.encode({key: payload[key] for key in ENVELOPE if key in payload} | {"truncated": True})


def of_snapshot(job_id: str, index: int, text: str) -> list[str]:
    """The whole text through delta `index`, in one or more parts."""
    parts = pieces(text)
    facts = {"job_id": job_id, "index": index, "parts": len(parts)}
    return [of_type("snapshot", **facts, part=part, text=piece) for part, piece in enumerate(parts)]


def of_delta(job_id: str, index: int, text: str) -> str:
    """Text that was appended: one of its `pieces`."""
    return of_type("delta", job_id=job_id, index=index, text=text)


def pieces(text: str) -> list[str]:
    """The text, halved until each piece fits into one frame as JSON."""
    if len(text) <= 1 or len(_json(text).encode()) <= _TEXT_BYTES:
        return [text]
    half = len(text) // 2
    return pieces(text[:half]) + pieces(text[half:])


def of_type(type: str, **facts: Any) -> str:
    """A message of this type."""
    return _json({"type": type, **facts})


def of_error(code: str, message: str, **facts: Any) -> str:
    """`code` is stable; `message` says what to do."""
    return of_type("error", code=code, message=message, **facts)


def _json(value: Any) -> str:
    """Not in ASCII as events are: escapes would triple the size of text in other scripts.

    Only lone surrogates are escaped, since UTF-8 cannot encode them.
    """
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
