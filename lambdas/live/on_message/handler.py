"""The WebSocket API's routes: who comes in, what they ask for, and that they have left.

What a client asks for is only noted here: `live_push`, which speaks to a job's listeners, answers it in turn.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.dependencies import dependencies
from core.errors import Conflict, Forbidden, InvalidRequest, RequestError
from core.jobs import links, well_formed
from core.live import messages
from core.live.subscriptions import MAX_SUBSCRIPTIONS, Connection
from core.log import logger
from kinds.registry import KINDS

ONE_JOB = "This connection was made by a link, which is for one job. POST /live/tickets is for all."
MAX_SEQUENCE = 999_999
MAX_COMPLAINT = 500
"""Characters. What is wrong may be quoted, and may be long."""
Answer = dict[str, Any]


def handler(event: dict[str, Any], context: Any) -> Answer:
    routes = {"CONNECT": connect, "MESSAGE": hear, "DISCONNECT": leave}
    return routes[event["requestContext"]["eventType"]](event)


# ── coming and going ─────────────────────────────────────────────────────────────────────────────────────


def connect(event: Mapping[str, Any]) -> Answer:
    """Let in who has a job's link or an owner's ticket. A status is all that a refusal can say."""
    query = event.get("queryStringParameters") or {}
    connection_id = event["requestContext"]["connectionId"]
    try:
        if "token" in query:
            _connect_by_link(connection_id, query["token"], _sequence(query.get("after", "0")))
        else:
            owner = dependencies.subscriptions.redeem_ticket(query.get("ticket", ""))
            dependencies.subscriptions.connect(connection_id, owner=owner)
    except RequestError as error:
        return {"statusCode": error.status}
    return {"statusCode": 200}


def _connect_by_link(connection_id: str, text: str, after: int) -> None:
    """A link is a subscription already, and to nothing else."""
    job, subscriptions = (
        links.resolve(text, dependencies.jobs.snapshot, now=time.time()).job,
        dependencies.subscriptions,
    )
    connection = subscriptions.connect(connection_id, owner=job.owner, job_id=job.job_id)
    subscriptions.subscribe(connection, job.job_id, after=after)


def _sequence(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise InvalidRequest("This is not the sequence of an event.", field="after")
    return int(text)


def leave(event: Mapping[str, Any]) -> Answer:
    dependencies.subscriptions.forget(event["requestContext"]["connectionId"])
    return {"statusCode": 200}


# ── what clients say ─────────────────────────────────────────────────────────────────────────────────────


Name = Annotated[str, Field(max_length=64)]
"""Longer than any there is, and short enough for a key of the table."""


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


AnyMessage = Annotated[Subscribe | Unsubscribe | Follow | Unfollow | Ping, Field(discriminator="action")]
_read = TypeAdapter[Any](AnyMessage)


def hear(event: Mapping[str, Any]) -> Answer:
    """Carry out what a client asks for; what is wrong with it, the client is told."""
    connection_id = event["requestContext"]["connectionId"]
    reply = _reply(connection_id, event.get("body") or "")
    if reply:
        dependencies.sockets.tell(connection_id, [reply])
    return {"statusCode": 200}


def _reply(connection_id: str, text: str) -> str | None:
    job: dict[str, str] = {}
    try:
        message = _parsed(text)
        if isinstance(message, Ping):
            return messages.PONG
        if isinstance(message, (Subscribe, Unsubscribe)):
            job["job_id"] = message.job_id
        connection = dependencies.subscriptions.connection(connection_id)
        if connection is None:
            raise Forbidden("This connection has ended. Connect again.")
        return _ACTIONS[type(message)](connection, message)
    except RequestError as error:
        return messages.of_error(error.code, str(error), **job)
    except Exception as error:
        logger.exception("message failed", error_type=type(error).__name__)
        return messages.of_error("internal", "Something failed on our side. Try again.", **job)


def _parsed(text: str) -> Message:
    try:
        message: Message = _read.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        tag = ("action",) if first["type"].startswith("union_tag") else ()
        # a place begins with the action's name
        field = ".".join(str(part) for part in (*first["loc"][1:], *tag)) or "message"
        raise InvalidRequest(f"{field}: {first['msg']}"[:MAX_COMPLAINT], field=field) from None
    return message


def _subscribe(connection: Connection, message: Subscribe) -> None:
    """The answer, `subscribed`, follows what was missed, so it comes from who sends that."""
    _may_listen(connection, message.job_id)
    if not dependencies.subscriptions.is_subscribed(connection.connection_id, message.job_id):
        _has_room(connection)
    dependencies.subscriptions.subscribe(connection, message.job_id, after=message.after)


def _may_listen(connection: Connection, job_id: str) -> None:
    if connection.job_id not in (None, job_id):
        raise Forbidden(ONE_JOB)
    dependencies.jobs.get(well_formed(job_id), owner=connection.owner)


def _has_room(connection: Connection) -> None:
    if dependencies.subscriptions.count(connection.connection_id) >= MAX_SUBSCRIPTIONS:
        raise TooManySubscriptions(
            f"A connection listens to {MAX_SUBSCRIPTIONS} jobs and kinds at most. Unsubscribe, or open another."
        )


class TooManySubscriptions(Conflict):
    code = "too_many_subscriptions"


def _unsubscribe(connection: Connection, message: Unsubscribe) -> str:
    dependencies.subscriptions.unsubscribe(connection.connection_id, message.job_id)
    return messages.about("unsubscribed", job_id=message.job_id)


def _follow(connection: Connection, message: Follow) -> str:
    if connection.job_id is not None:
        raise Forbidden(ONE_JOB)
    if message.kind not in KINDS:
        raise InvalidRequest(f"kind: choose from {', '.join(KINDS)}", field="kind")
    _has_room(connection)
    dependencies.subscriptions.follow(connection, message.kind)
    return messages.about("following", kind=message.kind)


def _unfollow(connection: Connection, message: Unfollow) -> str:
    dependencies.subscriptions.unfollow(connection, message.kind)
    return messages.about("unfollowed", kind=message.kind)


_ACTIONS: dict[type[Message], Callable[[Connection, Any], str | None]] = {
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
    Follow: _follow,
    Unfollow: _unfollow,
}
