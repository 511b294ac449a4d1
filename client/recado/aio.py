"""The asyncio client.

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
from recado._agent_api import AgentOperations
from recado._http import HttpApi
from recado._io import AsyncIO
from recado._operations import Asynchronous
from recado._webhooks_api import WebhookOperations
from recado.client import RETRIES, TIMEOUT_SECONDS


class AsyncWebhooks(WebhookOperations, Asynchronous):
    """`client.webhooks`."""


class AsyncRecado(AgentOperations, Asynchronous):
    """The same as `Recado`, with `await` and `async for`.

    Several event loops can use it, unless you passed `http`: each makes connections of its own. `close` closes
    those of the running loop. After a fork, the child needs an event loop of its own, too.
    """

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
        self._io = AsyncIO(http)
        self._api = HttpApi(self._io, settings.url, settings.key, timeout, retries)
        self.webhooks = AsyncWebhooks(self._api)

    @property
    def url(self) -> str:
        return self._api.url

    async def close(self) -> None:
        """Close the connections. Calls that follow raise ClientUnusable."""
        await self._io.close()

    async def __aenter__(self) -> AsyncRecado:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
