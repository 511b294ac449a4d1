"""Questions to agents and the steps of their answers, over both transports and with every failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recado import AsyncRecado, Recado, _io, _watcher
from recado.errors import ConnectionFailed, WaitTimeout
from recado.models import JobCanceled, JobFailed, Step
from tests.unit.client.stub_service import JOB_ID, KEY, Payload, StubService, collect, payload
from tests.unit.client.test_step_cursor import THINKING, USE, joined, token

pytestmark = [pytest.mark.enable_socket, pytest.mark.usefixtures("short_delays")]

PASSAGE = {
    "document_id": "house",
    "version": "01V",
    "chunk": 0,
    "start": 0,
    "end": 37,
    "text": "The cellar key hangs behind the door.",
    "heading": "Keys",
    "score": 0.8,
}
RESULT = {"type": "tool_result", "tool": "search_documents", "passages": [PASSAGE]}
STEPS = [THINKING, USE, RESULT, token("The cellar key hangs "), token("behind the door.")]
TRANSPORTS: list[Any] = ["websocket", "sse"]


def events(ending: str = "completed") -> list[Payload]:
    last = payload(3, ending, status=ending)
    return [payload(1, "requested", status="queued"), payload(2, "started"), last]


def answered(service: StubService, *, ending: str = "completed", **options: Any) -> None:
    """A question is submitted, and answered already."""
    service.reset(events(ending), steps=list(STEPS), **options)
    service.responses["POST /jobs"] = (202, service.view())


@pytest.fixture
def answering(service: StubService) -> StubService:
    answered(service)
    return service


@pytest.fixture
def client(answering: StubService) -> Iterator[Recado]:
    with Recado(answering.url, KEY, timeout=5) as client:
        yield client


@pytest.mark.parametrize("transport", ["auto", *TRANSPORTS])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.none() | st.integers(0, 900), max_size=8), pieces=st.integers(1, 30))
def test_each_step_is_yielded_once_and_in_order(
    service: StubService,
    monkeypatch: pytest.MonkeyPatch,
    transport: Any,
    asynchronous: bool,
    cuts: list[int | None],
    pieces: int,
) -> None:
    """Connections break at any byte, and WebSockets begin with the first step each time."""
    monkeypatch.setattr(_watcher, "MIN_SESSION_SECONDS", 0.0)
    answered(service, cuts=deque([None, *cuts]), piece=pieces, hold_seconds=0.05)
    yielded = collect(
        service,
        lambda client: client.steps(JOB_ID, transport=transport, timeout=20),
        asynchronous=asynchronous,
    )
    assert joined(yielded) == joined(STEPS)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_steps_are_yielded_as_they_happen(client: Recado, answering: StubService, transport: Any) -> None:
    """Each step is yielded before the next one has happened."""
    first, *rest = STEPS
    last = answering.log.pop()
    answering.steps, answering.hold_seconds = [first], 5
    found = []
    for step in client.steps(JOB_ID, transport=transport, timeout=20):
        found.append(step.raw)
        if rest:
            answering.append_step(rest.pop(0))
        else:
            answering.append(last)
    assert found == STEPS


def test_a_stream_that_is_cut_goes_on(client: Recado, answering: StubService) -> None:
    """The second request has the id of the last step that was received whole."""
    answering.transports, answering.cuts = frozenset({"sse"}), deque([None, 700])
    assert joined(list(client.steps(JOB_ID))) == joined(STEPS)
    assert [headers.get("last-event-id") for headers in answering.headers[1:]] == [None, "2.2"]


def test_ask(answering: StubService, asynchronous: bool) -> None:
    """The question is submitted with its options, `on_step` gets the steps, and the job is returned."""
    steps: list[Step] = []
    options: dict[str, Any] = {
        "document_ids": ["house"],
        "metadata": {"lang": "en"},
        "session": "tour",
        "max_steps": 3,
        "model": "m",
        "max_cost_usd": 0.1,
        "idempotency_key": "k",
        "on_step": steps.append,
    }

    async def ask() -> Any:
        async with AsyncRecado(answering.url, KEY, timeout=5) as client:
            return await client.ask("Where?", **options)

    if asynchronous:
        job = asyncio.run(ask())
    else:
        with Recado(answering.url, KEY, timeout=5) as client:
            job = client.ask("Where?", **options)
    assert (job.job_id, job.status) == (JOB_ID, "completed")
    assert [step.type for step in steps] == ["thinking", "tool_use", "tool_result", "token", "token"]
    assert (steps[1].tool, steps[1].input) == ("search_documents", {"query": "key"})
    assert steps[2].passages[0].text == PASSAGE["text"]
    assert answering.headers[0]["idempotency-key"] == "k"


@pytest.mark.parametrize(("ending", "error"), [("failed", JobFailed), ("canceled", JobCanceled)])
def test_ask_raises_the_jobs_end(client: Recado, answering: StubService, ending: str, error: Any) -> None:
    """Unless `check` is False."""
    answered(answering, ending=ending)
    with pytest.raises(error):
        client.ask("Where?")
    assert client.ask("Where?", check=False).status == ending


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_timeouts(client: Recado, answering: StubService, transport: Any) -> None:
    """A job that does not end within the timeout raises WaitTimeout, after the steps so far."""
    answering.log.pop()
    found: list[Step] = []
    with pytest.raises(WaitTimeout, match="The job continues"):
        client.ask("Where?", on_step=found.append, timeout=0.5, transport=transport)
    assert joined(found) == joined(STEPS)


def test_errors_of_the_caller_are_raised(client: Recado) -> None:
    """They are no failed connection."""

    def fail(step: Step) -> None:
        raise ConnectionFailed("mine")

    with pytest.raises(ConnectionFailed, match="mine"):
        client.ask("Where?", on_step=fail)


def test_without_websockets(client: Recado, answering: StubService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra `live`, steps come as server-sent events."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", False)
    assert joined(list(client.steps(JOB_ID))) == joined(STEPS)
    assert answering.requests == [f"GET /v1/jobs/{JOB_ID}", f"GET /v1/jobs/{JOB_ID}/events"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_job_without_steps(client: Recado, answering: StubService, transport: Any) -> None:
    """It is watched to its end."""
    answering.steps = []
    assert list(client.steps(JOB_ID, transport=transport, timeout=5)) == []


# ── events of a job with steps ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transport", ["auto", *_watcher.TRANSPORTS])
def test_events_of_a_job_with_steps(client: Recado, answering: StubService, transport: Any) -> None:
    """`watch` yields the job's events once and in order, and `wait` ends, although steps come in between."""
    last = answering.log.pop()
    answering.hold_seconds, answering.retry_after = 5, "0"
    with answering.append_later(0.2, last):
        watched = client.watch(JOB_ID, transport=transport, timeout=5)
        assert [event.sequence for event in watched] == [1, 2, 3]
    assert client.wait(JOB_ID, transport=transport, timeout=5).status == "completed"


def test_a_stream_of_events_does_not_repeat_steps(client: Recado, answering: StubService) -> None:
    """`watch` goes on after the last step, so that the service holds the request until there is more."""
    last = answering.log.pop()
    answering.hold_seconds = 5
    with answering.append_later(0.3, last):
        assert len(list(client.watch(JOB_ID, transport="sse", timeout=5))) == 3
    assert [headers.get("last-event-id") for headers in answering.headers[1:]] == [None, "2.5"]
