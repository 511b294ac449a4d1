"""Queues, schedules, topics and alarms of the service stack obey every rule, and every rule can say no."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from tests.stacks import rules
from tests.stacks.rules import DAYS_14, Rule, violations
from tests.stacks.templates import Assembly, Properties, Template, resources, statements

Change = Callable[[Properties], Any]


@dataclass(frozen=True)
class Mutation:
    """`change` breaks `rule` in any resource of this kind, or in those that `where` selects."""

    rule: Rule
    kind: str
    name: str
    change: Change
    where: Callable[[Properties], bool] = lambda _: True


QUEUE, MAPPING, ALARM = "AWS::SQS::Queue", "AWS::Lambda::EventSourceMapping", "AWS::CloudWatch::Alarm"
SUBSCRIPTION, FUNCTION = "AWS::SNS::Subscription", "AWS::Lambda::Function"
SCHEDULE, INVOKE = "AWS::Events::Rule", "AWS::Lambda::EventInvokeConfig"


def has_dead_letters(queue: Properties) -> bool:
    return "RedrivePolicy" in queue


def has_none(queue: Properties) -> bool:
    return "RedrivePolicy" not in queue


def reads_a_queue(mapping: Properties) -> bool:
    return "ScalingConfig" in mapping


def reads_a_stream(mapping: Properties) -> bool:
    return "StartingPosition" in mapping


def is_scheduled(rule: Properties) -> bool:
    return "ScheduleExpression" in rule


def is_each_minute(rule: Properties) -> bool:
    return rule.get("ScheduleExpression") == "rate(1 minute)"


def works_on_events(mapping: Properties) -> bool:
    """One reader of the stream, not that for WebSockets."""
    return reads_a_stream(mapping) and len(mapping["FilterCriteria"]["Filters"]) == 1


def sweeps(function: Properties) -> bool:
    return any(name.endswith("_DLQ_URL") for name in function["Environment"]["Variables"])


def counts_dead_letters(alarm: Properties) -> bool:
    return bool(alarm["Threshold"] == 1)


def to_queue(subscription: Properties) -> bool:
    return bool(subscription["Protocol"] == "sqs")


def lets_topic_in(policy: Properties) -> bool:
    return len(statements(policy)) > 1


def lets_alarms_in(policy: Properties) -> bool:
    return any(statement["Effect"] == "Allow" for statement in statements(policy))


def without_denials(policy: Properties) -> None:
    policy["PolicyDocument"]["Statement"] = [s for s in statements(policy) if s["Effect"] != "Deny"]


def only_denials(policy: Properties) -> None:
    policy["PolicyDocument"]["Statement"] = [s for s in statements(policy) if s["Effect"] == "Deny"]


def put(key: str, value: Any) -> Change:
    return lambda properties: properties.update({key: value})


def drop(key: str) -> Change:
    return lambda properties: properties.pop(key)


MUTATIONS = (
    Mutation(
        rules.visibility_is_six_times_the_worker,
        QUEUE,
        "one second less",
        lambda q: q.update(VisibilityTimeout=q["VisibilityTimeout"] - 1),
        has_dead_letters,
    ),
    Mutation(
        rules.visibility_is_six_times_the_worker, QUEUE, "the default", drop("VisibilityTimeout"), has_dead_letters
    ),
    Mutation(
        rules.visibility_is_six_times_the_worker,
        MAPPING,
        "a window",
        put("MaximumBatchingWindowInSeconds", 5),
        reads_a_queue,
    ),
    Mutation(rules.each_queue_has_one_worker, MAPPING, "gone", put("EventSourceArn", "none"), reads_a_queue),
    Mutation(
        rules.each_queue_has_dead_letters,
        QUEUE,
        "4 receives",
        lambda q: q["RedrivePolicy"].update(maxReceiveCount=4),
        has_dead_letters,
    ),
    Mutation(rules.each_queue_has_dead_letters, QUEUE, "none", drop("RedrivePolicy"), has_dead_letters),
    Mutation(rules.dead_letters_are_kept_longest, QUEUE, "the default", drop("MessageRetentionPeriod"), has_none),
    Mutation(
        rules.dead_letters_are_kept_longest, QUEUE, "13 days", put("MessageRetentionPeriod", 13 * 86_400), has_none
    ),
    Mutation(
        rules.dead_letters_are_kept_longest,
        QUEUE,
        "as long as the first",
        put("MessageRetentionPeriod", DAYS_14),
        has_dead_letters,
    ),
    Mutation(rules.queues_refuse_plain_http, "AWS::SQS::QueuePolicy", "no denial", without_denials),
    Mutation(
        rules.queues_refuse_plain_http,
        "AWS::SQS::QueuePolicy",
        "only for sending",
        lambda p: statements(p)[0].update(Action="sqs:SendMessage"),
    ),
    *(
        Mutation(rules.dead_letters_raise_an_alarm, ALARM, name, change, counts_dead_letters)
        for name, change in {
            "no action": drop("AlarmActions"),
            "switched off": put("ActionsEnabled", False),
            "from 2": put("Threshold", 2),
            "metric": put("MetricName", "NumberOfMessagesSent"),
            "other queue": put("Dimensions", []),
        }.items()
    ),
    Mutation(
        rules.dead_letters_are_swept_on_schedule, SCHEDULE, "somebody else", put("Targets", []), is_each_minute
    ),
    Mutation(
        rules.dead_letters_are_swept_on_schedule,
        SCHEDULE,
        "never",
        lambda rule: (rule.pop("ScheduleExpression"), rule.update(EventPattern={})),
        is_each_minute,
    ),
    Mutation(
        rules.dead_letters_are_swept_on_schedule, QUEUE, "shown again", put("VisibilityTimeout", 58), has_none
    ),
    Mutation(
        rules.schedules_come_soon_again,
        SCHEDULE,
        "rarely",
        put("ScheduleExpression", "rate(5 minutes)"),
        is_scheduled,
    ),
    Mutation(
        rules.schedules_come_soon_again,
        SCHEDULE,
        "called again",
        lambda rule: rule["Targets"][0].pop("RetryPolicy"),
        is_scheduled,
    ),
    Mutation(rules.schedules_come_soon_again, INVOKE, "run again", put("MaximumRetryAttempts", 1)),
    Mutation(rules.schedules_come_soon_again, INVOKE, "run thrice", drop("MaximumRetryAttempts")),
    Mutation(rules.schedules_come_soon_again, INVOKE, "another's", put("FunctionName", {"Ref": "other"})),
    Mutation(rules.schedules_come_soon_again, FUNCTION, "too long", put("Timeout", 60), sweeps),
    Mutation(rules.alarms_tell_somebody, ALARM, "no action", drop("AlarmActions")),
    Mutation(rules.alarms_tell_somebody, ALARM, "no topic", put("AlarmActions", [{"Ref": "gone"}])),
    Mutation(rules.alarms_tell_somebody, ALARM, "switched off", put("ActionsEnabled", False)),
    Mutation(rules.alarms_tell_somebody, ALARM, "no words", drop("AlarmDescription")),
    Mutation(
        rules.queue_mappings_report_each_failure, MAPPING, "gone", drop("FunctionResponseTypes"), reads_a_queue
    ),
    Mutation(rules.queue_mappings_are_limited, MAPPING, "gone", drop("ScalingConfig"), reads_a_queue),
    Mutation(
        rules.mappings_fit_the_smallest_account,
        MAPPING,
        "one more",
        put("ScalingConfig", {"MaximumConcurrency": 3}),
        reads_a_queue,
    ),
    Mutation(
        rules.mappings_fit_the_smallest_account,
        MAPPING,
        "one more reader of the stream",
        put("ParallelizationFactor", 2),
        works_on_events,
    ),
    *(
        Mutation(rules.streams_lose_nothing, MAPPING, f"without {key}", drop(key), reads_a_stream)
        for key in (
            "FilterCriteria",
            "BisectBatchOnFunctionError",
            "MaximumRetryAttempts",
            "MaximumRecordAgeInSeconds",
            "DestinationConfig",
            "FunctionResponseTypes",
            "StartingPosition",
        )
    ),
    Mutation(rules.streams_lose_nothing, MAPPING, "endless", put("MaximumRetryAttempts", -1), reads_a_stream),
    Mutation(
        rules.streams_lose_nothing, MAPPING, "late", put("MaximumRecordAgeInSeconds", 86_400), reads_a_stream
    ),
    Mutation(rules.streams_lose_nothing, MAPPING, "latest", put("StartingPosition", "LATEST"), reads_a_stream),
    Mutation(
        rules.the_stream_brings_new_events_only,
        MAPPING,
        "changes too",
        lambda m: m["FilterCriteria"]["Filters"][0].update(
            Pattern=m["FilterCriteria"]["Filters"][0]["Pattern"].replace('"INSERT"', '"INSERT","MODIFY"')
        ),
        reads_a_stream,
    ),
    Mutation(
        rules.subscriptions_are_raw_and_have_dead_letters,
        SUBSCRIPTION,
        "wrapped",
        drop("RawMessageDelivery"),
        to_queue,
    ),
    Mutation(
        rules.subscriptions_are_raw_and_have_dead_letters, SUBSCRIPTION, "no DLQ", drop("RedrivePolicy"), to_queue
    ),
    Mutation(rules.topics_may_send_to_their_queues, "AWS::SQS::QueuePolicy", "shut", only_denials, lets_topic_in),
    Mutation(rules.topics_refuse_plain_http, "AWS::SNS::TopicPolicy", "no denial", without_denials),
    Mutation(rules.alarms_may_publish, "AWS::SNS::TopicPolicy", "only denials", only_denials, lets_alarms_in),
    Mutation(
        rules.only_those_who_must_may_loop,
        FUNCTION,
        "stopped",
        drop("RecursiveLoop"),
        lambda f: "RecursiveLoop" in f,
    ),
    Mutation(
        rules.only_those_who_must_may_loop,
        FUNCTION,
        "let loose",
        put("RecursiveLoop", "Allow"),
        lambda f: "RecursiveLoop" not in f,
    ),
)


def mutants(template: Template, mutation: Mutation) -> Iterator[tuple[str, Template]]:
    """(logical id, template in which this one resource is broken), for every resource that can be."""
    for logical_id, properties in resources(template, mutation.kind):
        if mutation.where(properties):
            broken = deepcopy(template["Resources"][logical_id])
            mutation.change(broken["Properties"])
            yield logical_id, {**template, "Resources": template["Resources"] | {logical_id: broken}}


def test_the_app_breaks_no_rule(service: Template) -> None:
    """With the defaults of cdk.json, nothing in the service stack breaks any rule."""
    assert violations(service) == []


def test_another_configuration_breaks_no_rule(overridden: Assembly) -> None:
    """Nor with other knobs turned."""
    assert violations(overridden.templates["RecadoService"]) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.rule.__name__}: {m.name}")
def test_each_rule_finds_what_is_broken(service: Template, mutation: Mutation) -> None:
    """Whichever resource of its kind is broken, the rule notices; where it is intact, it is silent."""
    found = {logical_id: list(mutation.rule(broken)) for logical_id, broken in mutants(service, mutation)}
    assert found
    assert [logical_id for logical_id, breaches in found.items() if not breaches] == []


def test_each_rule_is_tried() -> None:
    """No rule is without a mutation that it must find."""
    assert {mutation.rule for mutation in MUTATIONS} == set(rules.RULES)


def test_the_rules_have_something_to_judge(service: Template) -> None:
    """Four queues with a DLQ each, their mappings, subscriptions and schedules are what the rules look at."""
    kinds = (QUEUE, MAPPING, SUBSCRIPTION, ALARM, INVOKE)
    assert [len(list(resources(service, kind))) for kind in kinds] == [8, 6, 2, 8, 3]
    assert len([rule for _, rule in resources(service, SCHEDULE) if is_scheduled(rule)]) == 3
