"""Ending overdue and undeliverable jobs (jobs.reaper)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core import events
from core.dependencies import dependencies
from core.jobs import JobStore, begin, cancel
from jobs.reaper.handler import handler
from kinds.document.kind import DOCUMENT
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import job

DEAD = ("INDEXING_DLQ_URL", "EMBEDDING_DLQ_URL")


class Queues:
    """The two dead-letter queues."""

    def __init__(self, client: Any, urls: dict[str, str]) -> None:
        self.client, self.urls = client, urls

    def put(self, name: str, message: dict[str, Any]) -> None:
        self.put_text(name, json.dumps(message))

    def put_text(self, name: str, body: str) -> None:
        self.client.send_message(QueueUrl=self.urls[name], MessageBody=body)

    def left(self, name: str) -> int:
        """The number of messages, invisible ones included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.urls[name], AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@pytest.fixture
def queues(
    environment: dict[str, str], cached_clients: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> Queues:
    client = cached_clients("sqs")
    urls = {name: client.create_queue(QueueName=name)["QueueUrl"] for name in DEAD}
    for name, url in urls.items():
        monkeypatch.setenv(name, url)
    return Queues(client, urls)


@pytest.fixture
def calls(queues: Queues) -> Iterator[Calls]:
    calls = Calls(Clock())
    calls.answers["stepfunctions:SendTaskFailure"] = lambda params: {}
    with calls.intercepted():
        yield calls


@pytest.fixture
def store(calls: Calls, jobs_table: str) -> JobStore:
    return dependencies.jobs


def run() -> None:
    handler({}, None)


def test_deadlines(store: JobStore) -> None:
    """Open jobs whose deadline has passed fail, queued or running. Others do not change."""
    past, future = events.timestamp(time.time() - 1), events.timestamp(time.time() + 60)
    queued, running, early = (
        store.submit(DOCUMENT, job(at=time.time(), deadline=d)).job.job_id for d in (past, past, future)
    )
    store.apply(running, begin(DOCUMENT, stage="chunk", lease="x"))
    run()
    run()
    for job_id in (queued, running):
        ended = store.get(job_id)
        assert ended.error is not None
        assert (ended.status, ended.error["code"]) == ("failed", "deadline_exceeded")
    assert store.get(early).status == "queued"


def test_error_of_one_job(store: JobStore, calls: Calls) -> None:
    """A job that cannot be ended now is ended by a later run, and the others by this one."""
    past = events.timestamp(time.time() - 1)
    made = [store.submit(DOCUMENT, job(at=time.time(), deadline=past)).job.job_id for _ in range(3)]
    calls.fail("dynamodb", "TransactWriteItems", "InternalServerError")
    run()
    assert sorted(store.get(job_id).status for job_id in made) == ["failed", "failed", "queued"]
    run()
    assert {store.get(job_id).status for job_id in made} == {"failed"}


def test_job_not_started(store: JobStore, queues: Queues) -> None:
    """A job whose start failed too often fails, and its message is deleted."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    queues.put("INDEXING_DLQ_URL", {"event": "document.uploaded", "job_id": job_id})
    queues.put("INDEXING_DLQ_URL", {"event": "document.uploaded", "job_id": "job_gone"})
    run()
    ended = store.get(job_id)
    assert ended.error is not None
    assert ended.error["code"] == "not_started"
    assert queues.left("INDEXING_DLQ_URL") == 0


@pytest.mark.parametrize(
    "message",
    [
        {"event": "document.canceled", "job_id": "job_1"},
        {"event": "document.deleted", "owner": "ana", "document_id": "d", "version": "v"},
    ],
)
def test_failed_clean_up(store: JobStore, queues: Queues, message: dict[str, Any]) -> None:
    """The message of a clean-up that failed too often stays in the queue."""
    queues.put("INDEXING_DLQ_URL", message)
    run()
    assert queues.left("INDEXING_DLQ_URL") == 1


def test_failed_batch(store: JobStore, queues: Queues, calls: Calls) -> None:
    """The task of a batch that failed too often is failed, as Lambda fails tasks."""
    queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": "job_1"})
    run()
    (request,) = (call.params for call in calls.log if call.operation == "SendTaskFailure")
    assert (request["taskToken"], request["error"]) == ("t" * 20, "Unavailable")
    assert json.loads(request["cause"])["errorType"] == "Unavailable"
    assert queues.left("EMBEDDING_DLQ_URL") == 0


@pytest.mark.parametrize("hops", [{}, {"hops": 3}])
def test_failed_job_of_worker(store: JobStore, queues: Queues, calls: Calls, hops: dict[str, int]) -> None:
    """A worker's job whose message failed too often fails; no task is failed."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    queues.put("EMBEDDING_DLQ_URL", {"job_id": job_id, **hops})
    queues.put("EMBEDDING_DLQ_URL", {"job_id": "job_gone", **hops})
    run()
    ended = store.get(job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "attempts_exhausted")
    assert [call for call in calls.log if call.operation == "SendTaskFailure"] == []
    assert queues.left("EMBEDDING_DLQ_URL") == 0


def test_ended_job(store: JobStore, queues: Queues) -> None:
    """A job that has ended does not change."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    store.apply(job_id, cancel)
    queues.put("EMBEDDING_DLQ_URL", {"job_id": job_id})
    queues.put("INDEXING_DLQ_URL", {"event": "document.uploaded", "job_id": job_id})
    run()
    assert store.get(job_id).status == "canceled"
    assert (queues.left("EMBEDDING_DLQ_URL"), queues.left("INDEXING_DLQ_URL")) == (0, 0)


@pytest.mark.parametrize(("code", "left"), [("TaskTimedOut", 0), ("InvalidToken", 0), ("InternalError", 1)])
def test_tokens(store: JobStore, queues: Queues, calls: Calls, code: str, left: int) -> None:
    """The message of an invalid token is deleted; if the token cannot be answered now, the message stays."""
    queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": "job_1"})
    calls.fail("*", "SendTaskFailure", code)
    run()
    assert queues.left("EMBEDDING_DLQ_URL") == left


def test_invalid_message(store: JobStore, queues: Queues) -> None:
    """An invalid message stays in the queue, and the others are handled."""
    job_ids = [store.submit(DOCUMENT, job(at=time.time())).job.job_id for _ in range(2)]
    for body in ("{", "[]", '{"nonsense": 1}'):
        queues.put_text("INDEXING_DLQ_URL", body)
        queues.put_text("EMBEDDING_DLQ_URL", body)
    for job_id in job_ids:
        queues.put("INDEXING_DLQ_URL", {"event": "document.uploaded", "job_id": job_id})
    queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": "job_1"})
    run()
    assert {store.get(job_id).status for job_id in job_ids} == {"failed"}
    assert [queues.left(name) for name in DEAD] == [3, 3]


@pytest.mark.parametrize("failing", ["INDEXING_DLQ_URL", "EMBEDDING_DLQ_URL"])
def test_unreadable_queue(store: JobStore, queues: Queues, calls: Calls, failing: str) -> None:
    """If one queue cannot be read, the other one and the deadlines are handled."""
    past = events.timestamp(time.time() - 1)
    overdue = store.submit(DOCUMENT, job(at=time.time(), deadline=past)).job.job_id
    unstarted = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    queues.put("INDEXING_DLQ_URL", {"event": "document.uploaded", "job_id": unstarted})
    queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": "job_1"})
    url = queues.urls[failing]
    calls.fail("sqs", "ReceiveMessage", "InternalError", when=lambda call: call.params["QueueUrl"] == url)
    run()
    assert store.get(overdue).status == "failed"
    assert [queues.left(name) for name in DEAD] == [int(name == failing) for name in DEAD]
