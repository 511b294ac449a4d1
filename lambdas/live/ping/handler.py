"""Every few minutes a word to each open WebSocket: API Gateway ends those that are silent for ten.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from core.dependencies import dependencies
from core.live import messages
from core.live.sockets import SendOutcome

AT_ONCE = 1000


def handler(event: dict[str, Any], context: Any) -> None:
    subscriptions, sockets = dependencies.subscriptions, dependencies.sockets
    connections = subscriptions.connections()
    while some := list(islice(connections, AT_ONCE)):
        for connection_id, outcome in sockets.send_all({one: [messages.PING] for one in some}).items():
            if outcome is SendOutcome.GONE:
                subscriptions.forget(connection_id)
