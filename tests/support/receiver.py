"""Somebody's server, without a socket: it notes what webhooks came and answers what a test says."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import standardwebhooks
import svix
from requests.structures import CaseInsensitiveDict

from core.webhooks.transport import client
from tests.simulated_cloud.calls import Killed, caller
from tests.simulated_cloud.clock import Clock


@dataclass(frozen=True)
class Received:
    """One request. `at` is when it came, in seconds since the epoch; `body` the raw bytes."""

    url: str
    body: bytes
    headers: CaseInsensitiveDict[str]
    at: float

    @property
    def event_id(self) -> str:
        return str(self.headers["webhook-id"])


Answer = int | BaseException | client.Response
Reaction = Callable[[Received], Answer]


def response(status: int, body: bytes = b"") -> client.Response:
    return client.Response(status=status, headers={}, body=body, truncated=False)


@dataclass
class Receiver:
    """Stands in for `client.post`. `answers` are given one by one, then `always`; `react` decides instead."""

    clock: Clock
    requests: list[Received] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    always: Answer = 200
    react: Reaction | None = None

    def post(self, url: str, *, body: bytes, headers: Mapping[str, str], **options: Any) -> client.Response:
        received = Received(url, body, CaseInsensitiveDict(headers), self.clock.time)
        self.requests.append(received)
        answer = self.react(received) if self.react else self.answers.pop(0) if self.answers else self.always
        if isinstance(answer, Killed) and (sender := caller.get()):
            sender.killed_by = answer
        if isinstance(answer, BaseException):
            raise answer
        return response(answer) if isinstance(answer, int) else answer

    def of(self, event_id: str) -> list[Received]:
        return [received for received in self.requests if received.event_id == event_id]


def verify(received: Received, secret: str) -> None:
    """Raise unless both independent libraries and the plain HMAC find the request signed with the secret, now."""
    standardwebhooks.Webhook(secret).verify(received.body, dict(received.headers))
    svix.Webhook(secret).verify(received.body, dict(received.headers))
    expected = hmac.new(secret.encode(), received.body, "sha256").hexdigest()
    assert received.headers["X-Signature"] == f"sha256={expected}"
