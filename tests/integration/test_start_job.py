"""Starting a document's execution exactly once, with faults and duplicates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulated_cloud.cloud import Cloud, Killed
from tests.support.service import Service


def starts(cloud: Cloud) -> list[dict[str, Any]]:
    return [call.params for call in cloud.calls.of("start_job") if call.operation == "StartExecution"]


def tell(service: Service, event: str, job_id: str) -> None:
    service.cloud.queue("Indexing/Queue").send({"event": event, "job_id": job_id})


class TestStart:
    def test_execution(self, service: Service) -> None:
        """It has the job's id as name and keys as input, and times out at the job's deadline."""
        service.cloud.pause("start_job")
        job_id = service.submit("text", document_id="d")
        service.cloud.settle()
        service.cloud.clock.advance(3600)
        service.cloud.poll("start_job")
        (start,) = starts(service.cloud)
        assert start["name"] == job_id
        given = json.loads(start["input"])
        assert abs(given.pop("timeout_seconds") - 3 * 3600) < 5
        assert given == {
            "job_id": job_id,
            "owner": "ana",
            "document_id": "d",
            "version": job_id.removeprefix("job_"),
            "source_key": f"inputs/ana/{job_id}",
        }

    @pytest.mark.parametrize("failure", ["ServiceUnavailable", Killed])
    @pytest.mark.parametrize("started", [True, False])
    def test_interrupted_start(self, service: Service, without_reaper: None, failure: Any, started: bool) -> None:
        """After an interrupted start, the repeated message leaves one execution."""
        service.cloud.fail("stepfunctions", "StartExecution", failure, function="start_job", after=started)
        job_id = service.submit()
        service.cloud.settle(within=600)
        service.assert_over(job_id, "completed")
        assert len(service.cloud.executions.all()) == 1

    def test_running_execution(self, service: Service) -> None:
        """A second start finds the execution running, and changes nothing."""
        job_id = service.submit()
        service.cloud.poll("publisher")
        service.cloud.poll("start_job")
        assert service.job(job_id)["status"] == "queued"
        tell(service, "document.uploaded", job_id)
        service.cloud.poll("start_job")
        assert len(starts(service.cloud)) == 2
        assert len(service.cloud.queue("Indexing/Queue")) == 0
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")

    def test_lost_execution(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the execution was stopped before it began, the repeated start fails the job."""
        for rule in service.cloud.bus.rules:
            monkeypatch.setattr(rule, "enabled", False)
        job_id = service.submit()
        service.cloud.poll("publisher")
        service.cloud.poll("start_job")
        states = service.cloud.client("stepfunctions")
        machine = service.cloud.output("DocumentStateMachine")
        (execution,) = states.list_executions(stateMachineArn=machine)["executions"]
        states.stop_execution(executionArn=execution["executionArn"])
        tell(service, "document.uploaded", job_id)
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "execution_lost")

    def test_execution_that_cannot_be_described_yet(self, service: Service) -> None:
        """An execution that exists is not known yet: it is looked for again, and the job goes on."""
        job_id = service.submit()
        service.cloud.pause("finish_job")
        service.cloud.poll("publisher")
        service.cloud.poll("start_job")
        tell(service, "document.uploaded", job_id)
        service.cloud.fail("stepfunctions", "DescribeExecution", "ExecutionDoesNotExist", function="start_job")
        service.cloud.poll("start_job")
        service.cloud.resume()
        service.cloud.settle(within=600)
        service.assert_over(job_id, "completed")

    @pytest.mark.parametrize("ending", ["completed", "canceled"])
    def test_ended_job(self, service: Service, ending: str) -> None:
        """The start of a job that has ended is dropped."""
        if ending == "canceled":
            service.cloud.pause("publisher")
        job_id = service.submit()
        service.cloud.settle(within=60)
        if ending == "canceled":
            service.cancel(job_id)
            service.cloud.resume()
        before = len(starts(service.cloud))
        tell(service, "document.uploaded", job_id)
        service.cloud.settle(within=60)
        assert len(starts(service.cloud)) == before
        service.assert_over(job_id, ending)

    def test_expired_job(self, service: Service) -> None:
        """The event of an expired job is dropped."""
        for event in ("document.uploaded", "document.canceled", "document.indexed"):
            tell(service, event, "job_01JDX000000000000000000000")
        service.cloud.settle()
        assert len(service.cloud.queue("Indexing/Queue")) == 0
        assert not service.cloud.functions.errors
