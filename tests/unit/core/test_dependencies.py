"""Parts that are made at their first use (core.dependencies)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from core.dependencies import Parts, part


class Kitchen(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    @part
    def oven(self) -> object:
        time.sleep(0.01)  # long enough for others to come in between
        self.made.append("oven")
        return object()

    @part
    def cake(self) -> tuple[object, str]:
        self.made.append("cake")
        return self.oven, "cake"


def test_unused_parts() -> None:
    """A part that is not used is not made."""
    kitchen = Kitchen()
    assert kitchen.made == []
    assert kitchen.oven is kitchen.oven
    assert kitchen.made == ["oven"]


def test_parts_use_parts() -> None:
    """A part is made once, whether it is used directly or by another part."""
    kitchen = Kitchen()
    assert kitchen.cake[0] is kitchen.oven
    assert kitchen.made == ["cake", "oven"]


def test_threads() -> None:
    """Concurrent threads get the same part: making a boto3 client is not thread-safe."""
    kitchen, start = Kitchen(), threading.Barrier(8)

    def use() -> int:
        start.wait()
        return id(kitchen.oven)

    with ThreadPoolExecutor(8) as threads:
        assert len({future.result() for future in [threads.submit(use) for _ in range(8)]}) == 1
    assert kitchen.made == ["oven"]


def test_cache_clear() -> None:
    """After cache_clear every part is made again."""
    kitchen = Kitchen()
    former = kitchen.oven
    kitchen.cache_clear()
    kitchen.made = []
    assert kitchen.oven is not former
