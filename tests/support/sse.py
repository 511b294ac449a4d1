"""A reader of server-sent events, after the letter of the specification: what a browser's EventSource hears.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class Message:
    """An event as it is dispatched. `last_event_id` is what a client that breaks off here would send."""

    type: str
    data: str
    last_event_id: str


@dataclass
class Stream:
    """What was heard, and what is kept for the next connection. `retry` is in milliseconds."""

    last_event_id: str = ""
    retry: int | None = None
    events: list[Message] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


def parse(text: str, *, last_event_id: str = "") -> Stream:
    """Everything up to the last blank line: an event that is not complete is never dispatched."""
    stream = Stream(last_event_id)
    lines = LINE_END.split(text.removeprefix("\ufeff"))
    seen_id, kind, data = last_event_id, "", list[str]()
    for line in lines[:-1]:  # what follows the last line end is no line yet
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            stream.last_event_id = seen_id
            if data:
                stream.events.append(Message(kind or "message", "\n".join(data), seen_id))
            kind, data = "", []
        elif not name and colon:
            stream.comments.append(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            seen_id = value
        elif name == "retry" and re.fullmatch("[0-9]+", value):
            stream.retry = int(value)
    return stream
