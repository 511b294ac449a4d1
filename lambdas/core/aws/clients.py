"""boto3 clients. `core.dependencies` makes each of them once per function."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

# Queues and state machines retry, so the SDK makes few attempts and has short timeouts.
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 3},
    connect_timeout=3,
    read_timeout=20,
)
# As many connections as the function with most threads has, and no client-side validation: both are noticeable at
# a thousand calls a second.
_HIGH_THROUGHPUT = Config(max_pool_connections=64, parameter_validation=False)
# A slow WebSocket must not delay the others. Its messages are sent again later.
_SHORT_TIMEOUTS = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=2, read_timeout=5)
LONGEST_SILENCE_SECONDS = 60
"""For how long a model may send nothing, also before its first byte."""
# A call of a model that fails may have been billed, so only its job decides whether it is sent again.
_ONE_REQUEST = Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=LONGEST_SILENCE_SECONDS)


def client(service: str) -> Any:
    return boto3.client(service, config=_CONFIG)  # type: ignore[call-overload]


def high_throughput(service: str) -> Any:
    """A client for a thousand calls a second."""
    return boto3.client(service, config=_CONFIG.merge(_HIGH_THROUGHPUT))  # type: ignore[call-overload]


def model(service: str) -> Any:
    """A client for calls of models: one request for each call, whatever happens."""
    return boto3.client(service, config=_CONFIG.merge(_ONE_REQUEST))  # type: ignore[call-overload]


def management(live_url: str) -> Any:
    """The client of the @connections API of the WebSocket API at `live_url` (wss://…)."""
    endpoint = "http" + live_url.removeprefix("ws")
    config = _CONFIG.merge(_HIGH_THROUGHPUT).merge(_SHORT_TIMEOUTS)
    return boto3.client("apigatewaymanagementapi", endpoint_url=endpoint, config=config)


def s3() -> Any:
    """SigV4, which signs the headers of presigned uploads, and a regional host: new buckets redirect others."""
    regional = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
    return boto3.client("s3", config=_CONFIG.merge(regional))


def dynamodb() -> Any:
    """A resource's client: it takes and returns plain Python values."""
    return boto3.resource("dynamodb", config=_CONFIG.merge(_HIGH_THROUGHPUT)).meta.client
