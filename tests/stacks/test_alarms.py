"""Alarms on work that stops without any message failing. test_messaging.py has those on dead-letter queues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.jobs import parked
from tests.stacks.templates import ARN, Assembly

RUNBOOK = Path(__file__).parents[2] / "docs/runbook.md"


def alarm(app: Assembly, name: str) -> dict[str, Any]:
    (found,) = [each for each in app.of("AWS::CloudWatch::Alarm") if each.name == f"Alarms/{name}"]
    return found.properties


def watched(properties: dict[str, Any]) -> tuple[str, str, int, str, int]:
    """Metric, statistic, period in seconds, dimension, and threshold."""
    (dimension,) = properties["Dimensions"]
    names = ("MetricName", "Statistic", "Period")
    return (*(properties[name] for name in names), dimension["Value"], properties["Threshold"])


@pytest.mark.parametrize(("name", "reader"), [("EventsLate", "publisher"), ("ListenersLate", "push")])
def test_age_of_stream_records(app: Assembly, name: str, reader: str) -> None:
    """Each reader of the stream has an alarm on records older than 5 minutes (in milliseconds)."""
    function = app.functions()[reader].name
    assert watched(alarm(app, name)) == ("IteratorAge", "Maximum", 300, function, 300_000)


@pytest.mark.parametrize(
    ("name", "function"), [("RetrySchedulerFails", "retry_scheduler"), ("ReaperFails", "reaper")]
)
def test_failed_runs(app: Assembly, name: str, function: str) -> None:
    """The threshold is 3 failed runs of the 5 in a period, of each function that drains dead-letter queues."""
    assert watched(alarm(app, name)) == ("Errors", "Sum", 300, app.functions()[function].name, 3)


def test_parked_events(app: Assembly) -> None:
    """The alarm watches the metric that the reaper logs once an hour."""
    found = alarm(app, "EventsParked")
    assert watched(found) == ("ParkedEvents", "Maximum", 3600, app.functions()["reaper"].name, 1)
    assert (found["Namespace"], found["Dimensions"][0]["Name"]) == ("Recado", "FunctionName")
    logged = parked.metric(1, function="f", at=0.0)
    assert logged["_aws"]["CloudWatchMetrics"][0]["Namespace"] == found["Namespace"]
    assert logged[found["MetricName"]] == 1


@pytest.mark.parametrize("name", ["Indexing", "Embedding", "Notify"])
def test_age_of_messages(app: Assembly, name: str) -> None:
    """Each queue has an alarm on messages that are older than the longest delay and all receives take."""
    (queue,) = [q for q in app.of("AWS::SQS::Queue") if q.name.endswith(f"{name}/Queue")]
    receives = queue.properties["RedrivePolicy"]["maxReceiveCount"]
    longest = MAX_QUEUE_DELAY_SECONDS + receives * queue.properties["VisibilityTimeout"]
    watching = f"{ARN}{queue.name}.QueueName"
    found = watched(alarm(app, f"{name}Late"))
    assert found == ("ApproximateAgeOfOldestMessage", "Maximum", 300, watching, longest)


def test_every_queue_and_its_dead_letters_are_watched(app: Assembly) -> None:
    """No queue is without an alarm."""
    watching = {d["Value"] for each in app.of("AWS::CloudWatch::Alarm") for d in each.properties["Dimensions"]}
    assert {f"{ARN}{queue.name}.QueueName" for queue in app.of("AWS::SQS::Queue")} <= watching


def test_every_alarm_says_what_to_do(app: Assembly) -> None:
    """Its description ends with an entry of docs/runbook.md, and the runbook has no entry without an alarm."""
    headings = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    linked = []
    for each in app.of("AWS::CloudWatch::Alarm"):
        what, _, entry = each.properties["AlarmDescription"].rpartition(": docs/runbook.md#")
        assert len(what.split(". ")) == 2, what
        linked.append(entry)
    assert sorted(linked) == sorted(heading.lower() for heading in headings)


def test_age_of_webhook_messages(app: Assembly) -> None:
    """The threshold is an hour, which is longer than the queue's delay and all receives of a message take."""
    (queue,) = [each for each in app.of("AWS::SQS::Queue") if each.name == "Webhooks/Webhooks/Queue"]
    name = f"{ARN}{queue.name}.QueueName"
    found = watched(alarm(app, "WebhooksLate"))
    assert found == ("ApproximateAgeOfOldestMessage", "Maximum", 300, name, 3600)
    receives = queue.properties["RedrivePolicy"]["maxReceiveCount"]
    assert MAX_QUEUE_DELAY_SECONDS + receives * queue.properties["VisibilityTimeout"] < found[-1]


def test_common_properties_of_alarms(app: Assembly) -> None:
    """Every alarm watches one metric (the local engine has no metric math) and notifies `error-alerts`."""
    alarms = [each.properties for each in app.of("AWS::CloudWatch::Alarm")]
    assert not any("Metrics" in each for each in alarms)
    assert {each["ComparisonOperator"] for each in alarms} == {"GreaterThanOrEqualToThreshold"}
    assert {each["TreatMissingData"] for each in alarms} == {"notBreaching"}
    assert {action for each in alarms for action in each["AlarmActions"]} == {f"{ARN}FanOut/ErrorAlerts"}
