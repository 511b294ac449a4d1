"""Every few minutes a word to each open WebSocket: API Gateway ends those that are silent for ten.

https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import islice
from typing import Any

from core import clients, settings
from core.live import messages
from core.live.audience import Audience
from core.live.sockets import Outcome, Sockets

AT_ONCE = 1000


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    live_url: str


@functools.cache
def dependencies() -> tuple[Audience, Sockets]:
    config = settings.load(Settings)
    return Audience(clients.dynamodb(), config.jobs_table), Sockets(clients.management(config.live_url))


def handler(event: dict[str, Any], context: Any) -> None:
    audience, sockets = dependencies()
    connections = audience.connections()
    while some := list(islice(connections, AT_ONCE)):
        for connection_id, outcome in sockets.tell_all({one: [messages.PING] for one in some}).items():
            if outcome is Outcome.GONE:
                audience.forget(connection_id)
