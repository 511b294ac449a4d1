from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pytest

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import CountMismatch, Throttled
from core.jobs import Job, JobStore, begin, cancel
from jobs.worker.handler import LAST_RECEIVE, handler
from kinds.document.batches import RESERVE_SECONDS
from kinds.document.dependencies import document_dependencies
from kinds.document.index import embedding
from kinds.document.index.embedding import TimeBudget, Vector
from kinds.document.index.vectors import unpack
from kinds.document.kind import DOCUMENT, version_of
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import echo_kind, job, replay

EXECUTION = "arn:execution"
TEXTS = ["one", "three", "seventeen"]


class Model:
    """Embeds a text as its length; breaks down where `trouble` says so."""

    model, dimensions = "model", 2

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.trouble: dict[str, BaseException] = {}
        self.patience: list[float] = []
        self.short = False

    def embed(self, texts: Sequence[str], *, patience: TimeBudget) -> Iterator[Vector]:
        self.patience.append(patience())
        for text in texts[:-1] if self.short else texts:
            self.asked.append(text)
            if text in self.trouble:
                raise self.trouble.pop(text)
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
    """Every AWS call; Step Functions and the visibility of messages are answered here."""
    calls = Calls(Clock())
    for action in (
        "stepfunctions:SendTaskSuccess",
        "stepfunctions:SendTaskFailure",
        "sqs:ChangeMessageVisibility",
    ):
        calls.answers[action] = lambda params: {}
    with calls.intercepted():
        yield calls


def work(subject: Job, *, receives: int = 1, execution: str = EXECUTION) -> list[str]:
    task = {"task_token": "t" * 20, "job_id": subject.job_id, "execution": execution, "batch": 0, "batches": 1}
    record = {
        "messageId": "m",
        "receiptHandle": "r",
        "body": json.dumps(task),
        "attributes": {"ApproximateReceiveCount": str(receives)},
    }
    answer = handler({"Records": [record]}, Context())
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def told(calls: Calls) -> list[tuple[str, str | None]]:
    """What the state machine was told: the call, and the error."""
    return [(call.operation, call.params.get("error")) for call in calls.log if call.service == "stepfunctions"]


def stored(subject: Job) -> list[list[float]]:
    key = f"{document_dependencies.vectors._batch(version_of(subject), 0)}.f32"
    return [list(row) for row in unpack(dependencies.blobs.get(key), 2)]


def test_batch(store: JobStore, subject: Job, model: Model, calls: Calls) -> None:
    """Each chunk becomes a vector, the batch counts as done, and its token is answered."""
    assert work(subject) == []
    assert stored(subject) == [[3.0, 0.0], [5.0, 0.0], [9.0, 0.0]]
    assert store.snapshot(subject.job_id, owner="ana").progress == (1, 1)
    assert told(calls) == [("SendTaskSuccess", None)]
    assert model.patience == [60 - RESERVE_SECONDS]


def test_twice(subject: Job, model: Model, calls: Calls) -> None:
    """A batch whose message comes twice is paid for once, and answered each time."""
    assert work(subject) == work(subject, receives=2) == []
    assert model.asked == TEXTS
    assert told(calls) == [("SendTaskSuccess", None)] * 2


def test_what_was_paid_for_is_kept(subject: Job, model: Model, calls: Calls) -> None:
    """A model that breaks down in the middle is asked only for the rest when the message returns."""
    model.trouble = {"three": Throttled("busy"), "seventeen": Throttled("busy")}
    assert [work(subject, receives=n) for n in (1, 2, 3)] == [["m"], ["m"], []]
    assert model.asked == ["one", "three", "three", "seventeen", "seventeen"]
    assert stored(subject) == [[3.0, 0.0], [5.0, 0.0], [9.0, 0.0]]


def test_a_worker_that_dies_keeps_what_was_paid_for(subject: Job, model: Model, calls: Calls) -> None:
    """Also what ends the process leaves behind what was paid for."""
    model.trouble = {"three": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        work(subject)
    assert work(subject, receives=2) == []
    assert model.asked == ["one", "three", "three", "seventeen"]


def test_coming_back(subject: Job, model: Model, calls: Calls) -> None:
    """A batch that must come again comes later each time, at most five minutes."""
    for receives in (1, 4):
        model.trouble = {"one": Throttled("busy")}
        assert work(subject, receives=receives) == ["m"]
    waits = [c.params["VisibilityTimeout"] for c in calls.log if c.operation == "ChangeMessageVisibility"]
    assert len(waits) == 2
    assert 1 <= waits[0] <= 30
    assert 1 <= waits[1] <= 240


def test_last_receive(subject: Job, model: Model, calls: Calls) -> None:
    """Before a message would be dead, its token is failed with the error's name, and the message is done."""
    model.trouble = {"one": Throttled("busy")}
    assert work(subject, receives=LAST_RECEIVE) == []
    assert told(calls) == [("SendTaskFailure", "Throttled")]


def test_unknown_errors_say_nothing_of_their_inside(subject: Job, model: Model, calls: Calls) -> None:
    """The cause that is told of an error that is not ours has no word of it."""
    model.trouble = {"one": RuntimeError("secret")}
    assert work(subject, receives=LAST_RECEIVE) == []
    (failure,) = (call.params for call in calls.log if call.operation == "SendTaskFailure")
    assert "secret" not in str(failure)
    assert json.loads(failure["cause"])["errorType"] == "RuntimeError"


def test_failure_of_the_job(subject: Job, model: Model, calls: Calls) -> None:
    """What would fail again fails the token at once."""
    model.trouble = {"one": CountMismatch("wrong")}
    assert work(subject) == []
    assert told(calls) == [("SendTaskFailure", "CountMismatch")]


def test_a_kind_without_batches(store: JobStore, calls: Calls) -> None:
    """A batch of a job whose kind has none fails its token at once."""
    made = store.submit(REPLAY, replay(at=time.time())).job
    held = store.apply(made.job_id, begin(REPLAY, stage="send", lease=EXECUTION))
    assert work(held) == []
    assert told(calls) == [("SendTaskFailure", "JobFailure")]


def test_a_kind_that_is_gone(store: JobStore, calls: Calls) -> None:
    """A batch of a kind that is registered no more comes again, as after a mistaken deployment, and then fails."""
    opera = echo_kind(name="opera", runs_on="machine", work=None)
    made = store.submit(opera, job(kind="opera", input={"text": "x"}, at=time.time())).job
    held = store.apply(made.job_id, begin(opera, stage="say", lease=EXECUTION))
    assert work(held) == ["m"]
    assert told(calls) == []
    assert work(held, receives=LAST_RECEIVE) == []
    assert [call for call, _ in told(calls)] == ["SendTaskFailure"]


def test_fewer_vectors(subject: Job, model: Model, calls: Calls) -> None:
    """A model that answers fewer vectors than there are chunks fails the batch, and nothing is stored."""
    model.short = True
    assert work(subject) == []
    assert told(calls) == [("SendTaskFailure", "CountMismatch")]
    with pytest.raises(Exception, match="gone"):
        stored(subject)


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
def test_token_that_is_gone(subject: Job, calls: Calls, code: str) -> None:
    """A token that nobody waits for any more is done with."""
    calls.fail("*", "SendTaskSuccess", code)
    assert work(subject) == []


def test_token_that_cannot_be_answered_now(subject: Job, model: Model, calls: Calls) -> None:
    """A token that could not be answered is answered when the message returns, without paying again."""
    calls.fail("*", "SendTaskSuccess", "InternalError")
    assert work(subject) == ["m"]
    assert work(subject, receives=2) == []
    assert model.asked == TEXTS


@pytest.mark.parametrize("execution", [EXECUTION, "other"])
def test_nothing_is_paid_for_a_job_that_is_over(
    store: JobStore, subject: Job, model: Model, calls: Calls, execution: str
) -> None:
    """A batch of a canceled job, or of an execution that does not hold it, is dropped before it costs."""
    if execution == EXECUTION:
        store.apply(subject.job_id, cancel)
    assert work(subject, execution=execution) == []
    assert model.asked == []
    assert told(calls) == []


def test_canceled_while_the_model_thinks(store: JobStore, subject: Job, model: Model, calls: Calls) -> None:
    """Vectors of a job that was canceled meanwhile are removed again."""
    real = model.embed

    def embed(texts: Sequence[str], *, patience: TimeBudget) -> Iterator[Vector]:
        yield from real(texts, patience=patience)
        store.apply(subject.job_id, cancel)

    model.embed = embed  # type: ignore[method-assign]
    assert work(subject) == []
    with pytest.raises(Exception, match="gone"):
        stored(subject)
