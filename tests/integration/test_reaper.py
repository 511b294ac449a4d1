"""Ending overdue jobs, and those of dead letters, once a minute."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_cloud.cloud import Cloud, Killed
from tests.support.receiver import Receiver
from tests.support.service import Service

HOOK = "https://hooks.example.com/"


def run_reaper(cloud: Cloud) -> None:
    assert cloud.invoke("reaper", {}).error is None


def rows(cloud: Cloud) -> list[dict[str, Any]]:
    return list(cloud.table("Jobs").scan()["Items"])


class TestDeadlines:
    def test_overdue_job(self, service: Service) -> None:
        """A job that was never started fails within a minute of its deadline."""
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

    def test_other_jobs(self, service: Service) -> None:
        """Only open jobs after their deadline are ended."""
        ended = service.submit("done")
        service.cloud.settle(within=60)
        service.cloud.pause("publisher")
        canceled, overdue = service.submit(), service.submit()
        service.cancel(canceled)
        service.cloud.clock.advance(4 * 3600 + 1)
        young = service.submit()
        run_reaper(service.cloud)
        assert [service.job(job_id)["status"] for job_id in (ended, canceled, overdue, young)] == [
            "completed",
            "canceled",
            "failed",
            "queued",
        ]

    def test_error_of_one_job(self, service: Service) -> None:
        """The error of one job is logged, the others are ended, and the next run tries again."""
        service.cloud.pause("publisher")
        jobs = [service.submit(str(number)) for number in range(4)]
        service.cloud.clock.advance(4 * 3600 + 1)
        service.cloud.fail("dynamodb", "TransactWriteItems", "InternalServerError", function="reaper")
        run_reaper(service.cloud)
        assert sorted(service.job(job_id)["status"] for job_id in jobs) == ["failed"] * 3 + ["queued"]
        run_reaper(service.cloud)
        assert {service.job(job_id)["status"] for job_id in jobs} == {"failed"}

    def test_outage_of_the_table(self, service: Service) -> None:
        """Dead letters are handled even if deadlines cannot be read, or another queue cannot."""
        job_id = service.submit()
        service.cloud.pause("publisher")
        service.cloud.queue("Indexing/DeadLetters").send({"event": "document.uploaded", "job_id": job_id})
        service.cloud.fail("dynamodb", "Query", "InternalServerError", function="reaper")
        service.cloud.fail(
            "sqs", "ReceiveMessage", "InternalError", function="reaper", when=is_embedding, times=None
        )
        service.cloud.invoke("reaper", {})
        assert service.job(job_id)["error"]["code"] == "not_started"


def is_embedding(call: Any) -> bool:
    return "Embedding" in call.params["QueueUrl"]


class TestIndexing:
    def test_failed_starts(self, service: Service) -> None:
        """After five failed starts the job fails, within a minute."""
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
    def test_failed_clean_up(self, service: Service, event: str) -> None:
        """The message of a failed clean-up stays in the queue, to be redriven."""
        job_id = service.submit()
        service.cloud.settle(within=60)
        service.cloud.queue("Indexing/DeadLetters").send({"event": event, "job_id": job_id})
        for _ in range(3):
            service.cloud.advance(301)
        assert len(service.cloud.queue("Indexing/DeadLetters")) == 1
        assert service.job(job_id)["status"] == "completed"

    def test_failed_deletion(self, service: Service) -> None:
        """The message of a failed deletion stays, and works when it is redriven."""
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

    def test_expired_job(self, service: Service) -> None:
        """The dead letter of an expired job is dropped."""
        service.cloud.queue("Indexing/DeadLetters").send({"event": "document.uploaded", "job_id": "job_x"})
        run_reaper(service.cloud)
        assert len(service.cloud.queue("Indexing/DeadLetters")) == 0


class TestEmbedding:
    def test_killed_workers(self, service: Service, without_reaper: None) -> None:
        """The task of a dead batch is failed, and the failure branch ends the job."""
        service.cloud.fail("dynamodb", "GetItem", Killed, function="worker", times=None)
        job_id = service.submit()
        service.cloud.settle(within=3 * 3600)
        assert len(service.cloud.queue("Embedding/DeadLetters")) == 1
        run_reaper(service.cloud)
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "unavailable", "embed")
        assert len(service.cloud.queue("Embedding/DeadLetters")) == 0

    def test_used_token(self, service: Service) -> None:
        """The dead batch of a job that has ended is dropped."""
        service.cloud.pause("worker")
        job_id = service.submit()
        service.cloud.settle()
        (body,) = service.cloud.queue("Embedding/Queue").bodies
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.cloud.queue("Embedding/DeadLetters").send(body)
        run_reaper(service.cloud)
        service.cloud.settle()
        service.assert_over(job_id, "completed")


class TestRuns:
    def test_invalid_message(self, service: Service) -> None:
        """An invalid message stays in the queue, and the others are handled."""
        service.cloud.pause("publisher")
        jobs = [service.submit(str(number)) for number in range(12)]
        queue = service.cloud.queue("Indexing/DeadLetters")
        for number, job_id in enumerate(jobs):
            if number % 5 == 0:
                queue.send(["no json", "[]", '{"event": "document.uploaded"}'][number // 5])
            queue.send({"event": "document.uploaded", "job_id": job_id})
        service.cloud.queue("Embedding/DeadLetters").send("no json")
        run_reaper(service.cloud)
        assert {service.job(job_id)["status"] for job_id in jobs} == {"failed"}
        assert sorted(queue.bodies) == ["[]", "no json", '{"event": "document.uploaded"}']

    def test_repeated_runs(self, service: Service, receiver: Receiver) -> None:
        """Duplicate messages and repeated runs change nothing more."""
        service.cloud.pause("publisher")
        dead, overdue = service.submit(webhook_url=HOOK), service.submit()
        queue = service.cloud.queue("Indexing/DeadLetters")
        for _ in range(2):
            queue.send({"event": "document.uploaded", "job_id": dead})
        service.cloud.clock.advance(4 * 3600 + 1)
        run_reaper(service.cloud)
        before = rows(service.cloud)
        queue.send({"event": "document.uploaded", "job_id": dead})
        run_reaper(service.cloud)
        assert rows(service.cloud) == before
        assert [event["event"] for event in service.events(dead)] == ["document.uploaded", "document.failed"]
        assert service.job(overdue)["error"]["code"] == "deadline_exceeded"

    def test_kill_after_any_call(self, service: Service, receiver: Receiver) -> None:
        """Wherever a run is killed, a later one completes the work."""

        def prepare() -> tuple[Service, list[str]]:
            service.cloud.reset()
            service.cloud.pause("publisher")
            owner = Service(service.cloud)
            jobs = [owner.submit("dead"), owner.submit("overdue")]
            service.cloud.clock.advance(4 * 3600 - 100)
            service.cloud.queue("Indexing/DeadLetters").send({"event": "document.uploaded", "job_id": jobs[0]})
            service.cloud.clock.advance(101)
            return owner, jobs

        prepare()
        run_reaper(service.cloud)
        reads = ("Query", "GetItem")
        work = [call.index for call in service.cloud.calls.of("reaper") if call.operation not in reads]
        assert len(work) > 5
        for k in (0, *work):
            owner, jobs = prepare()
            service.cloud.kill("reaper", after=k)
            assert isinstance(service.cloud.invoke("reaper", {}).error, Killed)
            service.cloud.clock.advance(301)
            run_reaper(service.cloud)
            assert {owner.job(job_id)["status"] for job_id in jobs} == {"failed"}
            assert [event["sequence"] for event in owner.events(jobs[0])] == [1, 2]
            assert len(service.cloud.queue("Indexing/DeadLetters")) == 0

    def test_several_batches(self, service: Service) -> None:
        """A queue of 35 messages is empty after one run."""
        queue = service.cloud.queue("Indexing/DeadLetters")
        for number in range(35):
            queue.send({"event": "document.uploaded", "job_id": f"job_{number}"})
        run_reaper(service.cloud)
        assert len(queue) == 0
