"""Questions of clients: each is submitted as a job, and its steps are sent to the connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from core import submission
from core.dependencies import dependencies
from core.errors import Forbidden, InvalidRequest
from core.jobs import Kind
from core.jobs.models import JobRequest
from core.live.subscriptions import Connection
from kinds.registry import KINDS
from live.on_message.client_messages import Ask, invalid

READ_ONLY = (
    'This connection may not ask. Open one with a ticket from POST /live/tickets with {"ask": true}, by a '
    "key with the scope jobs:write."
)
REVOKED = "A key of this connection's owner was revoked. Open a new connection."


def ask(connection: Connection, message: Ask, *, message_id: str) -> None:
    """Submit a question. API Gateway's id of the message is its idempotency key, unless it brings one.

    Raises RequestError.
    """
    _check_may_ask(connection)
    kind = _kind_of_questions()
    given = {name: value for name, value in _input(kind, message).items() if value is not None}
    accepted = submission.submit(
        kind,
        JobRequest.model_validate({"kind": kind.name, "input": _validated(kind, given, message)}),
        owner=connection.owner,
        idempotency_key=message_id if message.key is None else message.key,
        body={"kind": kind.name, "input": given},
    )
    dependencies.subscriptions.subscribe(connection, accepted.submission.job.job_id, to_steps=True)


def _check_may_ask(connection: Connection) -> None:
    """A question costs money, so none is accepted after a revocation."""
    if not connection.may_ask:
        raise Forbidden(READ_ONLY)
    if dependencies.keys.epoch(connection.owner).number != connection.epoch:
        raise Forbidden(REVOKED)


def _kind_of_questions() -> Kind:
    for kind in KINDS.values():
        if kind.on_question is not None:
            return kind
    raise InvalidRequest("This deployment answers no questions.", field="action")


def _input(kind: Kind, message: Ask) -> Mapping[str, Any]:
    return kind.on_question(message.query, message.session) if kind.on_question else {}


def _validated(kind: Kind, given: Mapping[str, Any], message: Ask) -> BaseModel:
    """Errors name the field of the message: the kind may have another name for `query`."""
    try:
        return kind.input.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        raise invalid("query" if given.get(name) == message.query else name, first["msg"]) from None
