"""Killed processes, duplicate messages and failing services: the job still ends once, correctly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulated_cloud.calls import Call, CallRule, Killed, transaction_canceled
from tests.support.service import Service

Knob = Callable[..., None]

GOOD = ["uploaded", "started", "chunked", "embedded", "indexed"]
HOUR = 3600.0


@pytest.fixture(autouse=True)
def small_chunks(knob: Knob) -> None:
    """A short text makes several batches."""
    knob("ChunkDocument", CHUNK_SIZE=40, CHUNK_OVERLAP=0, CHUNKS_PER_BATCH=2)


def text(chunks: int, mark: str = "") -> str:
    """A text with this many different chunks."""
    return "\n\n".join(f"{mark} Chunk number {number} of this text." for number in range(chunks))


STAGES = ("validate_document", "chunk_document", "worker", "store_vectors", "finish_job", "start_job")


class TestKills:
    """A process can be killed before and after any of its calls to AWS."""

    def test_each_worker(self, service: Service) -> None:
        """Each worker is killed once, at any call, and the job completes once. Stages and messages are
        repeated, and what was embedded is not embedded again.
        """
        service.submit(text(2))
        service.cloud.settle(within=60)
        calls = {worker: longest_run(service, worker) for worker in STAGES}
        for number in range(1, max(calls.values()) + 2):
            started, before = service.cloud.clock.time, len(service.paid_texts())
            job_id = service.submit(text(2, mark=f"{number}"))
            kills = [kill(service, worker, number, of=calls[worker]) for worker in STAGES]
            with service.paused_reaper():
                service.cloud.settle(within=HOUR)
            assert [rule.hits for rule in kills] == [number <= calls[worker] + 1 for worker in STAGES]
            service.assert_over(job_id, "completed")
            assert [step for step in service.steps(job_id) if step != "retried"] == GOOD
            calls_of_model = service.paid_texts()[before:]
            assert len(calls_of_model) - len(set(calls_of_model)) == lost_calls(service)
            # the visibility timeouts of `indexing` and `embed_chunks`, and the stages' retries
            assert service.cloud.clock.time - started < 360 + 1800 + 60

    def test_starter(self, service: Service) -> None:
        """If `start_job` is killed after it started the execution, there is no second one."""
        service.cloud.fail("stepfunctions", "StartExecution", Killed, function="start_job", after=True)
        service.cloud.pause("worker")
        job_id = service.submit(text(1))
        service.cloud.settle(within=400)
        assert len(service.cloud.queue("Indexing/Queue")) == 0
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert len(service.cloud.executions.all()) == 1

    @pytest.mark.parametrize("worker", ["finish_job", "start_job"])
    def test_end_of_failed_job(self, service: Service, worker: str) -> None:
        """Wherever the worker that ends or cleans up a failed job is killed, the job fails once and leaves
        nothing.
        """
        service.submit(" ")
        service.cloud.settle(within=60)
        calls = longest_run(service, worker)
        for number in range(1, calls + 2):
            died = kill(service, worker, number, of=calls)
            job_id = service.submit(" ")
            with service.paused_reaper():
                service.cloud.settle(within=HOUR)
            assert died.hits == 1
            service.assert_over(job_id, "failed", "empty", "validate")
            assert service.steps(job_id) == ["uploaded", "started", "failed"]

    def test_end_of_canceled_job(self, service: Service) -> None:
        """Wherever it is killed, a canceled job's execution is stopped and its files are deleted."""
        cancel_while_embedding(service)
        service.cloud.settle(within=60)
        calls = longest_run(service, "start_job")
        for number in range(1, calls + 2):
            job_id = cancel_while_embedding(service)
            died = kill(service, "start_job", number, of=calls)
            with service.paused_reaper():
                service.cloud.settle(within=HOUR)
            assert died.hits == 1
            service.assert_over(job_id, "canceled")
            assert service.execution_status(job_id) == "ABORTED"

    def test_deletion_of_old_version(self, service: Service) -> None:
        """Wherever it is killed, the vectors of the replaced version are deleted."""
        job_id = service.submit(text(1), document_id="d")
        service.cloud.settle(within=60)
        (indexed,) = [event for event in service.events(job_id) if event["event"] == "document.indexed"]
        (live,) = [key for key in service.keys("vectors/") if key.endswith(".f32")]
        old = live.replace(job_id[4:], "01AAAAAAAAAAAAAAAAAAAAAAAA")
        s3, place = service.cloud.client("s3"), {"Bucket": service.cloud.bucket("Data"), "Key": old}
        calls = 7  # one more than for a first version
        for number in range(1, calls + 2):
            s3.put_object(**place, Body=b"old")
            died = kill(service, "start_job", number, of=calls)
            service.cloud.queue("Indexing/Queue").send(indexed)
            with service.paused_reaper():
                service.cloud.settle(within=HOUR)
            assert died.hits == 1
            service.assert_over(job_id, "completed")
            assert service.keys(old) == []


def cancel_while_embedding(service: Service) -> str:
    service.cloud.pause("worker")
    job_id = service.submit(text(2))
    service.cloud.settle()
    service.cancel(job_id)
    service.cloud.resume()
    return job_id


def longest_run(service: Service, worker: str) -> int:
    """The most AWS calls in one run of the worker."""
    return max(run.calls for run in service.cloud.functions.invocations if run.name == worker)


def kill(
    service: Service, worker: str, number: int, *, of: int, when: Callable[[], bool] = lambda: True
) -> CallRule:
    """Kills the worker before its AWS call with this number, or after the last."""
    after = number == of + 1

    def matches(call: Call) -> bool:
        return call.index == number - after and when()

    return service.cloud.fail("*", "*", Killed, function=worker, after=after, when=matches)


def is_completed(service: Service, job_id: str) -> bool:
    return bool(service.row(f"JOB#{job_id}", "META")["status"] == "completed")


def lost_calls(service: Service) -> int:
    """How many calls of the model were lost with the killed worker: none if it had written its batch."""
    found = service.cloud.functions.invocations
    died = next(run for run in reversed(found) if run.killed_by and run.name == "worker")
    calls = [call for call in service.cloud.calls.log if call.request_id == died.request_id]
    calls_of_model = sum(call.operation == "InvokeModel" for call in calls)
    written = any(call.operation == "PutObject" and call.params["Key"].endswith(".f32") for call in calls[:-1])
    return 0 if written else calls_of_model


class TestTheModel:
    def test_every_third_call_fails(self, service: Service) -> None:
        """The worker retries, the document completes, and no text is embedded twice."""
        refused = service.cloud.fail("bedrock-runtime", "InvokeModel", "ThrottlingException", every=3, times=None)
        job_id = service.submit(text(9))
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert service.steps(job_id) == GOOD
        assert len(service.paid_texts()) - refused.hits == len(set(service.paid_texts())) == 9

    def test_outage_of_minutes(self, service: Service) -> None:
        """When the worker has no time left, vectors are stored, and the message is received later."""
        outage = service.cloud.fail(
            "bedrock-runtime", "InvokeModel", "ThrottlingException", when=is_second, times=None
        )
        job_id = service.submit(text(3))
        service.cloud.clock.call_later(600, outage.remove)
        with service.paused_reaper():
            service.cloud.settle(within=HOUR)
        service.assert_over(job_id, "completed")
        assert service.steps(job_id) == GOOD
        paid = Counter(service.paid_texts())
        assert [count for text, count in paid.items() if "number 0" in text or "number 2" in text] == [1, 1]

    def test_permanent_outage(self, service: Service) -> None:
        """After five receives the job fails as throttled within the hour, and its other batches are deleted."""
        service.cloud.fail("bedrock-runtime", "InvokeModel", "ThrottlingException", when=is_second, times=None)
        job_id, started = service.submit(text(7)), service.cloud.clock.time
        written: list[int] = []
        service.cloud.on(
            "*", "*", lambda call: written.append(sum(service.vectors().values())), function="finish_job"
        )
        with service.paused_reaper():
            service.cloud.settle(within=HOUR)
        service.assert_over(job_id, "failed", "throttled", "embed")
        assert written == [5]
        assert service.cloud.clock.time - started < HOUR
        assert Counter(service.paid_texts()).most_common()[-1][1] == 1

    @pytest.mark.parametrize("numbers", [3, 0])
    def test_wrong_dimensions(self, service: Service, knob: Knob, numbers: int) -> None:
        """A vector of another length fails the job without retries."""
        answers = service.cloud.calls.answers
        usual = answers["bedrock-runtime:InvokeModel"]
        answers["bedrock-runtime:InvokeModel"] = lambda params: usual(
            params | {"body": shortened(params["body"], numbers)}
        )
        try:
            job_id = service.submit(text(3))
            service.cloud.settle(within=60)
        finally:
            answers["bedrock-runtime:InvokeModel"] = usual
        service.assert_over(job_id, "failed", "count_mismatch", "embed")


def is_second(call: Call) -> bool:
    """Whether this is the second chunk of the first batch."""
    return "number 1 " in call.params["body"]


def shortened(body: str, numbers: int) -> str:
    return json.dumps(json.loads(body) | {"dimensions": numbers})


class TestVectors:
    def test_missing_vectors(self, service: Service) -> None:
        """If there are fewer vectors than chunks, the job fails and the rest is deleted."""
        job_id = service.submit(text(5))
        s3, bucket = service.cloud.client("s3"), service.cloud.bucket("Data")

        def lose(call: Call) -> None:
            lost = [key for key in service.keys("vectors/") if key.endswith("0001.f32")]
            s3.delete_object(Bucket=bucket, Key=lost[0])

        service.cloud.on("s3", "ListObjectsV2", lose, function="store_vectors")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "count_mismatch", "store")
        assert service.job(job_id)["error"]["message"] == "There are 5 chunks, but 3 vectors."

    def test_failed_deletion(self, service: Service) -> None:
        """If S3 fails for minutes, the message is retried, and the old version is deleted."""
        for number in range(2):
            service.submit(text(1, mark=f"{number}"), document_id="d")
            if number:
                service.cloud.fail("s3", "DeleteObjects", "SlowDown", function="start_job", times=3)
            with service.paused_reaper():
                service.cloud.settle(within=HOUR)
        assert set(service.vectors()) == {service.documents()["d"]["version"]}
        assert service.keys("work/") == []


class TestTransactions:
    @pytest.mark.parametrize("every", [2, 3])
    def test_conflicts(self, service: Service, every: int) -> None:
        """Every n-th transaction conflicts, and is retried at once."""
        conflict = transaction_canceled()
        conflicts = service.cloud.fail("dynamodb", "TransactWriteItems", conflict, every=every, times=None)
        good, bad = service.submit(text(3)), service.submit(" ")
        service.cloud.settle(within=60)
        assert conflicts.hits >= 3
        service.assert_over(good, "completed")
        assert service.steps(good) == GOOD
        service.assert_over(bad, "failed", "empty", "validate")

    def test_lost_responses(self, service: Service) -> None:
        """After a lost response nothing is written twice: each step is logged once."""
        workers = ("validate_document", "chunk_document", "store_vectors", "finish_job")
        lost = [
            service.cloud.fail(
                "dynamodb", "TransactWriteItems", "InternalServerError", function=worker, after=True, times=2
            )
            for worker in workers
        ]
        job_id = service.submit(text(3))
        service.cloud.settle(within=60)
        assert [rule.hits for rule in lost] == [2, 2, 2, 1]
        service.assert_over(job_id, "completed")
        assert [step for step in service.steps(job_id) if step != "retried"] == GOOD

    def test_permanent_conflict(self, service: Service) -> None:
        """If an item always conflicts, the job fails as contended."""
        service.cloud.fail(
            "dynamodb", "TransactWriteItems", transaction_canceled(), function="chunk_document", times=None
        )
        job_id = service.submit(text(1))
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "contended", "chunk")


class TestDelivery:
    @settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(seed=st.integers(0, 2**32))
    def test_duplicates_in_any_order(self, service: Service, seed: int) -> None:
        """With duplicate messages in any order, the outcome is the same."""
        service.cloud.reset()
        service = Service(service.cloud)
        service.cloud.unreliable(seed)
        good, bad = service.submit(text(3)), service.submit(" ")
        service.cloud.settle(within=60)
        service.assert_over(good, "completed")
        assert service.steps(good) == GOOD
        service.assert_over(bad, "failed", "empty", "validate")
        assert service.steps(bad) == ["uploaded", "started", "failed"]
        assert len(service.cloud.executions.all()) == 2
        assert len(service.paid_texts()) == len(set(service.paid_texts())) == 3


class TestClocks:
    def test_deadline_without_worker(self, service: Service) -> None:
        """At its deadline the reaper fails the job, and its execution is stopped."""
        service.cloud.pause("worker")
        job_id = service.submit(text(3))
        service.cloud.settle()
        with service.paused_reaper():
            service.cloud.clock.advance(4 * HOUR - 30)
        service.cloud.clock.advance(60)
        service.cloud.invoke("reaper", {})
        assert service.job(job_id)["error"]["code"] == "deadline_exceeded"
        assert service.execution_status(job_id) == "RUNNING"
        service.cloud.poll("publisher")
        service.cloud.poll("start_job")
        assert service.execution_status(job_id) == "ABORTED"
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "deadline_exceeded", "embed")

    def test_deadline_without_start(self, service: Service) -> None:
        """A job whose first event is lost fails at its deadline."""
        service.cloud.pause("publisher")
        job_id = service.submit()
        with service.paused_reaper():
            service.cloud.clock.advance(4 * HOUR + 1)
        service.cloud.invoke("reaper", {})
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "deadline_exceeded", "queued")
        assert service.execution_status(job_id) is None

    def test_before_the_deadline(self, service: Service) -> None:
        """The reaper ends no job before its deadline."""
        service.cloud.pause("worker")
        done = service.submit()
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.cloud.pause("worker")
        waiting = service.submit()
        service.cloud.settle()
        with service.paused_reaper():
            service.cloud.clock.advance(4 * HOUR - 60)
        service.cloud.invoke("reaper", {})
        assert service.job(done)["status"] == "completed"
        assert service.job(waiting)["status"] == "running"

    def test_worker_that_is_always_killed(self, service: Service) -> None:
        """After five receives the batch is in the dead-letter queue, and the reaper fails its task."""
        service.cloud.fail("*", "*", Killed, function="worker", times=None)
        job_id, started = service.submit(text(1)), service.cloud.clock.time
        with service.paused_reaper():
            service.cloud.settle(within=3 * HOUR)
        assert service.job(job_id)["status"] == "running"
        assert len(service.cloud.queue("Embedding/DeadLetters")) == 1
        service.cloud.invoke("reaper", {})
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "unavailable", "embed")
        assert service.cloud.clock.time - started < 2.6 * HOUR
