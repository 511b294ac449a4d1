"""Fine-tunes: a dataset, two hours of training in Amazon Bedrock, and what it takes to learn of their end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.simulated_cloud.calls import Call
from tests.support.bedrock import CUSTOMIZATION
from tests.support.receiver import Receiver
from tests.support.service import Service

TWO_HOURS = 7200.0
HOOK = "https://hooks.example.com/in"
DATASET = b"".join(b'{"prompt": "What is %d?", "completion": "A xylophone."}\n' % n for n in range(40))


@pytest.fixture(autouse=True)
def training() -> Iterator[Callable[..., None]]:
    """`training(seconds=…, failure=…)`: how long trainings take, and how they end. By default two hours."""

    def turn(**switches: Any) -> None:
        CUSTOMIZATION.jobs.set({"seconds": TWO_HOURS, **switches})

    turn()
    yield turn
    CUSTOMIZATION.jobs.set({})


def tell_of_the_end(service: Service, *, after: float = TWO_HOURS, status: str = "Completed") -> None:
    """Have EventBridge bring Amazon Bedrock's event at the end of each training."""

    def send(name: str) -> None:
        detail = {"version": "0.0", "jobName": name, "jobStatus": status}
        service.cloud.bus.put("aws.bedrock", "Model Customization Job State Change", detail, [])

    def started(call: Call) -> None:
        service.cloud.clock.call_later(after, lambda: send(call.params["jobName"]))

    create = "CreateModelCustomizationJob"
    service.cloud.on("bedrock", create, started, times=None, after=True)


def submit(service: Service, data: bytes = DATASET, *, webhook_url: str | None = None, **given: Any) -> str:
    source = service.upload(data, content_type="application/jsonl")
    more = {"webhook_url": webhook_url} if webhook_url else {}
    answer = service.call(
        "POST", "/jobs", json={"kind": "fine_tune", "input": {"dataset": source, **given}, **more}
    )
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def poll(service: Service, job_id: str) -> int:
    """The number of polls until the job has ended, each when the one before has said."""
    polls = 1
    while wait := (answer := service.call("GET", f"/jobs/{job_id}/status")).headers.get("Retry-After"):
        service.cloud.advance(int(wait))
        polls += 1
    assert answer.json()["status"] == "completed"
    return polls


def bedrock(service: Service, operation: str) -> list[Call]:
    return [call for call in service.cloud.calls.log if call.action == f"bedrock:{operation}"]


def test_two_hours_with_a_webhook(service: Service, receiver: Receiver) -> None:
    """Who gives a webhook makes one request and serves one, at the very end of the two hours."""
    tell_of_the_end(service)
    job_id = submit(service, webhook_url=HOOK)
    began = service.cloud.clock.time
    with service.paused_reaper():
        service.cloud.settle(within=TWO_HOURS + 60)
    (received,) = receiver.requests
    assert TWO_HOURS <= received.at - began < TWO_HOURS + 10
    event = json.loads(received.body)
    assert (event["event"], event["job_id"]) == ("fine_tune.completed", job_id)
    assert event["model_id"].startswith("arn:aws:bedrock:eu-west-1:123456789012:custom-model/amazon.nova-micro")
    assert event["metrics"] == {"training_loss": 0.5, "validation_loss": None}
    assert event["deployed"] is False
    assert "CreateCustomModelDeployment" in event["next_step"]
    assert len(bedrock(service, "CreateModelCustomizationJob")) == 1


def test_polls(service: Service, receiver: Receiver) -> None:
    """Who polls when told to makes 76 requests at most for the first job, and 10 with five before it."""
    tell_of_the_end(service)
    with service.paused_reaper():
        first = poll(service, submit(service))
        for _ in range(4):
            submit(service)
            service.cloud.settle(within=TWO_HOURS + 60)
        sixth = poll(service, submit(service))
    assert first + 1 <= 76
    assert sixth + 1 <= 10


def test_lost_event(service: Service) -> None:
    """Without the event, the end is noticed within a quarter of an hour, after few looks."""
    job_id = submit(service)
    began = service.cloud.clock.time
    with service.paused_reaper():
        service.cloud.settle(within=2 * TWO_HOURS)
    job = service.job(job_id)
    assert job["status"] == "completed"
    assert service.cloud.clock.time - began <= TWO_HOURS + 900 + 60
    looks = bedrock(service, "GetModelCustomizationJob")
    assert len(looks) <= 15
    assert len(service.cloud.execution(job_id).events) < 40


def test_what_is_shown_meanwhile(service: Service) -> None:
    """The status says what the job waits for, and keeps its ETag while nothing happens."""
    job_id = submit(service)
    service.cloud.settle(within=60)
    before = service.call("GET", f"/jobs/{job_id}/status")
    assert (before.json()["stage"], before.json()["waiting_for"]) == ("train", "training")
    service.cloud.settle(within=3600)
    assert service.call("GET", f"/jobs/{job_id}/status").headers["ETag"] == before.headers["ETag"]


def test_no_text_outside_of_the_bucket(service: Service) -> None:
    """No queue, topic, execution or event has a word of the dataset. The trained file is deleted at the end."""
    tell_of_the_end(service)
    job_id = submit(service)
    service.cloud.settle(within=60)
    (created,) = bedrock(service, "CreateModelCustomizationJob")
    key = created.params["trainingDataConfig"]["s3Uri"].split("/", 3)[3]
    assert service.keys(f"work/{job_id}/") == [key, f"work/{job_id}/fine_tune/message.json"]
    with service.paused_reaper():
        service.cloud.settle(within=TWO_HOURS)
    carried = [call.params for call in service.cloud.calls.log if call.service in ("sqs", "stepfunctions", "sns")]
    assert "xylophone" not in json.dumps([carried, service.cloud.execution(job_id).events], default=str)
    assert service.keys(f"work/{job_id}/") == []


@pytest.mark.parametrize("fault", [None, "ThrottlingException"])
def test_cancel(service: Service, fault: str | None) -> None:
    """Canceling the job stops the training, also where the service refuses at first."""
    job_id = submit(service)
    service.cloud.settle(within=600)
    if fault:
        service.cloud.fail("bedrock", "StopModelCustomizationJob", fault, times=2)
    service.cancel(job_id)
    with service.paused_reaper():
        service.cloud.settle(within=2 * TWO_HOURS)
    (created,) = bedrock(service, "CreateModelCustomizationJob")
    found = CUSTOMIZATION.jobs.get({"jobIdentifier": created.params["jobName"]})
    assert found["status"] == "Stopped"
    assert service.job(job_id)["status"] == "canceled"


def test_failed_training(service: Service, training: Callable[..., None]) -> None:
    """The job has the service's reason, without ARNs and addresses of files."""
    training(failure="Cannot read s3://bucket/work/x as arn:aws:iam::123456789012:role/x. Check it.", seconds=600)
    tell_of_the_end(service, after=600, status="Failed")
    job_id = submit(service)
    with service.paused_reaper():
        service.cloud.settle(within=660)
    error = service.job(job_id)["error"]
    assert (error["code"], error["stage"]) == ("training_failed", "train")
    assert error["message"] == "Cannot read [resource] as [resource]. Check it."


def test_invalid_dataset(service: Service) -> None:
    """Nothing is started for a dataset with errors. The error names the first, the event lists all."""
    job_id = submit(service, DATASET + b'{"prompt": "Why?"}\n\n')
    with service.paused_reaper():
        service.cloud.settle(within=3600)
    error = service.job(job_id)["error"]
    assert (error["code"], error["stage"]) == ("invalid_dataset", "validate")
    assert "Line 41, completion is missing. Line 42 is blank" in error["message"]
    (validated,) = [event for event in service.events(job_id) if event["event"] == "fine_tune.validated"]
    assert [(one["line"], one["field"]) for one in validated["errors"]] == [(41, "completion"), (42, "")]
    assert bedrock(service, "CreateModelCustomizationJob") == []


def test_deadline(service: Service, training: Callable[..., None]) -> None:
    """A training that is not done after three days is stopped, and the job fails."""
    training(seconds=10 * 86_400)
    job_id = submit(service)
    with service.paused_reaper():
        service.cloud.settle(within=73 * 3600)
    (created,) = bedrock(service, "CreateModelCustomizationJob")
    found = CUSTOMIZATION.jobs.get({"jobIdentifier": created.params["jobName"]})
    assert (service.job(job_id)["error"]["code"], found["status"]) == ("deadline_exceeded", "Stopped")
