"""The API with empty tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.dependencies import Dependencies, dependencies
from rest.api.handler import handler
from tests.support import client_cache
from tests.unit.http_calls import Answer, call

Api = Callable[..., Answer]


@pytest.fixture
def deployed(
    environment: dict[str, str],
    jobs_table: str,
    deliveries_table: str,
    keys_table: str,
    bucket: str,
    secrets_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Dependencies:
    """The dependencies of the API, with empty tables."""
    monkeypatch.setattr("rest.api.handler.app", client_cache.app)
    return dependencies


@pytest.fixture
def api(deployed: Dependencies) -> Api:
    """Calls the API: `api("POST", "/jobs", {...}, headers={...}, owner="ben")`."""

    def ask(method: str, path: str, body: Any = None, **options: Any) -> Answer:
        return call(handler, method, path, body, **options)

    return ask
