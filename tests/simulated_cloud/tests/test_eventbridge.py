"""EventBridge: event patterns, schedules and targets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.simulated_cloud import event_patterns, eventbridge
from tests.simulated_cloud.template import Unsupported
from tests.simulated_cloud.tests.sample import Sample, raising

Event = dict[str, Any]


def test_a_pattern_selects_the_events_of_a_rule(sample: Sample) -> None:
    """A rule for failures gets no event of an execution that succeeds."""
    received: list[Event] = []
    sample.scripts["ended"] = lambda event, context: received.append(event)
    sample.start("Calling", {})
    sample.settle()
    assert [event["detail"]["status"] for event in sample.bus.events] == ["RUNNING", "SUCCEEDED"]
    assert received == []


def test_a_schedule_runs_when_it_is_due(sample: Sample) -> None:
    """A rate of five minutes runs three times in a quarter of an hour."""
    seen: list[Event] = []
    sample.scripts["sweeper"] = lambda event, context: seen.append(event)
    sample.advance(15 * 60 + 1)
    assert [event["detail-type"] for event in seen] == ["Scheduled Event"] * 3


def test_settle_runs_schedules_but_does_not_wait_for_them(sample: Sample) -> None:
    """Schedules run when the clock passes them; settle does not move the clock for a schedule alone."""
    seen: list[float] = []
    sample.scripts["sweeper"] = lambda event, context: seen.append(sample.clock.time)
    sample.settle(within=math.inf)
    assert seen == []
    sample.start("Waiting", {})
    sample.settle(within=math.inf)
    assert len(seen) == 12


def test_put_events_reaches_the_rules(sample: Sample) -> None:
    """An event that code sends with PutEvents is matched against the rules."""
    sample.client("events").put_events(
        Entries=[{"Source": "aws.test", "DetailType": "Test", "Detail": '{"a": 1}'}]
    )
    sample.settle()
    assert sample.bus.events[-1]["detail"] == {"a": 1}


@pytest.mark.parametrize(
    ("pattern", "event", "expected"),
    [
        ({"a": ["x"]}, {"a": "x"}, True),
        ({"a": ["x"]}, {"a": "y"}, False),
        ({"a": ["x"]}, {}, False),
        ({"a": ["x"]}, {"a": ["y", "x"]}, True),
        ({"a": [1]}, {"a": True}, False),
        ({"a": {"b": ["x"]}}, {"a": {"b": "x"}}, True),
        ({"a": {"b": ["x"]}}, {"a": "x"}, False),
        ({"a": [{"prefix": "x"}]}, {"a": "xyz"}, True),
        ({"a": [{"prefix": "x"}]}, {"a": 1}, False),
        ({"a": [{"prefix": "x"}]}, {}, False),
    ],
)
def test_patterns(pattern: Any, event: Any, expected: bool) -> None:
    """Literal values and prefixes match as EventBridge documents them."""
    event_patterns.check(pattern)
    assert event_patterns.matches(pattern, event) is expected


@pytest.mark.parametrize("pattern", [{"a": [{"cidr": "10.0.0.0/8"}]}, {"$or": [{"a": [1]}]}])
def test_an_unknown_operator_is_refused(pattern: Any) -> None:
    """A pattern with an operator that the simulation lacks raises an error."""
    with pytest.raises(ValueError, match="unknown operator"):
        event_patterns.check(pattern)


@pytest.mark.parametrize(
    "target",
    [
        {"Arn": "arn:aws:lambda:eu-west-1:123456789012:function:f", "Id": "0", "Input": "{}"},
        {"Arn": "arn:aws:sqs:eu-west-1:123456789012:q", "Id": "0"},
    ],
)
def test_an_unknown_target_is_refused(target: dict[str, Any]) -> None:
    """A target that is not a function, or has a field that would be ignored, raises an error."""
    with pytest.raises(Unsupported, match="target"):
        eventbridge.EventRule("rule", {"ScheduleExpression": "rate(1 minute)", "Targets": [target]})


def test_the_retries_of_a_function_can_be_limited(sample: Sample) -> None:
    """With MaximumRetryAttempts 0 a failed event is lost."""
    sample.scripts["sweeper"] = raising
    sample.advance(301)
    assert sample.settle(within=200) == 0
    assert len(sample.functions.errors) == 1


def test_cron_expressions_are_refused() -> None:
    """A schedule expression that is not a rate raises an error."""
    with pytest.raises(ValueError, match="only rates"):
        eventbridge.rate("cron(0 12 * * ? *)")
