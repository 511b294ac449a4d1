"""What clients send over a WebSocket: JSON objects with an `action`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.errors import InvalidRequest
from core.jobs_table import MAX_SEQUENCE

MAX_ERROR_CHARACTERS = 500
"""Messages of validation errors may quote the client's message."""
Name = Annotated[str, Field(max_length=64)]
"""Longer than any valid name, and short enough for a key of the table."""


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Subscribe(Message):
    action: Literal["subscribe"]
    job_id: Name
    after: int = Field(0, ge=0, le=MAX_SEQUENCE, strict=True)


class Unsubscribe(Message):
    action: Literal["unsubscribe"]
    job_id: Name


class Follow(Message):
    action: Literal["follow"]
    kind: Name


class Unfollow(Message):
    action: Literal["unfollow"]
    kind: Name


class Ping(Message):
    action: Literal["ping"]


class Ask(Message):
    """A question. `{"query": …}` alone is one, too. `key`: an idempotency key."""

    action: Literal["ask"]
    query: str
    session: str | None = None
    key: str | None = None


AnyMessage = Annotated[Subscribe | Unsubscribe | Follow | Unfollow | Ping | Ask, Field(discriminator="action")]
_message = TypeAdapter[Any](AnyMessage)
_json = TypeAdapter[Any](Any)
"""Refuses lone surrogates, unlike the standard library."""


def parse(text: str) -> Message:
    """The message. Raises InvalidRequest, which names the field."""
    try:
        message: Message = _message.validate_python(_with_action(_json.validate_json(text)))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        tag = ("action",) if first["type"].startswith("union_tag") else ()
        # the location begins with the name of the action
        raise invalid(".".join(str(part) for part in (*first["loc"][1:], *tag)), first["msg"]) from None
    return message


def invalid(field: str, reason: str) -> InvalidRequest:
    """`field`: empty for the whole message."""
    field = field or "message"
    return InvalidRequest(f"{field}: {reason}"[:MAX_ERROR_CHARACTERS], field=field)


def _with_action(message: Any) -> Any:
    """The plainest message is a question: `{"query": …}`."""
    is_question = isinstance(message, dict) and "query" in message and "action" not in message
    return message | {"action": "ask"} if is_question else message
