"""Virtual time."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support import sample
from tests.support.sample import put

Event = dict[str, Any]


def test_sleeping_moves_the_clock_and_takes_no_time(it: sample.Sample) -> None:
    """`time.sleep`, `time.time`, `datetime.now` and `time.monotonic` agree on how much time has passed."""
    started, before = time.perf_counter(), (time.time(), datetime.now(UTC), time.monotonic())
    time.sleep(3600)
    assert time.time() - before[0] == pytest.approx(3600)
    assert (datetime.now(UTC) - before[1]).total_seconds() == pytest.approx(3600)
    assert 3600 <= time.monotonic() - before[2] < 3601
    assert time.perf_counter() - started < 60
    assert it.clock.sleeps == [3600]


def test_waiting_for_a_child_process_takes_real_time(it: sample.Sample) -> None:
    """Python waits for a child by sleeping again and again; the clock must not race ahead meanwhile."""
    before = it.clock.time
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"]) as child:
        assert child.wait(60) == 0
    assert it.clock.time == before


def test_an_alarm_rings_in_the_middle_of_a_sleep(it: sample.Sample) -> None:
    """A function that waits sees what happens meanwhile."""
    it.clock.after(3, lambda: put(it, "news"))

    def web(event: Event, context: Any) -> Any:
        seen = []
        for _ in range(3):
            time.sleep(2)
            seen.append(it.table("Table").scan()["Count"])
        return seen

    it.scripts["web"] = web
    assert it.invoke("sample_web", {}).value == [0, 1, 1]
    assert [call.function for call in it.calls.log if call.operation == "PutItem"] == [None]


def test_each_call_takes_a_millisecond(it: sample.Sample) -> None:
    """So that what is written later also sorts later."""
    before = it.clock.time
    put(it, "a")
    assert it.clock.time - before == pytest.approx(0.001, abs=1e-5)


def test_a_long_poll_waits_in_virtual_time(it: sample.Sample) -> None:
    """moto would wait for ever under a frozen clock."""
    before = it.clock.time
    answer = it.client("sqs").receive_message(QueueUrl=it.queue("Dead").url, WaitTimeSeconds=20)
    assert "Messages" not in answer
    assert 20 <= it.clock.time - before < 23
