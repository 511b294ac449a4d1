"""The outbox: every event of the log reaches SNS, in order within its job, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ops.__main__ import main
from tests.simulated_cloud.cloud import Cloud
from tests.support.service import Service

HOOK = "https://hooks.example.com/"
DAY = 86_400


@pytest.fixture
def heard(cloud: Cloud) -> Iterator[Any]:
    """A queue that a test has subscribed to all events, raw. Gives the messages there are, in order of arrival."""
    yield from subscription(cloud, "DocEventsTopic")


@pytest.fixture
def alerts(cloud: Cloud) -> Iterator[Any]:
    yield from subscription(cloud, "ErrorAlertsTopic")


def subscription(cloud: Cloud, topic: str) -> Iterator[Any]:
    sqs, sns = cloud.client("sqs"), cloud.client("sns")
    url = sqs.create_queue(QueueName=f"listener-{topic}")["QueueUrl"]
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
    """Nobody but the listener reacts to events, and no sweep runs."""
    cloud.pause("start_job", "dispatch")
    for rule in cloud.bus.rules:
        monkeypatch.setattr(rule, "enabled", False)


@pytest.fixture
def republish(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`python -m ops republish …`; what it sets in the environment is taken back."""
    for name in ("EVENTS_TOPIC", "ALERTS_TOPIC", "DATA_BUCKET"):
        monkeypatch.setenv(name, "")

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


def first_heard(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The bodies that came, by job, each where it came first."""
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
    def test_each_queue_hears_what_concerns_it(self, service: Service) -> None:
        """Indexing gets what starts a job or calls for clean-up, notify everything, alerts failures alone."""
        heard: dict[str, list[str]] = {"start_job": [], "dispatch": []}
        for text in ("good", " "):
            service.submit(text)
        for _ in range(40):
            service.cloud.pause(*heard)
            service.cloud.settle(within=1)
            for name, queue in (("start_job", "Indexing/Queue"), ("dispatch", "Notify/Queue")):
                heard[name] += [json.loads(body)["event"] for body in service.cloud.queue(queue).bodies]
            service.cloud.resume()
            service.cloud.poll("start_job"), service.cloud.poll("dispatch")
        ends = ["document.failed", "document.indexed"]
        assert sorted(heard["start_job"]) == [*ends, "document.uploaded", "document.uploaded"]
        assert sorted(heard["dispatch"]) == sorted(
            [*heard["start_job"], "document.started", "document.started", "document.chunked", "document.embedded"]
        )
        assert [event["event"] for event in service.published("ErrorAlertsTopic")] == ["document.failed"]

    def test_a_subscriber_of_ones_own_can_filter(self, service: Service, heard: Any, alerts: Any) -> None:
        """Messages carry the stored bytes, and as attributes kind, type, owner, and how the job stands."""
        ends = ("document.indexed", "document.failed")
        service.submit("é", document_id="día")
        service.submit(" ")
        service.cloud.settle(within=60)
        stored = log(service.cloud)
        messages = heard()
        assert first_heard(messages) == stored
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
        """The owner is the message group, so that fair queues can tell owners apart."""
        service.submit()
        Service(service.cloud, "bob").submit()
        service.cloud.settle()
        groups = [call.params["MessageGroupId"] for call in service.cloud.calls.of("publisher")]
        assert set(groups) == {"ana", "bob"}


@pytest.mark.usefixtures("silent")
class TestOrder:
    def test_a_jobs_events_come_in_order(self, service: Service, heard: Any) -> None:
        """Each event once, and those of a job in the order of its log."""
        make_events(service)
        service.cloud.settle()
        assert first_heard(heard()) == log(service.cloud)
        assert len(heard()) == 7

    @pytest.mark.parametrize("k", range(1, 9))
    def test_a_throttle_at_any_record(self, service: Service, heard: Any, k: int) -> None:
        """Where SNS is busy the rest of the batch waits: nothing is lost, and nothing overtakes within a job."""
        make_events(service)
        seen = iter(range(1, 100))
        service.cloud.fail(
            "sns", "Publish", "ThrottledException", function="publisher", when=lambda call: next(seen) == k
        )
        service.cloud.settle(within=60)
        assert first_heard(heard()) == log(service.cloud)
        assert len(heard()) <= 8

    def test_a_death_after_any_call(self, service: Service, heard: Any) -> None:
        """A publisher killed anywhere leaves events that come, at most once more, with the same ids."""
        make_events(service)
        service.cloud.settle()
        calls = len(service.cloud.calls.of("publisher"))
        heard().clear()
        for k in range(calls + 1):
            service.cloud.reset()
            service.cloud.pause("start_job", "dispatch")
            make_events(Service(service.cloud))
            rule = service.cloud.kill("publisher", after=k)
            service.cloud.settle(within=600)
            assert rule.hits == 1
            messages = heard()
            assert first_heard(messages) == log(service.cloud), k
            assert len(messages) <= 14
            messages.clear()

    @pytest.mark.parametrize("seed", range(4))
    def test_an_unreliable_stream(self, service: Service, heard: Any, seed: int) -> None:
        """Batches that come twice, and lost answers of SNS, double events but neither lose nor reorder any."""
        service.cloud.unreliable(seed)
        service.cloud.fail("sns", "Publish", "InternalError", function="publisher", after=True, every=3, times=5)
        make_events(service)
        service.cloud.settle(within=600)
        assert first_heard(heard()) == log(service.cloud)
        assert len(heard()) > 7


def is_about(word: str) -> Any:
    return lambda call: word in call.params["Message"]


@pytest.mark.usefixtures("silent")
class TestTrouble:
    def test_what_sns_refuses_is_parked(self, service: Service, heard: Any, republish: Any) -> None:
        """One message that SNS will never take blocks nothing; an operator can send it once the reason is gone."""
        make_events(service)
        refuses = service.cloud.fail(
            "sns", "Publish", "InvalidParameterException", times=None, when=is_about("document.failed")
        )
        service.cloud.settle(within=600)
        (key,) = service.keys("parked/")
        assert refuses.hits == 1
        assert sum(map(len, first_heard(heard()).values())) == 6
        assert republish("--parked") == (1, "0 events published, 1 left\n")
        refuses.remove()
        assert republish("--parked") == (0, "1 events published, 0 left\n")
        assert service.keys("parked/") == []
        stored = {body for bodies in log(service.cloud).values() for body in bodies}
        assert {message["Body"] for message in heard()} == stored
        assert key == f"parked/{json.loads(heard()[-1]['Body'])['event_id']}.json"

    def test_an_hour_without_sns_is_made_up_for(self, service: Service, heard: Any) -> None:
        """While SNS is down the stream waits, and afterwards everything comes in order."""
        make_events(service)
        down = service.cloud.fail("sns", "Publish", "ServiceUnavailable", times=None)
        service.cloud.settle(within=3600)
        assert heard() == []
        assert service.keys("parked/") == service.keys("aws/lambda/") == []
        down.remove()
        service.cloud.settle(within=120)
        assert first_heard(heard()) == log(service.cloud)

    def test_a_stream_that_cannot_be_read_is_given_up_into_s3(
        self, service: Service, heard: Any, republish: Any
    ) -> None:
        """Retries end; what Lambda gives up lies in the bucket, from where an operator sends it again."""
        make_events(service)
        down = service.cloud.fail("sns", "Publish", "ServiceUnavailable", times=None)
        service.cloud.settle(within=DAY)
        assert heard() == []
        reports = service.keys("aws/lambda/")
        assert reports
        assert down.hits <= 1000
        later = service.submit("later")
        down.remove()
        service.cloud.settle(within=600)
        assert list(first_heard(heard())) == [later]
        status, said = republish("--parked")
        assert (status, said) == (0, "7 events published, 0 left\n")
        assert service.keys("aws/lambda/") == []
        assert first_heard(heard()) == log(service.cloud)

    def test_a_job_can_be_told_again(self, service: Service, heard: Any, alerts: Any, republish: Any) -> None:
        """`republish --job` sends a whole log once more, byte for byte, alerts included."""
        make_events(service)
        service.cloud.settle()
        job_id = next(job for job, bodies in log(service.cloud).items() if "document.failed" in bodies[-1])
        before = len(heard())
        assert republish("--job", job_id) == (0, "2 events published\n")
        assert [message["Body"] for message in heard()[before:]] == log(service.cloud)[job_id]
        assert [message["Body"] for message in alerts()] == log(service.cloud)[job_id][-1:] * 2

    def test_a_bucket_that_fails_too_loses_nothing(self, service: Service, heard: Any) -> None:
        """An event that can be neither sent nor parked now is tried again."""
        make_events(service)
        service.cloud.fail(
            "sns", "Publish", "InvalidParameterException", times=3, when=is_about("document.failed")
        )
        service.cloud.fail("s3", "PutObject", "SlowDown", function="publisher", times=2)
        service.cloud.settle(within=600)
        assert sum(map(len, first_heard(heard()).values())) == 6
        assert len(service.keys("parked/")) == 1

    def test_only_events_are_read(self, service: Service) -> None:
        """Rows, progress and keys change without waking the publisher."""
        make_events(service)
        service.cloud.settle()
        assert len(service.cloud.calls.of("publisher")) == 8
        invoked = [run for run in service.cloud.functions.invocations if run.name == "publisher"]
        for item in service.cloud.table("Jobs").scan()["Items"]:
            service.cloud.table("Jobs").put_item(Item=item | {"touched": 1})
        service.cloud.settle()
        assert [run for run in service.cloud.functions.invocations if run.name == "publisher"] == invoked


def test_a_whole_job_survives_a_bad_day(service: Service, heard: Any) -> None:
    """With SNS failing every third time a job still runs to its end, and all is told."""
    service.cloud.fail("sns", "Publish", "InternalError", function="publisher", every=3, times=None)
    job_id = service.submit()
    service.cloud.settle(within=600)
    service.assert_over(job_id, "completed")
    assert first_heard(heard()) == log(service.cloud)
