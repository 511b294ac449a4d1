"""What has an alarm beside dead letters: things that stand still without any message failing."""

from __future__ import annotations

from typing import Any

import pytest

from core.webhooks.deliveries.store import MAX_QUEUE_DELAY_SECONDS
from tests.stacks.templates import ARN, Assembly


def alarm(app: Assembly, name: str) -> dict[str, Any]:
    (found,) = [each for each in app.of("AWS::CloudWatch::Alarm") if each.name == f"Alarms/{name}"]
    return found.properties


def watched(properties: dict[str, Any]) -> tuple[str, str, int, str, int]:
    """Metric, statistic, seconds per value, whose, and from which value on."""
    (dimension,) = properties["Dimensions"]
    names = ("MetricName", "Statistic", "Period")
    return (*(properties[name] for name in names), dimension["Value"], properties["Threshold"])


@pytest.mark.parametrize(("name", "reader"), [("EventsLate", "publisher"), ("ListenersLate", "push")])
def test_events_that_wait_in_the_stream(app: Assembly, name: str, reader: str) -> None:
    """An event that a reader of the stream has not sent after five minutes (in milliseconds)."""
    function = app.functions()[reader].name
    assert watched(alarm(app, name)) == ("IteratorAge", "Maximum", 300, function, 300_000)


def test_a_waker_that_fails(app: Assembly) -> None:
    """Three of the five runs of a period end with an error."""
    waker = app.functions()["retry_scheduler"].name
    assert watched(alarm(app, "WakerFails")) == ("Errors", "Sum", 300, waker, 3)


def test_webhooks_that_wait_for_the_sender(app: Assembly) -> None:
    """A message to a webhook that is older than an hour, which no delay and no repetition makes it."""
    (queue,) = [each for each in app.of("AWS::SQS::Queue") if each.name == "Webhooks/Webhooks/Queue"]
    name = f"{ARN}{queue.name}.QueueName"
    found = watched(alarm(app, "WebhooksLate"))
    assert found == ("ApproximateAgeOfOldestMessage", "Maximum", 300, name, 3600)
    receives = queue.properties["RedrivePolicy"]["maxReceiveCount"]
    assert MAX_QUEUE_DELAY_SECONDS + receives * queue.properties["VisibilityTimeout"] < found[-1]


def test_all_alarms_are_alike(app: Assembly) -> None:
    """One metric each (the local engine refuses metric math), one topic, and no data is good news."""
    alarms = [each.properties for each in app.of("AWS::CloudWatch::Alarm")]
    assert not any("Metrics" in each for each in alarms)
    assert {each["ComparisonOperator"] for each in alarms} == {"GreaterThanOrEqualToThreshold"}
    assert {each["TreatMissingData"] for each in alarms} == {"notBreaching"}
    assert {action for each in alarms for action in each["AlarmActions"]} == {f"{ARN}FanOut/ErrorAlerts"}
