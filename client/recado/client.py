"""The client that blocks.

from recado import Recado

with Recado("https://host/v1", "rk_…") as client:
    job = client.submit("report.pdf")
    for event in client.watch(job):
        print(event.sequence, event.event)
    print(client.search("What does it say about the cellar key?")[0].text)
"""

from __future__ import annotations

from types import TracebackType

import httpx2

from recado import config
from recado._api import Operations, WebhookOperations
from recado._calls import Calls
from recado._io import BlockingIO
from recado._operations import Blocking

RETRIES = 4
TIMEOUT_SECONDS = 30.0


class BlockingWebhooks(WebhookOperations, Blocking):
    """`client.webhooks`."""


class Recado(Operations, Blocking):
    """The service at `url`, called with `key`.

    Without them: from RECADO_URL and RECADO_API_KEY, or from the file that `recado login` writes. `timeout` is in
    seconds without a byte; `retries` is how many more times than once a request is tried. `http` is an httpx2
    client of your own, with proxies or certificates as you need them; it is not closed here. Threads can share
    one client.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        http: httpx2.Client | None = None,
    ) -> None:
        settings = config.load(url, key)
        self._io, self._owns_io = BlockingIO(http), http is None
        self._calls = Calls(self._io, settings.url, settings.key, timeout, retries)
        self.webhooks = BlockingWebhooks(self._calls)

    @property
    def url(self) -> str:
        return self._calls.url

    def close(self) -> None:
        if self._owns_io:
            self._io.close()

    def __enter__(self) -> Recado:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
