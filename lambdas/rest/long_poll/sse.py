"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), a few at a time.

API Gateway's proxy integration buffers responses, so a stream ends with the first events. A browser's EventSource
reconnects by itself, with the sequence of the last event that it received.
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
    """The sequence in a Last-Event-ID; 0 if it is not a sequence."""
    text = (last_event_id or "").strip()
    return int(text) if _SEQUENCE.fullmatch(text) else 0


def encode(log: Sequence[Event], *, named: str | None = None, retry_after: int | None = None) -> str:
    """These events. After a job's last event, `end` without an id: the next request is answered with 204.

    `named`: a name for all events in place of their own names. Then there is no `end`.
    `retry_after`: seconds until a client should reconnect that could not wait for an event.
    """
    if not log:
        milliseconds = RETRY_MILLISECONDS if retry_after is None else retry_after * 1000
        return f"retry: {milliseconds}\n: nothing yet\n\n"
    blocks = [_block(event, named or event.name) for event in log]
    status = log[-1].final_status
    if status and not named:
        blocks.append(f"event: end\ndata: {json.dumps({'status': status})}\n\n")
    return f"retry: {RETRY_MILLISECONDS}\n\n" + "".join(blocks)


def _block(event: Event, name: str) -> str:
    """A payload is JSON in one line, so it needs one data field."""
    return f"id: {event.sequence}\nevent: {name}\ndata: {event.body}\n\n"
