"""Processes that die, messages that come twice, services that refuse: the job still ends once, and right."""

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
    """A text of so many chunks, no two of them equal."""
    return "\n\n".join(f"{mark} Chunk number {number} of this text." for number in range(chunks))


STAGES = ("validate_document", "chunk_document", "worker", "store_vectors", "finish_job", "start_job")


class TestDeath:
    """A process may be gone before and after any of its calls to AWS."""

    def test_of_every_worker_of_a_job(self, service: Service) -> None:
        """Each dies once on a job's way, wherever that is, and the job completes once, with nothing lost.

        A stage is run again by the state machine, a message comes again. What was embedded and written is not
        paid for again.
        """
        service.submit(text(2))
        service.cloud.settle(within=60)
        calls = {worker: longest_run(service, worker) for worker in STAGES}
        for number in range(1, max(calls.values()) + 2):
            started, before = service.cloud.clock.time, len(service.paid_texts())
            job_id = service.submit(text(2, mark=f"{number}"))
            kills = [kill(service, worker, number, of=calls[worker]) for worker in STAGES]
            with service.resting_sweep():
                service.cloud.settle(within=HOUR)
            assert [rule.hits for rule in kills] == [number <= calls[worker] + 1 for worker in STAGES]
            service.assert_over(job_id, "completed")
            assert [step for step in service.steps(job_id) if step != "retried"] == GOOD
            asked = service.paid_texts()[before:]
            assert len(asked) - len(set(asked)) == asked_in_vain(service)
            # the visibility timeouts of `indexing` and `embed_chunks`, and the stages' retries
            assert service.cloud.clock.time - started < 360 + 1800 + 60

    def test_of_the_starter(self, service: Service) -> None:
        """The execution has started, nobody noted it, and there is no second one."""
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
    def test_while_a_failed_job_ends(self, service: Service, worker: str) -> None:
        """Wherever the worker dies that tells of a failure or cleans up, the job fails once and leaves nothing."""
        service.submit(" ")
        service.cloud.settle(within=60)
        calls = longest_run(service, worker)
        for number in range(1, calls + 2):
            died = kill(service, worker, number, of=calls)
            job_id = service.submit(" ")
            with service.resting_sweep():
                service.cloud.settle(within=HOUR)
            assert died.hits == 1
            service.assert_over(job_id, "failed", "empty", "validate")
            assert service.steps(job_id) == ["uploaded", "started", "failed"]

    def test_while_a_canceled_job_ends(self, service: Service) -> None:
        """Wherever it dies, a canceled job's execution is stopped in the end, and its files are removed."""
        cancel_while_embedding(service)
        service.cloud.settle(within=60)
        calls = longest_run(service, "start_job")
        for number in range(1, calls + 2):
            job_id = cancel_while_embedding(service)
            died = kill(service, "start_job", number, of=calls)
            with service.resting_sweep():
                service.cloud.settle(within=HOUR)
            assert died.hits == 1
            service.assert_over(job_id, "canceled")
            assert service.execution_status(job_id) == "ABORTED"

    def test_while_an_old_version_is_removed(self, service: Service) -> None:
        """Wherever it dies, the vectors that a newer version replaced are removed in the end."""
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
            with service.resting_sweep():
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
    """The most AWS calls that the worker has made in one run."""
    return max(run.calls for run in service.cloud.functions.invocations if run.name == worker)


def kill(
    service: Service, worker: str, number: int, *, of: int, when: Callable[[], bool] = lambda: True
) -> CallRule:
    """Let the worker die before its AWS call of this number or, if that is one too many, after the last."""
    after = number == of + 1

    def matches(call: Call) -> bool:
        return call.index == number - after and when()

    return service.cloud.fail("*", "*", Killed, function=worker, after=after, when=matches)


def is_completed(service: Service, job_id: str) -> bool:
    return bool(service.row(f"JOB#{job_id}", "META")["status"] == "completed")


def asked_in_vain(service: Service) -> int:
    """How many questions to the model were lost with the worker that died: none if it had written its batch."""
    found = service.cloud.functions.invocations
    died = next(run for run in reversed(found) if run.killed_by and run.name == "worker")
    calls = [call for call in service.cloud.calls.log if call.request_id == died.request_id]
    asked = sum(call.operation == "InvokeModel" for call in calls)
    written = any(call.operation == "PutObject" and call.params["Key"].endswith(".f32") for call in calls[:-1])
    return 0 if written else asked


class TestTheModel:
    def test_that_refuses_every_third_call(self, service: Service) -> None:
        """The worker waits and asks again; the document completes, and no text is paid for twice."""
        refused = service.cloud.fail("bedrock-runtime", "InvokeModel", "ThrottlingException", every=3, times=None)
        job_id = service.submit(text(9))
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert service.steps(job_id) == GOOD
        assert len(service.paid_texts()) - refused.hits == len(set(service.paid_texts())) == 9

    def test_that_is_gone_for_minutes(self, service: Service) -> None:
        """When the worker's patience ends, what is paid for is kept, and the message comes back later."""
        gone = service.cloud.fail(
            "bedrock-runtime", "InvokeModel", "ThrottlingException", when=is_second, times=None
        )
        job_id = service.submit(text(3))
        service.cloud.clock.call_later(600, gone.remove)
        with service.resting_sweep():
            service.cloud.settle(within=HOUR)
        service.assert_over(job_id, "completed")
        assert service.steps(job_id) == GOOD
        paid = Counter(service.paid_texts())
        assert [count for said, count in paid.items() if "number 0" in said or "number 2" in said] == [1, 1]

    def test_that_is_gone_for_good(self, service: Service) -> None:
        """After five receives the job fails as throttled, within the hour, and its other batches are removed."""
        service.cloud.fail("bedrock-runtime", "InvokeModel", "ThrottlingException", when=is_second, times=None)
        job_id, started = service.submit(text(7)), service.cloud.clock.time
        written: list[int] = []
        service.cloud.on(
            "*", "*", lambda call: written.append(sum(service.vectors().values())), function="finish_job"
        )
        with service.resting_sweep():
            service.cloud.settle(within=HOUR)
        service.assert_over(job_id, "failed", "throttled", "embed")
        assert written == [5]
        assert service.cloud.clock.time - started < HOUR
        assert Counter(service.paid_texts()).most_common()[-1][1] == 1

    @pytest.mark.parametrize("numbers", [3, 0])
    def test_that_answers_something_else(self, service: Service, knob: Knob, numbers: int) -> None:
        """A vector of another length is a mismatch, which no retry can help."""
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
    """The second chunk of the first batch."""
    return "number 1 " in call.params["body"]


def shortened(body: str, numbers: int) -> str:
    return json.dumps(json.loads(body) | {"dimensions": numbers})


class TestVectors:
    def test_that_are_lost_are_missed(self, service: Service) -> None:
        """If there are fewer vectors than chunks when they are counted, the job fails and the rest is removed."""
        job_id = service.submit(text(5))
        s3, bucket = service.cloud.client("s3"), service.cloud.bucket("Data")

        def lose(call: Call) -> None:
            lost = [key for key in service.keys("vectors/") if key.endswith("0001.f32")]
            s3.delete_object(Bucket=bucket, Key=lost[0])

        service.cloud.on("s3", "ListObjectsV2", lose, function="store_vectors")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "count_mismatch", "store")
        assert service.job(job_id)["error"]["message"] == "5 chunks, but 3 vectors."

    def test_that_could_not_be_removed_are_removed_later(self, service: Service) -> None:
        """S3 may refuse for minutes: the message waits, and the old version goes in the end."""
        for number in range(2):
            service.submit(text(1, mark=f"{number}"), document_id="d")
            if number:
                service.cloud.fail("s3", "DeleteObjects", "SlowDown", function="start_job", times=3)
            with service.resting_sweep():
                service.cloud.settle(within=HOUR)
        assert set(service.vectors()) == {service.documents()["d"]["version"]}
        assert service.keys("work/") == []


class TestTransactions:
    @pytest.mark.parametrize("every", [2, 3])
    def test_that_conflict(self, service: Service, every: int) -> None:
        """Every n-th transaction of every writer meets another one, and is tried again on the spot."""
        conflict = transaction_canceled()
        conflicts = service.cloud.fail("dynamodb", "TransactWriteItems", conflict, every=every, times=None)
        good, bad = service.submit(text(3)), service.submit(" ")
        service.cloud.settle(within=60)
        assert conflicts.hits >= 3
        service.assert_over(good, "completed")
        assert service.steps(good) == GOOD
        service.assert_over(bad, "failed", "empty", "validate")

    def test_that_take_effect_and_seem_to_fail(self, service: Service) -> None:
        """A lost answer is no reason to write twice: the log has each step once."""
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

    def test_that_never_end(self, service: Service) -> None:
        """A row that others never leave alone fails the job as contended, and no worker waits for ever."""
        service.cloud.fail(
            "dynamodb", "TransactWriteItems", transaction_canceled(), function="chunk_document", times=None
        )
        job_id = service.submit(text(1))
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "contended", "chunk")


class TestDelivery:
    @settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(seed=st.integers(0, 2**32))
    def test_twice_and_in_any_order(self, service: Service, seed: int) -> None:
        """Whatever comes twice or out of turn, the outcome is the one of an undisturbed run."""
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
    def test_a_job_that_nobody_works_on_ends(self, service: Service) -> None:
        """At its deadline the sweep fails it and its execution is stopped, also if no worker ever came."""
        service.cloud.pause("worker")
        job_id = service.submit(text(3))
        service.cloud.settle()
        with service.resting_sweep():
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

    def test_a_job_that_was_never_started_ends(self, service: Service) -> None:
        """A job whose first event never arrives has a deadline, too."""
        service.cloud.pause("publisher")
        job_id = service.submit()
        with service.resting_sweep():
            service.cloud.clock.advance(4 * HOUR + 1)
        service.cloud.invoke("reaper", {})
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "deadline_exceeded", "queued")
        assert service.execution_status(job_id) is None

    def test_a_job_in_time_is_left_alone(self, service: Service) -> None:
        """Sweeping ends nothing before its deadline, and nothing that has ended."""
        service.cloud.pause("worker")
        done = service.submit()
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.cloud.pause("worker")
        waiting = service.submit()
        service.cloud.settle()
        with service.resting_sweep():
            service.cloud.clock.advance(4 * HOUR - 60)
        service.cloud.invoke("reaper", {})
        assert service.job(done)["status"] == "completed"
        assert service.job(waiting)["status"] == "running"

    def test_a_worker_that_always_dies_ends_the_job(self, service: Service) -> None:
        """After five receives the batch is dead, and the sweep fails its token: `embed` ends, not the deadline."""
        service.cloud.fail("*", "*", Killed, function="worker", times=None)
        job_id, started = service.submit(text(1)), service.cloud.clock.time
        with service.resting_sweep():
            service.cloud.settle(within=3 * HOUR)
        assert service.job(job_id)["status"] == "running"
        assert len(service.cloud.queue("Embedding/DeadLetters")) == 1
        service.cloud.invoke("reaper", {})
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "unavailable", "embed")
        assert service.cloud.clock.time - started < 2.6 * HOUR
