"""What an event looks like to an endpoint.

- `recado`: the event as it was logged, byte for byte.
- `thin`: which event and of what; the receiver asks the API for the rest.
- `cloudevents`: CloudEvents 1.0 in structured mode (https://github.com/cloudevents/spec, JSON format 1.0.2).
- `slack`: one line, for Slack's incoming webhooks and for what takes the same form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from core import events
from core.jobs import Kind

MAX_SLACK_CHARACTERS = 3000  # of a text object: https://docs.slack.dev/reference/block-kit/composition-objects

_THIN = ("event", "event_id", "job_id", "sequence", "timestamp")
# Slack's three control characters. A bare @here is text to Slack, but a mention to others that take its form.
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"}


def render(format: str, body: str, *, owner: str, kind: Kind | None = None) -> str:
    """What is sent to an endpoint of this format: JSON, all ASCII.

    `body` is the event's stored JSON, `owner` whose it is, `kind` that of its job, where it has one that is known.
    KeyError for a format that is not in FORMATS.
    """
    draw = _DRAW[format]
    return events.encode(draw(json.loads(body), owner, kind)) if draw else body


def content_type(format: str) -> str:
    """The media type of what `render` returns."""
    return "application/cloudevents+json" if format == "cloudevents" else "application/json"


def _thin(payload: Mapping[str, Any], owner: str, kind: Kind | None) -> dict[str, Any]:
    names = (*_THIN, "endpoint_id") if payload["event"] in events.OWNER_EVENTS else _THIN
    return {name: payload[name] for name in names if name in payload}


def _cloudevent(payload: Mapping[str, Any], owner: str, kind: Kind | None) -> dict[str, Any]:
    """`source` and `id` together are unique, as the specification asks: event ids are so by themselves."""
    subject = payload.get("job_id") or payload.get("endpoint_id")
    return {
        "specversion": "1.0",
        "id": payload["event_id"],
        "source": f"/recado/owners/{owner}",
        "type": f"recado.{payload['event']}",
        **({"subject": subject} if subject else {}),
        "time": payload["timestamp"],
        "datacontenttype": "application/json",
        "data": payload,
    }


def _slack(payload: Mapping[str, Any], owner: str, kind: Kind | None) -> dict[str, Any]:
    """The line twice: `text` is for notifications, and the block is shown as it is, without markup."""
    line = _escaped(_one_line(" · ".join(_facts(payload, kind))))
    shown = {"type": "plain_text", "text": line, "emoji": False}
    return {"text": line, "blocks": [{"type": "section", "text": shown}]}


def _facts(payload: Mapping[str, Any], kind: Kind | None) -> Iterator[str]:
    yield payload["event"]
    names = (kind.subject if kind else None, "job_id", "endpoint_id")
    subjects = (payload.get(name) for name in names if name)
    yield from [subject for subject in subjects if subject and isinstance(subject, str)][:1]
    error = payload.get("error")
    if isinstance(error, dict):
        said = (error.get(name) for name in ("code", "message"))
        yield from filter(None, [": ".join(part for part in said if part and isinstance(part, str))])
    for name in kind.headline if kind else ():
        count = payload.get(name)
        if type(count) is int:
            yield f"{count} {name.removesuffix('s') if count == 1 else name}"


def _one_line(text: str) -> str:
    """Without line ends, and without what turns the direction of writing or shows nothing."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _escaped(line: str) -> str:
    """Cut between characters, never inside an entity; counted in UTF-16, the longest way to count."""
    pieces = [_ESCAPES.get(char, char) for char in line]
    ends = list(accumulate(len(piece.encode("utf-16-le")) // 2 for piece in pieces))
    if ends[-1] <= MAX_SLACK_CHARACTERS:
        return "".join(pieces)
    kept = (piece for piece, end in zip(pieces, ends, strict=True) if end < MAX_SLACK_CHARACTERS)
    return "".join(kept) + "…"


_DRAW: dict[str, Callable[[Mapping[str, Any], str, Kind | None], dict[str, Any]] | None] = {
    "recado": None,
    "cloudevents": _cloudevent,
    "slack": _slack,
    "thin": _thin,
}
FORMATS = tuple(_DRAW)
