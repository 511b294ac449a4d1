"""The routes of the WebSocket API: connections, messages of clients, and disconnections.

A request for a job's events is only stored here. The function `push`, which sends a job's messages, answers it. A
question is submitted as a job, whose worker sends the steps of the answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from core.dependencies import dependencies
from core.errors import Conflict, Forbidden, InvalidRequest, RequestError
from core.jobs import links, valid_job_id
from core.live import messages
from core.live.subscriptions import MAX_SUBSCRIPTIONS, TICKET_REFUSED, Connection
from core.log import logger
from kinds.registry import KINDS
from live.on_message.client_messages import Ask, Follow, Message, Ping, Subscribe, Unfollow, Unsubscribe, parse
from live.on_message.questions import ask

ONE_JOB = "This connection was opened with a link to one job. Open one with a ticket from POST /live/tickets."
Answer = dict[str, Any]


def handler(event: dict[str, Any], context: Any) -> Answer:
    routes = {"CONNECT": connect, "MESSAGE": on_message, "DISCONNECT": disconnect}
    return routes[event["requestContext"]["eventType"]](event)


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────


def connect(event: Mapping[str, Any]) -> Answer:
    """Accept a job's link or an owner's ticket. A refusal can only have a status."""
    query = event.get("queryStringParameters") or {}
    connection_id = event["requestContext"]["connectionId"]
    try:
        if "token" in query:
            _connect_by_link(connection_id, query["token"], query.get("after"))
        else:
            _connect_by_ticket(connection_id, query.get("ticket", ""))
    except RequestError as error:
        return {"statusCode": error.status}
    return {"statusCode": 200}


def _connect_by_ticket(connection_id: str, ticket: str) -> None:
    """Epochs are not cached here: `ping` finds every connection that was opened before a revocation."""
    found = dependencies.subscriptions.redeem_ticket(ticket)
    if found.epoch != dependencies.keys.epoch(found.owner).number:
        raise Forbidden(TICKET_REFUSED)
    dependencies.subscriptions.connect(connection_id, owner=found.owner, epoch=found.epoch, may_ask=found.may_ask)


def _connect_by_link(connection_id: str, token: str, after: str | None) -> None:
    """A connection by link is subscribed to the link's job, and cannot subscribe to others.

    It gets the steps of a job that has steps, unless it asks for events: `after` is the sequence of one.
    """
    sequence = 0 if after is None else _sequence(after)
    found, epoch = links.resolve(
        token,
        dependencies.jobs.snapshot,
        now=time.time(),
        epochs=lambda owner: [dependencies.keys.epoch(owner).number],
    )
    job, subscriptions = found.job, dependencies.subscriptions
    connection = subscriptions.connect(
        connection_id, owner=job.owner, job_id=job.job_id, epoch=epoch, link=links.key_fingerprint(job)
    )
    subscriptions.subscribe(connection, job.job_id, after=sequence, to_steps=job.has_steps and after is None)


def _sequence(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise InvalidRequest("This is not the sequence of an event.", field="after")
    return int(text)


def disconnect(event: Mapping[str, Any]) -> Answer:
    dependencies.subscriptions.delete_connection(event["requestContext"]["connectionId"])
    return {"statusCode": 200}


# ── messages of clients ──────────────────────────────────────────────────────────────────────────────────


def on_message(event: Mapping[str, Any]) -> Answer:
    """Carry out a client's message. Errors are sent to the client as messages."""
    connection_id = event["requestContext"]["connectionId"]
    reply = _reply(connection_id, event.get("body") or "", message_id=event["requestContext"]["messageId"])
    if reply:
        dependencies.sockets.send(connection_id, [reply])
    return {"statusCode": 200}


def _reply(connection_id: str, text: str, *, message_id: str) -> str | None:
    job: dict[str, str] = {}
    try:
        message = parse(text)
        if isinstance(message, Ping):
            return messages.PONG
        if isinstance(message, (Subscribe, Unsubscribe)):
            job["job_id"] = message.job_id
        connection = dependencies.subscriptions.connection(connection_id)
        if connection is None:
            raise Forbidden("This connection was closed. Connect again.")
        if isinstance(message, Ask):
            _check_limit(connection)
            ask(connection, message, message_id=message_id)
            return None
        return _ACTIONS[type(message)](connection, message)
    except RequestError as error:
        return messages.of_error(error.code, str(error), **job)
    except Exception as error:
        logger.exception("message failed", error_type=type(error).__name__)
        return messages.of_error("internal", "An internal error occurred. Try again.", **job)


def _subscribe(connection: Connection, message: Subscribe) -> None:
    """`push` sends the events that were missed, and `subscribed` after them."""
    _check_access(connection, message.job_id)
    if not dependencies.subscriptions.is_subscribed(connection.connection_id, message.job_id):
        _check_limit(connection)
    dependencies.subscriptions.subscribe(connection, message.job_id, after=message.after)


def _check_access(connection: Connection, job_id: str) -> None:
    if connection.job_id not in (None, job_id):
        raise Forbidden(ONE_JOB)
    dependencies.jobs.get(valid_job_id(job_id), owner=connection.owner)


def _check_limit(connection: Connection) -> None:
    if dependencies.subscriptions.count(connection.connection_id) >= MAX_SUBSCRIPTIONS:
        raise TooManySubscriptions(
            f"A connection can subscribe to {MAX_SUBSCRIPTIONS} jobs and kinds. Unsubscribe, or open another one."
        )


class TooManySubscriptions(Conflict):
    code = "too_many_subscriptions"


def _unsubscribe(connection: Connection, message: Unsubscribe) -> str:
    dependencies.subscriptions.unsubscribe(connection.connection_id, message.job_id)
    return messages.of_type("unsubscribed", job_id=message.job_id)


def _follow(connection: Connection, message: Follow) -> str:
    if connection.job_id is not None:
        raise Forbidden(ONE_JOB)
    if message.kind not in KINDS:
        raise InvalidRequest(f"kind: choose from {', '.join(KINDS)}", field="kind")
    _check_limit(connection)
    dependencies.subscriptions.follow(connection, message.kind)
    return messages.of_type("following", kind=message.kind)


def _unfollow(connection: Connection, message: Unfollow) -> str:
    dependencies.subscriptions.unfollow(connection, message.kind)
    return messages.of_type("unfollowed", kind=message.kind)


_ACTIONS: dict[type[Message], Callable[[Connection, Any], str | None]] = {
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
    Follow: _follow,
    Unfollow: _unfollow,
}
