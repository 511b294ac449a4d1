"""Asynchronous invocations: queued, tried again after one and two minutes, then sent to where failures go."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.awslambda.models import LambdaFunction

from .calls import behind_the_scenes
from .clock import Clock
from .cooperative import EPSILON
from .functions import ACCOUNT, REGION, Functions, Outcome

RETRY_SECONDS = (60.0, 120.0)


@dataclass
class Pending:
    function: LambdaFunction
    body: str
    due: float
    attempt: int = 0


@dataclass
class Policy:
    """What a function's asynchronous invocations do when they fail."""

    retries: int = len(RETRY_SECONDS)
    dead_letters: str | None = None
    on_failure: str | None = None


class Asynchronous:
    """The queue of events that wait for their functions."""

    def __init__(self, clock: Clock, functions: Functions, client: Callable[[str], Any]) -> None:
        self._clock = clock
        self._functions = functions
        self._client = client
        self._pending: list[Pending] = []
        self.policies: dict[str, Policy] = {}
        functions.post = self.post

    def post(self, function: LambdaFunction, body: str) -> None:
        self._pending.append(Pending(function, body or "{}", self._clock.time))

    def run_due(self) -> int:
        due = [item for item in self._pending if item.due <= self._clock.time + EPSILON]
        for item in due:
            self._pending.remove(item)
            self._run(item)
        return len(due)

    def next_due(self) -> float | None:
        return min((item.due for item in self._pending), default=None)

    def reset(self) -> None:
        self._pending.clear()

    def _run(self, item: Pending) -> None:
        outcome = self._functions.call(item.function, json.loads(item.body))
        if not outcome.error:
            return
        policy = self.policies.setdefault(item.function.function_name, Policy())
        if item.attempt < policy.retries:
            due = self._clock.time + RETRY_SECONDS[item.attempt]
            self._pending.append(Pending(item.function, item.body, due, item.attempt + 1))
        else:
            self._give_up(item, policy, outcome)

    def _give_up(self, item: Pending, policy: Policy, outcome: Outcome) -> None:
        with behind_the_scenes():
            if policy.dead_letters:
                send(self._client, policy.dead_letters, item.body)
            if policy.on_failure:
                send(self._client, policy.on_failure, json.dumps(self._record(item, outcome)))

    def _record(self, item: Pending, outcome: Outcome) -> dict[str, Any]:
        return {
            "version": "1.0",
            "timestamp": datetime.fromtimestamp(self._clock.time, UTC).isoformat(),
            "requestContext": {
                "requestId": outcome.invocation.request_id,
                "functionArn": f"{item.function.function_arn}:$LATEST",
                "condition": "RetriesExhausted",
                "approximateInvokeCount": item.attempt + 1,
            },
            "requestPayload": json.loads(item.body),
            "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
            "responsePayload": outcome.value,
        }


def send(client: Callable[[str], Any], arn: str, body: str) -> None:
    """Put a message into the queue or topic with this ARN."""
    service, name = arn.split(":")[2], arn.rsplit(":", 1)[1]
    if service == "sqs":
        url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
        client("sqs").send_message(QueueUrl=url, MessageBody=body)
    elif service == "sns":
        client("sns").publish(TopicArn=arn, Message=body)
    else:
        raise ValueError(f"cannot send to {arn}")
