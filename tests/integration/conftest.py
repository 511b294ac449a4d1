"""The service as its owners see it, deployed in the simulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from core.webhooks.transport import client
from tests.simulated_cloud.cloud import Cloud
from tests.support import client_cache
from tests.support.receiver import Receiver
from tests.support.service import Service


@pytest.fixture
def service(cloud: Cloud) -> Iterator[Service]:
    """What the owner `ana` can do, and what an operator sees. Whatever functions called, their roles allow."""
    with client_cache.installed():
        yield Service(cloud)
        assert cloud.denied() == []


@pytest.fixture
def knob(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`knob("ChunkDocument", CHUNK_SIZE=100)`: another environment for one function, for one test."""

    def turn(function: str, **values: object) -> None:
        found = cloud.functions.get(cloud.name("AWS::Lambda::Function", function))
        for name, value in values.items():
            assert name in found.environment_vars
            monkeypatch.setitem(found.environment_vars, name, str(value))

    return turn


@pytest.fixture
def without_reaper(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sweep every minute: hours pass faster."""
    for rule in cloud.bus.rules:
        if rule.every:
            monkeypatch.setattr(rule, "enabled", False)


@pytest.fixture
def receiver(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """The server that all webhooks go to."""
    receiver = Receiver(cloud.clock)
    monkeypatch.setattr(client, "post", receiver.post)
    return receiver
