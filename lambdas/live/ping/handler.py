"""Sends a ping to every open WebSocket every few minutes: API Gateway closes connections that are idle for ten.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from core.dependencies import dependencies
from core.live import messages
from core.live.sockets import SendOutcome

BATCH_SIZE = 1000


def handler(event: dict[str, Any], context: Any) -> None:
    subscriptions, sockets = dependencies.subscriptions, dependencies.sockets
    connections = subscriptions.connections()
    while batch := list(islice(connections, BATCH_SIZE)):
        for connection_id, outcome in sockets.send_all({one: [messages.PING] for one in batch}).items():
            if outcome is SendOutcome.GONE:
                subscriptions.delete_connection(connection_id)
