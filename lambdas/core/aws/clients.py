"""AWS clients, made once per function and only where they are used."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

# Our own retries are in queues and state machines, so the SDK's are few and an unanswered call is given up soon.
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 3},
    connect_timeout=3,
    read_timeout=20,
)
# As many connections as the busiest function has threads, and the service alone checks what it is sent: both are
# felt where it is called a thousand times a second.
_BUSY = Config(max_pool_connections=64, parameter_validation=False)
# One socket that is slow to be told must not keep the others waiting; it is told again later.
_IMPATIENT = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=2, read_timeout=5)


def client(service: str) -> Any:
    return boto3.client(service, config=_CONFIG)  # type: ignore[call-overload]


def busy(service: str) -> Any:
    """For what is called a thousand times a second."""
    return boto3.client(service, config=_CONFIG.merge(_BUSY))  # type: ignore[call-overload]


def management(live_url: str) -> Any:
    """What speaks to the sockets of the WebSocket API at `live_url` (wss://…), at that very address."""
    endpoint = "http" + live_url.removeprefix("ws")
    config = _CONFIG.merge(_BUSY).merge(_IMPATIENT)
    return boto3.client("apigatewaymanagementapi", endpoint_url=endpoint, config=config)


def s3() -> Any:
    """SigV4 binds the headers of a presigned upload; a regional host keeps a new bucket from redirecting it."""
    regional = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
    return boto3.client("s3", config=_CONFIG.merge(regional))


def dynamodb() -> Any:
    """The client of a resource: it takes and gives plain Python values."""
    return boto3.resource("dynamodb", config=_CONFIG.merge(_BUSY)).meta.client
