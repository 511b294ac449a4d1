"""Starting a document's execution exactly once, whatever is lost or repeated."""

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
    def test_the_execution_gets_keys_and_the_time_that_is_left(self, service: Service) -> None:
        """It is named after the job, and times out when the job's deadline comes."""
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
    def test_a_start_that_broke_off_is_made_up_for(
        self, service: Service, unswept: None, failure: Any, started: bool
    ) -> None:
        """Whether or not the execution was started, the message that comes again leaves one that runs once."""
        service.cloud.fail("stepfunctions", "StartExecution", failure, function="start_job", after=started)
        job_id = service.submit()
        service.cloud.settle(within=600)
        service.assert_over(job_id, "completed")
        assert len(service.cloud.executions.all()) == 1

    def test_an_execution_that_runs_is_left_alone(self, service: Service) -> None:
        """A second start while the first has not begun its work finds it running."""
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

    def test_an_execution_that_ended_unheard_ends_the_job(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If the run was stopped before it began, and nobody was told, the start that comes again ends the job."""
        for rule in service.cloud.bus.rules:
            monkeypatch.setattr(rule, "enabled", False)
        job_id = service.submit()
        service.cloud.poll("publisher")
        service.cloud.poll("start_job")
        states = service.cloud.client("stepfunctions")
        machine = service.cloud.output("StateMachine")
        (execution,) = states.list_executions(stateMachineArn=machine)["executions"]
        states.stop_execution(executionArn=execution["executionArn"])
        tell(service, "document.uploaded", job_id)
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "execution_lost")

    @pytest.mark.parametrize("ending", ["completed", "canceled"])
    def test_a_job_that_has_ended_is_not_started_again(self, service: Service, ending: str) -> None:
        """A start that comes late, or again, is dropped."""
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

    def test_a_job_that_is_gone_is_no_trouble(self, service: Service) -> None:
        """An event of a job that has expired is dropped."""
        for event in ("document.uploaded", "document.canceled", "document.indexed"):
            tell(service, event, "job_01JDX000000000000000000000")
        service.cloud.settle()
        assert len(service.cloud.queue("Indexing/Queue")) == 0
        assert not service.cloud.functions.errors
