"""A service that is there for all tests of a module, and clients whose pauses are short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recado import _calls, _following
from tests.unit.client.service import Service, payloads, running


@pytest.fixture(scope="module")
def one_service() -> Iterator[Service]:
    with running() as service:
        yield service


@pytest.fixture
def service(one_service: Service) -> Service:
    """With a job that has run through: eight events."""
    one_service.reset(payloads(8))
    return one_service


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries of some milliseconds, and sessions that may be as short."""
    monkeypatch.setattr(_following, "GAP_SECONDS", 0.05)
    monkeypatch.setattr(_calls, "BASE_SECONDS", 0.002)
    monkeypatch.setattr(_calls, "CAP_SECONDS", 0.01)
