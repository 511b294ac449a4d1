"""The client for asyncio.

from recado import AsyncRecado

async with AsyncRecado("https://host/v1", "rk_…") as client:
    job = await client.submit("report.pdf")
    async for event in client.watch(job):
        print(event.sequence, event.event)
"""

from __future__ import annotations

from types import TracebackType

import httpx2

from recado import config
from recado._api import Operations, WebhookOperations
from recado._calls import Calls
from recado._io import AsyncIO
from recado._operations import Awaiting
from recado.client import RETRIES, TIMEOUT_SECONDS


class AwaitingWebhooks(WebhookOperations, Awaiting):
    """`client.webhooks`."""


class AsyncRecado(Operations, Awaiting):
    """As `Recado`, awaited."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        settings = config.load(url, key)
        self._io, self._owns_io = AsyncIO(http), http is None
        self._calls = Calls(self._io, settings.url, settings.key, timeout, retries)
        self.webhooks = AwaitingWebhooks(self._calls)

    @property
    def url(self) -> str:
        return self._calls.url

    async def close(self) -> None:
        if self._owns_io:
            await self._io.close()

    async def __aenter__(self) -> AsyncRecado:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
