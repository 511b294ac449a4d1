"""WebSockets and the other transports with the deployed system: broken connections, and many at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from core.jobs import JobStore
from core.jobs.machine import Change, Transition
from core.live.channel import Channel
from core.live.sockets import Sockets
from core.live.subscriptions import Subscriptions
from local import corpus
from recado import Recado
from tests.e2e.conftest import System, know_jobs_as_short, wait_for
from tests.e2e.cutting_proxy import CuttingProxy, through
from tests.e2e.sites import site
from tests.support.live import text_of

TRANSPORTS = ("websocket", "sse", "long_poll", "poll")
MAX_CUT_BYTES = 700  # fewer bytes than any transport needs for a whole log
SOCKETS, LOST, EVENTS, PACE_SECONDS = 200, 10, 10, 0.5
Entries = list[tuple[int, str, str]]


@pytest.fixture(scope="module")
def client(system: System, store: JobStore) -> Iterator[Recado]:
    with Recado(system.url, system.caller("live").key) as client:
        know_jobs_as_short(client, store)
        yield client


def long_text() -> str:
    return "\n\n".join(corpus.reference()[name] for name in ("with", "while", "yield"))


def entries(events: Any) -> Entries:
    """Number, name and id of each event."""
    return [(event.sequence, event.event, event.event_id) for event in events]


def test_all_transports_and_webhooks_have_the_same_events(client: Recado) -> None:
    """WebSocket, SSE, long poll, poll and an ordered webhook, at once for one job, transmit the same log."""
    with site() as receiver, ThreadPoolExecutor(len(TRANSPORTS)) as pool:
        endpoint = client.webhooks.add(receiver.url, ordered=True)
        job = client.submit(text=long_text())
        watched = [
            pool.submit(lambda transport=transport: entries(client.watch(job, transport=transport, timeout=60)))
            for transport in TRANSPORTS
        ]
        yielded = [watching.result() for watching in watched]
        log = entries(client.events(job.job_id))

        def posted() -> list[dict[str, Any]]:  # the endpoint may also get the end of an earlier job
            received = [visit.received.event for visit in receiver.visits]
            return [event for event in received if event["job_id"] == job.job_id]

        wait_for(lambda: len(posted()) >= len(log))
        client.webhooks.delete(endpoint.webhook_id)
    assert [sequence for sequence, *_ in log] == list(range(1, len(log) + 1))
    assert [(event["sequence"], event["event"], event["event_id"]) for event in posted()] == log
    for found in yielded:
        assert found == log


# ── broken connections ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(cuts=st.lists(st.integers(1, MAX_CUT_BYTES), min_size=1, max_size=4))
def test_broken_connections_lose_and_repeat_no_event(client: Recado, system: System, cuts: list[int]) -> None:
    """Wherever its connections break, a client yields each event once and in order, over every transport."""
    job = client.submit(text="A short text.")

    def watch(transport: Any) -> tuple[Entries, int]:
        with CuttingProxy(system.engine.port, cuts).running() as proxy:
            followed = replace(job, links={name: through(proxy, link) for name, link in job.links.items()})
            with Recado(through(proxy, system.url), client._api.key) as behind_proxy:
                return entries(behind_proxy.watch(followed, transport=transport, timeout=90)), proxy.connections

    with ThreadPoolExecutor(len(TRANSPORTS)) as pool:
        watched = dict(zip(TRANSPORTS, pool.map(watch, TRANSPORTS), strict=True))
    log = entries(client.events(job.job_id))
    assert {transport: found for transport, (found, _) in watched.items()} == dict.fromkeys(TRANSPORTS, log)
    assert all(connections > 1 for _, connections in watched.values())


# ── many ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class Listener:
    """The events that one of many connections has received, and when."""

    sequences: list[int] = field(default_factory=list)
    at: dict[int, float] = field(default_factory=dict)
    is_subscribed: bool = False


async def listen(url: str, listener: Listener, *, lost: asyncio.Event | None, last: int) -> None:
    """Until the event `last`. With `lost`, the connection breaks at that moment without a close frame."""
    async with connect(url, ping_interval=None, open_timeout=60, close_timeout=1) as websocket:
        if lost:
            await lost.wait()
            websocket.transport.abort()
            return
        with contextlib.suppress(ConnectionClosed):
            async for text in websocket:
                receive(listener, text)
                if last in listener.at:
                    return


def receive(listener: Listener, text: str | bytes) -> None:
    message, now = json.loads(text), time.time()
    listener.is_subscribed |= message["type"] == "subscribed"
    for event in message.get("events", []):
        listener.sequences.append(event["sequence"])
        listener.at.setdefault(event["sequence"], now)


async def listen_with_many(url: str, report: Callable[[], None], last: int) -> list[Listener]:
    """The listeners whose connections did not break."""
    listeners, lost = [Listener() for _ in range(SOCKETS)], asyncio.Event()
    breaking = listeners[:: SOCKETS // LOST]
    tasks = [
        asyncio.create_task(listen(url, one, lost=lost if one in breaking else None, last=last))
        for one in listeners
    ]
    staying = [one for one in listeners if one not in breaking]
    async with asyncio.timeout(120):
        while not all(one.is_subscribed for one in staying):
            await asyncio.sleep(0.1)
        reporting = asyncio.create_task(asyncio.to_thread(report))
        await asyncio.sleep(1)
        lost.set()
        await asyncio.gather(reporting, *tasks)
    return staying


def progress(number: int) -> Change:
    """An event that a job logs whatever its status."""
    return lambda job, now: Transition(job, "progressed", {"done": number, "total": EVENTS})


def test_two_hundred_sockets(client: Recado, store: JobStore) -> None:
    """200 connections follow one job, and 10 break. The others get each event once, in order, within 10 s."""
    job = client.wait(client.submit(text="A job that many clients follow."), timeout=60)
    begun = len(client.events(job.job_id))
    committed: dict[int, float] = {}

    def report() -> None:
        for number in range(EVENTS):
            changed = store.apply(job.job_id, progress(number))
            committed[changed.sequence] = time.time()
            time.sleep(PACE_SECONDS)

    staying = asyncio.run(listen_with_many(job.links["live"], report, begun + EVENTS))
    assert len(staying) == SOCKETS - LOST
    for one in staying:
        assert one.sequences == list(range(1, begun + EVENTS + 1))
    delays = sorted(one.at[number] - at for one in staying for number, at in committed.items())
    p50, p99 = (delays[int(len(delays) * share)] for share in (0.5, 0.99))
    print(f"{len(staying)} sockets, {EVENTS} events: p50 {p50:.2f} s, p99 {p99:.2f} s from commit to arrival")
    assert p99 < 10


# ── streamed text ────────────────────────────────────────────────────────────────────────────────────────


def test_streamed_text_is_complete_and_in_order(client: Recado, system: System, table: Any) -> None:
    """A client that is connected from the start, and one that connects later, get the whole text in order."""
    job = client.wait(client.submit(text="Tell me more."), timeout=60)
    endpoint = "http" + system.outputs["LiveUrl"].removeprefix("ws")
    sockets = Sockets(system.client("apigatewaymanagementapi", endpoint=endpoint))
    words = [f"word{number} ¡ñ👩‍🚀! " for number in range(40)]
    received: list[list[dict[str, Any]]] = [[], []]

    async def listen_to(messages: list[dict[str, Any]], ready: asyncio.Event) -> None:
        async with connect(job.links["live"], ping_interval=None) as websocket:
            while text_of(messages) != "".join(words):
                messages.append(json.loads(await asyncio.wait_for(websocket.recv(), 20)))
                if messages[-1]["type"] == "subscribed":
                    ready.set()

    def write(channel: Channel, some: list[str]) -> None:
        for word in some:
            channel.write(word)
            time.sleep(0.05)

    async def main() -> None:
        early, late = asyncio.Event(), asyncio.Event()
        channel = Channel(job.job_id, Subscriptions(table.meta.client, table.name), sockets)
        listening = [asyncio.create_task(listen_to(received[0], early))]
        await early.wait()
        await asyncio.to_thread(write, channel, words[:20])
        listening.append(asyncio.create_task(listen_to(received[1], late)))
        await late.wait()
        await asyncio.to_thread(write, channel, words[20:])
        await asyncio.sleep(1.1)
        channel.flush()
        await asyncio.gather(*listening)

    asyncio.run(main())
    for messages in received:
        assert text_of(messages) == "".join(words)
