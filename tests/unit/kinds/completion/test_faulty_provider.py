"""Completions whose provider is the faulty model server, with the real adapter, and workers that are killed."""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from urllib3.exceptions import ProtocolError

from core import events
from core.aws import clients
from core.dependencies import dependencies
from core.errors import Contended
from core.jobs import Job, JobStore, Services, fail
from core.jobs.machine import expire
from core.jobs.queue_messages import JobMessage
from core.jobs.usage import UsageStore
from core.jobs.worker import Worker
from core.live.subscriptions import Subscriptions
from core.llm.bedrock import BedrockProvider
from core.llm.caller import ModelCaller
from core.llm.circuit import Circuits
from core.llm.gate import ModelGate
from core.llm.in_flight import ModelCalls
from core.llm.rate_limit import RateLimiter
from kinds.completion.kind import COMPLETION
from local.model.events import ConnectionCut
from local.model.service import Service, prompt_key
from local.model.upstreams import Fake
from tests.support.converse import Body
from tests.unit.core.jobs.fault_injection import Crash
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import FakeClock, job

TABLE, JOBS = "jobs", 200
VISIBILITY_SECONDS, MAX_RECEIVES, INVOCATION_SECONDS = 1800, 5, 300
FAULTS = {
    "probability": 0.3,
    "seed": 5,
    "throttle": JOBS,
    "malformed": JOBS,
    "status": 500,
    "error_in_stream": 503,
    "cut_after_deltas": 2,
    "end_after_deltas": 3,
}
HANGS, KILLS = 0.05, 0.03
"""The shares of calls of the model, and of AWS."""


class Bench:
    """Jobs, their messages, and workers one after another on a virtual clock. Any call of AWS may kill them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.chance, self.killing = FakeClock(), random.Random(3), False
        self.table, self.server = MemoryTable(), Service(Fake(words=6))
        self.client, self.blobs = KillableTable(self.table, self.may_die), KillableBlobs(self)
        self.messages: list[tuple[float, int, str, int]] = []
        self.numbers = itertools.count()
        self.kills = 0
        self.store = JobStore(self.client, TABLE, clock=self.clock, sleep=lambda seconds: None)
        self._install(monkeypatch)
        services = Services(self.blobs, self.client, TABLE)
        self.worker = Worker({"completion": COMPLETION}, self.store, services, self, "queue", clock=self.clock)

    def _install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MODELS", '{"bedrock/fake": {"requests": "20/s"}}')
        dependencies.cache_clear()
        bedrock = clients.model("bedrock-runtime")
        bedrock.meta.events.register("before-send.bedrock-runtime.*", self._send)
        provider = BedrockProvider(bedrock)
        limiter = RateLimiter(self.client, TABLE, clock=self.clock)
        gate = ModelGate(Circuits(self.client, TABLE, clock=self.clock), limiter, sleep=self.clock.sleep)
        calls = ModelCalls(self.client, TABLE, per_owner=JOBS, clock=self.clock)
        usage = UsageStore(self.client, TABLE)
        parts = vars(dependencies)
        parts["model_caller"] = ModelCaller(
            lambda name: provider, gate, calls, self.blobs, usage, clock=self.clock
        )
        parts["subscriptions"] = Subscriptions(self.client, TABLE)
        parts["sockets"] = None  # nobody listens

    def _send(self, request: Any, **_: object) -> AWSResponse:
        if self.chance.random() < HANGS:
            raise ReadTimeoutError(endpoint_url="https://bedrock")
        path = request.url.partition("amazonaws.com")[2]
        response = self.server.handle("POST", path, {}, request.body)
        body = Body(_as_of_urllib3(response.body), lambda: None)
        return AWSResponse(request.url, response.status, dict(response.headers), body)

    @contextmanager
    def may_die(self) -> Iterator[None]:
        """Kills the worker before or after a call, now and then."""
        before, after = (self.killing and self.chance.random() < KILLS / 2 for _ in range(2))
        self.kills += before or after
        if before:
            raise Crash
        yield
        if after:
            raise Crash

    # ── the queue ────────────────────────────────────────────────────────────────────────────────────────────

    def send_message(self, *, MessageBody: str, DelaySeconds: int = 0, **_: Any) -> None:
        with self.may_die():
            self._put(MessageBody, self.clock.now + DelaySeconds, receives=0)

    def _put(self, body: str, at: float, *, receives: int) -> None:
        heapq.heappush(self.messages, (at, next(self.numbers), body, receives))

    def submit(self, prompt: str) -> Job:
        content = {"messages": [{"role": "user", "content": prompt}], "stop": []}
        stored = {"model": "bedrock/fake", "max_tokens": 50, "input_tokens": 50, "stream": True}
        key = f"inputs/ana/{prompt}"
        self.blobs.objects[key] = json.dumps(content).encode()
        source = {"source_key": key, "etag": "1", "allow_sample": False}
        submitted = self.store.submit(COMPLETION, job(kind="completion", input={**stored, **source})).job
        self._put(JobMessage(submitted.job_id).body, self.clock.now, receives=0)
        return submitted

    def requests(self, prompt: str) -> int:
        """How many calls of the model the job with this prompt has made."""
        by_key: dict[str, dict[str, int]] = self.server.calls.as_json()["by_key"]
        return by_key.get(prompt_key(prompt), {}).get("requests", 0)

    def run(self) -> None:
        """Deliver messages, as SQS does, until none is left. Some are delivered twice."""
        while self.messages:
            at, _, body, receives = heapq.heappop(self.messages)
            self.clock.now = max(self.clock.now, at)
            message = JobMessage(**json.loads(body))
            if receives == MAX_RECEIVES:  # the dead-letter queue, which the reaper drains
                self.store.apply(message.job_id, fail(code="attempts_exhausted", message=""))
                continue
            if self.store.get(message.job_id).deadline <= events.timestamp(self.clock.now):
                self.store.apply(message.job_id, expire)  # as the reaper does
                continue
            if not self._deliver(message) or self.chance.random() < 0.02:
                self._put(body, self.clock.now + VISIBILITY_SECONDS, receives=receives + 1)

    def _deliver(self, message: JobMessage) -> bool:
        self.killing = True
        try:
            self.worker.handle(message, Context(self.clock))
        except (Crash, Contended):
            return False
        finally:
            self.killing = False
        return True


class Context:
    """Of an invocation that begins now."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._end = clock, clock.now + INVOCATION_SECONDS

    def get_remaining_time_in_millis(self) -> int:
        return int((self._end - self._clock.now) * 1000)


class KillableTable:
    """A table whose calls may kill the worker."""

    def __init__(self, table: MemoryTable, may_die: Callable[[], Any]) -> None:
        self._table, self._may_die = table, may_die
        self.exceptions = table.exceptions

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)

        def call(*arguments: Any, **request: Any) -> Any:
            with self._may_die():
                return found(*arguments, **request)

        return call


class KillableBlobs(MemoryBlobs):
    """A bucket whose calls may kill the worker. `recorded`: calls of the model before an answer was recorded."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.recorded: dict[str, int] = {}

    def put(self, key: str, data: bytes, *, content_type: str = "") -> str:
        with self._bench.may_die():
            if "/answers/" in key:
                prompt = json.loads(data)["text"].partition(" Say")[0].strip()
                self.recorded[f"{prompt}."] = self._bench.requests(f"{prompt}.")
            return super().put(key, data)

    def get(self, key: str, *, etag: str | None = None, max_bytes: int | None = None) -> bytes:
        with self._bench.may_die():
            return super().get(key)


def _as_of_urllib3(body: Iterable[bytes]) -> Iterator[bytes]:
    try:
        yield from body
    except ConnectionCut:
        raise ProtocolError("Connection broken") from None


def test_every_job_ends_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 200 jobs ends with its own answer or the code of a fault. No recorded answer is billed again."""
    bench = Bench(monkeypatch)
    bench.server.faults.set(FAULTS)
    jobs = {f"Say {number}.": bench.submit(f"Say {number}.").job_id for number in range(JOBS)}
    bench.run()
    ended = {prompt: bench.store.get(job_id) for prompt, job_id in jobs.items()}
    for prompt, found in ended.items():
        if found.status == "completed":
            assert found.result is not None
            assert found.result["text"].startswith(prompt.rstrip("."))
            assert bench.requests(prompt) == bench.blobs.recorded[prompt]
        else:
            assert found.error is not None
            assert found.error["code"] in {
                "model_unavailable",
                "stream_cut",
                "malformed_answer",
                "attempts_exhausted",
            }
    statuses = Counter(found.status for found in ended.values())
    assert statuses["completed"] > 0.8 * JOBS
    assert statuses["completed"] + statuses["failed"] == JOBS
    assert bench.kills > JOBS / 2
    assert max(found.attempts for found in ended.values()) <= COMPLETION.max_attempts
