from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Record, process, receives


def event(count: int) -> dict[str, Any]:
    return {"Records": [record(str(number)) for number in range(count)]}


def record(message_id: str, receives: int = 1) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(receives)}
    return {"messageId": message_id, "body": f"secret {message_id}", "attributes": attributes}


@pytest.mark.parametrize("workers", [1, 4])
@given(failing=st.sets(st.integers(0, 9)))
def test_those_that_raised(workers: int, failing: set[int]) -> None:
    """Every record is handled once, and exactly those that raised are reported, in their order."""
    handled: list[str] = []

    def handle(record: Record) -> None:
        handled.append(record["messageId"])
        if int(record["messageId"]) in failing:
            raise ValueError("no")

    answer = process(event(10), handle, workers=workers)
    assert sorted(handled) == [str(number) for number in range(10)]
    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == [
        str(n) for n in sorted(failing)
    ]


def test_all_is_well() -> None:
    """An empty list of failures, which Lambda reads as success."""
    assert process(event(2), lambda record: None) == {"batchItemFailures": []}
    assert process({"Records": []}, lambda record: None) == {"batchItemFailures": []}


def test_workers_work_at_the_same_time() -> None:
    """One record that waits for another is no standstill where there are workers for both."""
    barrier = threading.Barrier(2, timeout=5)

    def handle(record: Record) -> None:
        barrier.wait()

    assert process(event(2), handle, workers=2) == {"batchItemFailures": []}


def test_bodies_are_not_logged(logged: Callable[[], list[dict[str, Any]]]) -> None:
    """A failure is logged with the message's id and how often it came, and without its body."""

    def handle(record: Record) -> None:
        raise ValueError("no")

    process({"Records": [record("m-1", receives=3)]}, handle)
    (line,) = logged()
    assert (line["message_id"], line["receives"], line["level"]) == ("m-1", 3, "ERROR")
    assert "secret" not in str(line)


def test_a_killed_process_reports_nothing() -> None:
    """What ends the process is not taken for a record that failed."""

    def handle(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process(event(2), handle)


def test_receives() -> None:
    """How often a message came is read from its attributes."""
    assert receives(record("1", receives=5)) == 5
