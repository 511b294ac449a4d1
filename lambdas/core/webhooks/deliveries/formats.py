"""The formats in which an endpoint can get an event.

- `recado`: the event as it was logged, byte for byte.
- `thin`: ids only; the receiver asks the API for the rest.
- `cloudevents`: CloudEvents 1.0 in structured mode (https://github.com/cloudevents/spec, JSON format 1.0.2).
- `slack`: one line of text, for Slack's incoming webhooks and services that take the same JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from core import events
from core.events import Event
from core.jobs import Kind

MAX_SLACK_CHARACTERS = 3000  # of a text object: https://docs.slack.dev/reference/block-kit/composition-objects

_THIN = ("event", "event_id", "job_id", "sequence", "timestamp")
# Slack's three control characters. A bare @here is text to Slack, but a mention to others that take its JSON.
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"}


def render(format: str, event: Event, *, kind: Kind | None = None) -> str:
    """The body that an endpoint of this format gets: JSON, all ASCII.

    `kind` is that of the event's job, if the registry has it. KeyError for a format that is not in FORMATS.
    """
    to_payload = _CONVERSIONS[format]
    return events.encode(to_payload(event.payload, event.owner, kind)) if to_payload else event.body


def content_type(format: str) -> str:
    """The media type of what `render` returns."""
    return "application/cloudevents+json" if format == "cloudevents" else "application/json"


def _thin(payload: Mapping[str, Any], owner: str, kind: Kind | None) -> dict[str, Any]:
    names = (*_THIN, "endpoint_id") if payload["event"] in events.OWNER_EVENTS else _THIN
    return {name: payload[name] for name in names if name in payload}


def _cloudevent(payload: Mapping[str, Any], owner: str, kind: Kind | None) -> dict[str, Any]:
    """The specification asks that `source` and `id` together are unique. Event ids are unique by themselves."""
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
    """The same line as `text`, which notifications show, and as a block, which is shown without markup."""
    line = _escaped(_one_line(" · ".join(_facts(payload, kind))))
    block = {"type": "plain_text", "text": line, "emoji": False}
    return {"text": line, "blocks": [{"type": "section", "text": block}]}


def _facts(payload: Mapping[str, Any], kind: Kind | None) -> Iterator[str]:
    """The parts of the line for Slack: event, subject, error and counts."""
    yield payload["event"]
    names = (kind.subject if kind else None, "job_id", "endpoint_id")
    subjects = (payload.get(name) for name in names if name)
    yield from [subject for subject in subjects if subject and isinstance(subject, str)][:1]
    error = payload.get("error")
    if isinstance(error, dict):
        texts = (error.get(name) for name in ("code", "message"))
        yield from filter(None, [": ".join(text for text in texts if text and isinstance(text, str))])
    for name in kind.headline if kind else ():
        count = payload.get(name)
        if type(count) is int:
            yield f"{count} {name.removesuffix('s') if count == 1 else name}"


def _one_line(text: str) -> str:
    """Without line ends, invisible characters, and characters that change the direction of writing."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _escaped(line: str) -> str:
    """Cut between characters, never inside an entity. Lengths are in UTF-16, the longest way to count."""
    pieces = [_ESCAPES.get(char, char) for char in line]
    ends = list(accumulate(len(piece.encode("utf-16-le")) // 2 for piece in pieces))
    if ends[-1] <= MAX_SLACK_CHARACTERS:
        return "".join(pieces)
    kept = (piece for piece, end in zip(pieces, ends, strict=True) if end < MAX_SLACK_CHARACTERS)
    return "".join(kept) + "…"


_CONVERSIONS: dict[str, Callable[[Mapping[str, Any], str, Kind | None], dict[str, Any]] | None] = {
    "recado": None,
    "cloudevents": _cloudevent,
    "slack": _slack,
    "thin": _thin,
}
FORMATS = tuple(_CONVERSIONS)
