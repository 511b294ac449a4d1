"""Once a minute: what no Catch can see. Dead messages and deadlines that have passed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_cloud.cloud import Cloud, Killed
from tests.support.receiver import Receiver
from tests.support.service import Service

HOOK = "https://hooks.example.com/"


def sweep(cloud: Cloud) -> None:
    assert cloud.invoke("reaper", {}).error is None


def rows(cloud: Cloud) -> list[dict[str, Any]]:
    return list(cloud.table("Jobs").scan()["Items"])


class TestDeadlines:
    def test_a_job_that_takes_too_long_ends(self, service: Service) -> None:
        """A job that nobody ever started fails within a minute of its deadline, with a reason."""
        service.cloud.pause("start_job")
        job_id = service.submit()
        service.cloud.clock.advance(4 * 3600 - 90)
        service.cloud.bus.skip_ticks()
        service.cloud.advance(60)
        assert service.job(job_id)["status"] == "queued"
        service.cloud.advance(120)
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "deadline_exceeded")

    def test_jobs_that_have_ended_or_have_time_are_left_alone(self, service: Service) -> None:
        """Only open jobs are looked at, and of these only late ones."""
        ended = service.submit("done")
        service.cloud.settle(within=60)
        service.cloud.pause("publisher")
        canceled, late = service.submit(), service.submit()
        service.cancel(canceled)
        service.cloud.clock.advance(4 * 3600 + 1)
        young = service.submit()
        sweep(service.cloud)
        assert [service.job(job_id)["status"] for job_id in (ended, canceled, late, young)] == [
            "completed",
            "canceled",
            "failed",
            "queued",
        ]

    def test_one_job_that_cannot_be_ended_stops_no_other(self, service: Service) -> None:
        """What fails for one job is logged, and the others are ended; the next sweep tries again."""
        service.cloud.pause("publisher")
        jobs = [service.submit(str(number)) for number in range(4)]
        service.cloud.clock.advance(4 * 3600 + 1)
        service.cloud.fail("dynamodb", "TransactWriteItems", "InternalServerError", function="reaper")
        sweep(service.cloud)
        assert sorted(service.job(job_id)["status"] for job_id in jobs) == ["failed"] * 3 + ["queued"]
        sweep(service.cloud)
        assert {service.job(job_id)["status"] for job_id in jobs} == {"failed"}

    def test_a_table_that_cannot_be_read_stops_no_other_duty(self, service: Service) -> None:
        """Dead messages are buried even if deadlines cannot be looked up, or another queue be read."""
        job_id = service.submit()
        service.cloud.pause("publisher")
        service.cloud.queue("Indexing/DeadLetters").send({"event": "document.uploaded", "job_id": job_id})
        service.cloud.fail("dynamodb", "Query", "InternalServerError", function="reaper")
        service.cloud.fail(
            "sqs", "ReceiveMessage", "InternalError", function="reaper", when=is_embedding, times=None
        )
        sweep(service.cloud)
        assert service.job(job_id)["error"]["code"] == "not_started"


def is_embedding(call: Any) -> bool:
    return "Embedding" in call.params["QueueUrl"]


class TestIndexing:
    def test_a_job_that_cannot_be_started_ends(self, service: Service) -> None:
        """After five failed starts the job fails, within the minute after the last."""
        service.cloud.fail(
            "stepfunctions", "StartExecution", "AccessDeniedException", function="start_job", times=None
        )
        job_id = service.submit()
        service.cloud.settle(within=3600)
        starts = [call for call in service.cloud.calls.of("start_job") if call.operation == "StartExecution"]
        assert len(starts) == 5
        service.cloud.advance(61)
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "not_started")

    @pytest.mark.parametrize("event", ["document.canceled", "document.indexed", "document.failed"])
    def test_a_clean_up_that_failed_waits_for_a_person(self, service: Service, event: str) -> None:
        """What is left behind is no job's end: the message stays in the queue, to be redriven."""
        job_id = service.submit()
        service.cloud.settle(within=60)
        service.cloud.queue("Indexing/DeadLetters").send({"event": event, "job_id": job_id})
        for _ in range(3):
            service.cloud.advance(301)
        assert len(service.cloud.queue("Indexing/DeadLetters")) == 1
        assert service.job(job_id)["status"] == "completed"

    def test_a_removal_that_failed_waits_for_a_person(self, service: Service) -> None:
        """A document's removal that fails five times stays, and does its work when it is redriven."""
        service.submit(document_id="d")
        service.cloud.settle(within=60)
        broken = service.cloud.fail("s3", "DeleteObjects", "SlowDown", function="start_job", times=None)
        service.call("DELETE", "/documents/d")
        service.cloud.settle(within=3600)
        (body,) = service.cloud.queue("Indexing/DeadLetters").bodies
        service.cloud.advance(61)
        assert service.cloud.queue("Indexing/DeadLetters").bodies == [body]
        assert service.vectors()
        broken.remove()
        service.cloud.queue("Indexing/Queue").send(body)
        service.cloud.settle()
        assert not service.vectors()

    def test_a_job_that_has_expired_is_no_trouble(self, service: Service) -> None:
        """A dead start of a job that is gone is dropped."""
        service.cloud.queue("Indexing/DeadLetters").send({"event": "document.uploaded", "job_id": "job_x"})
        sweep(service.cloud)
        assert len(service.cloud.queue("Indexing/DeadLetters")) == 0


class TestEmbedding:
    def test_a_batch_whose_worker_died_each_time_ends_the_job(self, service: Service, unswept: None) -> None:
        """The state machine hears of it by the task token, and its failure branch ends the job."""
        service.cloud.fail("dynamodb", "GetItem", Killed, function="worker", times=None)
        job_id = service.submit()
        service.cloud.settle(within=3 * 3600)
        assert len(service.cloud.queue("Embedding/DeadLetters")) == 1
        sweep(service.cloud)
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "unavailable", "embed")
        assert len(service.cloud.queue("Embedding/DeadLetters")) == 0

    def test_a_token_that_is_used_up_is_no_trouble(self, service: Service) -> None:
        """A dead batch of a job that has ended is dropped."""
        service.cloud.pause("worker")
        job_id = service.submit()
        service.cloud.settle()
        (body,) = service.cloud.queue("Embedding/Queue").bodies
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.cloud.queue("Embedding/DeadLetters").send(body)
        sweep(service.cloud)
        service.cloud.settle()
        service.assert_over(job_id, "completed")


class TestSweep:
    def test_one_bad_message_stops_no_other(self, service: Service) -> None:
        """A message that cannot be read stays for a person; those behind it are handled."""
        service.cloud.pause("publisher")
        jobs = [service.submit(str(number)) for number in range(12)]
        queue = service.cloud.queue("Indexing/DeadLetters")
        for number, job_id in enumerate(jobs):
            if number % 5 == 0:
                queue.send(["no json", "[]", '{"event": "document.uploaded"}'][number // 5])
            queue.send({"event": "document.uploaded", "job_id": job_id})
        service.cloud.queue("Embedding/DeadLetters").send("no json")
        sweep(service.cloud)
        assert {service.job(job_id)["status"] for job_id in jobs} == {"failed"}
        assert sorted(queue.bodies) == ["[]", "no json", '{"event": "document.uploaded"}']

    def test_twice_is_the_same_as_once(self, service: Service, receiver: Receiver) -> None:
        """Messages that are seen again, and jobs that are late still, change nothing more."""
        service.cloud.pause("publisher")
        dead, late = service.submit(webhook_url=HOOK), service.submit()
        queue = service.cloud.queue("Indexing/DeadLetters")
        for _ in range(2):
            queue.send({"event": "document.uploaded", "job_id": dead})
        service.cloud.clock.advance(4 * 3600 + 1)
        sweep(service.cloud)
        before = rows(service.cloud)
        queue.send({"event": "document.uploaded", "job_id": dead})
        sweep(service.cloud)
        assert rows(service.cloud) == before
        assert [event["event"] for event in service.events(dead)] == ["document.uploaded", "document.failed"]
        assert service.job(late)["error"]["code"] == "deadline_exceeded"

    def test_a_death_after_any_call_is_made_up_for(self, service: Service, receiver: Receiver) -> None:
        """Wherever in its work a sweep is killed, a later one does what was left."""

        def prepare() -> tuple[Service, list[str]]:
            service.cloud.reset()
            service.cloud.pause("publisher")
            owner = Service(service.cloud)
            jobs = [owner.submit("dead"), owner.submit("late")]
            service.cloud.clock.advance(4 * 3600 - 100)
            service.cloud.queue("Indexing/DeadLetters").send({"event": "document.uploaded", "job_id": jobs[0]})
            service.cloud.clock.advance(101)
            return owner, jobs

        prepare()
        sweep(service.cloud)
        reads = ("Query", "GetItem")
        work = [call.index for call in service.cloud.calls.of("reaper") if call.operation not in reads]
        assert len(work) > 5
        for k in (0, *work):
            owner, jobs = prepare()
            service.cloud.kill("reaper", after=k)
            assert isinstance(service.cloud.invoke("reaper", {}).error, Killed)
            service.cloud.clock.advance(301)
            sweep(service.cloud)
            assert {owner.job(job_id)["status"] for job_id in jobs} == {"failed"}
            assert [event["sequence"] for event in owner.events(jobs[0])] == [1, 2]
            assert len(service.cloud.queue("Indexing/DeadLetters")) == 0

    def test_it_takes_more_than_one_batch(self, service: Service) -> None:
        """A queue of 35 is empty after one sweep."""
        queue = service.cloud.queue("Indexing/DeadLetters")
        for number in range(35):
            queue.send({"event": "document.uploaded", "job_id": f"job_{number}"})
        sweep(service.cloud)
        assert len(queue) == 0
