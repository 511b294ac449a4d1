"""Every few minutes a word to each open WebSocket: API Gateway ends those that are silent for ten.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from core.live import messages
from core.live.sockets import Outcome
from live.dependencies import dependencies

AT_ONCE = 1000


def handler(event: dict[str, Any], context: Any) -> None:
    audience, sockets = dependencies().audience, dependencies().sockets
    connections = audience.connections()
    while some := list(islice(connections, AT_ONCE)):
        for connection_id, outcome in sockets.tell_all({one: [messages.PING] for one in some}).items():
            if outcome is Outcome.GONE:
                audience.forget(connection_id)
