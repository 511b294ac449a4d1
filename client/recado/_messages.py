"""Parse messages and pages of events. Raises BadAnswer for malformed ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recado.errors import BadAnswer


def parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BadAnswer("A message is not JSON.") from None


def as_object(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise BadAnswer("A message is not a JSON object.")
    return data


TOKEN = "token"  # noqa: S105 not a secret
STEP_TYPES = frozenset({"thinking", "tool_use", "tool_result", TOKEN})
"""The types of messages that are steps of a job, which agents have."""
DONE = "done"
"""The type of the message that follows a job's last step."""


def is_of_steps(message: Any) -> bool:
    """Whether the message is a step of a job, or says that there are no more of them."""
    return as_object(message).get("type") in STEP_TYPES | {DONE}


def events_in(page: Any) -> list[Any]:
    """The `events` of a page of a job's log, or of a WebSocket message."""
    events = as_object(page).get("events")
    if not isinstance(events, list):
        raise BadAnswer("A message has no events.")
    return events


def events_in_message(message: Mapping[str, Any] | None) -> Sequence[Any]:
    """The events of a WebSocket message, in order; none for messages of other types."""
    return events_in(message) if message and message.get("type") == "events" else ()
