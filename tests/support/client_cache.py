"""The caches of the simulated cloud, and with them the AWS clients of the service, which survive cold starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.aws import clients
from tests.simulated_cloud import caching

CLIENTS = tuple(caching.memoised(clients, name) for name in ("client", "s3", "dynamodb"))


@contextmanager
def installed() -> Iterator[None]:
    with caching.installed(*CLIENTS):
        yield
