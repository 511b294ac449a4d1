"""Sends messages to open WebSockets through API Gateway's @connections API.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-how-to-call-websocket-api-connections.html
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.log import logger

MAX_THREADS = 32


class SendOutcome(Enum):
    """The outcome of sending messages to a connection. FAILED: the first of them may have arrived."""

    SENT = "sent"
    GONE = "gone"
    FAILED = "failed"


class Sockets:
    """`client` is a client of `apigatewaymanagementapi` with the endpoint of the WebSocket API."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, connection_id: str, messages: Sequence[str]) -> SendOutcome:
        """Send messages in order, until one fails. Does not raise errors of AWS."""
        try:
            for message in messages:
                self._client.post_to_connection(ConnectionId=connection_id, Data=message.encode())
        except (BotoCoreError, ClientError) as error:
            if aws_errors.code(error) == "GoneException":
                return SendOutcome.GONE
            logger.warning("message not sent to WebSocket", reason=aws_errors.reason(error))
            return SendOutcome.FAILED
        return SendOutcome.SENT

    def send_all(self, messages: Mapping[str, Sequence[str]]) -> dict[str, SendOutcome]:
        """Send messages to many connections at once. Both mappings are by connection id."""
        with _threads(len(messages)) as pool:
            return dict(zip(messages, pool.map(self.send, messages, messages.values()), strict=True))

    def close(self, connection_id: str) -> None:
        """Close a connection, so that its client reconnects and requests what it has not received."""
        try:
            self._client.delete_connection(ConnectionId=connection_id)
        except (BotoCoreError, ClientError) as error:
            logger.warning("WebSocket not closed", reason=aws_errors.reason(error))

    def close_all(self, connection_ids: Collection[str]) -> None:
        """Close many connections at once."""
        with _threads(len(connection_ids)) as pool:
            list(pool.map(self.close, connection_ids))


def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, min(MAX_THREADS, count)))
