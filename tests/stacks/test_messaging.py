"""The service stack violates none of the rules, and each rule finds a violation in a changed template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """`change` makes any resource of this type that `where` selects violate the rule."""

    name: str
    kind: str
    change: Change
    where: Callable[[Properties], bool] = lambda _: True


QUEUE, MAPPING, ALARM = "AWS::SQS::Queue", "AWS::Lambda::EventSourceMapping", "AWS::CloudWatch::Alarm"
SUBSCRIPTION, FUNCTION = "AWS::SNS::Subscription", "AWS::Lambda::Function"
SCHEDULE, INVOKE = "AWS::Events::Rule", "AWS::Lambda::EventInvokeConfig"
QUEUE_POLICY, TOPIC_POLICY = "AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy"


def has_dead_letters(queue: Properties) -> bool:
    return "RedrivePolicy" in queue


def is_dead_letter_queue(queue: Properties) -> bool:
    return "RedrivePolicy" not in queue


def reads_a_queue(mapping: Properties) -> bool:
    return "ScalingConfig" in mapping


def reads_a_stream(mapping: Properties) -> bool:
    return "StartingPosition" in mapping


def is_scheduled(rule: Properties) -> bool:
    return "ScheduleExpression" in rule


def is_every_minute(rule: Properties) -> bool:
    return rule.get("ScheduleExpression") == "rate(1 minute)"


def is_of_publisher(mapping: Properties) -> bool:
    """The other reader of the stream, `push`, has two filters."""
    return reads_a_stream(mapping) and len(mapping["FilterCriteria"]["Filters"]) == 1


def drains_dead_letters(function: Properties) -> bool:
    return any(name.endswith("_DLQ_URL") for name in function["Environment"]["Variables"])


def counts_dead_letters(alarm: Properties) -> bool:
    return bool(alarm["Threshold"] == 1 and alarm["Namespace"] == "AWS/SQS")


def to_queue(subscription: Properties) -> bool:
    return bool(subscription["Protocol"] == "sqs")


def allows_a_topic(policy: Properties) -> bool:
    return len(statements(policy)) > 1


def allows_alarms(policy: Properties) -> bool:
    return any(statement["Effect"] == "Allow" for statement in statements(policy))


def without_denials(policy: Properties) -> None:
    policy["PolicyDocument"]["Statement"] = [s for s in statements(policy) if s["Effect"] != "Deny"]


def only_denials(policy: Properties) -> None:
    policy["PolicyDocument"]["Statement"] = [s for s in statements(policy) if s["Effect"] == "Deny"]


def by_an_event(rule: Properties) -> None:
    del rule["ScheduleExpression"]
    rule["EventPattern"] = {}


def with_modified_items(mapping: Properties) -> None:
    new_items = mapping["FilterCriteria"]["Filters"][0]
    new_items["Pattern"] = new_items["Pattern"].replace('"INSERT"', '"INSERT","MODIFY"')


def add(key: str, number: int) -> Change:
    return lambda properties: properties.update({key: properties[key] + number})


def put(key: str, value: Any) -> Change:
    return lambda properties: properties.update({key: value})


def drop(key: str) -> Change:
    return lambda properties: properties.pop(key)


MUTATIONS: Mapping[Rule, Sequence[Mutation]] = {
    rules.visibility_timeout_is_six_times_the_workers: [
        Mutation("one second less", QUEUE, add("VisibilityTimeout", -1), has_dead_letters),
        Mutation("the default", QUEUE, drop("VisibilityTimeout"), has_dead_letters),
        Mutation("a window", MAPPING, put("MaximumBatchingWindowInSeconds", 5), reads_a_queue),
    ],
    rules.each_queue_has_one_worker: [
        Mutation("none", MAPPING, put("EventSourceArn", "none"), reads_a_queue),
    ],
    rules.each_queue_has_a_dead_letter_queue: [
        Mutation("4 receives", QUEUE, lambda q: q["RedrivePolicy"].update(maxReceiveCount=4), has_dead_letters),
        Mutation("none", QUEUE, drop("RedrivePolicy"), has_dead_letters),
    ],
    rules.dead_letter_queues_keep_messages_longest: [
        Mutation("the default", QUEUE, drop("MessageRetentionPeriod"), is_dead_letter_queue),
        Mutation("13 days", QUEUE, put("MessageRetentionPeriod", 13 * 86_400), is_dead_letter_queue),
        Mutation("as long as the queue", QUEUE, put("MessageRetentionPeriod", DAYS_14), has_dead_letters),
    ],
    rules.queues_refuse_plain_http: [
        Mutation("no denial", QUEUE_POLICY, without_denials),
        Mutation("only for sending", QUEUE_POLICY, lambda p: statements(p)[0].update(Action="sqs:SendMessage")),
    ],
    rules.each_dead_letter_queue_has_an_alarm: [
        Mutation("no action", ALARM, drop("AlarmActions"), counts_dead_letters),
        Mutation("actions disabled", ALARM, put("ActionsEnabled", False), counts_dead_letters),
        Mutation("from 2", ALARM, put("Threshold", 2), counts_dead_letters),
        Mutation("another metric", ALARM, put("MetricName", "NumberOfMessagesSent"), counts_dead_letters),
        Mutation("another queue", ALARM, put("Dimensions", []), counts_dead_letters),
    ],
    rules.dead_letter_queues_are_drained_on_schedule: [
        Mutation("no target", SCHEDULE, put("Targets", []), is_every_minute),
        Mutation("no schedule", SCHEDULE, by_an_event, is_every_minute),
        Mutation("short visibility timeout", QUEUE, put("VisibilityTimeout", 58), is_dead_letter_queue),
    ],
    rules.schedules_are_frequent_and_not_retried: [
        Mutation("every 5 minutes", SCHEDULE, put("ScheduleExpression", "rate(5 minutes)"), is_scheduled),
        Mutation("EventBridge retries", SCHEDULE, lambda r: r["Targets"][0].pop("RetryPolicy"), is_scheduled),
        Mutation("one retry", INVOKE, put("MaximumRetryAttempts", 1)),
        Mutation("default retries", INVOKE, drop("MaximumRetryAttempts")),
        Mutation("another function", INVOKE, put("FunctionName", {"Ref": "other"})),
        Mutation("long timeout", FUNCTION, put("Timeout", 60), drains_dead_letters),
    ],
    rules.alarms_notify_a_topic: [
        Mutation("no action", ALARM, drop("AlarmActions")),
        Mutation("no topic", ALARM, put("AlarmActions", [{"Ref": "gone"}])),
        Mutation("actions disabled", ALARM, put("ActionsEnabled", False)),
        Mutation("no description", ALARM, drop("AlarmDescription")),
    ],
    rules.queue_mappings_report_batch_item_failures: [
        Mutation("none", MAPPING, drop("FunctionResponseTypes"), reads_a_queue),
    ],
    rules.queue_mappings_have_a_maximum_concurrency: [
        Mutation("none", MAPPING, drop("ScalingConfig"), reads_a_queue),
    ],
    rules.mappings_fit_the_smallest_account: [
        Mutation("one more", MAPPING, put("ScalingConfig", {"MaximumConcurrency": 3}), reads_a_queue),
        Mutation("two batches of a shard", MAPPING, put("ParallelizationFactor", 2), is_of_publisher),
    ],
    rules.stream_mappings_lose_no_record: [
        Mutation("no filter", MAPPING, drop("FilterCriteria"), reads_a_stream),
        Mutation("no bisection", MAPPING, drop("BisectBatchOnFunctionError"), reads_a_stream),
        Mutation("default retries", MAPPING, drop("MaximumRetryAttempts"), reads_a_stream),
        Mutation("endless retries", MAPPING, put("MaximumRetryAttempts", -1), reads_a_stream),
        Mutation("default age", MAPPING, drop("MaximumRecordAgeInSeconds"), reads_a_stream),
        Mutation("24 hours", MAPPING, put("MaximumRecordAgeInSeconds", 86_400), reads_a_stream),
        Mutation("no destination", MAPPING, drop("DestinationConfig"), reads_a_stream),
        Mutation("no partial responses", MAPPING, drop("FunctionResponseTypes"), reads_a_stream),
        Mutation("no position", MAPPING, drop("StartingPosition"), reads_a_stream),
        Mutation("latest", MAPPING, put("StartingPosition", "LATEST"), reads_a_stream),
    ],
    rules.stream_mappings_filter_records: [
        Mutation("modified items too", MAPPING, with_modified_items, reads_a_stream),
    ],
    rules.subscriptions_are_raw_with_a_dead_letter_queue: [
        Mutation("not raw", SUBSCRIPTION, drop("RawMessageDelivery"), to_queue),
        Mutation("no DLQ", SUBSCRIPTION, drop("RedrivePolicy"), to_queue),
    ],
    rules.topics_may_send_to_their_queues: [
        Mutation("only denials", QUEUE_POLICY, only_denials, allows_a_topic),
    ],
    rules.topics_refuse_plain_http: [
        Mutation("no denial", TOPIC_POLICY, without_denials),
    ],
    rules.alarms_may_publish: [
        Mutation("only denials", TOPIC_POLICY, only_denials, allows_alarms),
    ],
    rules.only_functions_that_loop_allow_recursion: [
        Mutation("loop not allowed", FUNCTION, drop("RecursiveLoop"), lambda f: "RecursiveLoop" in f),
        Mutation("loop allowed", FUNCTION, put("RecursiveLoop", "Allow"), lambda f: "RecursiveLoop" not in f),
    ],
}
CASES = [(rule, mutation) for rule, mutations in MUTATIONS.items() for mutation in mutations]


def mutants(template: Template, mutation: Mutation) -> Iterator[tuple[str, Template]]:
    """(logical id, template with this one resource changed), for each resource that the mutation selects."""
    for logical_id, properties in resources(template, mutation.kind):
        if mutation.where(properties):
            changed = deepcopy(template["Resources"][logical_id])
            mutation.change(changed["Properties"])
            yield logical_id, {**template, "Resources": template["Resources"] | {logical_id: changed}}


@pytest.mark.parametrize("name", ["app", "overridden"])
def test_service_stack_violates_no_rule(request: pytest.FixtureRequest, name: str) -> None:
    """Neither the default configuration nor another one violates a rule."""
    assembly: Assembly = request.getfixturevalue(name)
    assert violations(assembly.templates["RecadoService"]) == []


@pytest.mark.parametrize(("rule", "mutation"), CASES, ids=[f"{rule.__name__}: {m.name}" for rule, m in CASES])
def test_each_rule_finds_its_mutations(service: Template, rule: Rule, mutation: Mutation) -> None:
    """The rule finds the mutation in each resource that can have it."""
    found = {logical_id: list(rule(mutant)) for logical_id, mutant in mutants(service, mutation)}
    assert found
    assert [logical_id for logical_id, violated in found.items() if not violated] == []


def test_each_rule_has_a_mutation() -> None:
    """Every rule has a mutation that it must find."""
    assert set(MUTATIONS) == set(rules.RULES)
    assert all(MUTATIONS.values())


def test_rules_see_all_resources(service: Template) -> None:
    """The template has 4 queues with a DLQ each, 6 mappings, 2 subscriptions, 13 alarms and 3 schedules."""
    kinds = (QUEUE, MAPPING, SUBSCRIPTION, ALARM, INVOKE)
    assert [len(list(resources(service, kind))) for kind in kinds] == [8, 6, 3, 13, 3]
    assert len([rule for _, rule in resources(service, SCHEDULE) if is_scheduled(rule)]) == 3
