"""The blocking client.

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
from recado._agent_api import AgentOperations
from recado._http import HttpApi
from recado._io import BlockingIO
from recado._operations import Blocking
from recado._webhooks_api import WebhookOperations

RETRIES = 4
TIMEOUT_SECONDS = 30.0


class BlockingWebhooks(WebhookOperations, Blocking):
    """`client.webhooks`."""


class Recado(AgentOperations, Blocking):
    """A client of the service at `url` with the API key `key`.

    If `url` or `key` is None, they are read from RECADO_URL and RECADO_API_KEY, or from the file of `recado
    login`. `timeout`: seconds without a byte after which a request fails. `retries`: how often a failed request
    is repeated. `http`: your own httpx2 client, for example with a proxy or certificates; `close` does not close
    it. The client is thread-safe. After a fork, parent and child can both use it, unless you passed `http`: each
    process makes connections of its own.

    The URL has to be https, except on this machine (localhost, 127.0.0.1, [::1]): the key is sent with each call.
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
        self._io = BlockingIO(http)
        self._api = HttpApi(self._io, settings.url, settings.key, timeout, retries)
        self.webhooks = BlockingWebhooks(self._api)

    @property
    def url(self) -> str:
        return self._api.url

    def close(self) -> None:
        """Close the connections. Calls that follow raise ClientUnusable."""
        self._io.close()

    def __enter__(self) -> Recado:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
