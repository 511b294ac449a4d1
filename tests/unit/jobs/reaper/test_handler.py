"""Ending overdue and undeliverable jobs (jobs.reaper)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core import events
from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import Unavailable
from core.jobs import JobStore
from core.jobs.machine import NEVER_STARTED, wait_for_place
from jobs.reaper.handler import handler, report_parked_events
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
        self.client.send_message(QueueUrl=self.urls[name], MessageBody=json.dumps(message))

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


class Context:
    function_name = "reaper-1"


def run() -> None:
    handler({}, Context())


def test_deadline_of_a_waiting_job(store: JobStore) -> None:
    """A job that has waited for other jobs of its owner until its deadline says so."""
    past = events.timestamp(time.time() - 1)
    job_id = store.submit(DOCUMENT, job(at=time.time(), deadline=past)).job.job_id
    store.apply(job_id, wait_for_place)
    run()
    ended = store.get(job_id)
    assert ended.error == {"code": "deadline_exceeded", "message": NEVER_STARTED, "stage": "queued"}
    assert ended.waiting_for is None


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


@pytest.mark.parametrize(("code", "left"), [("TaskTimedOut", 0), ("InvalidToken", 0), ("InternalError", 1)])
def test_tokens(store: JobStore, queues: Queues, calls: Calls, code: str, left: int) -> None:
    """The message of an invalid token is deleted; if the token cannot be answered now, the message stays."""
    queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": "job_1"})
    calls.fail("*", "SendTaskFailure", code)
    run()
    assert queues.left("EMBEDDING_DLQ_URL") == left


def test_refused_token(store: JobStore, queues: Queues, calls: Calls) -> None:
    """Without permission to fail the task, the job itself is failed, and its message is deleted."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    for subject in (job_id, "job_gone"):
        queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": subject})
        calls.fail("*", "SendTaskFailure", "AccessDeniedException")
    run()
    ended = store.get(job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "execution_lost")
    assert queues.left("EMBEDDING_DLQ_URL") == 0


@pytest.mark.parametrize(("minute", "parked"), [(0, 2), (0, 0), (1, 2), (59, 2)])
def test_parked_events_are_a_metric(
    blobs: Blobs, environment: dict[str, str], logged: Callable[[], list[dict[str, Any]]], minute: int, parked: int
) -> None:
    """Once an hour their number is logged in the embedded metric format, if there are any."""
    for key in ["parked/evt_1.json", "aws/lambda/1/shard/report", "parked/readme.txt"][
        : parked + 1 if parked else 0
    ]:
        blobs.put(key, b"{}")
    report_parked_events(3600 * 500_000 + 60 * minute + 7.5, "reaper-1")
    found = [entry for entry in logged() if "_aws" in entry]
    assert [(entry["ParkedEvents"], entry["FunctionName"]) for entry in found] == (
        [(2, "reaper-1")] if parked and minute == 0 else []
    )
    for entry in found:
        (directive,) = entry["_aws"]["CloudWatchMetrics"]
        assert (directive["Namespace"], directive["Dimensions"]) == ("Recado", [["FunctionName"]])
        assert entry["_aws"]["Timestamp"] == (3600 * 500_000 + 7.5) * 1000


@pytest.mark.parametrize("failing", ["INDEXING_DLQ_URL", "EMBEDDING_DLQ_URL"])
def test_unreadable_queue(store: JobStore, queues: Queues, calls: Calls, failing: str) -> None:
    """If one queue cannot be read, the other one and the deadlines are handled, and the run counts as failed."""
    past = events.timestamp(time.time() - 1)
    overdue = store.submit(DOCUMENT, job(at=time.time(), deadline=past)).job.job_id
    unstarted = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    queues.put("INDEXING_DLQ_URL", {"event": "document.uploaded", "job_id": unstarted})
    queues.put("EMBEDDING_DLQ_URL", {"task_token": "t" * 20, "job_id": "job_1"})
    url = queues.urls[failing]
    calls.fail("sqs", "ReceiveMessage", "InternalError", when=lambda call: call.params["QueueUrl"] == url)
    with pytest.raises(Unavailable, match=f"failed: {failing.split('_')[0].lower()} DLQ"):
        run()
    assert store.get(overdue).status == "failed"
    assert [queues.left(name) for name in DEAD] == [int(name == failing) for name in DEAD]
