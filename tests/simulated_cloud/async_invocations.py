"""Asynchronous invocations of functions: a queue and retries after one and two minutes.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from moto.awslambda.models import LambdaFunction

from .clock import Clock
from .cooperative_threads import EPSILON
from .functions import Functions

RETRY_SECONDS = (60.0, 120.0)


@dataclass
class Pending:
    """A queued event. `due` is when it is to be delivered; `attempt` counts failed attempts."""

    function: LambdaFunction
    body: str
    due: float
    attempt: int = 0


class AsyncInvocations:
    """The queue of asynchronous invocations. `retries` has the number of retries by the function's physical name.

    An event whose retries are used up is lost: there are no dead-letter queues and failure destinations.
    """

    def __init__(self, clock: Clock, functions: Functions) -> None:
        self._clock = clock
        self._functions = functions
        self._pending: list[Pending] = []
        self.retries: dict[str, int] = {}
        functions.enqueue = self.enqueue

    def enqueue(self, function: LambdaFunction, body: str) -> None:
        self._pending.append(Pending(function, body or "{}", self._clock.time))

    def run_due(self) -> int:
        """Run the invocations that are due. Returns how many."""
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
        result = self._functions.call(item.function, json.loads(item.body))
        retries = self.retries.get(item.function.function_name, len(RETRY_SECONDS))
        if result.error and item.attempt < retries:
            due = self._clock.time + RETRY_SECONDS[item.attempt]
            self._pending.append(Pending(item.function, item.body, due, item.attempt + 1))
