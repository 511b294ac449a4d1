"""A proxy whose connections break."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

HOST = "127.0.0.1"


@dataclass
class CuttingProxy:
    """Forwards connections to the port `target`. The n-th breaks after `cuts[n]` bytes from the target."""

    target: int
    cuts: list[int]
    connections: int = 0
    _listener: socket.socket = field(default_factory=lambda: socket.create_server((HOST, 0)))

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @contextlib.contextmanager
    def running(self) -> Iterator[CuttingProxy]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                limit = self.cuts[self.connections] if self.connections < len(self.cuts) else math.inf
                self.connections += 1
                far = socket.create_connection((HOST, self.target))
                threading.Thread(target=_forward, args=(near, far, math.inf), daemon=True).start()
                threading.Thread(target=_forward, args=(far, near, limit), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, limit: float) -> None:
    with contextlib.suppress(OSError):
        while limit > 0 and (data := source.recv(4096)):
            target.sendall(data[: int(min(limit, len(data)))])
            limit -= len(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()


def through(proxy: CuttingProxy, link: str) -> str:
    parts = urlsplit(link)
    return parts._replace(netloc=f"{HOST}:{proxy.port}").geturl()
