"""Event source mappings of SQS queues, and SNS subscriptions."""

from __future__ import annotations

import base64
import math
import time
from typing import Any

import pytest

from tests.simulated_cloud import event_source_mappings
from tests.simulated_cloud.clock import EPOCH
from tests.simulated_cloud.cloud import NotSettled
from tests.simulated_cloud.template import Unsupported
from tests.simulated_cloud.tests.sample import Sample, collect, failing, raising

Event = dict[str, Any]


def test_a_record_has_the_fields_that_lambda_sends(sample: Sample) -> None:
    """A record has the body, attributes, typed message attributes and the source."""
    seen: list[Event] = []
    sample.scripts["worker"] = lambda event, context: seen.extend(event["Records"])
    attributes = {
        "kind": {"DataType": "String", "StringValue": "a"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sample.queue("Queue").send("hello", MessageAttributes=attributes, MessageGroupId="owner-1")
    sample.settle()
    (record,) = seen
    assert (record["body"], record["eventSource"]) == ("hello", "aws:sqs")
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["attributes"]["MessageGroupId"] == "owner-1"
    assert int(record["attributes"]["SentTimestamp"]) / 1000 == pytest.approx(sample.clock.time, abs=1)
    assert record["messageAttributes"]["kind"]["stringValue"] == "a"
    assert base64.b64decode(record["messageAttributes"]["raw"]["binaryValue"]) == b"\x00\xff"
    assert record["eventSourceARN"].endswith(sample.queue("Queue").name)


def test_batches_have_the_size_of_the_mapping(sample: Sample) -> None:
    """Ten messages with a batch size of four make three batches."""
    seen: list[list[str]] = []
    sample.scripts["worker"] = collect(seen)
    for number in range(10):
        sample.queue("Queue").send(str(number))
    sample.settle()
    assert [len(batch) for batch in seen] == [4, 4, 2]


def test_only_failed_messages_are_delivered_again(sample: Sample) -> None:
    """The rest of the batch is deleted, and a failed message is invisible until its timeout."""
    sample.scripts["worker"] = failing("bad")
    for body in ("good", "bad", "fine"):
        sample.queue("Queue").send(body)
    sample.settle()
    assert (sample.queue("Queue").bodies, sample.queue("Queue").visible) == (["bad"], 0)


@pytest.mark.parametrize(
    "answer",
    [
        {"batchItemFailures": [{"itemIdentifier": "unknown"}]},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"id": "x"}]},
        {"batchItemFailures": ["x"]},
        {"batchItemFailures": "x"},
        "a string",
    ],
)
def test_a_malformed_response_fails_the_whole_batch(sample: Sample, answer: Any) -> None:
    """Lambda deletes nothing if it does not understand which messages failed."""
    sample.scripts["worker"] = lambda event, context: answer
    sample.queue("Queue").send("a")
    sample.queue("Queue").send("b")
    sample.settle()
    assert len(sample.queue("Queue")) == 2


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_an_empty_response_is_success(sample: Sample, answer: Any) -> None:
    """A response that reports no failed message deletes the batch."""
    sample.scripts["worker"] = lambda event, context: answer
    sample.queue("Queue").send("a")
    sample.settle()
    assert len(sample.queue("Queue")) == 0


def test_five_receives_and_then_the_dead_letter_queue(sample: Sample) -> None:
    """A message is received after each visibility timeout, and moved after maxReceiveCount."""
    seen: list[tuple[float, str]] = []

    def worker(event: Event, context: Any) -> Any:
        count = event["Records"][0]["attributes"]["ApproximateReceiveCount"]
        seen.append((round((sample.clock.time - EPOCH.timestamp()) / 180), count))
        raise RuntimeError

    sample.scripts["worker"] = worker
    sample.queue("Queue").send("poison")
    started = time.perf_counter()
    sample.settle(within=math.inf)
    assert time.perf_counter() - started < 60
    assert seen == [(0, "1"), (1, "2"), (2, "3"), (3, "4"), (4, "5")]
    assert (sample.queue("Queue").bodies, sample.queue("Dead").bodies) == ([], ["poison"])


def test_settle_without_time_redelivers_nothing(sample: Sample) -> None:
    """A message is redelivered only if its visibility timeout is within the given seconds."""
    sample.scripts["worker"] = raising
    sample.queue("Queue").send("x")
    sample.settle()
    assert sample.settle(within=179) == 0
    assert sample.settle(within=181) == 1


def test_a_delayed_message_is_delivered_after_its_delay(sample: Sample) -> None:
    """DelaySeconds pass on the virtual clock."""
    seen: list[list[str]] = []
    sample.scripts["worker"] = collect(seen)
    sample.queue("Queue").send("later", DelaySeconds=60)
    sample.settle(within=59)
    assert seen == []
    sample.settle(within=61)
    assert seen == [["later"]]


def test_a_function_may_change_the_visibility_timeout(sample: Sample) -> None:
    """A failed message comes back after the timeout that the function has set."""

    def worker(event: Event, context: Any) -> Any:
        (record,) = event["Records"]
        sample.client("sqs").change_message_visibility(
            QueueUrl=sample.queue("Queue").url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=7
        )
        return {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}

    sample.scripts["worker"] = worker
    sample.queue("Queue").send("x")
    sample.settle()
    assert sample.settle(within=6.9) == 0
    assert sample.settle(within=7.1) == 1


def test_a_paused_function_gets_nothing_until_it_is_polled(sample: Sample) -> None:
    """A paused function gets one batch with each `poll`, and all the rest after `resume`."""
    for number in range(5):
        sample.queue("Queue").send(str(number))
    sample.pause("sample_worker")
    assert sample.settle() == 0
    assert sample.poll("sample_worker") == 4
    sample.resume()
    assert sample.settle() == 1


def test_unreliable_deliveries_are_duplicated_and_shuffled(sample: Sample) -> None:
    """The same seed gives the same deliveries."""
    runs = []
    for _ in range(2):
        sample.cloud.reset()
        seen: list[list[str]] = []
        sample.scripts["worker"] = collect(seen)
        sample.unreliable(1, duplicates=0.5)
        for number in range(12):
            sample.queue("Queue").send(str(number))
        sample.settle()
        runs.append(seen)
    assert runs[0] == runs[1]
    assert len(runs[0]) > 3
    assert runs[0][0] != ["0", "1", "2", "3"]
    assert {body for batch in runs[0] for body in batch} == {str(number) for number in range(12)}


def test_an_endless_loop_ends_the_test(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that answers each message with another one raises NotSettled."""
    monkeypatch.setattr("tests.simulated_cloud.cloud.STEP_LIMIT", 50)
    sample.scripts["worker"] = lambda event, context: sample.queue("Queue").send("again")
    sample.queue("Queue").send("first")
    with pytest.raises(NotSettled, match="sample_worker"):
        sample.settle()


def test_a_topic_filters_and_delivers_raw(sample: Sample) -> None:
    """A subscription with a filter policy and raw delivery passes only matching messages, unchanged."""
    seen: list[Event] = []
    sample.scripts["worker"] = lambda event, context: seen.extend(event["Records"])
    for kind in ("wanted", "other"):
        sample.client("sns").publish(
            TopicArn=sample.name("AWS::SNS::Topic", "Topic"),
            Message=f'{{"kind": "{kind}"}}',
            MessageAttributes={"kind": {"DataType": "String", "StringValue": kind}},
        )
    sample.settle()
    (record,) = seen
    assert record["body"] == '{"kind": "wanted"}'
    assert record["messageAttributes"]["kind"]["stringValue"] == "wanted"


def test_a_filter_of_a_queue_is_refused(sample: Sample) -> None:
    """The simulation supports filters of streams only."""
    with pytest.raises(Unsupported, match="filters"):
        event_source_mappings.QueueMapping(
            sample.poller_context,
            {
                "EventSourceArn": sample.deployment.find("AWS::SQS::Queue", "Dead").attributes["Arn"],
                "FunctionName": sample.name("AWS::Lambda::Function", "Worker"),
                "FilterCriteria": {"Filters": []},
            },
        )


def test_without_report_batch_item_failures_the_response_is_ignored(sample: Sample) -> None:
    """The whole batch is deleted, although the function reports a failed message."""
    dead = event_source_mappings.QueueMapping(
        sample.poller_context,
        {
            "EventSourceArn": sample.deployment.find("AWS::SQS::Queue", "Dead").attributes["Arn"],
            "FunctionName": sample.name("AWS::Lambda::Function", "Worker"),
        },
    )
    sample.scripts["worker"] = failing("x")
    sample.queue("Dead").send("x")
    assert dead.poll() == 1
    assert len(sample.queue("Dead")) == 0
