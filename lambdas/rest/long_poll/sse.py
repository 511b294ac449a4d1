"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), a few at a time.

API Gateway's proxy integration buffers an answer, so a stream is held open until something happens and ends then;
a browser's EventSource comes back by itself, with the number of the last event that it saw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from core.events import Event

CONTENT_TYPE = "text/event-stream"
RETRY_MILLISECONDS = 1000
_SEQUENCE = re.compile(r"[0-9]{1,9}")


def sequence_of(last_event_id: str | None) -> int:
    """The number in a Last-Event-ID; 0 where it is none of ours."""
    text = (last_event_id or "").strip()
    return int(text) if _SEQUENCE.fullmatch(text) else 0


def encode(log: Sequence[Event], *, named: str | None = None) -> str:
    """These events, and after a job's last one an `end` that has no id: who comes back then is answered 204.

    `named`: what all are called in place of their own names. There is no `end` then: the last one says it itself.
    """
    if not log:
        return f"retry: {RETRY_MILLISECONDS}\n: nothing yet\n\n"
    blocks = [_block(event, named or event.name) for event in log]
    status = log[-1].final_status
    if status and not named:
        blocks.append(f"event: end\ndata: {json.dumps({'status': status})}\n\n")
    return f"retry: {RETRY_MILLISECONDS}\n\n" + "".join(blocks)


def _block(event: Event, name: str) -> str:
    """A payload is JSON in one line, so it is one data field."""
    return f"id: {event.sequence}\nevent: {name}\ndata: {event.body}\n\n"
