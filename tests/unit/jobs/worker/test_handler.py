"""Batches and jobs of the embedding queue (jobs.worker)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import ModelUnavailable, Postponed, Throttled
from core.jobs import Job, JobStore, begin, cancel
from jobs.worker.handler import LAST_RECEIVE, handler
from kinds.document.index import embedding
from kinds.document.index.embedding import SecondsLeft, Vector
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import echo_kind, job, replay

EXECUTION = "arn:execution"
TEXTS = ["one", "three", "seventeen"]


class Model:
    """A model that embeds a text as its length, and raises the error in `error`."""

    model, dimensions = "model", 2

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.error: dict[str, BaseException] = {}
        self.short = False

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        for text in texts[:-1] if self.short else texts:
            self.texts.append(text)
            if text in self.error:
                raise self.error.pop(text)
            yield [float(len(text)), 0.0]


class Context:
    """A function with a minute left."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()
    monkeypatch.setattr(embedding, "make", lambda *_, **__: model)
    return model


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str, queues: None, model: Model) -> JobStore:
    return dependencies.jobs


@pytest.fixture
def subject(store: JobStore, blobs: Blobs) -> Job:
    """A running job with one batch of three chunks."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    lines = [{"chunk": i, "text": text, "start": i, "end": i + 1, "heading": ""} for i, text in enumerate(TEXTS)]
    blobs.put(f"work/{job_id}/chunks/0000.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    return store.apply(job_id, begin(DOCUMENT, stage="embed", lease=EXECUTION))


@pytest.fixture
def calls(store: JobStore) -> Iterator[Calls]:
    """Records every call to AWS. Step Functions and changes of visibility are faked."""
    calls = Calls(Clock())
    for action in (
        "stepfunctions:SendTaskSuccess",
        "stepfunctions:SendTaskFailure",
        "sqs:ChangeMessageVisibility",
        "sqs:SendMessage",
    ):
        calls.answers[action] = lambda params: {}
    with calls.intercepted():
        yield calls


def work(subject: Job, *, receives: int = 1, execution: str = EXECUTION, **more: Any) -> list[str]:
    task = {"task_token": "t" * 20, "job_id": subject.job_id, "execution": execution, "batch": 0, "batches": 1}
    record = {
        "messageId": "m",
        "receiptHandle": "r",
        "body": json.dumps({**task, **more}),
        "attributes": {"ApproximateReceiveCount": str(receives)},
    }
    answer = handler({"Records": [record]}, Context())
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def results(calls: Calls) -> list[tuple[str, str | None]]:
    """The results that the state machine received: the call and the error."""
    return [(call.operation, call.params.get("error")) for call in calls.log if call.service == "stepfunctions"]


def test_postponed(subject: Job, model: Model, calls: Calls, store: JobStore) -> None:
    """A postponed batch is sent again with its token and a delay, and the job says what it waits for meanwhile."""
    model.error = {"one": Postponed("rate_limit", 6.5)}
    assert work(subject, receives=LAST_RECEIVE) == []
    (sent,) = [call.params for call in calls.log if call.operation == "SendMessage"]
    assert (sent["DelaySeconds"], sent["MessageGroupId"]) == (7, "ana")
    assert json.loads(sent["MessageBody"])["task_token"] == "t" * 20
    assert results(calls) == []
    assert store.get(subject.job_id).waiting_for == "rate_limit"
    assert work(subject) == []
    assert results(calls) == [("SendTaskSuccess", None)]
    assert store.get(subject.job_id).waiting_for is None


def test_failures_of_a_model(subject: Job, model: Model, calls: Calls) -> None:
    """A call of a language model that fails is made three times, however often its message waited in between."""
    for receives in (1, 2):
        model.error = {"one": ModelUnavailable("503")}
        assert work(subject, receives=receives) == ["m"]
    model.error = {"one": Postponed("provider_circuit", 9)}
    assert work(subject, receives=3) == []
    (sent,) = [json.loads(call.params["MessageBody"]) for call in calls.log if call.operation == "SendMessage"]
    model.error = {"one": ModelUnavailable("503")}
    assert work(subject, failures=sent["failures"]) == []
    assert results(calls) == [("SendTaskFailure", "ModelUnavailable")]


def test_visibility(subject: Job, model: Model, calls: Calls) -> None:
    """A failed batch becomes visible later each time, after at most five minutes."""
    for receives in (1, 4):
        model.error = {"one": Throttled("busy")}
        assert work(subject, receives=receives) == ["m"]
    waits = [c.params["VisibilityTimeout"] for c in calls.log if c.operation == "ChangeMessageVisibility"]
    assert len(waits) == 2
    assert 1 <= waits[0] <= 30
    assert 1 <= waits[1] <= 240


def test_internal_errors(subject: Job, model: Model, calls: Calls) -> None:
    """The cause of an unexpected error contains no details."""
    model.error = {"one": RuntimeError("secret")}
    assert work(subject, receives=LAST_RECEIVE) == []
    (failure,) = (call.params for call in calls.log if call.operation == "SendTaskFailure")
    assert "secret" not in str(failure)
    assert json.loads(failure["cause"])["errorType"] == "RuntimeError"


def test_kind_without_batches(store: JobStore, calls: Calls) -> None:
    """A batch of a kind without batches fails its task at once."""
    made = store.submit(REPLAY, replay(at=time.time())).job
    held = store.apply(made.job_id, begin(REPLAY, stage="send", lease=EXECUTION))
    assert work(held) == []
    assert results(calls) == [("SendTaskFailure", "JobFailure")]


def test_unknown_kind(store: JobStore, calls: Calls) -> None:
    """A batch of an unknown kind is retried, as after a wrong deployment, and then fails."""
    opera = echo_kind(name="opera", runs_on="machine", work=None)
    made = store.submit(opera, job(kind="opera", input={"text": "x"}, at=time.time())).job
    held = store.apply(made.job_id, begin(opera, stage="say", lease=EXECUTION))
    assert work(held) == ["m"]
    assert results(calls) == []
    assert work(held, receives=LAST_RECEIVE) == []
    assert [call for call, _ in results(calls)] == ["SendTaskFailure"]


def test_fewer_vectors(subject: Job, blobs: Blobs, model: Model, calls: Calls) -> None:
    """If the model returns fewer vectors than chunks, the batch fails and nothing is stored."""
    model.short = True
    assert work(subject) == []
    assert results(calls) == [("SendTaskFailure", "CountMismatch")]
    assert list(blobs.keys("vectors/")) == []


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
def test_invalid_token(subject: Job, calls: Calls, code: str) -> None:
    """The message of an invalid token is deleted."""
    calls.fail("*", "SendTaskSuccess", code)
    assert work(subject) == []


def test_refused_token(subject: Job, model: Model, calls: Calls, store: JobStore) -> None:
    """Without permission to answer, the batch is tried again, as after any error, and then the job fails."""
    for receives in range(1, LAST_RECEIVE):
        calls.fail("*", "SendTaskSuccess", "AccessDeniedException")
        assert work(subject, receives=receives) == ["m"]
    for action in ("SendTaskSuccess", "SendTaskFailure"):
        calls.fail("*", action, "AccessDeniedException")
    assert work(subject, receives=LAST_RECEIVE) == []
    ended = store.get(subject.job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "execution_lost")
    assert model.texts == TEXTS


def test_refused_token_of_a_failure(subject: Job, model: Model, calls: Calls, store: JobStore) -> None:
    """A job that fails anyway keeps its own reason."""
    model.short = True
    calls.fail("*", "SendTaskFailure", "AccessDeniedException")
    assert work(subject) == []
    ended = store.get(subject.job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "count_mismatch")


def test_unanswered_token(subject: Job, model: Model, calls: Calls) -> None:
    """If the task's result cannot be sent, the message is retried, and nothing is embedded again."""
    calls.fail("*", "SendTaskSuccess", "InternalError")
    assert work(subject) == ["m"]
    assert work(subject, receives=2) == []
    assert model.texts == TEXTS


@pytest.mark.parametrize("execution", [EXECUTION, "other"])
def test_ended_job(store: JobStore, subject: Job, model: Model, calls: Calls, execution: str) -> None:
    """A batch of an ended job, or of another execution, is dropped."""
    if execution == EXECUTION:
        store.apply(subject.job_id, cancel)
    assert work(subject, execution=execution) == []
    assert model.texts == []
    assert results(calls) == []
