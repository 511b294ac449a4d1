"""Alarms on work that stops without any message failing. test_messaging.py has those on dead-letter queues."""

from __future__ import annotations

from typing import Any

import pytest

from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from tests.stacks.templates import ARN, Assembly


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


def test_failed_runs_of_the_retry_scheduler(app: Assembly) -> None:
    """The alarm's threshold is 3 failed runs of the 5 in a period."""
    function = app.functions()["retry_scheduler"].name
    assert watched(alarm(app, "RetrySchedulerFails")) == ("Errors", "Sum", 300, function, 3)


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
