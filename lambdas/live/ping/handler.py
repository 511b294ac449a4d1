"""Every few minutes, ends the WebSockets of revoked keys and links, and sends a ping to all others.

API Gateway closes connections that are idle for ten minutes.
https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from core.dependencies import dependencies
from core.jobs import links
from core.live import messages
from core.live.sockets import SendOutcome
from core.live.subscriptions import Connection

BATCH_SIZE = 1000


def handler(event: dict[str, Any], context: Any) -> None:
    subscriptions, sockets = dependencies.subscriptions, dependencies.sockets
    connections = subscriptions.connections()
    epochs: dict[str, int] = {}
    while batch := list(islice(connections, BATCH_SIZE)):
        ended = find_ended(batch, epochs)
        sockets.close_all(ended)
        for connection_id in ended:
            subscriptions.delete_connection(connection_id)
        pings = {one.connection_id: [messages.PING] for one in batch if one.connection_id not in ended}
        for connection_id, outcome in sockets.send_all(pings).items():
            if outcome is SendOutcome.GONE:
                subscriptions.delete_connection(connection_id)


def find_ended(connections: Sequence[Connection], epochs: dict[str, int]) -> set[str]:
    """The ids of connections that were opened before a revocation, or by a link that has ended.

    `epochs`: those of owners that were read in this run.
    """
    for owner in {one.owner for one in connections} - epochs.keys():
        epochs[owner] = dependencies.keys.epoch(owner).number
    jobs = dependencies.jobs.listing.by_ids({one.job_id for one in connections if one.job_id})
    keys = {job_id: links.key_fingerprint(job) for job_id, job in jobs.items()}
    return {one.connection_id for one in connections if one.epoch != epochs[one.owner] or _link_ended(one, keys)}


def _link_ended(connection: Connection, keys: dict[str, str]) -> bool:
    """`keys`: fingerprints of link keys by job. The version before stored none with a connection."""
    if connection.job_id is None:
        return False
    key = keys.get(connection.job_id)
    return key is None or connection.link not in (None, key)
