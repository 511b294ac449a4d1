"""What each way of waiting for a job costs, and how late it knows: counted on the virtual clock.

    .venv/bin/python bench/waiting.py [--chart docs/waiting.svg] [--quick]

The real client against the real handlers, in a stand-in for AWS whose clock jumps, so that two hours take seconds.
The jobs are made up: they start, and end when their time is over. Requests, bytes and costs are those of a job of
exactly that length; how late the end is known, of eight jobs whose lengths vary by ±20 %. Whoever holds a
connection joins those in their last two minutes.

A call of AWS takes a millisecond here and a network takes nothing, so real delays are some tenths of a second
longer. Bytes are those of HTTP/1.1 and RFC 6455, without TCP and TLS. Costs are list prices of API Gateway and
Lambda, beyond what a job costs that nobody waits for; databases and queues are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import random
import statistics
import sys
import tempfile
import time
import urllib.request
import urllib.response
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas"), str(ROOT / "client")]

import httpx2  # noqa: E402

from core import events  # noqa: E402
from core.jobs import JobStore, begin, complete  # noqa: E402
from core.log import logger  # noqa: E402
from core.webhooks.transport import client as webhook_client  # noqa: E402
from kinds.document.kind import DOCUMENT  # noqa: E402
from recado import Recado, _io, poll_with_backoff, polling_cost  # noqa: E402
from recado.cost import Cost  # noqa: E402
from recado.errors import ConnectionFailed  # noqa: E402
from recado.models import Job  # noqa: E402
from tests.conftest import synthesise  # noqa: E402
from tests.simulated_cloud.cloud import Cloud  # noqa: E402
from tests.simulated_cloud.functions import short_name  # noqa: E402
from tests.simulated_cloud.websocket_api import HandshakeRefused, WebSocket  # noqa: E402
from tests.support import client_cache  # noqa: E402
from tests.support.recado_cloud import recado_cloud  # noqa: E402
from tests.support.receiver import Receiver  # noqa: E402
from tests.support.service import Service  # noqa: E402

QUICK = "--quick" in sys.argv
LENGTHS = {"2 s": 2.0} if QUICK else {"2 s": 2.0, "30 s": 30.0, "5 min": 300.0, "2 h": 7200.0}
PHASES, SPREAD = 1 if QUICK else 8, 0.2
KNOWN_JOBS = 3 if QUICK else 30
STEPS = 100  # in which progress is reported
LATE_SECONDS = 120.0  # before a job's end, in which whoever holds a connection joins

# List prices, us-east-1: https://aws.amazon.com/api-gateway/pricing and https://aws.amazon.com/lambda/pricing
REST_REQUEST, SOCKET_MESSAGE, SOCKET_MINUTE = 3.50e-6, 1.00e-6, 0.25e-6
MESSAGE_BYTES = 32 * 1024
LAMBDA_REQUEST, LAMBDA_GB_SECOND = 0.20e-6, 0.0000133334
ANSWER_SECONDS = 0.02  # what an invocation takes beside what it waits: assumed, and the same for all
SERVING = ("authorizer", "api", "long_poll", "on_message", "push", "sender")  # those that somebody waits

STREAM_SECONDS = 0.25
"""Lambda reads a stream four times a second.
https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html"""

GATEWAY_HEADERS = {
    "Date": "Mon, 30 Nov 2026 09:00:00 GMT",
    "Connection": "keep-alive",
    "x-amz-apigw-id": "QwErTyUiOpAsDfG=",
    "X-Amzn-Trace-Id": "Root=1-00000000-000000000000000000000000;Parent=0000000000000000;Sampled=0",
}
"""What API Gateway adds to each answer."""

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
    "User-Agent": "Python/3.13 websockets/17.4",
}
HANDSHAKE_ANSWER = {
    "Date": "Mon, 30 Nov 2026 09:00:00 GMT",
    "Connection": "upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
}


@dataclass
class Wire:
    """What went over the wire. `handshakes` are among the requests; `calls` are those that the service made."""

    requests: int = 0
    handshakes: int = 0
    calls: int = 0
    messages: int = 0
    billed_messages: int = 0
    connected_seconds: float = 0.0
    up: int = 0
    down: int = 0

    def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.requests += 1
        self.up += head_bytes(f"{method} {target} HTTP/1.1", headers) + len(body)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        given = {**headers, **GATEWAY_HEADERS, "Content-Length": str(len(body))}
        self.down += head_bytes(f"HTTP/1.1 {status} OK", given) + len(body)

    def call(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.calls += 1
        given = {"Host": urlsplit(url).netloc, **headers, "Content-Length": str(len(body))}
        self.down += head_bytes(f"POST {urlsplit(url).path} HTTP/1.1", given) + len(body)
        self.up += head_bytes("HTTP/1.1 200 OK", {"Content-Length": "0"})

    def message(self, text: str, *, is_up: bool) -> None:
        """https://www.rfc-editor.org/rfc/rfc6455#section-5.2: what a client sends is masked."""
        size = len(text.encode())
        frame = 2 + (2 if size > 125 else 0) + size
        self.messages += 1
        self.billed_messages += max(1, -(-size // MESSAGE_BYTES))
        self.up += frame + 4 if is_up else 0
        self.down += 0 if is_up else frame


def head_bytes(first: str, headers: Mapping[str, str]) -> int:
    return len(first) + 2 + sum(len(f"{name}: {value}") + 2 for name, value in headers.items()) + 2


@dataclass
class Lambda:
    """What functions did. `held` is how long they ran, on a clock on which nothing but waiting takes time."""

    invocations: int = 0
    held: float = 0.0
    gigabyte_seconds: float = 0.0

    def add(self, seconds: float, *, megabytes: int) -> None:
        self.invocations += 1
        self.held += seconds
        self.gigabyte_seconds += (seconds + ANSWER_SECONDS) * megabytes / 1024

    def __sub__(self, other: Lambda) -> Lambda:
        return Lambda(
            self.invocations - other.invocations,
            self.held - other.held,
            self.gigabyte_seconds - other.gigabyte_seconds,
        )


@dataclass
class Scene:
    """One job, and who waits for it. `ended_at` is when its end was written down; `client` is a real one."""

    cloud: Cloud
    service: Service
    receiver: Receiver
    chance: random.Random
    wire: Wire = field(default_factory=Wire)
    work: Lambda = field(default_factory=Lambda)
    ended_at: float = 0.0
    known_at: float = 0.0
    client: Any = None

    @property
    def delay(self) -> float:
        """Seconds from the job's end until it was known."""
        return self.known_at - self.ended_at

    @property
    def now(self) -> float:
        return self.cloud.clock.time

    def sleep(self, seconds: float) -> None:
        self.cloud.advance(seconds)

    def let_pass(self, seconds: float) -> None:
        """To the next thing that happens, but not beyond so many seconds."""
        self.cloud.advance(max(0.0, min(seconds, self.cloud.next_due() - self.now)))


# ── ways of waiting ──────────────────────────────────────────────────────────────────────────────────────

Wait = Callable[[Scene, Job], object]


@dataclass(frozen=True)
class Way:
    """`holds`: a connection, so it does not matter when the waiting began. `known`: how long such jobs take."""

    name: str
    wait: Wait
    cost: Callable[[float], Cost] | None = None
    holds: bool = False
    known: bool = False
    progress: bool = False
    webhook: bool = False


def once_a_minute(scene: Scene, job: Job) -> None:
    scene.sleep(60)
    poll_with_backoff(job.links["status"], base=60, cap=60, sleep=scene.sleep)


def tutorial(scene: Scene, job: Job) -> None:
    poll_with_backoff(job.links["status"], base=1, cap=60, sleep=scene.sleep)


def by(transport: Any) -> Wait:
    return lambda scene, job: scene.client.wait(job, transport=transport)


def called(scene: Scene, job: Job) -> None:
    while not scene.receiver.requests:
        scene.let_pass(60)
    for received in scene.receiver.requests:
        scene.wire.call(received.url, received.headers, received.body)


def modelled(strategy: Any) -> Callable[[float], Cost]:
    return lambda seconds: polling_cost(seconds, strategy=strategy)


WAYS = (
    Way("once a minute", once_a_minute, lambda seconds: polling_cost(seconds, 60)),
    Way("backoff 1, 2, 4 … 60 s", tutorial, lambda seconds: polling_cost(seconds, base=1, cap=60)),
    Way("Retry-After, kind unknown", by("poll")),
    Way("Retry-After, with progress", by("poll"), progress=True),
    Way("Retry-After, kind known", by("poll"), modelled("server_guided"), known=True),
    Way("long poll", by("long_poll"), modelled("long_polling"), holds=True),
    Way("server-sent events", by("sse"), modelled("sse"), holds=True),
    Way("WebSocket", by("websocket"), modelled("websocket"), holds=True),
    Way("webhook", called, modelled("webhook"), holds=True, webhook=True),
)


def nobody(scene: Scene, job: Job) -> None:
    while not scene.ended_at:
        scene.let_pass(scene.cloud.next_due())
    scene.cloud.settle(within=1)


NOBODY = Way("nobody", nobody)


# ── the client's ways to the cloud ───────────────────────────────────────────────────────────────────────


def transport(scene: Scene) -> httpx2.MockTransport:
    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            **exchange(scene, request.method, str(request.url), request.headers, request.read())
        )

    return httpx2.MockTransport(handle)


def exchange(scene: Scene, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, Any]:
    target = url.removeprefix(f"https://{urlsplit(url).netloc}")
    scene.wire.request(method, target, headers, body)
    answer = scene.cloud.request(method, target.removeprefix("/v1"), body=body, headers=headers)
    scene.wire.answer(answer.status, answer.headers, answer.body)
    scene.cloud.settle()  # nothing else happens while an answer is held, but right after it
    return {"status_code": answer.status, "headers": dict(answer.headers), "content": answer.body}


class Opener(urllib.request.HTTPSHandler):
    """What `urllib` uses instead of the network, for clients that know no other library."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def https_open(self, request: urllib.request.Request) -> Any:
        always = {"Accept-Encoding": "identity", "Connection": "close"}
        headers = {**dict(request.header_items()), **always}
        answer = exchange(self._scene, request.get_method(), request.full_url, headers)
        offset = Message()
        for name, value in answer["headers"].items():
            offset[name] = value
        found = urllib.response.addinfourl(
            io.BytesIO(answer["content"]), offset, request.full_url, answer["status_code"]
        )
        found.msg = "OK"
        return found


class Line:
    """A WebSocket as the client's own library gives it."""

    def __init__(self, scene: Scene, socket: WebSocket) -> None:
        self._scene, self._socket = scene, socket

    async def receive(self, seconds: float) -> str | None:
        end = self._scene.now + seconds
        while not self._socket.texts:
            if not self._socket.is_open:
                raise ConnectionFailed("the WebSocket broke")
            if self._scene.now >= end:
                return None
            self._scene.let_pass(end - self._scene.now)
        return self.take()

    async def send(self, text: str) -> None:
        if not self._socket.is_open:
            raise ConnectionFailed("the WebSocket broke")
        self._scene.wire.message(text, is_up=True)
        self._socket.send(text)
        self._scene.cloud.settle()

    def take(self) -> str:
        text = self._socket.texts.pop(0)
        self._scene.wire.message(text, is_up=False)
        return text

    def close(self) -> None:
        self._scene.wire.connected_seconds += self._scene.now - self._socket.connected_at
        while self._socket.texts:
            self.take()
        self._socket.close()


def connecting(scene: Scene) -> Any:
    @contextlib.asynccontextmanager
    async def socket(_: Any, url: str) -> AsyncIterator[Line]:
        place = urlsplit(url)
        scene.wire.request("GET", f"{place.path}?{place.query}", {"Host": place.netloc, **HANDSHAKE})
        scene.wire.handshakes += 1
        scene.wire.down += head_bytes("HTTP/1.1 101 Switching Protocols", HANDSHAKE_ANSWER)
        try:
            line = Line(scene, scene.cloud.connect(url))
        except HandshakeRefused as refused:
            raise ConnectionFailed(str(refused)) from refused
        scene.cloud.settle()
        try:
            yield line
        finally:
            line.close()

    return socket


@contextmanager
def virtual(scene: Scene) -> Iterator[None]:
    """Inside, every client waits on the cloud's clock and reaches the cloud."""

    async def sleep(_: Any, seconds: float) -> None:
        scene.sleep(seconds)

    build_opener = urllib.request.build_opener
    key = scene.service.authorization["Authorization"].removeprefix("Bearer ")
    with ExitStack() as stack:
        for owner, name, stand_in in (
            (_io.BlockingIO, "sleep", sleep),
            (_io.BlockingIO, "clock", lambda _: scene.now),
            (_io.BlockingIO, "socket", connecting(scene)),
            (time, "monotonic", lambda: scene.now),
            (urllib.request, "build_opener", lambda *handlers: build_opener(*handlers, Opener(scene))),
            (webhook_client, "post", scene.receiver.post),
            (scene.cloud.functions, "call", metered(scene)),
        ):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        http = stack.enter_context(httpx2.Client(transport=transport(scene)))
        scene.client = Recado(f"https://{scene.cloud.rest_apis[0].host}/v1", key, http=http)
        yield


def metered(scene: Scene) -> Callable[..., Any]:
    call = scene.cloud.functions.call

    def run(function: Any, event: Any) -> Any:
        began = scene.now
        try:
            return call(function, event)
        finally:
            if short_name(function) in SERVING:
                scene.work.add(scene.now - began, megabytes=int(function.memory_size))

    return run


# ── a job ────────────────────────────────────────────────────────────────────────────────────────────────


def play(cloud: Cloud, way: Way, seconds: float, *, seed: str, late: bool = False) -> Scene:
    """Submit a job that takes so long, and wait for it; with `late`, from shortly before its end."""
    cloud.reset()
    cloud.pause("start_job")  # what these jobs do is decided here
    scene = Scene(cloud, Service(cloud), Receiver(cloud.clock), random.Random(seed))
    if way.known:
        remember(scene, seconds)
    with virtual(scene):
        hook = {"webhook_url": "https://receiver.test/hook"} if way.webhook else {}
        job = scene.client.submit(text="What is waited for.", document_id="d", **hook)
        schedule(scene, job.job_id, seconds, progress=way.progress)
        cloud.settle()
        if late:
            scene.sleep(max(0.0, seconds - scene.chance.uniform(LATE_SECONDS / 2, LATE_SECONDS)))
        way.wait(scene, job)
        scene.known_at = scene.now
        cloud.settle()
    assert not cloud.functions.errors, cloud.functions.errors
    return scene


def remember(scene: Scene, usual: float) -> None:
    """Let the service know of jobs of that kind, as if they had completed."""
    jobs = store(scene.cloud)
    job = jobs.get(scene.service.submit())
    for _ in range(KNOWN_JOBS):
        ended = scene.now + usual * scene.chance.uniform(1 - SPREAD, 1 + SPREAD)
        jobs.durations.record(
            replace(
                job,
                status="completed",
                created_at=events.timestamp(scene.now),
                finished_at=events.timestamp(ended),
            )
        )
    scene.service.cancel(job.job_id)
    scene.cloud.settle()


def schedule(scene: Scene, job_id: str, seconds: float, *, progress: bool) -> None:
    """What happens to the job, and when."""
    jobs, after = store(scene.cloud), scene.cloud.clock.call_later
    outcome = {"document_id": "d", "version": "v", "media_type": "text/plain", "characters": 19, "chunks": 1}

    def end() -> None:
        jobs.apply(job_id, complete(DOCUMENT, lease="bench", result=outcome))
        scene.ended_at = scene.now
        scene.cloud.pause("publisher", "push")
        after(scene.chance.uniform(0, STREAM_SECONDS), lambda: scene.cloud.resume("publisher", "push"))

    after(0.1, lambda: jobs.apply(job_id, begin(DOCUMENT, stage="validate", lease="bench")))
    if progress:
        after(0.2, lambda: jobs.progress.expect_batches(jobs.get(job_id), STEPS))
    for step in range(STEPS if progress else 0):
        after(
            seconds * (step + 1) / (STEPS + 1),
            lambda step=step: jobs.progress.mark_batch(jobs.get(job_id), step, total=STEPS),
        )
    after(seconds, end)


def store(cloud: Cloud) -> JobStore:
    table = cloud.table("Jobs")
    return JobStore(table.meta.client, table.name)


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Figures:
    """`delays`: seconds from a job's end until it was known, of each phase. `work`: beyond the job's own.

    `foretold` is how many requests `recado.cost` expects, where it knows of this way.
    """

    way: str
    seconds: float
    wire: Wire
    work: Lambda
    delays: tuple[float, ...]
    foretold: int | None

    @property
    def wasted(self) -> int:
        """All but the POST and what brings the end, as `recado.cost` counts."""
        return max(0, self.wire.requests + self.wire.messages - 2)

    @property
    def dollars(self) -> float:
        """Of one job. The POST is everybody's."""
        return (
            (self.wire.requests - self.wire.handshakes - 1) * REST_REQUEST
            + self.wire.billed_messages * SOCKET_MESSAGE
            + self.wire.connected_seconds / 60 * SOCKET_MINUTE
            + self.work.invocations * LAMBDA_REQUEST
            + self.work.gigabyte_seconds * LAMBDA_GB_SECOND
        )

    @property
    def typical(self) -> float:
        return statistics.median(self.delays)


@functools.cache
def unwatched(cloud: Cloud, seconds: float, *, progress: bool) -> Scene:
    return play(cloud, replace(NOBODY, progress=progress), seconds, seed="exact")


def measure(cloud: Cloud, way: Way, seconds: float) -> Figures:
    scene = play(cloud, way, seconds, seed="exact")
    alone = unwatched(cloud, seconds, progress=way.progress)
    chance = random.Random(f"lengths {seconds}")
    lengths = [seconds * chance.uniform(1 - SPREAD, 1 + SPREAD) for _ in range(PHASES)]
    phases = [play(cloud, way, length, seed=f"{length}", late=way.holds) for length in lengths]
    return Figures(
        way.name,
        seconds,
        scene.wire,
        scene.work - alone.work,
        tuple(phase.delay for phase in phases),
        way.cost(seconds).requests if way.cost else None,
    )


HEAD = (
    "way",
    "requests",
    "`recado cost`",
    "messages",
    "wasted",
    "KB up",
    "KB down",
    "held s",
    "$ per 1,000",
    "known after",
    "at most",
)


def table(name: str, figures: Sequence[Figures]) -> str:
    """In Markdown."""
    lines = [
        f"A job of {name}",
        "",
        row(HEAD),
        row(["---"] * len(HEAD)),
        *(row(cells(each)) for each in figures),
        "",
    ]
    return "\n".join(lines)


def row(texts: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, texts))} |"


def cells(each: Figures) -> list[object]:
    return [
        each.way,
        each.wire.requests,
        each.foretold or "",
        each.wire.messages or "",
        each.wasted,
        f"{each.wire.up / 1000:.1f}",
        f"{each.wire.down / 1000:.1f}",
        f"{each.work.held:,.0f}",
        f"{1000 * each.dollars:,.3f}",
        f"{each.typical:.1f} s",
        f"{max(each.delays):.1f} s",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chart", type=Path, help="where to write the picture (SVG)")
    parser.add_argument("--quick", action="store_true", help="only the shortest job, once")
    options = parser.parse_args()
    logger.setLevel("ERROR")
    found: dict[str, list[Figures]] = {}
    with deployed() as cloud:
        for name, seconds in LENGTHS.items():
            found[name] = [measure(cloud, way, seconds) for way in WAYS]
            print(table(name, found[name]), flush=True)
    if options.chart:
        from waiting_chart import draw

        draw(found, options.chart)


@contextmanager
def deployed() -> Iterator[Cloud]:
    """Of the schedules only the pings of WebSockets run: the others are no business of who waits."""
    with tempfile.TemporaryDirectory() as folder:
        synthesise(Path(folder) / "assembly", {})
        cloud = recado_cloud(Path(folder) / "assembly")
        with client_cache.installed(), cloud.running():
            for rule in cloud.bus.rules:
                rule.enabled = not rule.every or "Pings" in rule.name
            yield cloud


if __name__ == "__main__":
    main()
