"""The outbox: every event reaches SNS, in order within its job, with any fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ops.__main__ import main
from tests.simulated_cloud.cloud import Cloud
from tests.support.service import Service

HOOK = "https://hooks.example.com/"
DAY = 86_400


@pytest.fixture
def received(cloud: Cloud) -> Iterator[Any]:
    """A queue with a raw subscription to all events. Returns its messages in order of arrival."""
    yield from subscription(cloud, "DocEventsTopic")


@pytest.fixture
def alerts(cloud: Cloud) -> Iterator[Any]:
    yield from subscription(cloud, "ErrorAlertsTopic")


def subscription(cloud: Cloud, topic: str) -> Iterator[Any]:
    sqs, sns = cloud.client("sqs"), cloud.client("sns")
    url = sqs.create_queue(QueueName=f"subscriber-{topic}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    subscribed = sns.subscribe(
        TopicArn=cloud.output(topic),
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RawMessageDelivery": "true"},
        ReturnSubscriptionArn=True,
    )["SubscriptionArn"]
    kept: list[dict[str, Any]] = []

    def messages() -> list[dict[str, Any]]:
        while page := sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
        ).get("Messages"):
            kept.extend(page)
        return kept

    yield messages
    sns.unsubscribe(SubscriptionArn=subscribed)
    sqs.delete_queue(QueueUrl=url)


@pytest.fixture
def silent(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other function reacts to events, and no schedule runs."""
    cloud.pause("start_job", "dispatch")
    for rule in cloud.bus.rules:
        monkeypatch.setattr(rule, "enabled", False)


@pytest.fixture
def republish(capsys: pytest.CaptureFixture[str]) -> Any:
    """`python -m ops republish …`."""

    def run(*arguments: str) -> tuple[int, str]:
        return main(["republish", *arguments]), capsys.readouterr().out

    return run


def log(cloud: Cloud) -> dict[str, list[str]]:
    """The bodies of the stored events, by job, in order."""
    items = [item for item in cloud.table("Jobs").scan()["Items"] if item.get("entity") == "event"]
    items.sort(key=lambda item: (item["pk"], item["sk"]))
    found: dict[str, list[str]] = {}
    for item in items:
        found.setdefault(item["job_id"], []).append(item["body"])
    return found


def first_received(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The bodies that were received, by job, each at its first arrival."""
    found: dict[str, list[str]] = {}
    for body in dict.fromkeys(message["Body"] for message in messages):
        found.setdefault(json.loads(body)["job_id"], []).append(body)
    return found


def fail(service: Service, job_id: str) -> None:
    error = {"Error": "EmptyDocument", "Cause": '{"errorMessage": "empty"}'}
    service.cloud.invoke("finish_job", {"job_id": job_id, "stage": "validate", "error": error})


def make_events(service: Service) -> None:
    """Seven events of three jobs, interleaved, while the stream is not read. One of them is a failure."""
    service.cloud.pause("publisher")
    jobs = [service.submit(str(number)) for number in range(3)]
    service.cancel(jobs[2])
    fail(service, jobs[0])
    again = service.call("POST", f"/jobs/{jobs[0]}/retry").json()["job_id"]
    service.cancel(again)
    service.cloud.resume("publisher")


class TestFanOut:
    def test_filters(self, service: Service) -> None:
        """Indexing gets starts and ends, notify gets everything, alerts only failures."""
        received: dict[str, list[str]] = {"start_job": [], "dispatch": []}
        for text in ("good", " "):
            service.submit(text)
        for _ in range(40):
            service.cloud.pause(*received)
            service.cloud.settle(within=1)
            for name, queue in (("start_job", "Indexing/Queue"), ("dispatch", "Notify/Queue")):
                received[name] += [json.loads(body)["event"] for body in service.cloud.queue(queue).bodies]
            service.cloud.resume()
            service.cloud.poll("start_job"), service.cloud.poll("dispatch")
        ends = ["document.failed", "document.indexed"]
        assert sorted(received["start_job"]) == [*ends, "document.uploaded", "document.uploaded"]
        assert sorted(received["dispatch"]) == sorted(
            [
                *received["start_job"],
                "document.started",
                "document.started",
                "document.chunked",
                "document.embedded",
            ]
        )
        assert [event["event"] for event in service.published("ErrorAlertsTopic")] == ["document.failed"]

    def test_attributes(self, service: Service, received: Any, alerts: Any) -> None:
        """Messages have the stored bytes, and attributes with kind, type, owner, status and lifecycle."""
        ends = ("document.indexed", "document.failed")
        service.submit("é", document_id="día")
        service.submit(" ")
        service.cloud.settle(within=60)
        stored = log(service.cloud)
        messages = received()
        assert first_received(messages) == stored
        for message in messages:
            event = json.loads(message["Body"])
            attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
            lifecycle = "ended" if event["event"] in ends else "progress"
            assert attributes == {
                "event_type": event["event"],
                "kind": "document",
                "owner": "ana",
                "lifecycle": "submitted" if event["sequence"] == 1 else lifecycle,
                "status": event["status"],
            }
        (alert,) = alerts()
        assert json.loads(alert["Body"])["event"] == "document.failed"
        assert alert["Body"] in [message["Body"] for message in messages]

    def test_owners_are_groups(self, service: Service) -> None:
        """The owner is the message group, for fair queues."""
        service.submit()
        Service(service.cloud, "bob").submit()
        service.cloud.settle()
        calls = [call for call in service.cloud.calls.of("publisher") if call.operation == "Publish"]
        groups = [call.params["MessageGroupId"] for call in calls]
        assert set(groups) == {"ana", "bob"}


@pytest.mark.usefixtures("silent")
class TestOrder:
    def test_order(self, service: Service, received: Any) -> None:
        """Each event arrives once, those of a job in order."""
        make_events(service)
        service.cloud.settle()
        assert first_received(received()) == log(service.cloud)
        assert len(received()) == 7

    @pytest.mark.parametrize("k", range(1, 9))
    def test_throttling_at_any_record(self, service: Service, received: Any, k: int) -> None:
        """If SNS throttles, the rest of the batch waits: nothing is lost or reordered within a job."""
        make_events(service)
        seen = iter(range(1, 100))
        service.cloud.fail(
            "sns", "Publish", "ThrottledException", function="publisher", when=lambda call: next(seen) == k
        )
        service.cloud.settle(within=60)
        assert first_received(received()) == log(service.cloud)
        assert len(received()) <= 8

    def test_kill_after_any_call(self, service: Service, received: Any) -> None:
        """After a kill anywhere, events arrive at most once more, with the same ids."""
        make_events(service)
        service.cloud.settle()
        calls = len(service.cloud.calls.of("publisher"))
        received().clear()
        for k in range(calls + 1):
            service.cloud.reset()
            service.cloud.pause("start_job", "dispatch")
            make_events(Service(service.cloud))
            rule = service.cloud.kill("publisher", after=k)
            service.cloud.settle(within=600)
            assert rule.hits == 1
            messages = received()
            assert first_received(messages) == log(service.cloud), k
            assert len(messages) <= 14
            messages.clear()

    @pytest.mark.parametrize("seed", range(4))
    def test_unreliable_stream(self, service: Service, received: Any, seed: int) -> None:
        """Duplicate batches and lost responses duplicate events, but lose or reorder none."""
        service.cloud.unreliable(seed)
        service.cloud.fail("sns", "Publish", "InternalError", function="publisher", after=True, every=3, times=5)
        make_events(service)
        service.cloud.settle(within=600)
        assert first_received(received()) == log(service.cloud)
        assert len(received()) > 7


def is_about(word: str) -> Any:
    return lambda call: word in call.params["Message"]


@pytest.mark.usefixtures("silent")
class TestFaults:
    def test_parked_event(self, service: Service, received: Any, republish: Any) -> None:
        """An event that SNS refuses for good is parked. An operator can publish it later."""
        make_events(service)
        refuses = service.cloud.fail(
            "sns", "Publish", "InvalidParameterException", times=None, when=is_about("document.failed")
        )
        service.cloud.settle(within=600)
        (key,) = service.keys("parked/")
        assert refuses.hits == 1
        assert sum(map(len, first_received(received()).values())) == 6
        assert republish("--parked") == (1, "0 events published, 1 left\n")
        refuses.remove()
        assert republish("--parked") == (0, "1 events published, 0 left\n")
        assert service.keys("parked/") == []
        stored = {body for bodies in log(service.cloud).values() for body in bodies}
        assert {message["Body"] for message in received()} == stored
        assert key == f"parked/{json.loads(received()[-1]['Body'])['event_id']}.json"

    def test_outage_of_sns(self, service: Service, received: Any) -> None:
        """While SNS is unavailable the stream waits; then all events arrive in order."""
        make_events(service)
        down = service.cloud.fail("sns", "Publish", "ServiceUnavailable", times=None)
        service.cloud.settle(within=3600)
        assert received() == []
        assert service.keys("parked/") == service.keys("aws/lambda/") == []
        down.remove()
        service.cloud.settle(within=120)
        assert first_received(received()) == log(service.cloud)

    def test_discarded_batch(self, service: Service, received: Any, republish: Any) -> None:
        """After all retries, Lambda writes the batch to S3, and an operator can publish it."""
        make_events(service)
        down = service.cloud.fail("sns", "Publish", "ServiceUnavailable", times=None)
        service.cloud.settle(within=DAY)
        assert received() == []
        reports = service.keys("aws/lambda/")
        assert reports
        assert down.hits <= 1000
        later = service.submit("later")
        down.remove()
        service.cloud.settle(within=600)
        assert list(first_received(received())) == [later]
        status, printed = republish("--parked")
        assert (status, printed) == (0, "7 events published, 0 left\n")
        assert service.keys("aws/lambda/") == []
        assert first_received(received()) == log(service.cloud)

    def test_republish_job(self, service: Service, received: Any, alerts: Any, republish: Any) -> None:
        """`republish --job` publishes the whole log again, byte for byte, alerts included."""
        make_events(service)
        service.cloud.settle()
        job_id = next(job for job, bodies in log(service.cloud).items() if "document.failed" in bodies[-1])
        before = len(received())
        assert republish("--job", job_id) == (0, "2 events published\n")
        assert [message["Body"] for message in received()[before:]] == log(service.cloud)[job_id]
        assert [message["Body"] for message in alerts()] == log(service.cloud)[job_id][-1:] * 2

    def test_outage_of_sns_and_s3(self, service: Service, received: Any) -> None:
        """An event that can be neither published nor parked is retried."""
        make_events(service)
        service.cloud.fail(
            "sns", "Publish", "InvalidParameterException", times=3, when=is_about("document.failed")
        )
        service.cloud.fail("s3", "PutObject", "SlowDown", function="publisher", times=2)
        service.cloud.settle(within=600)
        assert sum(map(len, first_received(received()).values())) == 6
        assert len(service.keys("parked/")) == 1

    def test_only_events_are_read(self, service: Service) -> None:
        """Other items of the table do not invoke the publisher."""
        make_events(service)
        service.cloud.settle()
        operations = Counter(call.operation for call in service.cloud.calls.of("publisher"))
        assert operations == {"BatchGetItem": 1, "Publish": 8}
        invoked = [run for run in service.cloud.functions.invocations if run.name == "publisher"]
        for item in service.cloud.table("Jobs").scan()["Items"]:
            service.cloud.table("Jobs").put_item(Item=item | {"touched": 1})
        service.cloud.settle()
        assert [run for run in service.cloud.functions.invocations if run.name == "publisher"] == invoked


def test_job_with_failing_sns(service: Service, received: Any) -> None:
    """With SNS failing every third time, a job completes and all events are published."""
    service.cloud.fail("sns", "Publish", "InternalError", function="publisher", every=3, times=None)
    job_id = service.submit()
    service.cloud.settle(within=600)
    service.assert_over(job_id, "completed")
    assert first_received(received()) == log(service.cloud)
