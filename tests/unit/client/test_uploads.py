"""Uploads in parts by both clients, to a stub of the service and S3."""

from __future__ import annotations

import asyncio
import io
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import _http, _io, _uploads
from recado._coroutines import run
from recado.errors import BadAnswer, ConnectionFailed, Forbidden, InvalidRequest
from tests.unit.client.stub_http import Caller, call_client

PART_BYTES = 100_000
DATA = random.Random(7).randbytes(3 * PART_BYTES + 12_345)
KEY = "uploads/me/upl_1/file"
CUT = httpx2.WriteError("cut")
COMPLETE, ABORT = "POST /v1/uploads/mine/complete", "DELETE /v1/uploads/mine"


class StubStore:
    """The service and S3. `part_failures`: by part number, what happens to its first requests."""

    def __init__(self) -> None:
        self.part_failures: defaultdict[int, list[Any]] = defaultdict(list)
        self.complete_failures: list[Any] = []
        self.abort_failures: list[Any] = []
        self.parts: dict[int, bytes] = {}
        self.lines: list[str] = []
        self.bodies: list[Any] = []
        self.part_headers: list[httpx2.Headers] = []
        self.sends_etags = True
        self.lock = threading.Lock()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body, path = request.read(), request.url.path
        with self.lock:
            self.lines.append(f"{request.method} {path}")
            if request.url.host == "store":
                return self._put_part(int(path.removeprefix("/")), body, request.headers)
            self.bodies.append(json.loads(body) if body else None)
            if path == "/v1/uploads":
                return httpx2.Response(201, json=self._create(self.bodies[-1]["size"]))
            failures = self.abort_failures if request.method == "DELETE" else self.complete_failures
            return fail(failures.pop(0)) if failures else httpx2.Response(200, json={"s3_key": KEY})

    def _put_part(self, number: int, body: bytes, headers: httpx2.Headers) -> httpx2.Response:
        self.part_headers.append(headers)
        if self.part_failures[number]:
            return fail(self.part_failures[number].pop(0))
        self.parts[number] = body
        return httpx2.Response(200, headers={"ETag": f'"e{number}"'} if self.sends_etags else {})

    def _create(self, size: int) -> dict[str, Any]:
        parts = [
            {"number": number, "size": min(PART_BYTES, size - start), "url": f"https://store/{number}?sig=1"}
            for number, start in enumerate(range(0, size, PART_BYTES), 1)
        ]
        return {"s3_key": KEY, "upload_id": "mine", "part_size": PART_BYTES, "parts": parts}

    @property
    def content(self) -> bytes:
        return b"".join(self.parts[number] for number in sorted(self.parts))


def fail(failure: Any) -> httpx2.Response:
    if isinstance(failure, Exception):
        raise failure
    return httpx2.Response(failure, text="<Error/>")


@pytest.fixture(autouse=True)
def small_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_uploads, "MULTIPART_THRESHOLD_BYTES", PART_BYTES)


@pytest.fixture
def store() -> StubStore:
    return StubStore()


@pytest.fixture
def call_store(asynchronous: bool, store: StubStore) -> Caller:
    return partial(call_client, store, asynchronous=asynchronous, retries=2)


@pytest.fixture
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "retry_delay", lambda *_: 0.0)


def sources(folder: Path) -> Iterator[Any]:
    path = folder / "table.csv"
    path.write_bytes(DATA)
    file = io.BytesIO(b"skip" + DATA)
    file.seek(4)
    yield from (path, DATA, file)


def test_parts_are_uploaded_and_completed(call_store: Caller, store: StubStore, tmp_path: Path) -> None:
    """A path, bytes, or a file from its current position is sent in parts, without the key."""
    for source in sources(tmp_path):
        store.__init__()  # type: ignore[misc]
        assert call_store(lambda c, source=source: c.upload(source, filename="table.csv")) == KEY
        created, completed = store.bodies
        assert (created["filename"], created["size"], created["parts"]) == ("table.csv", len(DATA), True)
        assert store.content == DATA
        assert completed == {"parts": [{"number": n, "etag": f'"e{n}"'} for n in (1, 2, 3, 4)]}
        assert (store.lines[0], store.lines[-1], len(store.lines)) == ("POST /v1/uploads", COMPLETE, 6)
        for headers in store.part_headers:
            assert "authorization" not in headers
            assert "transfer-encoding" not in headers
        lengths = sorted(int(headers["content-length"]) for headers in store.part_headers)
        assert lengths == [12_345, PART_BYTES, PART_BYTES, PART_BYTES]


def test_smaller_files_are_not_uploaded_in_parts(call_store: Caller, store: StubStore) -> None:
    """A file of the threshold is uploaded in parts, and one with a byte less is not."""
    with pytest.raises(BadAnswer):  # the stub knows uploads in parts only
        call_store(lambda c: c.upload(bytes(PART_BYTES - 1)))
    assert "parts" not in store.bodies[0]
    call_store(lambda c: c.upload(bytes(PART_BYTES)))
    assert store.bodies[1]["parts"] is True


def test_a_failed_part_is_retried_alone(call_store: Caller, store: StubStore, no_delays: None) -> None:
    """The other parts are sent once."""
    store.part_failures[2], store.part_failures[4] = [CUT, 503], [500]
    call_store(lambda c: c.upload(DATA))
    assert store.content == DATA
    requests = Counter(line for line in store.lines if line.startswith("PUT"))
    assert requests == {"PUT /1": 1, "PUT /2": 3, "PUT /3": 1, "PUT /4": 2}
    assert ABORT not in store.lines


FAILURES = st.lists(st.sampled_from([CUT, 500, 503]), max_size=2)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
@given(size=st.integers(PART_BYTES, 4 * PART_BYTES), failures=st.dictionaries(st.integers(1, 5), FAILURES))
def test_progress_never_decreases(asynchronous: bool, size: int, failures: dict[int, list[Any]]) -> None:
    """It increases with each call and ends at the file's size, whatever fails."""
    store, progress = StubStore(), list[tuple[int, int]]()
    store.part_failures.update({number: list(some) for number, some in failures.items()})
    data = bytes(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_http, "retry_delay", lambda *_: 0.0)
        call_client(
            store,
            lambda c: c.upload(data, on_progress=lambda *both: progress.append(both)),
            asynchronous=asynchronous,
            retries=2,
        )
    sent = [sent for sent, _ in progress]
    assert sent == sorted(set(sent))
    assert progress[-1] == (size, size)
    assert {total for _, total in progress} == {size}


@pytest.mark.parametrize(
    ("failures", "error"), [([403], Forbidden), ([CUT] * 3, ConnectionFailed), ([422], InvalidRequest)]
)
def test_a_part_that_fails_for_good_aborts_the_upload(
    call_store: Caller, store: StubStore, no_delays: None, failures: list[Any], error: type[Exception]
) -> None:
    """The part's error is raised, and the upload is not completed."""
    store.part_failures[3] = list(failures)
    with pytest.raises(error):
        call_store(lambda c: c.upload(DATA))
    assert store.lines[-1] == ABORT
    assert COMPLETE not in store.lines


def test_a_failed_abort_is_ignored(call_store: Caller, store: StubStore) -> None:
    """The error of the upload is raised. The service deletes the parts later."""
    store.part_failures[1], store.abort_failures = [403], [CUT]
    with pytest.raises(Forbidden):
        call_store(lambda c: c.upload(DATA))
    assert store.lines.count(ABORT) == 1


def test_completion_is_retried(call_store: Caller, store: StubStore, no_delays: None) -> None:
    """Completion is idempotent, so it is retried."""
    store.complete_failures = [CUT, 503]
    assert call_store(lambda c: c.upload(DATA)) == KEY
    assert store.lines.count(COMPLETE) == 3
    assert ABORT not in store.lines


def test_a_refused_completion_aborts_the_upload(call_store: Caller, store: StubStore) -> None:
    """The error of the completion is raised."""
    store.complete_failures = [422]
    with pytest.raises(InvalidRequest):
        call_store(lambda c: c.upload(DATA))
    assert store.lines[-1] == ABORT


def test_a_part_needs_an_etag(call_store: Caller, store: StubStore) -> None:
    """A response without it is not from S3."""
    store.sends_etags = False
    with pytest.raises(BadAnswer, match="ETag"):
        call_store(lambda c: c.upload(DATA))


def test_an_error_of_on_progress_aborts_the_upload(call_store: Caller, store: StubStore) -> None:
    """The callback's error is raised, in whatever thread it was called."""

    def fail_always(*_: int) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        call_store(lambda c: c.upload(DATA, on_progress=fail_always))
    assert store.lines[-1] == ABORT


def test_four_parts_are_sent_at_a_time(store: StubStore, asynchronous: bool) -> None:
    """There are never more, and not fewer while parts are left."""
    barrier, sending, counts = threading.Barrier(4, timeout=10), set[str](), list[int]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        request.read()
        if request.method == "PUT":
            sending.add(request.url.path)
            barrier.wait()
            time.sleep(0.05)  # a fifth request would be sent now
            counts.append(len(sending))
            sending.discard(request.url.path)
        return store(request)

    data = bytes(8 * PART_BYTES)
    call_client(respond, lambda c: c.upload(data), asynchronous=asynchronous)
    assert max(counts) == 4
    assert len(store.parts) == 8


def test_a_failure_cancels_the_other_parts(
    store: StubStore, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delays before retries end at once, and no further part is sent."""
    monkeypatch.setattr(_http, "retry_delay", lambda *_: 60.0)
    store.part_failures.update({1: [CUT], 2: [CUT], 3: [CUT], 4: [403]})

    def respond(request: httpx2.Request) -> httpx2.Response:
        if request.method == "PUT" and int(request.url.path[1:]) > 4:
            time.sleep(0.2)
        return store(request)

    began = time.monotonic()
    with pytest.raises(Forbidden):
        call_client(respond, lambda c: c.upload(bytes(9 * PART_BYTES)), asynchronous=asynchronous, retries=2)
    assert time.monotonic() - began < 20
    assert len([line for line in store.lines if line.startswith("PUT")]) < 9


def test_a_failure_cancels_a_request_that_is_being_sent(store: StubStore) -> None:
    """A thread sends no further chunk of its part after another part has failed."""
    sent, has_begun = list[bytes](), threading.Event()

    def chunks() -> Iterator[bytes]:
        for _ in range(1000):
            sent.append(b"x")
            yield b"x"
            has_begun.set()
            time.sleep(0.01)

    async def send_long() -> None:
        await blocking.send(_io.Request("PUT", "https://store/1", {}, chunks))

    async def fail_soon() -> None:
        assert has_begun.wait(10)
        raise Forbidden(status=403)

    with httpx2.Client(transport=httpx2.MockTransport(store)) as http:
        blocking = _io.BlockingIO(http)
        with pytest.raises(Forbidden):
            run(blocking.gather([send_long, fail_soon], concurrency=2))
    assert 1 <= len(sent) < 1000
    assert store.parts == {}


def test_a_cancelled_task_aborts_the_upload(store: StubStore) -> None:
    """The parts that were sent are deleted."""
    has_started = asyncio.Event()

    async def respond(request: httpx2.Request) -> httpx2.Response:
        if request.method == "PUT":
            has_started.set()
            await asyncio.sleep(60)
        return store(request)

    async def upload(client: Any) -> None:
        task = asyncio.create_task(client.upload(DATA))
        await has_started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    call_client(respond, upload, asynchronous=True)
    assert store.lines == ["POST /v1/uploads", ABORT]
