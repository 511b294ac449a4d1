"""A fake of API Gateway's @connections API, which records messages and raises errors."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import Any

from botocore.exceptions import ClientError

GONE = "GoneException"
THROTTLED = "LimitExceededException"


class Gateway:
    """A client of `apigatewaymanagementapi`. `errors` has the error code, or the error, by connection."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.closed: list[str] = []
        self.errors: dict[str, str | Exception] = {}
        self._lock = threading.Lock()

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:
        with self._lock:
            self._raise_error("PostToConnection", ConnectionId)
            self.sent[ConnectionId].append(Data.decode())

    def delete_connection(self, *, ConnectionId: str) -> None:
        with self._lock:
            self._raise_error("DeleteConnection", ConnectionId)
            self.closed.append(ConnectionId)

    def received(self, connection_id: str) -> list[Any]:
        """The messages since the last call."""
        return [json.loads(text) for text in self.sent.pop(connection_id, [])]

    def _raise_error(self, operation: str, connection_id: str) -> None:
        error = self.errors.get(connection_id)
        if isinstance(error, str):
            raise ClientError({"Error": {"Code": error, "Message": error}}, operation)
        if error:
            raise error


def sequences(messages: list[Any]) -> list[int]:
    """The sequences of the events in these messages."""
    return [event["sequence"] for message in messages for event in message.get("events", [])]
