"""Lambda's poller for SQS, and SNS before it."""

from __future__ import annotations

import base64
import json
import math
import time
from typing import Any

import pytest

from tests.support import mappings, sample
from tests.support.clock import EPOCH
from tests.support.cloud import NotSettled
from tests.support.sample import collect, failing, raising

Event = dict[str, Any]


def test_a_batch_carries_what_lambda_sends(it: sample.Sample) -> None:
    """Attributes, message attributes with their types, and the source."""
    seen: list[Event] = []
    it.scripts["worker"] = lambda event, context: seen.extend(event["Records"])
    attributes = {
        "kind": {"DataType": "String", "StringValue": "a"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    it.queue("Queue").send("hello", MessageAttributes=attributes, MessageGroupId="owner-1")
    it.settle()
    (record,) = seen
    assert (record["body"], record["eventSource"]) == ("hello", "aws:sqs")
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["attributes"]["MessageGroupId"] == "owner-1"
    assert int(record["attributes"]["SentTimestamp"]) / 1000 == pytest.approx(it.clock.time, abs=1)
    assert record["messageAttributes"]["kind"]["stringValue"] == "a"
    assert base64.b64decode(record["messageAttributes"]["raw"]["binaryValue"]) == b"\x00\xff"
    assert record["eventSourceARN"].endswith(it.queue("Queue").name)


def test_batches_are_as_large_as_the_mapping_says(it: sample.Sample) -> None:
    """Ten messages and a batch size of four."""
    seen: list[list[str]] = []
    it.scripts["worker"] = collect(seen)
    for number in range(10):
        it.queue("Queue").send(str(number))
    it.settle()
    assert [len(batch) for batch in seen] == [4, 4, 2]


def test_only_failed_messages_come_again(it: sample.Sample) -> None:
    """The rest of the batch is deleted; the failed one is invisible until its timeout."""
    it.scripts["worker"] = failing("bad")
    for body in ("good", "bad", "fine"):
        it.queue("Queue").send(body)
    it.settle()
    assert (it.queue("Queue").bodies, it.queue("Queue").visible) == (["bad"], 0)


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
def test_a_malformed_answer_fails_the_whole_batch(it: sample.Sample, answer: Any) -> None:
    """Lambda deletes nothing if it does not understand which messages failed."""
    it.scripts["worker"] = lambda event, context: answer
    it.queue("Queue").send("a")
    it.queue("Queue").send("b")
    it.settle()
    assert len(it.queue("Queue")) == 2


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_an_empty_answer_is_success(it: sample.Sample, answer: Any) -> None:
    """Nothing reported, nothing failed."""
    it.scripts["worker"] = lambda event, context: answer
    it.queue("Queue").send("a")
    it.settle()
    assert len(it.queue("Queue")) == 0


def test_five_receives_and_then_the_dead_letter_queue(it: sample.Sample) -> None:
    """Each after the visibility timeout, in virtual time: a quarter of an hour in less than a second."""
    seen: list[tuple[float, str]] = []

    def worker(event: Event, context: Any) -> Any:
        count = event["Records"][0]["attributes"]["ApproximateReceiveCount"]
        seen.append((round((it.clock.time - EPOCH.timestamp()) / 180), count))
        raise RuntimeError

    it.scripts["worker"] = worker
    it.queue("Queue").send("poison")
    started = time.perf_counter()
    it.settle(within=math.inf)
    assert time.perf_counter() - started < 60
    assert seen == [(0, "1"), (1, "2"), (2, "3"), (3, "4"), (4, "5")]
    assert (it.queue("Queue").bodies, it.queue("Dead").bodies) == ([], ["poison"])


def test_without_time_nothing_is_redelivered(it: sample.Sample) -> None:
    """`settle()` does what can be done now."""
    it.scripts["worker"] = raising
    it.queue("Queue").send("x")
    it.settle()
    assert it.settle(within=179) == 0
    assert it.settle(within=181) == 1


def test_a_delay_holds_a_message_back(it: sample.Sample) -> None:
    """DelaySeconds, in virtual time."""
    seen: list[list[str]] = []
    it.scripts["worker"] = collect(seen)
    it.queue("Queue").send("later", DelaySeconds=60)
    it.settle(within=59)
    assert seen == []
    it.settle(within=61)
    assert seen == [["later"]]


def test_a_worker_may_change_the_visibility(it: sample.Sample) -> None:
    """To wait, it shortens the timeout of its message and returns it as failed."""

    def worker(event: Event, context: Any) -> Any:
        (record,) = event["Records"]
        it.client("sqs").change_message_visibility(
            QueueUrl=it.queue("Queue").url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=7
        )
        return {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}

    it.scripts["worker"] = worker
    it.queue("Queue").send("x")
    it.settle()
    assert it.settle(within=6.9) == 0
    assert it.settle(within=7.1) == 1


def test_a_paused_function_gets_nothing_until_it_is_polled(it: sample.Sample) -> None:
    """A test can hold deliveries back and let one through."""
    for number in range(5):
        it.queue("Queue").send(str(number))
    it.pause("sample_worker")
    assert it.settle() == 0
    assert it.poll("sample_worker") == 4
    it.resume()
    assert it.settle() == 1


def test_unreliable_deliveries_are_doubled_and_shuffled(it: sample.Sample) -> None:
    """At least once, in any order: the same at the same seed."""
    runs = []
    for _ in range(2):
        it.cloud.reset()
        seen: list[list[str]] = []
        it.scripts["worker"] = collect(seen)
        it.unreliable(1, duplicates=0.5)
        for number in range(12):
            it.queue("Queue").send(str(number))
        it.settle()
        runs.append(seen)
    assert runs[0] == runs[1]
    assert len(runs[0]) > 3
    assert runs[0][0] != ["0", "1", "2", "3"]
    assert {body for batch in runs[0] for body in batch} == {str(number) for number in range(12)}


def test_an_endless_loop_is_noticed(it: sample.Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that answers each message with another one ends the test."""
    monkeypatch.setattr("tests.support.cloud.STEP_LIMIT", 50)
    it.scripts["worker"] = lambda event, context: it.queue("Queue").send("again")
    it.queue("Queue").send("first")
    with pytest.raises(NotSettled, match="sample_worker"):
        it.settle()


def test_a_topic_filters_and_delivers_raw(it: sample.Sample) -> None:
    """What does not match is dropped; what does arrives as it was published, with its attributes."""
    seen: list[Event] = []
    it.scripts["worker"] = lambda event, context: seen.extend(event["Records"])
    for kind in ("wanted", "other"):
        it.client("sns").publish(
            TopicArn=it.name("AWS::SNS::Topic", "Topic"),
            Message=f'{{"kind": "{kind}"}}',
            MessageAttributes={"kind": {"DataType": "String", "StringValue": kind}},
        )
    it.settle()
    (record,) = seen
    assert record["body"] == '{"kind": "wanted"}'
    assert record["messageAttributes"]["kind"]["stringValue"] == "wanted"


def test_messages_that_no_filter_wants_are_deleted(it: sample.Sample) -> None:
    """The filter looks into JSON bodies; what it drops is not delivered and does not stay."""
    seen: list[list[str]] = []
    it.scripts["worker"] = collect(seen)
    pattern = json.dumps({"body": {"kind": ["a"]}})
    dead = mappings.QueueMapping(
        it.world,
        {
            "EventSourceArn": it.deployment.find("AWS::SQS::Queue", "Dead").attributes["Arn"],
            "FunctionName": it.name("AWS::Lambda::Function", "Worker"),
            "FilterCriteria": {"Filters": [{"Pattern": pattern}]},
        },
    )
    for body in ({"kind": "a"}, {"kind": "b"}, "no json"):
        it.queue("Dead").send(body)
    assert dead.poll() == 3
    assert (seen, len(it.queue("Dead"))) == ([['{"kind": "a"}']], 0)


def test_without_partial_failures_the_answer_is_ignored(it: sample.Sample) -> None:
    """A mapping without ReportBatchItemFailures deletes what the function reported: AWS loses it, too."""
    dead = mappings.QueueMapping(
        it.world,
        {
            "EventSourceArn": it.deployment.find("AWS::SQS::Queue", "Dead").attributes["Arn"],
            "FunctionName": it.name("AWS::Lambda::Function", "Worker"),
        },
    )
    it.scripts["worker"] = failing("x")
    it.queue("Dead").send("x")
    assert dead.poll() == 1
    assert len(it.queue("Dead")) == 0
