"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), a few at a time.

API Gateway's proxy integration buffers responses, so a stream ends with the first events. A browser's EventSource
reconnects by itself, with the sequence of the last event that it received.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.events import Event
from core.jobs.steps import DONE, Step, done_payload

CONTENT_TYPE = "text/event-stream"
RETRY_MILLISECONDS = 1000
_CURSOR = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """What a client has received: the events through a sequence, and the steps through a number.

    As an id: `sequence.step` of a job with steps, else the sequence alone.
    """

    sequence: int
    step: int = 0

    @classmethod
    def of(cls, last_event_id: str | None) -> Cursor:
        """The cursor in a Last-Event-ID; the beginning if it is none."""
        match = _CURSOR.fullmatch((last_event_id or "").strip())
        return cls(int(match[1]), int(match[2] or 0)) if match else cls(0)


Entry = Event | Step


def merge(log: Sequence[Event], steps: Sequence[Step]) -> list[Entry]:
    """Events and steps in one order: a step after the events that were logged before it."""
    entries: list[Entry] = [*log, *steps]
    return sorted(entries, key=_position)


def _position(entry: Entry) -> tuple[int, int]:
    return (entry.sequence, entry.number) if isinstance(entry, Step) else (entry.sequence or 0, 0)


def encode(
    entries: Sequence[Entry],
    *,
    after: Cursor = Cursor(0),
    has_steps: bool = False,
    named: str | None = None,
    retry_after: int | None = None,
) -> str:
    """These events and steps. After a job's last event comes `end` without an id: the next request gets a 204.

    `after`: what the client has already. `has_steps`: whether ids have steps; then `done` follows the last event.
    `named`: a name for all events in place of their own names. Then there is no `end`.
    `retry_after`: seconds until a client should reconnect that could not wait for an event.
    """
    if not entries:
        milliseconds = RETRY_MILLISECONDS if retry_after is None else retry_after * 1000
        return f"retry: {milliseconds}\n: nothing yet\n\n"
    blocks = [f"retry: {RETRY_MILLISECONDS}\n\n"]
    for entry in entries:
        after = _advanced(after, entry)
        cursor = f"{after.sequence}.{after.step}" if has_steps else str(after.sequence)
        blocks += _blocks(entry, cursor, has_steps=has_steps, named=named)
    return "".join(blocks)


def _advanced(cursor: Cursor, entry: Entry) -> Cursor:
    if isinstance(entry, Step):
        return Cursor(cursor.sequence, entry.number)
    return Cursor(entry.sequence or 0, cursor.step)


def _blocks(entry: Entry, cursor: str, *, has_steps: bool, named: str | None) -> Iterator[str]:
    """Data is JSON in one line, so it needs one field. What has no id is made of the event before it."""
    if isinstance(entry, Step):
        yield f"id: {cursor}\nevent: {entry.payload['type']}\ndata: {entry.body}\n\n"
        return
    yield f"id: {cursor}\nevent: {named or entry.name}\ndata: {entry.body}\n\n"
    if entry.is_last and has_steps:
        done = json.dumps(done_payload(entry.job_id or "", entry.payload))
        yield f"event: {DONE}\ndata: {done}\n\n"
    if entry.is_last and not named:
        yield f"event: end\ndata: {json.dumps({'status': entry.final_status})}\n\n"
