"""The virtual clock."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.simulated_cloud.tests.sample import Sample, put

Event = dict[str, Any]


def test_sleeping_moves_the_clock_and_takes_no_time(sample: Sample) -> None:
    """`time.sleep`, `time.time`, `datetime.now` and `time.monotonic` agree on how much time has passed."""
    started, before = time.perf_counter(), (time.time(), datetime.now(UTC), time.monotonic())
    time.sleep(3600)
    assert time.time() - before[0] == pytest.approx(3600)
    assert (datetime.now(UTC) - before[1]).total_seconds() == pytest.approx(3600)
    assert 3600 <= time.monotonic() - before[2] < 3601
    assert time.perf_counter() - started < 60
    assert sample.clock.sleeps == [3600]


def test_waiting_for_a_child_process_takes_real_time(sample: Sample) -> None:
    """The sleeps in which Python waits for a child process do not move the clock."""
    before = sample.clock.time
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"]) as child:
        assert child.wait(60) == 0
    assert sample.clock.time == before


def test_a_timer_runs_during_a_sleep(sample: Sample) -> None:
    """A function that sleeps sees what a timer does meanwhile."""
    sample.clock.call_later(3, lambda: put(sample, "news"))

    def web(event: Event, context: Any) -> Any:
        seen = []
        for _ in range(3):
            time.sleep(2)
            seen.append(sample.table("Table").scan()["Count"])
        return seen

    sample.scripts["web"] = web
    assert sample.invoke("sample_web", {}).value == [0, 1, 1]
    assert [call.function for call in sample.calls.log if call.operation == "PutItem"] == [None]


def test_each_call_takes_a_millisecond(sample: Sample) -> None:
    """An AWS call takes a millisecond, so that what is written later also sorts later."""
    before = sample.clock.time
    put(sample, "a")
    assert sample.clock.time - before == pytest.approx(0.001, abs=1e-5)


def test_a_long_poll_is_short(sample: Sample) -> None:
    """ReceiveMessage with WaitTimeSeconds gives other threads a moment, and does not wait in virtual time."""
    before = sample.clock.time
    answer = sample.client("sqs").receive_message(QueueUrl=sample.queue("Dead").url, WaitTimeSeconds=20)
    assert "Messages" not in answer
    assert sample.clock.time - before < 3
