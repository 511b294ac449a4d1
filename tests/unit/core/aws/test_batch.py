"""Batches and dead letters of SQS (core.aws.batch)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.aws.batch import MAX_DRAINED, Record, drain, log_and_continue, process


class DeadLetters:
    """A queue whose received messages stay invisible during a call."""

    def __init__(self, count: int) -> None:
        self.there = [f"body {number}" for number in range(count)]
        self.hidden: list[str] = []
        self.url = "https://queue.example/dead"

    def receive_message(self, **request: Any) -> dict[str, Any]:
        assert request == {"QueueUrl": self.url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0}
        given, self.there = self.there[:10], self.there[10:]
        self.hidden += given
        found = [{"MessageId": f"id of {body}", "Body": body, "ReceiptHandle": f"r {body}"} for body in given]
        return {"Messages": found} if found else {}  # an empty answer has no list

    def delete_message(self, **request: Any) -> None:
        assert request["QueueUrl"] == self.url
        self.hidden.remove(request["ReceiptHandle"].removeprefix("r "))


def event(count: int) -> dict[str, Any]:
    return {"Records": [record(str(number)) for number in range(count)]}


def record(message_id: str, receives: int = 1) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(receives)}
    return {"messageId": message_id, "body": f"secret {message_id}", "attributes": attributes}


@given(failing=st.sets(st.integers(0, 9)))
@example(failing=set())
def test_failures(failing: set[int]) -> None:
    """Every record is handled once, and those that raised are reported, in order."""
    handled: list[str] = []

    def handle(record: Record) -> None:
        handled.append(record["messageId"])
        if int(record["messageId"]) in failing:
            raise ValueError("no")

    answer = process(event(10), handle)
    assert handled == [str(number) for number in range(10)]
    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == [
        str(n) for n in sorted(failing)
    ]


def test_bodies_are_not_logged(logged: Callable[[], list[dict[str, Any]]]) -> None:
    """A failure is logged with the message's id and number of receives, and without its body."""

    def handle(record: Record) -> None:
        raise ValueError("no")

    process({"Records": [record("m-1", receives=3)]}, handle)
    (line,) = logged()
    assert (line["message_id"], line["receives"], line["level"]) == ("m-1", 3, "ERROR")
    assert "secret" not in str(line)


def test_base_exceptions() -> None:
    """A BaseException is raised, not reported."""

    def handle(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process(event(2), handle)


@given(outcomes=st.lists(st.sampled_from(["done", "left", "raises"]), max_size=35))
def test_drain(outcomes: list[str]) -> None:
    """Each message is handled once. It is deleted if it was handled, whatever happens to the others."""
    queue, shown = DeadLetters(len(outcomes)), []

    def handle(body: str) -> bool:
        shown.append(body)
        outcome = outcomes[int(body.split()[1])]
        if outcome == "raises":
            raise ValueError("no")
        return outcome == "done"

    drain(queue, queue.url, handle)
    assert shown == [f"body {number}" for number in range(len(outcomes))]
    assert queue.hidden == [f"body {number}" for number, outcome in enumerate(outcomes) if outcome != "done"]


def test_max_drained() -> None:
    """A call handles at most MAX_DRAINED messages, even if the queue fills up faster."""
    queue = DeadLetters(MAX_DRAINED + 25)
    drain(queue, queue.url, lambda body: True)
    assert (len(queue.there), queue.hidden) == (25, [])


def test_failed_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in the queue, and the others are handled."""
    queue = DeadLetters(3)
    delete = queue.delete_message

    def fail_once(**request: Any) -> None:
        monkeypatch.setattr(queue, "delete_message", delete)
        raise ConnectionError("lost")

    monkeypatch.setattr(queue, "delete_message", fail_once)
    drain(queue, queue.url, lambda body: True)
    assert queue.hidden == ["body 0"]


def test_unreadable_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised."""
    queue = DeadLetters(1)

    def fail(**request: Any) -> None:
        raise ConnectionError("lost")

    monkeypatch.setattr(queue, "receive_message", fail)
    with pytest.raises(ConnectionError):
        drain(queue, queue.url, lambda body: True)


def test_log_and_continue(logged: Callable[[], list[dict[str, Any]]]) -> None:
    """An error is logged with the facts and not raised."""
    done = []
    with log_and_continue(queue="q", message_id="m-1"):
        raise ValueError("no")
    with log_and_continue(queue="q"):
        done.append("more")
    (line,) = logged()
    assert (line["level"], line["queue"], line["message_id"]) == ("ERROR", "q", "m-1")
    assert line["exception_name"] == "ValueError"
    assert done == ["more"]


def test_bodies_of_dead_letters_are_not_logged(logged: Callable[[], list[dict[str, Any]]]) -> None:
    """A message that failed is logged by its id."""
    queue = DeadLetters(1)

    def handle(body: str) -> bool:
        raise ValueError("no")

    drain(queue, queue.url, handle)
    (line,) = logged()
    assert (line["message_id"], line["queue"]) == ("id of body 0", queue.url)
    assert "body" not in str(line).replace("id of body 0", "")


def test_base_exceptions_are_not_logged() -> None:
    """A BaseException is raised."""
    with pytest.raises(KeyboardInterrupt), log_and_continue():
        raise KeyboardInterrupt
