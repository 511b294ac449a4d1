"""A client that stands between a store and its table, and does in the middle of a write what a test plans."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from tests.unit.core.jobs.memory_table import canceled

Write = Callable[[], Any]
Meddling = Callable[[Write], Any]
"""Gets the write that is about to happen, and carries it out or not."""


class Crash(BaseException):
    """The process is gone in the middle of a call."""


class Meddler:
    """Passes everything on; each transaction meets the next planned meddling. `requests` keeps them all."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.plan: deque[Meddling] = deque()
        self.requests: list[list[dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def transact_write_items(self, **request: Any) -> Any:
        self.requests.append(request["TransactItems"])

        def write() -> Any:
            return self._client.transact_write_items(**request)

        return self.plan.popleft()(write) if self.plan else write()


def conflict(write: Write) -> Any:
    """Another transaction is under way at the same items: nothing is written."""
    raise canceled("TransactionConflict", "None")


def check_failed(write: Write) -> Any:
    """DynamoDB judged by a state that the next read does not show any more: nothing is written."""
    raise canceled("ConditionalCheckFailed", "None")


def in_progress(write: Write) -> Any:
    """The write succeeds, but the SDK, which lost the answer and asked again, was told that it is under way."""
    write()
    raise ClientError({"Error": {"Code": "TransactionInProgressException"}}, "TransactWriteItems")


def crash_before(write: Write) -> Any:
    raise Crash


def crash_after(write: Write) -> Any:
    write()
    raise Crash


def meanwhile(rival: Callable[[], Any]) -> Meddling:
    """Somebody else does something just before the write."""

    def meddle(write: Write) -> Any:
        rival()
        return write()

    return meddle
