"""EventBridge: patterns, schedules and targets."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.support import patterns, rules, sample
from tests.support.sample import raising

Event = dict[str, Any]


def test_success_is_not_announced_to_a_rule_for_failures(it: sample.Sample) -> None:
    """Every change of status is on the bus; the pattern selects."""
    heard: list[Event] = []
    it.scripts["ended"] = lambda event, context: heard.append(event)
    it.start("Calling", {})
    it.settle()
    assert [event["detail"]["status"] for event in it.bus.events] == ["RUNNING", "SUCCEEDED"]
    assert heard == []


def test_a_schedule_fires_when_its_time_has_come(it: sample.Sample) -> None:
    """Three times in a quarter of an hour, with the input of its target."""
    seen: list[Event] = []
    it.scripts["sweeper"] = lambda event, context: seen.append(event)
    it.advance(15 * 60 + 1)
    assert seen == [{"reaper": True}] * 3


def test_settling_fires_the_schedules_on_its_way(it: sample.Sample) -> None:
    """But a schedule alone is no reason to move the clock."""
    seen: list[float] = []
    it.scripts["sweeper"] = lambda event, context: seen.append(it.clock.time)
    it.settle(within=math.inf)
    assert seen == []
    it.start("Waiting", {})
    it.settle(within=math.inf)
    assert len(seen) == 12


def test_put_events_reaches_the_rules(it: sample.Sample) -> None:
    """Events of the project's own take the same way."""
    it.client("events").put_events(Entries=[{"Source": "aws.test", "DetailType": "Test", "Detail": '{"a": 1}'}])
    it.settle()
    assert it.bus.events[-1]["detail"] == {"a": 1}


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
        ({"a": [{"suffix": "z"}]}, {"a": "xyz"}, True),
        ({"a": [{"anything-but": ["x", "y"]}]}, {"a": "z"}, True),
        ({"a": [{"anything-but": {"prefix": "x"}}]}, {"a": "xyz"}, False),
        ({"a": [{"numeric": [">", 1, "<=", 3]}]}, {"a": 3}, True),
        ({"a": [{"numeric": [">", 1]}]}, {"a": "3"}, False),
        ({"a": [{"exists": False}]}, {}, True),
        ({"a": [{"exists": True}]}, {"a": None}, True),
        ({"a": [{"equals-ignore-case": "X"}]}, {"a": "x"}, True),
        ({"a": [{"wildcard": "a*c"}]}, {"a": "abc"}, True),
        ({"$or": [{"a": [1]}, {"b": [2]}]}, {"b": 2}, True),
    ],
)
def test_patterns(pattern: Any, event: Any, expected: bool) -> None:
    """The operators that EventBridge documents."""
    patterns.check(pattern)
    assert patterns.matches(pattern, event) is expected


def test_an_unknown_operator_is_refused() -> None:
    """Rather than matched wrongly."""
    with pytest.raises(ValueError, match="cidr"):
        patterns.check({"a": [{"cidr": "10.0.0.0/8"}]})


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({}, {"detail": {"name": "n", "count": 2}, "time": "t"}),
        ({"Input": '{"constant": 1}'}, {"constant": 1}),
        ({"InputPath": "$.detail"}, {"name": "n", "count": 2}),
        (
            {
                "InputTransformer": {
                    "InputPathsMap": {"name": "$.detail.name", "count": "$.detail.count"},
                    "InputTemplate": '{"job": <name>, "count": <count>, "text": "<name> has <count>"}',
                }
            },
            {"job": "n", "count": 2, "text": "n has 2"},
        ),
    ],
)
def test_a_target_may_change_its_input(target: Any, expected: Any) -> None:
    """A constant, a part of the event, or a template; the event itself otherwise."""
    event = {"detail": {"name": "n", "count": 2}, "time": "t"}
    assert json.loads(rules.target_input(target, event)) == expected


def test_what_a_target_cannot_do_ends_where_failures_go(it: sample.Sample) -> None:
    """After the retries that the function's configuration allows: here, none."""
    it.scripts["sweeper"] = raising
    it.advance(301)
    (body,) = it.queue("Dead").bodies
    record = json.loads(body)
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert (record["requestPayload"], record["responsePayload"]["errorType"]) == ({"reaper": True}, "RuntimeError")


def test_cron_expressions_are_refused() -> None:
    """At deployment, rather than never fired."""
    with pytest.raises(ValueError, match="only rates"):
        rules.rate("cron(0 12 * * ? *)")
