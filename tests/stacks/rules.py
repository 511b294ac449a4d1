"""Rules for all queues, schedules, mappings, alarms, topics and functions. Each yields its violations.

Sources: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html (visibility, receives),
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html (retention),
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (maximum concurrency),
https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html (streams),
https://docs.aws.amazon.com/sns/latest/dg/sns-configure-dead-letter-queue.html (subscriptions),
https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html (loops),
https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html (schedules).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.stacks.templates import Properties, Template, as_list, resources, statements, target

VISIBILITY_FACTOR = 6
LEAST_RECEIVES = 5
DAYS_14 = 14 * 24 * 3600
DEFAULT_RETENTION = 4 * 24 * 3600
MINUTE = 60
SMALLEST_ACCOUNT = 10
LEFT_FOR_THE_API = 1
LAMBDA_RETRIES = 2

Rule = Callable[[Template], Iterator[str]]


def violations(template: Template) -> list[str]:
    """All violations in the template, with the names of the rules."""
    return [f"{rule.__name__}: {found}" for rule in RULES for found in rule(template)]


# Queues


def visibility_timeout_is_six_times_the_workers(template: Template) -> Iterator[str]:
    for _, mapping in _queue_mappings(template):
        queue, worker = target(mapping["EventSourceArn"]), target(mapping["FunctionName"])
        window = mapping.get("MaximumBatchingWindowInSeconds", 0)
        wanted = VISIBILITY_FACTOR * _properties(template, worker).get("Timeout", 3) + window
        if _properties(template, queue).get("VisibilityTimeout", 30) != wanted:
            yield f"{queue}: not {wanted} s, six times the timeout of {worker} and the batch window"


def each_queue_has_one_worker(template: Template) -> Iterator[str]:
    read = [target(mapping["EventSourceArn"]) for _, mapping in _queue_mappings(template)]
    for queue in _work_queues(template):
        if read.count(queue) != 1:
            yield f"{queue}: {read.count(queue)} workers"


def each_queue_has_a_dead_letter_queue(template: Template) -> Iterator[str]:
    for queue in _work_queues(template):
        redrive = _properties(template, queue).get("RedrivePolicy", {})
        if target(redrive.get("deadLetterTargetArn")) not in dict(resources(template, "AWS::SQS::Queue")):
            yield f"{queue}: no dead-letter queue"
        if redrive.get("maxReceiveCount", 0) < LEAST_RECEIVES:
            yield f"{queue}: fewer than {LEAST_RECEIVES} receives"


def dead_letter_queues_keep_messages_longest(template: Template) -> Iterator[str]:
    """A message keeps its age when it is moved, so a DLQ must keep messages longer than its queue."""
    for queue, dead_letters in _pairs(template):
        kept = _properties(template, dead_letters).get("MessageRetentionPeriod", DEFAULT_RETENTION)
        if kept != DAYS_14 or kept <= _properties(template, queue).get(
            "MessageRetentionPeriod", DEFAULT_RETENTION
        ):
            yield f"{dead_letters}: keeps messages {kept} s"


def queues_refuse_plain_http(template: Template) -> Iterator[str]:
    refusing = {
        target(queue)
        for _, policy in resources(template, "AWS::SQS::QueuePolicy")
        if any(_denies_plain_http(statement, "sqs:*") for statement in statements(policy))
        for queue in policy["Queues"]
    }
    yield from (queue for queue, _ in resources(template, "AWS::SQS::Queue") if queue not in refusing)


def each_dead_letter_queue_has_an_alarm(template: Template) -> Iterator[str]:
    """A DLQ that a function drains is nearly always empty, so its alarm counts the messages received."""
    drained = set(_drained(template))
    for _, dead_letters in _pairs(template):
        metric = "NumberOfMessagesReceived" if dead_letters in drained else "ApproximateNumberOfMessagesVisible"
        if not any(_watches(alarm, dead_letters, metric) for _, alarm in resources(template, ALARM)):
            yield f"{dead_letters}: no alarm with an action on {metric} >= 1"


def dead_letter_queues_are_drained_on_schedule(template: Template) -> Iterator[str]:
    """A function that drains a DLQ has a schedule, and the DLQ hides received messages as long as it may run."""
    longest = 0
    for function, properties in resources(template, "AWS::Lambda::Function"):
        if list(_drained_by(properties)):
            longest = max(longest, properties["Timeout"])
            if function not in _scheduled(template):
                yield f"{function}: drains a DLQ without a schedule"
    for _, dead_letters in _pairs(template):
        if _properties(template, dead_letters).get("VisibilityTimeout", 30) <= longest:
            yield f"{dead_letters}: its visibility timeout is not over {longest} s"


# Schedules


def schedules_are_frequent_and_not_retried(template: Template) -> Iterator[str]:
    """Every minute, or every 4 minutes for pings. Runs do not overlap.

    Neither EventBridge nor Lambda retries a run, since the next one follows soon.
    """
    for logical_id, rule in _schedules(template):
        if rule["ScheduleExpression"] not in ("rate(1 minute)", "rate(4 minutes)"):
            yield f"{logical_id}: {rule['ScheduleExpression']}"
        for called in rule["Targets"]:
            if called.get("RetryPolicy", {}).get("MaximumRetryAttempts") != 0:
                yield f"{logical_id}: EventBridge retries the call"
    for function in _scheduled(template):
        if _retries(template, function) != 0:
            yield f"{function}: Lambda retries a failed run"
        if _properties(template, function).get("Timeout", 3) >= MINUTE:
            yield f"{function}: its timeout is a minute or more"


# Mappings


def queue_mappings_report_batch_item_failures(template: Template) -> Iterator[str]:
    for logical_id, mapping in _queue_mappings(template):
        if mapping.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
            yield logical_id


def queue_mappings_have_a_maximum_concurrency(template: Template) -> Iterator[str]:
    for logical_id, mapping in _queue_mappings(template):
        if _concurrency(mapping) < 2:
            yield f"{logical_id}: no MaximumConcurrency"


def mappings_fit_the_smallest_account(template: Template) -> Iterator[str]:
    """A new account runs 10 functions at a time, and one of them is for the API.

    The stream's reader that sends to WebSockets is not counted: it runs for milliseconds and may be throttled.
    """
    mappings = [
        (name, one) for name, one in resources(template, MAPPING) if not _sends_to_websockets(template, one)
    ]
    total = sum(_concurrency(mapping) for _, mapping in mappings)
    if total > SMALLEST_ACCOUNT - LEFT_FOR_THE_API:
        yield f"{', '.join(logical_id for logical_id, _ in mappings)}: {total} at a time"


def stream_mappings_lose_no_record(template: Template) -> Iterator[str]:
    for logical_id, mapping in _stream_mappings(template):
        wanted = {
            "a filter": bool(mapping.get("FilterCriteria", {}).get("Filters")),
            "bisection": mapping.get("BisectBatchOnFunctionError") is True,
            "bounded retries": mapping.get("MaximumRetryAttempts", -1) > 0,
            "an age below the stream's 24 hours": 0 < mapping.get("MaximumRecordAgeInSeconds", -1) < 24 * 3600,
            "an on-failure destination": "Destination"
            in mapping.get("DestinationConfig", {}).get("OnFailure", {}),
            "partial responses": mapping.get("FunctionResponseTypes") == ["ReportBatchItemFailures"],
            "the start of the stream": mapping.get("StartingPosition") == "TRIM_HORIZON",
        }
        yield from (f"{logical_id}: without {name}" for name, given in wanted.items() if not given)


def stream_mappings_filter_records(template: Template) -> Iterator[str]:
    """The publisher reads new events; the reader that sends to WebSockets, new events and subscribers of jobs."""
    of_a_job = {"pk": {"S": [{"prefix": "JOB#"}]}}
    requested = {"entity": {"S": ["subscription"]}, "state": {"S": ["requested"]}}
    event = {"entity": {"S": ["event"]}}
    outbox = [{"eventName": ["INSERT"], "dynamodb": {"NewImage": event}}]
    live = [
        {"eventName": ["INSERT"], "dynamodb": {"Keys": of_a_job, "NewImage": event}},
        {"eventName": ["INSERT", "MODIFY"], "dynamodb": {"Keys": of_a_job, "NewImage": requested}},
    ]
    for logical_id, mapping in _stream_mappings(template):
        filters = mapping.get("FilterCriteria", {}).get("Filters", [])
        wanted = live if _sends_to_websockets(template, mapping) else outbox
        if [json.loads(one["Pattern"]) for one in filters] != wanted:
            yield logical_id


# Alarms


def alarms_notify_a_topic(template: Template) -> Iterator[str]:
    """Each alarm has a topic as an enabled action, and a description."""
    topics = dict(resources(template, "AWS::SNS::Topic"))
    for logical_id, alarm in resources(template, ALARM):
        notified = {target(action) for action in alarm.get("AlarmActions", [])}
        if not notified or not notified <= set(topics) or not alarm.get("ActionsEnabled", True):
            yield f"{logical_id}: notifies no topic"
        if not alarm.get("AlarmDescription"):
            yield f"{logical_id}: no description"


# Topics


def subscriptions_are_raw_with_a_dead_letter_queue(template: Template) -> Iterator[str]:
    for logical_id, subscription in _queue_subscriptions(template):
        if subscription.get("RawMessageDelivery") is not True:
            yield f"{logical_id}: not raw"
        if target(subscription.get("RedrivePolicy", {}).get("deadLetterTargetArn")) is None:
            yield f"{logical_id}: no dead-letter queue"


def topics_may_send_to_their_queues(template: Template) -> Iterator[str]:
    for logical_id, subscription in _queue_subscriptions(template):
        dead_letters = subscription.get("RedrivePolicy", {}).get("deadLetterTargetArn")
        for queue in {target(subscription["Endpoint"]), target(dead_letters)}:
            if queue and not _allows_topic(template, queue, target(subscription["TopicArn"])):
                yield f"{logical_id}: the policy of {queue} does not allow the topic to send"


def topics_refuse_plain_http(template: Template) -> Iterator[str]:
    for topic, _ in resources(template, "AWS::SNS::Topic"):
        if not any(_denies_plain_http(statement, "sns:Publish") for statement in _of_topic(template, topic)):
            yield topic


def alarms_may_publish(template: Template) -> Iterator[str]:
    """A topic with a policy of its own has no default policy, which would allow alarms to publish."""
    for logical_id, alarm in resources(template, ALARM):
        for action in alarm.get("AlarmActions", []):
            if not any(map(_allows_alarms, _of_topic(template, target(action)))):
                yield f"{logical_id}: the policy of {target(action)} does not allow alarms to publish"


# Functions


def only_functions_that_loop_allow_recursion(template: Template) -> Iterator[str]:
    """Lambda stops a function after 16 calls by its own messages, unless the function allows the loop."""
    readers = {(target(m["FunctionName"]), target(m["EventSourceArn"])) for _, m in _queue_mappings(template)}
    senders = set(_senders(template))
    for function, properties in resources(template, "AWS::Lambda::Function"):
        loops = any(reader == function and (function, queue) in senders for reader, queue in readers)
        if loops != (properties.get("RecursiveLoop") == "Allow"):
            yield f"{function}: {'sends to' if loops else 'does not send to'} the queue that it reads"


RULES: tuple[Rule, ...] = (
    visibility_timeout_is_six_times_the_workers,
    each_queue_has_one_worker,
    each_queue_has_a_dead_letter_queue,
    dead_letter_queues_keep_messages_longest,
    queues_refuse_plain_http,
    each_dead_letter_queue_has_an_alarm,
    dead_letter_queues_are_drained_on_schedule,
    schedules_are_frequent_and_not_retried,
    queue_mappings_report_batch_item_failures,
    queue_mappings_have_a_maximum_concurrency,
    mappings_fit_the_smallest_account,
    stream_mappings_lose_no_record,
    stream_mappings_filter_records,
    alarms_notify_a_topic,
    subscriptions_are_raw_with_a_dead_letter_queue,
    topics_may_send_to_their_queues,
    topics_refuse_plain_http,
    alarms_may_publish,
    only_functions_that_loop_allow_recursion,
)

MAPPING = "AWS::Lambda::EventSourceMapping"
ALARM = "AWS::CloudWatch::Alarm"


def _properties(template: Template, logical_id: str | None) -> Properties:
    found: Properties = template["Resources"].get(logical_id or "", {}).get("Properties", {})
    return found


def _queue_mappings(template: Template) -> list[tuple[str, Properties]]:
    """Mappings of this template's queues. The stream is in the other stack."""
    queues = dict(resources(template, "AWS::SQS::Queue"))
    return [(i, m) for i, m in resources(template, MAPPING) if target(m["EventSourceArn"]) in queues]


def _stream_mappings(template: Template) -> list[tuple[str, Properties]]:
    queues = {logical_id for logical_id, _ in _queue_mappings(template)}
    return [(i, m) for i, m in resources(template, MAPPING) if i not in queues]


def _queue_subscriptions(template: Template) -> list[tuple[str, Properties]]:
    return [(i, s) for i, s in resources(template, "AWS::SNS::Subscription") if s["Protocol"] == "sqs"]


def _pairs(template: Template) -> list[tuple[str, str]]:
    """(queue, its dead-letter queue)."""
    found = (
        (queue, target(properties.get("RedrivePolicy", {}).get("deadLetterTargetArn")))
        for queue, properties in resources(template, "AWS::SQS::Queue")
    )
    return [(queue, dead_letters) for queue, dead_letters in found if dead_letters]


def _work_queues(template: Template) -> list[str]:
    dead_letters = {dead for _, dead in _pairs(template)}
    return [queue for queue, _ in resources(template, "AWS::SQS::Queue") if queue not in dead_letters]


def _drained(template: Template) -> Iterator[str | None]:
    """Dead-letter queues that a function drains: their URLs are in its environment."""
    for _, function in resources(template, "AWS::Lambda::Function"):
        yield from _drained_by(function)


def _drained_by(function: Properties) -> Iterator[str | None]:
    variables = function.get("Environment", {}).get("Variables", {})
    yield from (target(value) for key, value in variables.items() if key.endswith("_DLQ_URL"))


def _schedules(template: Template) -> list[tuple[str, Properties]]:
    return [(i, rule) for i, rule in resources(template, "AWS::Events::Rule") if "ScheduleExpression" in rule]


def _scheduled(template: Template) -> set[str | None]:
    return {target(called["Arn"]) for _, rule in _schedules(template) for called in rule["Targets"]}


def _retries(template: Template, function: str | None) -> int:
    """How often Lambda repeats a failed asynchronous call."""
    for _, invoke in resources(template, "AWS::Lambda::EventInvokeConfig"):
        if target(invoke["FunctionName"]) == function:
            return int(invoke.get("MaximumRetryAttempts", LAMBDA_RETRIES))
    return LAMBDA_RETRIES


def _watches(alarm: Properties, queue: str, metric: str) -> bool:
    names = [target(d["Value"]) for d in alarm.get("Dimensions", []) if d["Name"] == "QueueName"]
    from_one = (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")
    has_action = bool(alarm.get("AlarmActions")) and alarm.get("ActionsEnabled", True)
    return names == [queue] and alarm["MetricName"] == metric and from_one and has_action


def _concurrency(mapping: Properties) -> int:
    """A queue mapping's maximum concurrency (0: none), or a stream mapping's parallel batches per shard."""
    limit: int = mapping.get("ScalingConfig", {}).get("MaximumConcurrency", 0)
    return limit or int(mapping.get("ParallelizationFactor", 1))


def _sends_to_websockets(template: Template, mapping: Properties) -> bool:
    function = _properties(template, target(mapping["FunctionName"]))
    variables = function.get("Environment", {}).get("Variables", {})
    return "LIVE_URL" in variables and "StartingPosition" in mapping


def _denies_plain_http(statement: Properties, action: str) -> bool:
    plain = statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    everybody = statement["Principal"] in ("*", {"AWS": "*"})
    return statement["Effect"] == "Deny" and plain and everybody and statement["Action"] == action


def _of_topic(template: Template, topic: str | None) -> list[Properties]:
    policies = [p for _, p in resources(template, "AWS::SNS::TopicPolicy") if topic in map(target, p["Topics"])]
    return [statement for policy in policies for statement in statements(policy)]


def _allows_alarms(statement: Properties) -> bool:
    principal = statement["Principal"]
    service = isinstance(principal, dict) and principal.get("Service") == "cloudwatch.amazonaws.com"
    return statement["Effect"] == "Allow" and statement["Action"] == "sns:Publish" and service


def _allows_topic(template: Template, queue: str, topic: str | None) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and statement["Action"] == "sqs:SendMessage"
        and statement["Principal"] == {"Service": "sns.amazonaws.com"}
        and target(statement["Condition"]["ArnEquals"]["aws:SourceArn"]) == topic
        for _, policy in resources(template, "AWS::SQS::QueuePolicy")
        if queue in map(target, policy["Queues"])
        for statement in statements(policy)
    )


def _senders(template: Template) -> Iterator[tuple[str, str | None]]:
    """(function, queue) where the function's role may send to the queue."""
    roles = {target(f["Role"]): function for function, f in resources(template, "AWS::Lambda::Function")}
    for _, policy in resources(template, "AWS::IAM::Policy"):
        for statement in statements(policy):
            if "sqs:SendMessage" in as_list(statement["Action"]):
                for role in policy["Roles"]:
                    for resource in as_list(statement["Resource"]):
                        if target(role) in roles:
                            yield roles[target(role)], target(resource)
