"""The client and the command as their users have them, on the simulated cloud and its clock."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import httpx2
import pytest

from recado import Recado, _io
from tests.simulated_cloud.cloud import Cloud

from .service import Service

URL = "https://api.test/v1"


class Line:
    """A WebSocket as the client's library gives it: while it waits for a message, the service works."""

    def __init__(self, cloud: Cloud, url: str) -> None:
        self._cloud, self._socket = cloud, cloud.connect(url)

    async def receive(self, seconds: float) -> str | None:
        self._cloud.settle()
        if not self._socket.texts:
            self._cloud.advance(seconds)
        return self._socket.texts.pop(0) if self._socket.texts else None

    async def send(self, text: str) -> None:
        self._socket.send(text)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def connected(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recado]:
    """The client of the service's owner. While it sleeps, and after an answer was held, the service works."""
    cloud, store = service.cloud, threading.Lock()

    def handle(request: httpx2.Request) -> httpx2.Response:
        body, headers = request.read(), dict(request.headers)
        if request.url.host != "api.test":
            with store:  # the store of these tests takes one part at a time
                found = cloud.fetch(request.method, str(request.url), body=body, headers=headers)
            kept = {"ETag": found.headers["ETag"]} if "ETag" in found.headers else {}
            return httpx2.Response(found.status_code, content=found.content, headers=kept)
        target = request.url.raw_path.decode().removeprefix("/v1")
        answer = cloud.request(request.method, target, body=body, headers=headers)
        if "wait=" in target or headers["accept"] == "text/event-stream":
            cloud.settle()  # nothing happens here while an answer is held, but right after it
        return httpx2.Response(answer.status, headers=answer.headers, content=answer.body)

    async def sleep(_: Any, seconds: float) -> None:
        cloud.advance(seconds)

    @asynccontextmanager
    async def socket(_: Any, url: str) -> AsyncIterator[Line]:
        with closing(Line(cloud, url)) as line:
            yield line

    monkeypatch.setattr(_io.BlockingIO, "sleep", sleep)
    monkeypatch.setattr(_io.BlockingIO, "socket", socket)
    monkeypatch.setattr(_io.BlockingIO, "clock", lambda _: cloud.clock.time)
    monkeypatch.setattr(time, "monotonic", lambda: cloud.clock.time)
    key = service.authorization["Authorization"].removeprefix("Bearer ")
    with httpx2.Client(transport=httpx2.MockTransport(handle)) as http, Recado(URL, key, http=http) as client:
        yield client
