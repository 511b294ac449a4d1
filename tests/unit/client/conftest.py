"""The stub service and the stub of HTTP that several test modules use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from recado import _io, _retry, _watcher
from tests.unit.client.stub_http import Caller, StubHttp, call_client
from tests.unit.client.stub_service import StubService, payloads, running


@pytest.fixture(scope="module")
def module_service() -> Iterator[StubService]:
    with running() as service:
        yield service


@pytest.fixture
def service(module_service: StubService) -> StubService:
    """With a completed job of eight events."""
    module_service.reset(payloads(8))
    return module_service


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays between retries take milliseconds, and so may sessions."""
    monkeypatch.setattr(_watcher, "MIN_SESSION_SECONDS", 0.05)
    monkeypatch.setattr(_retry, "BASE_SECONDS", 0.002)
    monkeypatch.setattr(_retry, "CAP_SECONDS", 0.01)


@pytest.fixture
def http() -> StubHttp:
    return StubHttp()


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Runs the test with each of the two clients."""
    return bool(request.param)


@pytest.fixture
def call(asynchronous: bool, http: StubHttp) -> Caller:
    return partial(call_client, http, asynchronous=asynchronous)


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays before retries, in seconds. None takes any time."""
    slept: list[float] = []

    async def sleep(_: object, seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(_io.BlockingIO, "sleep", sleep)
    monkeypatch.setattr(_io.AsyncIO, "sleep", sleep)
    return slept
