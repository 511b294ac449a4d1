"""API Gateway's @connections API, as functions call it: what each connection was sent, and what goes wrong."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import Any

from botocore.exceptions import ClientError

GONE = "GoneException"
THROTTLED = "LimitExceededException"


class Gateway:
    """A client of `apigatewaymanagementapi`. `troubles` has the error code, or the error, by connection."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.closed: list[str] = []
        self.troubles: dict[str, str | Exception] = {}
        self._lock = threading.Lock()

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:
        with self._lock:
            self._meet_trouble("PostToConnection", ConnectionId)
            self.sent[ConnectionId].append(Data.decode())

    def delete_connection(self, *, ConnectionId: str) -> None:
        with self._lock:
            self._meet_trouble("DeleteConnection", ConnectionId)
            self.closed.append(ConnectionId)

    def heard(self, connection_id: str) -> list[Any]:
        """The messages so far, which are then forgotten."""
        return [json.loads(text) for text in self.sent.pop(connection_id, [])]

    def _meet_trouble(self, operation: str, connection_id: str) -> None:
        trouble = self.troubles.get(connection_id)
        if isinstance(trouble, str):
            raise ClientError({"Error": {"Code": trouble, "Message": trouble}}, operation)
        if trouble:
            raise trouble


def sequences(messages: list[Any]) -> list[int]:
    """The numbers of the events in these messages."""
    return [event["sequence"] for message in messages for event in message.get("events", [])]
