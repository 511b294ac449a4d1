"""Messages on their way to open WebSockets, through API Gateway's @connections API.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-how-to-call-websocket-api-connections.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.log import logger

WORKERS = 32


class SendOutcome(Enum):
    """What became of a connection's messages. FAILED: some may have arrived."""

    SENT = "sent"
    GONE = "gone"
    FAILED = "failed"


class Sockets:
    """`client` is one of `apigatewaymanagementapi`, on the WebSocket API's own endpoint."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def tell(self, connection_id: str, messages: Sequence[str]) -> SendOutcome:
        """Send these, in order, as far as it goes. What goes wrong here is nobody else's trouble."""
        try:
            for message in messages:
                self._client.post_to_connection(ConnectionId=connection_id, Data=message.encode())
        except (BotoCoreError, ClientError) as error:
            if aws_errors.code(error) == "GoneException":
                return SendOutcome.GONE
            logger.warning("a WebSocket was not reached", reason=aws_errors.reason(error))
            return SendOutcome.FAILED
        return SendOutcome.SENT

    def send_all(self, messages: Mapping[str, Sequence[str]]) -> dict[str, SendOutcome]:
        """The same for many connections at once: messages and outcomes by connection."""
        with ThreadPoolExecutor(max(1, min(WORKERS, len(messages)))) as pool:
            return dict(zip(messages, pool.map(self.tell, messages, messages.values()), strict=True))

    def close(self, connection_id: str) -> None:
        """Close one that cannot be sent what it should be: its client comes back and asks for what it missed."""
        try:
            self._client.delete_connection(ConnectionId=connection_id)
        except (BotoCoreError, ClientError) as error:
            logger.warning("a WebSocket was not closed", reason=aws_errors.reason(error))
