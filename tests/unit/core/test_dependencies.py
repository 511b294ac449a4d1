"""Parts that are made at their first use (core.dependencies)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from core.dependencies import Parts, part


class Example(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    @part
    def client(self) -> object:
        time.sleep(0.01)  # long enough for others to come in between
        self.made.append("client")
        return object()

    @part
    def store(self) -> tuple[object, str]:
        self.made.append("store")
        return self.client, "store"


def test_unused_parts() -> None:
    """A part that is not used is not made."""
    parts = Example()
    assert parts.made == []
    assert parts.client is parts.client
    assert parts.made == ["client"]


def test_parts_use_parts() -> None:
    """A part is made once, whether it is used directly or by another part."""
    parts = Example()
    assert parts.store[0] is parts.client
    assert parts.made == ["store", "client"]


def test_threads() -> None:
    """Concurrent threads get the same part: making a boto3 client is not thread-safe."""
    parts, start = Example(), threading.Barrier(8)

    def use() -> int:
        start.wait()
        return id(parts.client)

    with ThreadPoolExecutor(8) as threads:
        assert len({future.result() for future in [threads.submit(use) for _ in range(8)]}) == 1
    assert parts.made == ["client"]


def test_cache_clear() -> None:
    """After cache_clear every part is made again."""
    parts = Example()
    former = parts.client
    parts.cache_clear()
    parts.made = []
    assert parts.client is not former
