"""A DynamoDB client that injects faults into transactions, as planned by a test."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tests.unit.core.jobs.memory_table import canceled

Write = Callable[[], Any]
Fault = Callable[[Write], Any]
"""Receives the write of a transaction, and carries it out or not."""


class Crash(BaseException):
    """The process is killed during a call."""


class FaultyClient:
    """Passes all calls on. Each transaction meets the next fault in `plan`. `requests`: all transactions."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.plan: deque[Fault] = deque()
        self.requests: list[list[dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def transact_write_items(self, **request: Any) -> Any:
        self.requests.append(request["TransactItems"])

        def write() -> Any:
            return self._client.transact_write_items(**request)

        return self.plan.popleft()(write) if self.plan else write()


def conflict(write: Write) -> Any:
    """Another transaction on the same items is in progress: nothing is written."""
    raise canceled("TransactionConflict", "None")


def check_failed(write: Write) -> Any:
    """A condition fails although the next read shows nothing of it: nothing is written."""
    raise canceled("ConditionalCheckFailed", "None")


def in_progress(write: Write) -> Any:
    """The write succeeds, but its response is lost, and the SDK's second attempt fails."""
    write()
    raise ClientError({"Error": {"Code": "TransactionInProgressException"}}, "TransactWriteItems")


def crash_before(write: Write) -> Any:
    raise Crash


def crash_after(write: Write) -> Any:
    write()
    raise Crash


FAULTS: list[Fault] = [conflict, check_failed, in_progress, crash_before, crash_after]


def before_write(concurrent: Callable[[], Any]) -> Fault:
    """Another writer does something just before the write."""

    def fault(write: Write) -> Any:
        concurrent()
        return write()

    return fault
