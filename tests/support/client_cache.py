"""The caches of the simulated cloud, and what survives cold starts: AWS clients and the routes of the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from core.aws import clients
from rest.api import handler as api
from tests.simulated_cloud import caching

CLIENTS = tuple(caching.memoised(clients, name) for name in ("client", "s3", "dynamodb"))
make_app: Any = api.app.__wrapped__
_apps: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


@contextmanager
def installed() -> Iterator[None]:
    with caching.installed(*CLIENTS, (api, "app", app)):
        yield


def app() -> Any:
    """The resolver of the API for these kinds and origins. To make its models takes longer than a request."""
    kinds = list(api.KINDS.values())
    key = (api.dependencies.settings.cors_origins, *map(id, kinds))
    if key not in _apps:
        _apps[key] = make_app(), kinds
    return _apps[key][0]
