"""Run coroutines that never suspend, without an event loop.

The client is written once, as coroutines. On `BlockingIO` they never suspend, so they finish in the caller's
thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends. Raises RuntimeError if it suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("A coroutine suspended on blocking IO.")


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The items of an async generator that never suspends. The generator is closed with this one."""
    with ExitStack() as stack:
        if close := getattr(items, "aclose", None):
            stack.callback(lambda: run(close()))
        while True:
            try:
                item = run(_next(items))
            except StopAsyncIteration:
                return
            yield item


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
