"""Files in parts: by both clients, against a store that keeps what it is sent and fails where it is told to."""

from __future__ import annotations

import asyncio
import io
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import AsyncRecado, Recado, _calls, _io, _uploads
from recado.errors import BadAnswer, ConnectionFailed, Forbidden, InvalidRequest

PART = 100_000
DATA = random.Random(7).randbytes(3 * PART + 12_345)
KEY = "uploads/me/upl_1/file"
OK = 200


class Store:
    """The service and its bucket. `troubles`: by part what happens instead of taking it, in order."""

    def __init__(self) -> None:
        self.troubles: defaultdict[int, list[Any]] = defaultdict(list)
        self.completing: list[Any] = []
        self.aborting: list[Any] = []
        self.parts: dict[int, bytes] = {}
        self.lines: list[str] = []
        self.asked: list[Any] = []
        self.headers: list[httpx2.Headers] = []
        self.etags = True
        self.lock = threading.Lock()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body, path = request.read(), request.url.path
        with self.lock:
            self.lines.append(f"{request.method} {path}")
            if request.url.host == "store":
                return self.take(int(path.removeprefix("/")), body, request.headers)
            self.asked.append(json.loads(body) if body else None)
            if path == "/v1/uploads":
                return httpx2.Response(201, json=self.place(self.asked[-1]["size"]))
            troubles = self.aborting if request.method == "DELETE" else self.completing
            return failed(troubles.pop(0)) if troubles else httpx2.Response(OK, json={"s3_key": KEY})

    def take(self, number: int, body: bytes, headers: httpx2.Headers) -> httpx2.Response:
        self.headers.append(headers)
        if self.troubles[number]:
            return failed(self.troubles[number].pop(0))
        self.parts[number] = body
        return httpx2.Response(OK, headers={"ETag": f'"e{number}"'} if self.etags else {})

    def place(self, size: int) -> dict[str, Any]:
        starts = range(0, size, PART)
        parts = [
            {"number": number, "size": min(PART, size - start), "url": f"https://store/{number}?sig=1"}
            for number, start in enumerate(starts, 1)
        ]
        return {"s3_key": KEY, "upload_id": "mine", "part_size": PART, "parts": parts}

    @property
    def whole(self) -> bytes:
        return b"".join(self.parts[number] for number in sorted(self.parts))


def failed(trouble: Any) -> httpx2.Response:
    if isinstance(trouble, Exception):
        raise trouble
    return httpx2.Response(trouble, text="<Error/>")


CUT = httpx2.WriteError("cut")
COMPLETE, ABORT = "POST /v1/uploads/mine/complete", "DELETE /v1/uploads/mine"
Act = Callable[[Any], Any]


def act_on(store: Callable[[httpx2.Request], Any], act: Act, *, asynchronous: bool) -> Any:
    if asynchronous:
        return asyncio.run(act_async(store, act))
    with httpx2.Client(transport=httpx2.MockTransport(store)) as http, client(Recado, http) as each:
        return act(each)


async def act_async(store: Callable[[httpx2.Request], Any], act: Act) -> Any:
    async def heard(request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        answer = store(request)
        return answer if isinstance(answer, httpx2.Response) else await answer

    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(heard)) as http,
        client(AsyncRecado, http) as each,
    ):
        return await act(each)


def client(kind: Any, http: Any) -> Any:
    return kind("https://api.test/v1", "rk_test", http=http, retries=2)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_uploads, "PARTS_FROM_BYTES", PART)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def on_client(asynchronous: bool, store: Store) -> Callable[[Act], Any]:
    return lambda act: act_on(store, act, asynchronous=asynchronous)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "pause", lambda *_: 0.0)


OnClient = Callable[[Act], Any]


def sources(folder: Path) -> Iterator[Any]:
    path = folder / "table.csv"
    path.write_bytes(DATA)
    later = io.BytesIO(b"skip" + DATA)
    later.seek(4)
    yield from (path, DATA, later)


def test_parts_are_sent_and_joined(on_client: OnClient, store: Store, tmp_path: Path) -> None:
    """A path, bytes, or a file from where it stands: announced, sent in parts without the key, completed."""
    for source in sources(tmp_path):
        store.__init__()  # type: ignore[misc]
        assert on_client(lambda c, source=source: c.upload(source, filename="table.csv")) == KEY
        announced, completed = store.asked
        assert (announced["filename"], announced["size"], announced["parts"]) == ("table.csv", len(DATA), True)
        assert store.whole == DATA
        assert completed == {"parts": [{"number": n, "etag": f'"e{n}"'} for n in (1, 2, 3, 4)]}
        assert (store.lines[0], store.lines[-1], len(store.lines)) == ("POST /v1/uploads", COMPLETE, 6)
        for headers in store.headers:
            assert "authorization" not in headers
            assert "transfer-encoding" not in headers
        assert sorted(int(headers["content-length"]) for headers in store.headers) == [12_345, PART, PART, PART]


def test_what_is_small_goes_at_once(on_client: OnClient, store: Store) -> None:
    """One byte less than the threshold is no upload in parts: nothing asks for them."""
    with pytest.raises(BadAnswer):  # this store knows nothing else
        on_client(lambda c: c.upload(bytes(PART - 1)))
    assert "parts" not in store.asked[0]
    on_client(lambda c: c.upload(bytes(PART)))
    assert store.asked[1]["parts"] is True


def test_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files from 16 MiB on go in parts."""
    monkeypatch.undo()
    assert _uploads.PARTS_FROM_BYTES == 16 * 1024 * 1024


def test_a_broken_part_begins_again_alone(on_client: OnClient, store: Store, no_pause: None) -> None:
    """A cut, a 503 and a 500 cost those parts another try, and the others none."""
    store.troubles[2], store.troubles[4] = [CUT, 503], [500]
    on_client(lambda c: c.upload(DATA))
    assert store.whole == DATA
    sent = Counter(line for line in store.lines if line.startswith("PUT"))
    assert sent == {"PUT /1": 1, "PUT /2": 3, "PUT /3": 1, "PUT /4": 2}
    assert ABORT not in store.lines


TROUBLES = st.lists(st.sampled_from([CUT, 500, 503]), max_size=2)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
@given(size=st.integers(PART, 4 * PART), troubles=st.dictionaries(st.integers(1, 5), TROUBLES))
def test_progress_never_goes_back(asynchronous: bool, size: int, troubles: dict[int, list[Any]]) -> None:
    """Whatever breaks and begins again: it rises with each call, and ends where the file does."""
    store, seen = Store(), list[tuple[int, int]]()
    store.troubles.update({number: list(some) for number, some in troubles.items()})
    data = bytes(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_calls, "pause", lambda *_: 0.0)
        act_on(
            store, lambda c: c.upload(data, on_progress=lambda *both: seen.append(both)), asynchronous=asynchronous
        )
    done = [sent for sent, _ in seen]
    assert done == sorted(set(done))
    assert seen[-1] == (size, size)
    assert {total for _, total in seen} == {size}


@pytest.mark.parametrize(
    ("trouble", "error"), [([403], Forbidden), ([CUT] * 3, ConnectionFailed), ([422], InvalidRequest)]
)
def test_what_fails_for_good_is_given_up(
    on_client: OnClient, store: Store, no_pause: None, trouble: list[Any], error: type[Exception]
) -> None:
    """A part that cannot be sent ends the upload: its error is raised, nothing completed, all of it removed."""
    store.troubles[3] = list(trouble)
    with pytest.raises(error):
        on_client(lambda c: c.upload(DATA))
    assert store.lines[-1] == ABORT
    assert COMPLETE not in store.lines


def test_giving_up_may_fail_too(on_client: OnClient, store: Store) -> None:
    """What is raised is why the upload failed, not that it could not be removed; the service does that in time."""
    store.troubles[1], store.aborting = [403], [CUT]
    with pytest.raises(Forbidden):
        on_client(lambda c: c.upload(DATA))
    assert store.lines.count(ABORT) == 1


def test_an_answer_that_is_lost_is_asked_for_again(on_client: OnClient, store: Store, no_pause: None) -> None:
    """Completing again is the same as once, so a cut there costs no more than that."""
    store.completing = [CUT, 503]
    assert on_client(lambda c: c.upload(DATA)) == KEY
    assert store.lines.count(COMPLETE) == 3
    assert ABORT not in store.lines


def test_what_cannot_be_completed_is_given_up(on_client: OnClient, store: Store) -> None:
    """A refusal to join the parts is raised, and they are removed."""
    store.completing = [422]
    with pytest.raises(InvalidRequest):
        on_client(lambda c: c.upload(DATA))
    assert store.lines[-1] == ABORT


def test_a_part_needs_an_etag(on_client: OnClient, store: Store) -> None:
    """Without one nothing can be completed: it is no S3 that has answered."""
    store.etags = False
    with pytest.raises(BadAnswer, match="ETag"):
        on_client(lambda c: c.upload(DATA))


def test_a_callback_that_raises_ends_it(on_client: OnClient, store: Store) -> None:
    """What `on_progress` raises comes out, wherever it was called, and nothing is left there."""

    def full(*_: int) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        on_client(lambda c: c.upload(DATA, on_progress=full))
    assert store.lines[-1] == ABORT


class Crowd:
    """Answers as the store does, but a part only when four have come."""

    def __init__(self, store: Store, barrier: Any) -> None:
        self.store, self.barrier = store, barrier
        self.now = self.most = 0

    def come(self, by: int) -> None:
        with self.store.lock:
            self.now += by
            self.most = max(self.most, self.now)

    def blocking(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        if request.method == "PUT":
            self.come(1)
            self.barrier.wait()
            self.come(-1)
        return self.store(request)

    async def awaiting(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "PUT":
            self.come(1)
            async with asyncio.timeout(10):
                await self.barrier.wait()
            self.come(-1)
        return self.store(request)


def test_four_go_at_once(store: Store, asynchronous: bool) -> None:
    """No part waits while fewer than four are under way, and there are never more."""
    crowd = Crowd(store, asyncio.Barrier(4) if asynchronous else threading.Barrier(4, timeout=10))
    answer: Any = crowd.awaiting if asynchronous else crowd.blocking
    data = bytes(8 * PART)
    act_on(answer, lambda c: c.upload(data), asynchronous=asynchronous)
    assert crowd.most == 4
    assert len(store.parts) == 8


def test_a_failure_ends_the_others_at_once(
    store: Store, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that pause before another try do not hold up the error, and those that have not begun never do."""
    monkeypatch.setattr(_calls, "pause", lambda *_: 60.0)
    store.troubles.update({1: [CUT], 2: [CUT], 3: [CUT], 4: [403]})
    began = time.monotonic()
    with pytest.raises(Forbidden):
        act_on(slowly(store, asynchronous), lambda c: c.upload(bytes(9 * PART)), asynchronous=asynchronous)
    assert time.monotonic() - began < 20
    assert len([line for line in store.lines if line.startswith("PUT")]) < 9


def slowly(store: Store, asynchronous: bool) -> Callable[[httpx2.Request], Any]:
    """The store, which takes its time over part 5 and those that follow."""

    def seconds(request: httpx2.Request) -> float:
        return 0.2 if request.method == "PUT" and int(request.url.path[1:]) > 4 else 0

    def blocking(request: httpx2.Request) -> httpx2.Response:
        time.sleep(seconds(request))
        return store(request)

    async def awaiting(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(seconds(request))
        return store(request)

    return awaiting if asynchronous else blocking


def test_a_failure_cuts_off_what_is_being_sent(store: Store) -> None:
    """A thread in the middle of a part sends no further piece once another has failed."""
    sent, failing = list[bytes](), threading.Event()

    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            sent.append(b"x")
            yield b"x"
            failing.set()
            time.sleep(0.01)

    async def endless() -> None:
        await blocking.send(_io.Request("PUT", "https://store/1", {}, pieces))

    async def broken() -> None:
        assert failing.wait(10)
        raise Forbidden(status=403)

    with httpx2.Client(transport=httpx2.MockTransport(store)) as http:
        blocking = _io.BlockingIO(http)
        with pytest.raises(Forbidden):
            _io.run(blocking.together([endless, broken], at_once=2))
    assert 1 <= len(sent) < 1000
    assert store.parts == {}


def test_a_task_that_is_canceled_gives_up(store: Store) -> None:
    """Cancelling an upload removes what was sent of it."""
    started = asyncio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "PUT":
            started.set()
            await asyncio.sleep(60)
        return store(request)

    async def upload(client: Any) -> None:
        task = asyncio.create_task(client.upload(DATA))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    act_on(answer, upload, asynchronous=True)
    assert store.lines == ["POST /v1/uploads", ABORT]
