"""A stub of HTTP for both clients, and the objects that the service returns."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from recado import AsyncRecado, Recado

URL, KEY = "https://host/v1", "rk_key_secret"
JOB = {
    "job_id": "job_1",
    "kind": "document",
    "status": "running",
    "stage": "embed",
    "progress": {"done": 2, "total": 8},
    "attempts": 1,
    "sequence": 3,
    "created_at": "2026-11-29T08:00:00.000Z",
    "links": {"status": "https://host/v1/follow/t/status"},
}
WEBHOOK = {
    "webhook_id": "wh_1",
    "url": "https://me/",
    "events": ["*"],
    "enabled": True,
    "secret": "whsec_" + "a" * 32,
}
DELIVERY = {
    "delivery_id": "dlv_1",
    "webhook_id": "wh_1",
    "event": "document.indexed",
    "event_id": "evt_1",
    "status": "failed",
    "attempt_count": 2,
    "created_at": "2026-11-29T08:00:00.000Z",
    "last_attempt": {
        "number": 2,
        "at": "2026-11-29T08:00:00.000Z",
        "trigger": "retry",
        "duration_ms": 31,
        "status": 503,
        "error": "http_5xx",
    },
}
DOCUMENT = {
    "document_id": "a.md",
    "version": "v",
    "job_id": "job_1",
    "chunks": 3,
    "characters": 9,
    "media_type": "text/plain",
    "indexed_at": "2026-11-29T08:00:00.000Z",
}
HIT = {
    "document_id": "a.md",
    "version": "v",
    "chunk": 0,
    "score": 0.5,
    "text": "one\ttwo\x1b[31m",
    "start": 0,
    "end": 7,
}
UPLOAD = {"s3_key": "uploads/me/x", "url": "https://store/x?sig=1", "headers": {"If-None-Match": "*"}}

Act = Callable[[Any], Any]
Caller = Callable[..., Any]
"""Calls an `Act` with one of the clients. Other arguments are options of the client."""


@dataclass
class StubHttp:
    """`responses`: the next ones, each as JSON, as (status, body, headers), or as an exception."""

    responses: list[Any] = field(default_factory=list)
    requests: list[httpx2.Request] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        status, body, headers = response if isinstance(response, tuple) else (200, response, {})
        if isinstance(body, str):
            return httpx2.Response(status, text=body, headers=headers)
        return httpx2.Response(status, json=body, headers=headers)

    @property
    def lines(self) -> list[str]:
        """Method and path of the requests."""
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def body(self, number: int = 0) -> Any:
        return json.loads(self.requests[number].read())


def call_client(handle: Callable[[httpx2.Request], Any], act: Act, *, asynchronous: bool, **options: Any) -> Any:
    """The result of `act` with one of the clients. The items of an iterator become a list.

    `handle` answers the requests. It may be a coroutine function; another function runs in a thread.
    """
    if asynchronous:
        return asyncio.run(_call_async(handle, act, options))
    with (
        httpx2.Client(transport=httpx2.MockTransport(handle)) as http,
        Recado(URL, KEY, http=http, **options) as client,
    ):
        result = act(client)
        return list(result) if inspect.isgenerator(result) else result


async def _call_async(handle: Callable[[httpx2.Request], Any], act: Act, options: dict[str, Any]) -> Any:
    async def respond(request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        if inspect.iscoroutinefunction(handle):
            return await handle(request)
        return await asyncio.to_thread(handle, request)

    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(respond)) as http,
        AsyncRecado(URL, KEY, http=http, **options) as client,
    ):
        result = act(client)
        return [item async for item in result] if inspect.isasyncgen(result) else await result
