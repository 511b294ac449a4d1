"""Programs that use a client in several processes or event loops. Run: python forking.py PROGRAM URL

The exit code is 0 if all answers were right in all of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from recado import AsyncRecado, ClientUnusable, Recado

KEY, JOB_ID, ROUNDS = "rk_test", "job_01JTEST", 15
OPTIONS: dict[str, Any] = {"retries": 0, "timeout": 3.0}


def in_both(act: Callable[[], object]) -> None:
    """Fork, and call `act` in both processes."""
    child = os.fork()
    failed = 0
    try:
        act()
    except BaseException:
        traceback.print_exc()
        failed = 1
    if not child:
        os._exit(failed)
    _, status = os.waitpid(child, 0)
    sys.exit(failed or os.waitstatus_to_exitcode(status))


def jobs() -> list[str]:
    """Ids that no other process asks for."""
    return [f"job_{os.getpid()}_{number}" for number in range(ROUNDS)]


def blocking(url: str) -> None:
    client = Recado(url, KEY, **OPTIONS)
    client.job("job_before")

    def ask() -> None:
        assert [client.job(job_id).job_id for job_id in jobs()] == jobs()

    in_both(ask)


def asynchronous(url: str) -> None:
    """The parent keeps its event loop, and the child has another."""
    client, parent, loop = AsyncRecado(url, KEY, **OPTIONS), os.getpid(), asyncio.new_event_loop()
    loop.run_until_complete(client.job("job_before"))

    async def ask() -> None:
        assert [(await client.job(job_id)).job_id for job_id in jobs()] == jobs()

    in_both(lambda: loop.run_until_complete(ask()) if os.getpid() == parent else asyncio.run(ask()))


def closing(url: str) -> None:
    """The child closes the client and exits. The parent continues on its connection."""
    with Recado(url, KEY, **OPTIONS) as client:
        client.job("job_before")
        if not (child := os.fork()):
            client.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.job("job_after").job_id == "job_after"


def own_http(url: str) -> None:
    """A client of the caller cannot be made anew, so it is refused in the child."""
    import httpx2

    client, parent = Recado(url, KEY, http=httpx2.Client(), **OPTIONS), os.getpid()
    client.job("job_before")

    def ask() -> None:
        try:
            client.job("job_after")
        except ClientUnusable:
            assert os.getpid() != parent
        else:
            assert os.getpid() == parent

    in_both(ask)


def watch(url: str) -> None:
    """Both processes get all events that follow. The job ends later."""
    events = Recado(url, KEY, timeout=3.0).watch(JOB_ID, timeout=15, transport=transport())
    assert next(events).sequence == 1

    def read() -> None:
        assert [event.sequence for event in events] == list(range(2, 9))

    in_both(read)


def watch_asynchronous(url: str) -> None:
    """The parent keeps its event loop, and the child has another."""
    parent, loop = os.getpid(), asyncio.new_event_loop()
    events = AsyncRecado(url, KEY, timeout=3.0).watch(JOB_ID, timeout=15, transport=transport())
    assert loop.run_until_complete(anext(events)).sequence == 1

    async def read() -> None:
        assert [event.sequence async for event in events] == list(range(2, 9))

    in_both(lambda: loop.run_until_complete(read()) if os.getpid() == parent else asyncio.run(read()))


def watch_in_two_loops(url: str) -> None:
    first = asyncio.new_event_loop()
    events = AsyncRecado(url, KEY, timeout=3.0).watch(JOB_ID, timeout=15, transport=transport())
    assert first.run_until_complete(anext(events)).sequence == 1

    async def read() -> None:
        assert [event.sequence async for event in events] == list(range(2, 9))

    asyncio.run(read())


def transport() -> Any:
    return os.environ["TRANSPORT"]


def loops(url: str) -> None:
    """One after the other, and two at once in threads."""
    client = AsyncRecado(url, KEY, **OPTIONS)

    async def ask(name: str) -> None:
        names = [f"job_{name}_{number}" for number in range(ROUNDS)]
        assert [(await client.job(job_id)).job_id for job_id in names] == names

    asyncio.run(ask("one"))
    asyncio.run(ask("two"))

    async def ask_in_threads() -> None:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask(name)) for name in ("a", "b")), ask("c"))

    asyncio.run(ask_in_threads())


def loops_with_own_http(url: str) -> None:
    import httpx2

    client = AsyncRecado(url, KEY, http=httpx2.AsyncClient(), **OPTIONS)
    asyncio.run(client.job("job_before"))
    try:
        asyncio.run(client.job("job_after"))
    except ClientUnusable:
        return
    raise AssertionError("the second event loop was not refused")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
